import os
import pickle
import subprocess
import sys
from io import BytesIO

import matplotlib as mpl
import numpy as np
import pytest

from capi import CAPI, Transitions
from capi.data.columns import MOST_VALUES, Column
from capi.data.schema import Schema
from capi.errors import InvalidInputError, NotFittedError
from capi.evaluators import FittedQ
from capi.loss import negligible_gap, second_best_gap
from capi.plotting import colour_of, draw_gaps, draw_history, marker_of, new_figure
from capi.plotting.regions import columns_to_draw, features_to_draw, influences
from capi.plotting.style import MARKERS, PALETTE
from capi.policies import Constant, Greedy, Mixture, NonStationary, Tabular, Training, described
from capi.policy_spaces import Forests, Linear, Neighbors, Partition, Thresholds, Trees, Unrestricted

HISTORY = [
    {"k": 0, "loss": 0.5, "changed": 1.0, "value": 3.0, "seconds": 0.1},
    {"k": 1, "loss": 0.25, "changed": 0.5, "value": 4.0, "seconds": 0.1},
    {"k": 2, "loss": 0.0, "changed": 0.0, "value": 4.5, "seconds": 0.1},
]


def batch(n=200, *, masked=False):
    rng = np.random.default_rng(0)
    states = rng.normal(size=(n, 3))
    actions = rng.integers(2, size=n)
    rewards = np.where(actions == 1, states[:, 1], 0.0)
    allowed = np.ones((n, 2), dtype=bool)
    allowed[: n // 4] = np.eye(2, dtype=bool)[actions[: n // 4]]
    words = {"feature_names": ["a", "lo$ad$", "b_c"], "action_labels": ["$wait$", "tre_at"]}
    done = np.ones(n, dtype=bool)
    masks = {"allowed": allowed, "next_allowed": allowed} if masked else {}
    return Transitions(states, actions, rewards, states, done, **masks, **words)


def learner(space=None, **options):
    evaluator = FittedQ(n_trees=5, min_samples_split=10)
    return CAPI(evaluator, space or Trees(max_depth=2), discount=0.5, n_iterations=3, random_state=0, **options)


def png(figure):
    file = BytesIO()
    figure.savefig(file, format="png")
    return file.getvalue()


def titles(figure):
    return [axes.get_title(loc="left") for axes in figure.axes]


def counts(figure):
    """Return the heights of the bars (A, m)."""
    return np.array([[bar.get_height() for bar in bars] for bars in figure.axes[0].containers])


# -- history -----------------------------------------------------------------------------------------


def test_the_lines_are_the_history():
    figure = draw_history(HISTORY)
    assert titles(figure) == ["loss on the sample", "share of changed decisions", "mean value, as Q estimates it"]
    for axes, name in zip(figure.axes, ("loss", "changed", "value"), strict=True):
        [line] = axes.lines
        np.testing.assert_array_equal(line.get_xdata(), [0, 1, 2])
        np.testing.assert_array_equal(line.get_ydata(), [row[name] for row in HISTORY])


def test_without_scores_no_iteration_is_marked_and_with_them_the_first_of_the_best_is():
    assert not draw_history(HISTORY).legends
    scores = (1.0, 2.0, 2.0)
    figure = draw_history([{**row, "score": score} for row, score in zip(HISTORY, scores, strict=True)])
    assert len(figure.axes) == 4
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["kept: iteration 1"]
    for axes, name in zip(figure.axes, ("loss", "changed", "value"), strict=False):
        _, upright, point = axes.lines
        assert list(upright.get_xdata()) == [1, 1]
        assert (*point.get_xdata(), *point.get_ydata()) == (1, HISTORY[1][name])


def test_one_iteration_is_a_point_at_a_whole_number():
    figure = draw_history(HISTORY[2:])
    for axes in figure.axes:
        assert axes.lines[0].get_marker() == "o"
        assert list(axes.get_xticks()) == [2]
    assert png(figure)


def test_what_is_not_known_leaves_a_hole_and_what_is_never_known_no_panel():
    rows = [{"k": 0, "loss": np.nan, "changed": 1.0}, {"k": 1, "loss": 2.0, "changed": None}, {"k": 2, "loss": np.inf}]
    figure = draw_history(rows)
    assert titles(figure) == ["loss on the sample", "share of changed decisions"]
    np.testing.assert_array_equal(figure.axes[0].lines[0].get_ydata(), [np.nan, 2.0, np.nan])
    np.testing.assert_array_equal(figure.axes[1].lines[0].get_ydata(), [1.0, np.nan, np.nan])
    assert png(figure)


def test_a_history_that_a_table_read_as_text_is_fine():
    [line] = draw_history([{"k": "0", "loss": "0.5"}, {"k": "1", "loss": "1e3"}]).axes[0].lines
    np.testing.assert_array_equal(line.get_ydata(), [0.5, 1000.0])


def test_constant_and_huge_values_draw():
    assert png(draw_history([{"k": k, "loss": 0.0, "changed": 0.0, "value": 1e12} for k in range(100)]))


@pytest.mark.parametrize(
    ("history", "message"),
    [
        ([], "one dictionary per iteration"),
        ({"k": [0]}, "one dictionary per iteration"),
        ([1.0], "one dictionary per iteration"),
        ([{"loss": 1.0}], "must have k in every row"),
        ([{"k": 0, "seconds": 1.0}], "one of loss, changed"),
        ([{"k": 0, "loss": "much"}], "loss must be a number"),
    ],
)
def test_bad_histories_are_named(history, message):
    with pytest.raises(InvalidInputError, match=message):
        draw_history(history)


def test_learners_plot_their_history():
    fitted = learner(keep="last", state_weights="batch").fit(batch())
    figure = fitted.plot_history()
    for axes, name in zip(figure.axes, ("loss", "changed", "value"), strict=True):
        np.testing.assert_array_equal(axes.lines[0].get_ydata(), [row[name] for row in fitted.history_])
    kept = learner(keep=lambda iteration: -abs(iteration.k - 1)).fit(batch())
    assert kept.plot_history().legends[0].get_texts()[0].get_text() == "kept: iteration 1"
    assert kept.policy_.training.n_iterations == 2


def test_learners_without_fit_have_nothing_to_plot():
    with pytest.raises(NotFittedError, match="call fit first"):
        learner().plot_history()
    with pytest.raises(NotFittedError, match="call fit first"):
        learner().plot_gap([[0.0]])


# -- gaps --------------------------------------------------------------------------------------------


def test_gaps_by_hand():
    q = np.array([[0.0, 10.0], [10.0, 0.0], [5.0, 5.05], [0.0, 6.0]])  # gaps 10, 10, 0.05 and 6
    figure = draw_gaps(q, labels=["wait", "treat"])
    axes = figure.axes[0]
    wait, treat = counts(figure)
    assert (wait.sum(), treat.sum()) == (1, 3)
    assert (wait[-1], treat[-1]) == (1, 1), "the largest gaps are in the last bar"
    assert treat[0] == 1
    assert treat[18] == 1, "6 begins the 19th of 30 bars up to 10"
    assert titles(figure) == ["The choice makes little difference (gap at most 0.1) in 25.0 % of 4 states."]
    assert axes.lines[0].get_xdata()[0] == negligible_gap(q) == pytest.approx(0.1)
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["wait", "treat"]


@pytest.mark.parametrize("scale", [0.1, 3.0])  # on a plain and on a logarithmic axis
@pytest.mark.parametrize("n_actions", [2, 3, 20])
def test_every_state_is_in_one_bar_of_its_decision(scale, n_actions):
    rng = np.random.default_rng(1)
    q = rng.lognormal(sigma=scale, size=(500, n_actions))
    q[:20] = 1.0
    decisions = rng.integers(n_actions, size=500)
    figure = draw_gaps(q, decisions=decisions)
    np.testing.assert_array_equal(counts(figure).sum(axis=1), np.bincount(decisions, minlength=n_actions))
    assert figure.axes[0].get_xscale() == ("log" if scale > 1 else "linear")
    assert png(figure)


def test_bars_of_the_logarithmic_axis_hold_their_gaps():
    gaps = np.repeat(10.0 ** np.arange(-9, 5), 10)
    figure = draw_gaps(np.stack([gaps, np.zeros(140)], axis=1))
    bars = list(figure.axes[0].containers[0])
    heights = [bar.get_height() for bar in bars]
    assert heights[0] == 70, "what is below a millionth of the largest"
    assert figure.axes[0].get_xticklabels()[0].get_text() == "< 0.01"
    for bar, height in zip(bars[1:], heights[1:], strict=True):
        low, high = bar.get_x(), bar.get_x() + bar.get_width()
        last = bar is bars[-1]
        assert height == np.sum((gaps >= low * (1 - 1e-12)) & ((gaps < high * (1 - 1e-12)) | last)), (low, high)


def test_zero_has_a_bar_of_its_own_on_the_logarithmic_axis():
    gaps = np.append(np.geomspace(0.001, 10.0, 90), np.zeros(10))
    figure = draw_gaps(np.stack([gaps, np.zeros(100)], axis=1))
    assert counts(figure)[0, 0] == 10
    assert figure.axes[0].get_xticklabels()[0].get_text() == "0"


def test_the_share_where_the_choice_hardly_matters():
    q = np.random.default_rng(2).normal(size=(1000, 3))
    q[:400, 1] = q[:400, 0] = 5.0
    share = np.mean(second_best_gap(q) <= negligible_gap(q))
    assert f"in {100 * share:.1f} % of 1000 states" in titles(draw_gaps(q))[0]


def test_numbers_in_the_title_are_written_out():
    q = np.linspace(0.0, 1_234_567.0, 200).reshape(100, 2)
    assert "(gap at most 11100)" in titles(draw_gaps(q))[0]


def test_constant_values_never_matter():
    figure = draw_gaps(np.full((5, 2), 7.0))
    assert titles(figure) == ["The choice makes little difference (gap at most 0) in 100.0 % of 5 states."]
    assert counts(figure).tolist() == [[5], [0]]
    assert png(figure)


def test_states_with_one_allowed_action_are_left_out_and_counted():
    q = np.array([[0.0, 1.0, 9.0], [0.0, 1.0, 3.0], [5.0, 0.0, 0.0]])
    allowed = np.array([[True, True, False], [True, True, True], [True, False, False]])
    figure = draw_gaps(q, allowed)
    assert counts(figure).sum(axis=1).tolist() == [0, 1, 1]
    assert titles(figure)[0].endswith("of 2 states.\nLeft out: 1 state with one allowed action.")
    with pytest.raises(InvalidInputError, match="some state must allow a choice"):
        draw_gaps(q, np.eye(3, dtype=bool))
    with pytest.raises(InvalidInputError, match="some state must allow a choice"):
        draw_gaps([[1.0], [2.0]])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"decisions": [0]}, "decisions must have shape"),
        ({"decisions": [0, 2]}, "decisions must lie in"),
        ({"labels": ["a"]}, "labels must have 2 entries"),
        ({"allowed": [[True, True]]}, "allowed must have shape"),
    ],
)
def test_bad_gaps_are_named(options, message):
    with pytest.raises(InvalidInputError, match=message):
        draw_gaps([[0.0, 1.0], [2.0, 0.0]], **options)


def test_learners_plot_their_gaps_with_the_decisions_of_their_policy():
    data = batch()
    fitted = learner().fit(data)
    figure = fitted.plot_gap(data)
    decisions = fitted.policy_.act(data.states)
    np.testing.assert_array_equal(counts(figure).sum(axis=1), np.bincount(decisions, minlength=2))
    labels = [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
    assert labels == ["$wait$", "tre_at"]
    assert png(figure) == png(fitted.plot_gap(data.states))
    table = dict(zip(data.schema.feature_names, data.states.T, strict=True))
    assert png(figure) == png(fitted.plot_gap(table))


def test_learners_use_the_masks_of_the_batch_and_ask_for_those_of_states():
    data = batch(masked=True)
    fitted = learner().fit(data)
    figure = fitted.plot_gap(data)
    assert titles(figure)[0].endswith("Left out: 50 states with one allowed action.")
    assert png(figure) == png(fitted.plot_gap(data.states, data.allowed))
    with pytest.raises(InvalidInputError, match="pass allowed"):
        fitted.plot_gap(data.states)


# -- policies ----------------------------------------------------------------------------------------


def problem():
    """Return states whose fourth and second features decide, and values."""
    states = np.random.default_rng(3).normal(size=(400, 4))
    return states, np.stack([np.zeros(400), states[:, 3] + 0.5 * states[:, 1]], axis=1)


def test_policies_show_the_features_that_tell_the_most():
    states, values = problem()
    policy = Linear().improve(states, values)
    figure = policy.plot(states)
    axes = figure.axes[0]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("x3", "x1")


@pytest.mark.parametrize("space", [Forests(n_trees=3), Neighbors(5), Unrestricted()], ids=lambda s: type(s).__name__)
def test_policies_that_keep_their_states_need_none(space):
    fitted = learner(space).fit(batch())
    axes = fitted.policy_.plot().axes[0]
    assert axes.get_xlabel() == "lo$ad$"
    assert png(axes.figure) == png(fitted.policy_.plot(batch().states))


@pytest.mark.parametrize(
    "policy",
    [
        Constant(0, 2),
        Thresholds().improve(*problem()),
        Partition(lambda states: (states[:, 0] > 0).astype(int)).improve(*problem()),
        Mixture([Constant(0, 2), Thresholds().improve(*problem())], [0.4, 0.6]),
        NonStationary([Constant(1, 2)]),
    ],
    ids=lambda policy: type(policy).__name__,
)
def test_other_policies_ask_for_states(policy):
    with pytest.raises(InvalidInputError, match="states must be given"):
        policy.plot()
    assert png(policy.plot(problem()[0]))


def test_trees_are_drawn_as_trees_with_or_without_states():
    states, values = problem()
    policy = Trees(max_depth=2).improve(states, values)
    assert png(policy.plot()) == png(policy.plot(states))
    assert not policy.plot().axes[0].collections


def test_one_feature_gives_bars():
    policy = Tabular(np.array([0, 1, 1]), n_actions=2)
    axes = policy.plot(np.array([[0.0], [1.0], [2.0]])).axes[0]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("x0", "share of decisions")


def test_policies_with_masks_say_that_they_need_them():
    states, values = problem()
    allowed = np.ones(values.shape, dtype=bool)
    allowed[::3, 0] = False
    policy = Neighbors(5).improve(states, values, allowed=allowed)
    with pytest.raises(InvalidInputError, match="learned with masks"):
        policy.plot(states)
    with pytest.raises(InvalidInputError, match="learned with masks"):
        Greedy(None, masked=True).plot(states)


def test_pictures_take_the_columns_that_sway_most_and_no_copies():
    rng = np.random.default_rng(4)
    a, b, noise = rng.normal(size=(3, 1000))
    states = np.stack([noise, a, 2 * a, b], axis=1)
    assert features_to_draw(lambda x, _=None: (x[:, 1] > 0) + 2 * (x[:, 3] > 1), states, None) == [1, 3]
    assert features_to_draw(lambda x, _=None: (x[:, 2] > 0).astype(int), states, None) == [2], "no other matters"


def test_pictures_of_rare_flags_missing_values_and_constant_decisions():
    n = 1000
    noise = np.random.default_rng(5).normal(size=n)
    flag = (np.arange(n) % 50 == 0).astype(float)
    holes = np.where(np.arange(n) % 7 == 0, np.nan, 1.0)
    never = np.full(n, np.nan)
    table = np.stack([noise, never, flag, holes], axis=1)
    assert features_to_draw(lambda x, _=None: (x[:, 2] == 1).astype(int), table, None) == [2]
    assert features_to_draw(lambda x, _=None: np.isnan(x[:, 3]).astype(int), table, None) == [3]
    always = Constant(0, 2).act
    assert features_to_draw(always, table, None) == [0, 2]
    assert features_to_draw(always, np.stack([never, noise], axis=1), None) == [1]
    assert features_to_draw(always, never[:, None], None) == [0]


def test_of_categories_the_one_that_tells_most_is_drawn():
    """The column is dealt anew as a whole; among its features one is an axis."""
    rng = np.random.default_rng(6)
    kind, age = rng.integers(3, size=900), rng.normal(size=900)
    many = Column("code", "codes", tuple(range(MOST_VALUES + 1)))
    columns = (Column("age"), Column("kind", "one-hot", ("a", "b", "c")), many)
    states = np.column_stack([age, np.eye(3)[kind], rng.integers(MOST_VALUES + 1, size=900)])
    schema = Schema.of_columns(columns, (0, 1, 2, 3))
    assert features_to_draw(lambda x, _=None: (x[:, 2] > 0.5) + 2 * (x[:, 0] > 2), states, schema) == [2, 0]
    by_code = influences(lambda x, _=None: (x[:, 4] > 9) + 2 * (x[:, 0] > 2), states, columns)
    assert [number for number, share in by_code if share > 0] == [2, 0]
    assert columns_to_draw(by_code, columns) == [0], "there are too many codes for an axis"


# -- the style ---------------------------------------------------------------------------------------


def test_hostile_names_are_drawn_as_they_are():
    states, values = problem()
    schema = Schema.of(4, 2, ["$a", "b_{$", "\\frac{", "$x$"], ["$", "$y_$"])
    policy = described(Linear().improve(states, values), schema, Training(0.9, 1, None, {}))
    axes = policy.plot(states).axes[0]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("$x$", "b_{$")
    texts = [axes.xaxis.label, axes.yaxis.label, *axes.get_legend().get_texts()]
    assert not any(text.get_parse_math() for text in texts)
    assert png(axes.figure)
    assert png(draw_gaps(values, labels=schema.action_labels))
    tree = described(Trees(max_depth=2).improve(states, values), schema, Training(0.9, 1, None, {}))
    assert png(tree.plot())


def test_the_first_64_actions_can_be_told_apart():
    assert len({(colour_of(a), marker_of(a)) for a in range(64)}) == 64
    assert [(colour_of(a), marker_of(a)) for a in range(8)] == list(zip(PALETTE, MARKERS, strict=True))


def test_axes_come_row_by_row_and_without_box():
    figure, axes = new_figure(6.0, 4.0, 2, 3)
    assert len(axes) == 6
    assert tuple(figure.get_size_inches()) == (6.0, 4.0)
    assert not any(each.spines[side].get_visible() for each in axes for side in ("top", "right"))


def test_notebooks_get_a_png_and_figures_can_be_stored():
    figure = draw_history(HISTORY)
    picture = figure._repr_png_()
    assert picture.startswith(b"\x89PNG")
    assert pickle.loads(pickle.dumps(figure))._repr_png_() == picture


def test_the_same_data_give_the_same_bytes():
    states, values = problem()
    forest = Forests(n_trees=3).improve(states, values, rng=np.random.default_rng(0))
    for draw in (lambda: draw_history(HISTORY), lambda: draw_gaps(values), forest.plot):
        assert png(draw()) == png(draw())


def test_nothing_global_changes():
    before = dict(mpl.rcParams)
    png(draw_history(HISTORY))
    png(draw_gaps([[0.0, 1.0], [2.0, 0.0]]))
    assert dict(mpl.rcParams) == before


def test_no_pyplot_and_no_matplotlib_before_the_first_picture():
    code = """
import sys
import capi.plotting, capi.policies, capi.learning
assert "matplotlib" not in sys.modules
capi.plotting.draw_history([{"k": 0, "loss": 1.0}])._repr_png_()
capi.plotting.draw_gaps([[0.0, 1.0], [2.0, 0.0]])._repr_png_()
capi.policies.Constant(0, 2).plot([[0.0, 1.0], [2.0, 0.0]])._repr_png_()
assert "matplotlib" in sys.modules
assert "matplotlib.pyplot" not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=os.environ)
    assert done.returncode == 0, done.stderr


def test_labels_that_begin_with_an_underscore_are_in_the_legend():
    figure = draw_gaps(np.array([[0.0, 1.0, 2.0], [2.0, 0.0, 1.0], [0.0, 3.0, 1.0]]), labels=["_wait", "treat", "_"])
    texts = figure.axes[0].get_legend().get_texts()
    assert [text.get_text() for text in texts] == ["_wait", "treat", "_"]
