"""What a result says, and how."""

import json
import math

import matplotlib.pyplot as plt
import numpy as np
import pytest

from capi.errors import Caveat, InvalidInputError
from capi.offline import METHODS
from capi.offline.estimate import Estimate
from capi.offline.evidence import Comparison, Evidence
from capi.policies import Constant, EpsilonGreedy, Uniform
from offline.helpers import bandit, hushed, quickly, remade, told


@pytest.fixture(scope="module")
def found():
    policies = {"second": EpsilonGreedy(Constant(1, 2), 0.2), "first": EpsilonGreedy(Constant(0, 2), 0.2)}
    return quickly(policies, bandit(200), discount=0.0, n_resamples=50)


@pytest.fixture(scope="module")
def evidence(found):
    return found["second"]


@pytest.fixture(scope="module")
def without():
    """A result that lacks its weighted numbers."""
    batch = remade(bandit(40), actions=np.zeros(40, dtype=int))
    return hushed(Constant(1, 2), batch, discount=0.0)


N_DRAWS, N_EPISODES = 199, 100_000  # so many episodes that t is normal
END = 1 - 4 * 2 / (N_DRAWS - 1)  # the fifth of 199 numbers stands at 2.5 %


def plain(record):
    """Return a record as it comes back from JSON, which must not know NaN."""
    return json.loads(json.dumps(record, allow_nan=False))


def estimate(value, spread=1.0, level=0.95):
    draws = value + spread * np.linspace(-1, 1, N_DRAWS)
    return Estimate(value, draws, np.linspace(-1, 1, N_EPISODES), level)


@pytest.mark.parametrize(
    ("old", "new"),
    [("doubtful", "unreliable"), ("hardly_taken", "rarely_taken_share"), ("beyond", "extrapolated_share")],
)
def test_old_names_are_refused_with_the_new_ones(old, new):
    with pytest.raises(AttributeError, match=rf"^Evidence\.{old} is now called Evidence\.{new}\.$"):
        getattr(made(1.0), old)
    with pytest.raises(InvalidInputError, match=f"^{old} is now called {new};"):
        Evidence(**{old: 0.5})
    assert hasattr(made(1.0), new)


def made(value, behaviour=0.0, unreliable=False, spread=1.0):
    number = estimate(value, spread)
    zero = Estimate(behaviour, np.full(N_DRAWS, behaviour), np.zeros(N_EPISODES), 0.95)
    fields = {"behaviour_model": None, "effective_episodes": 30.0, "rarely_taken_share": 0.0, "extrapolated_share": 0.0}
    sizes = {"n_rows": 30, "n_episodes": 30, "discount": 0.9, "level": 0.95, "source": "arrays", "kind": "table"}
    caveats = (Caveat("some-kind", "it is not so", "severe"),) if unreliable else ()
    return Evidence("mine", "fitted-q", {"fitted-q": number}, zero, warnings=caveats, **fields, **sizes)


def test_the_summary_has_a_row_for_each_number(evidence):
    table = evidence.summary()
    policies = [("second", method) for method in METHODS]
    best = "the best single action (1)"
    assert list(table.index) == [
        *policies,
        ("the logged behaviour", "mean return"),
        (best, "chosen on other episodes"),
        ("difference", evidence.method),
        ("difference from the best single action", evidence.method),
    ]
    assert table.loc[(best, "chosen on other episodes"), "estimate"] == evidence.best_action.estimate.value
    for method, number in evidence.estimates.items():
        row = table.loc[("second", method)]
        assert row["estimate"] == number.value
        assert (row["low"], row["high"]) == number.bootstrap
        assert (row["low_asymptotic"], row["high_asymptotic"]) == number.asymptotic
        assert row["standard_error"] == number.standard_error
    difference = table.loc[("difference", evidence.method)]
    assert difference["estimate"] == pytest.approx(evidence.estimate - evidence.behaviour.value)
    assert {dtype.kind for dtype in table.dtypes} == {"f"}


def test_the_comparison_has_a_row_for_each_policy_and_each_pair(found):
    table = found.summary()
    names = [
        "second",
        "first",
        "the logged behaviour",
        "second - the logged behaviour",
        "first - the logged behaviour",
        "second - first",
    ]
    assert [policy for policy, _ in table.index] == names
    row = table.loc[("second - first", found.method)]
    assert row["estimate"] == found.difference("second", "first").value
    assert (row["low"], row["high"]) == found.difference("second", "first").bootstrap


def test_everything_is_plain(found, without):
    record = plain(found["second"].to_dict())
    assert record["estimate"] == found["second"].estimate
    assert record["interval"] == list(found["second"].interval)
    assert [line["method"] for line in record["estimates"]] == list(METHODS)
    assert record["n_resamples"] == 50
    assert (record["n_rows"], record["n_episodes"], record["discount"], record["kind"]) == (200, 200, 0.0, "table")
    assert record["behaviour_model"] == {
        "given": True,
        "calibration_error": None,
        "text": "behaviour probabilities: from the log",
    }
    both = plain(found.to_dict())
    assert set(both["policies"]) == {"second", "first"}
    assert [line["policy"] for line in both["differences"]][-1] == "second - first"
    lacking = plain(without.to_dict())
    assert {line["method"]: line["estimate"] for line in lacking["estimates"]}["weighted"] is None
    assert [Caveat.from_dict(record) for record in lacking["warnings"]] == list(without.warnings)
    assert lacking["unreliable"] is True


def test_a_missing_number_is_missing_everywhere(without):
    assert without.summary().loc[("the policy", "weighted")].isna().all()
    assert " -" in next(line for line in str(without).splitlines() if "the policy, weighted " in line)


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        (2.0, "mine is better than the logged behaviour, by 2 (95 % interval 1.04 to 2.96)."),
        (-2.0, "mine is worse than the logged behaviour, by 2 (95 % interval -2.96 to -1.04 of the difference)."),
        (
            0.5,
            "There is no significant difference between mine and the logged behaviour: 0.5 (95 % interval -0.4596 to 1.46).",
        ),
        (math.nan, "The data cannot distinguish mine and the logged behaviour: there is no estimate with an interval."),
    ],
)
def test_verdicts(value, sentence):
    assert made(value).verdict == sentence
    assert made(value, unreliable=True).verdict == f"{sentence} Do not rely on it: see the warnings."


def test_verdicts_between_policies():
    better, worse = made(5.0), made(1.0)
    found = Comparison({"a": better, "b": worse})
    assert found.verdict("a", "b").startswith("a is better than b, by 4 (95 % interval 4 to 4)")
    assert found.verdict("b", "a").startswith("b is worse than a, by 4 (95 % interval -4 to -4 of the difference)")
    doubted = Comparison({"a": better, "b": made(1.0, unreliable=True)})
    assert doubted.verdict("a", "b").endswith("Do not rely on it: see the warnings.")
    with pytest.raises(ValueError, match="a policy must be one of 'a', 'b'; got 'c'"):
        found.difference("a", "c")


def test_the_difference_is_to_the_logged_behaviour():
    number = made(3.0, behaviour=1.0).difference
    assert number.value == 2.0
    assert number.bootstrap == pytest.approx((2 - END, 2 + END), rel=1e-4)


def test_the_text_has_the_numbers_and_the_warnings(evidence, found, without):
    text = str(evidence)
    assert text.startswith(f"second: {evidence.estimate:.4g}, 95 % interval {evidence.interval[0]:.4g} to")
    assert all(f"second, {method}" in text for method in METHODS)
    assert "effective episodes" in text
    assert evidence.verdict in text
    assert text.endswith(evidence.sensitivity_text)
    both = str(found)
    assert "second - first" in both
    assert found.verdict("second", "first") in both
    for warning in without.warnings:
        assert f"warning: {warning}" in str(without)


def test_pictures_show_the_numbers(evidence, found, without):
    figure = evidence.plot()
    (axes,) = figure.axes
    labels = [label.get_text() for label in axes.get_yticklabels()]
    best = "the best single action (1), chosen on other episodes"
    assert labels == [best, "the logged behaviour, mean return", *(f"second, {method}" for method in reversed(METHODS))]
    points = [tuple(line.get_xdata()) for line in axes.lines if len(line.get_xdata()) == 1]
    assert points[2:] == [(evidence.estimates[method].value,) for method in reversed(METHODS)]
    spans = [tuple(line.get_xdata()) for line in axes.lines if len(line.get_xdata()) == 2]
    assert spans[1] == evidence.behaviour.bootstrap
    assert evidence.method in axes.get_title(loc="left")
    (axes,) = found.plot().axes
    assert len(axes.get_yticklabels()) == 3
    (axes,) = without.plot().axes
    assert [text.get_text() for text in axes.texts].count("no estimate") == 3
    plt.close("all")


def test_names_with_dollars_are_names(found):
    renamed = Comparison({"$5 off": found["second"]})
    (axes,) = renamed.plot().axes
    axes.figure.canvas.draw()
    plt.close("all")


def test_the_default_name():
    assert told(Uniform(2), bandit(60), discount=0.0).name == "the policy"
