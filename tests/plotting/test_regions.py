import numpy as np
import pytest

from capi.data.schema import Schema
from capi.errors import InvalidInputError
from capi.policies import Constant, described
from capi.policy_spaces import Thresholds

STATES = np.random.default_rng(0).normal(size=(300, 3))


def policy():
    values = np.stack([np.zeros(300), STATES[:, 0]], axis=1)
    return Thresholds(feature=0).improve(STATES, values)


def test_two_features_show_regions_and_points_in_the_words_of_the_table():
    named = described(policy(), Schema(("load", "$age$", "x"), ("wait", "treat")), None)
    figure = named.plot_decisions(STATES, ("load", "$age$"))
    axes = figure.axes[0]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("load", "$age$")
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["wait", "treat"]
    mesh, *points = axes.collections
    regions = mesh.get_array().reshape(150, 150)
    assert (regions[:, 0] == 0).all()
    assert (regions[:, -1] == 1).all()
    actions = policy().act(STATES)
    assert [len(p.get_offsets()) for p in points] == [(actions == 0).sum(), (actions == 1).sum()]


def test_one_feature_shows_the_share_of_each_action():
    figure = policy().plot_decisions(STATES, [0])
    low, high = figure.axes[0].containers
    assert low[0].get_height() == 1.0
    assert high[-1].get_height() == 1.0
    np.testing.assert_allclose([a.get_height() + b.get_height() for a, b in zip(low, high, strict=True)], 1.0)


def test_missing_values_and_constant_features_are_no_obstacle():
    holes = STATES.copy()
    holes[::3, 1] = np.nan
    holes[:, 2] = 5.0
    always = Constant(0, 2)
    assert always.plot_decisions(holes, (1, 2)).axes
    assert always.plot_decisions(holes, (2,)).axes


@pytest.mark.parametrize(
    ("features", "message"),
    [
        ((0, 0), "one or two different"),
        ((0, 1, 2), "one or two different"),
        (("T1",), "unknown feature 'T1'"),
        ((7,), "unknown"),
    ],
)
def test_bad_input_is_named(features, message):
    with pytest.raises(InvalidInputError, match=message):
        policy().plot_decisions(STATES, features)


@pytest.mark.parametrize(
    ("features", "message"), [((0,), "missing in all of them"), ((0, 1), "both features must be known in some state")]
)
def test_features_that_are_never_known_are_named(features, message):
    with pytest.raises(InvalidInputError, match=message):
        Constant(0, 2).plot_decisions(np.full((3, 3), np.nan), features)
