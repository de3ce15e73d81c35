"""The protocol with few patients and iterations; its full size takes days."""

import numpy as np
import pytest

from capi.domains import HIV
from capi.experiments.hiv import claims, figures, run, settings, summary, table
from capi.experiments.hiv.run import Learned, learner, prepare, rounds, shared_batch
from capi.experiments.hiv.settings import ETAS
from capi.policies import Uniform

SMALL = {
    "n_patients": 3,
    "n_steps": 20,
    "n_rounds": 2,
    "exploration": 0.15,
    "n_trees": 3,
    "eta_v": 20,
    "n_iterations": 4,
    "refresh_every": 2,
    "n_last": 2,
    "last_every": 2,
    "eta_pi": None,
}


def test_sizes():
    quick, full = settings("quick"), settings("full")
    assert [setting.name for setting in quick] == [
        "embedded/tree-fqi",
        "embedded/tree-capi-20",
        "embedded/tree-capi-500",
    ]
    assert len(full) == 2 * (1 + len(ETAS)) + 4 + 2
    own = full[0].values
    assert (own["n_patients"], own["n_steps"], own["n_rounds"], own["eta_v"], own["n_trees"]) == (30, 200, 10, 50, 30)
    changed = {(s.values["group"], s.values["eta_v"], s.values["refresh_every"]) for s in full}
    assert changed == {("own", 50, 10), ("shared", 50, 10), ("own-eta_v-5", 5, 10), ("own-new-trees", 50, 1)}


def test_rounds_accumulate_and_explore():
    batch, found = rounds(HIV(), learner(SMALL, seed=0), SMALL, seed=0)
    assert len(batch) == 2 * 3 * 20
    assert batch.n_episodes == 6
    assert len(found) == 2
    np.testing.assert_allclose(batch.propensities[:60], 0.25)
    assert set(np.unique(batch.propensities[60:].round(4))) <= {0.0375, 0.8875}


def test_methods_are_paired_by_their_seed():
    values = [{**SMALL, "eta_pi": eta} for eta in (None, 20)]
    firsts = [rounds(HIV(), learner(one, seed=5), one, seed=5)[0].states[:60] for one in values]
    np.testing.assert_array_equal(*firsts)


def results(group, eta, **changes):
    values = {**SMALL, "group": group, "data": group, "eta_pi": eta, **changes}
    return {**values, "seed": 0, **run(values, seed=0)}


def test_records_become_the_papers_figure():
    records = [results(group, eta) for group in ("own", "shared") for eta in (None, 2, 20)]
    assert [r["n_transitions"] for r in records] == [120] * 6
    rows = table(records)
    assert [(r["group"], r["method"], r["eta_pi"]) for r in rows[:3]] == [
        ("own", "Tree-FQI", ""),
        ("own", "Tree-CAPI", 2),
        ("own", "Tree-CAPI", 20),
    ]
    assert len(summary(rows)[2]) == 6
    assert list(figures(rows)) == ["hiv-return.png"]
    assert all(claim.holds is None for claim in claims(records).values())


def test_the_last_iterates_are_those_of_shorter_runs():
    """Iterate 2 of 4 is the final one of a run with 2."""
    long, short = results("own", 20, n_rounds=1), results("own", 20, n_rounds=1, n_iterations=2, n_last=1)
    assert len(long["last_returns"][0]) == 2
    assert long["last_returns"][0][0] == short["returns"][0]
    assert long["last_returns"][0][1] == long["returns"][0]


def test_results_do_not_depend_on_the_number_of_threads():
    values = {**SMALL, "data": "own", "eta_pi": 20}
    one, two = (run(values, seed=1, n_jobs=n) for n in (1, 2))
    assert one["last_returns"] == two["last_returns"]


def test_the_shared_batch_is_the_one_that_fitted_q_iteration_collects():
    values = {**SMALL, "data": "shared"}
    batch = rounds(HIV(), learner(values, seed=3), values, seed=3)[0]
    for eta in (None, 20):
        shared = shared_batch({**values, "eta_pi": eta}, 3, 1)
        np.testing.assert_array_equal(shared.states, batch.states)
    assert shared_batch(values, 3, 1) is shared, "collected once for all methods"
    assert not np.array_equal(shared_batch(values, 4, 1).states, batch.states)


def test_preparation_needs_no_setting():
    prepare()


def synthetic(gain_small, gain_large):
    rng = np.random.default_rng(0)
    return [
        {"group": "own", "seed": seed, "eta_pi": eta, "returns": [1e6, 1e9 * (1 + gain) + 1e7 * rng.normal()]}
        for seed in range(20)
        for eta in (None, *ETAS)
        for gain in (0.0 if eta is None else gain_small if eta <= 100 else gain_large,)
    ]


@pytest.mark.parametrize(
    ("gains", "verdicts"),
    [((0.24, -0.5), [True, True, True]), ((0.03, 0.03), [True, False, False]), ((-0.1, -0.1), [False, False, True])],
)
def test_many_seeds_decide_the_claims(gains, verdicts):
    found = claims(synthetic(*gains))
    names = ("capi-better-with-small-nodes", "gain-of-about-24-percent", "poor-with-large-nodes")
    assert [found[f"own/{name}"].holds for name in names] == verdicts
    assert {claim.holds for name, claim in found.items() if not name.startswith("own/")} == {None}


def test_groups_without_runs_are_open():
    groups = {name.partition("/")[0] for name in claims([])}
    assert groups == {"own", "shared", "own-eta_v-5", "own-new-trees"}
    assert {claim.verdict for claim in claims([]).values()} == {"open"}
    assert "own-new-trees/poor-with-large-nodes" not in claims([]), "it has no such setting"


def test_a_best_size_that_moves_in_some_runs_decides_nothing():
    records = [
        {"group": "own", "seed": seed, "eta_pi": eta, "returns": [2e8 if eta == one else 1e8 for one in best]}
        for seed in range(6)
        for best in ((500, 500, 500, 100, *[20 if seed % 2 else 500] * 3),)
        for eta in (None, *ETAS)
    ]
    assert claims(records)["own/best-size-depends-on-the-number-of-transitions"].holds is None


@pytest.mark.parametrize(("late_best", "n_seeds", "verdict"), [(20, 6, True), (500, 6, False), (20, 4, None)])
def test_the_best_size_of_trees_is_compared_between_few_and_many_transitions(late_best, n_seeds, verdict):
    best = (500, 500, 500, 100, 100, 100, 100, late_best, late_best, late_best)
    records = [
        {"group": "own", "seed": seed, "eta_pi": eta, "returns": [2e8 if eta == one else 1e8 for one in best]}
        for seed in range(n_seeds)
        for eta in (None, *ETAS)
    ]
    claim = claims(records)["own/best-size-depends-on-the-number-of-transitions"]
    assert claim.holds is verdict
    [part] = claim.differences.values()
    assert part.mean == pytest.approx(np.log10(500 / late_best))


@pytest.mark.parametrize("missing", [2, 50, 100])
def test_a_claim_about_all_sizes_waits_for_all_of_them(missing):
    claim = "own/capi-better-with-small-nodes"
    records = [r for r in synthetic(0.24, -0.5) if r["eta_pi"] != missing]
    assert claims(records)[claim].holds is None
    few = [r for r in synthetic(0.24, -0.5) if r["eta_pi"] != missing or r["seed"] < 3]
    assert claims(few)[claim].holds is None


def test_pieces_work_on_some_of_the_records():
    only_capi = [results("own", 20)]
    assert {claim.holds for claim in claims(only_capi).values()} == {None}
    assert list(figures(table(only_capi))) == ["hiv-return.png"]
    only_fqi = [results("own", None)]
    assert {claim.holds for claim in claims(only_fqi).values()} == {None}
    assert list(figures(table(only_fqi))) == ["hiv-return.png"]


def test_all_points_of_all_panels_are_inside():
    """The groups differ by orders of magnitude, and their panels share an axis."""
    costs = {"n_transitions": 1, "learning_cpu_seconds": [1.0], "decision_cpu_seconds": [1e-6]}
    records = [
        {"group": group, "seed": 0, "eta_pi": eta, "returns": [value], "last_returns": [[value]], **costs}
        for group, value in (("own", 1e6), ("shared", 1e9), ("own-eta_v-5", 4e9))
        for eta in (None, 20)
    ]
    figure = figures(table(records))["hiv-return.png"]
    for axes in figure.axes[:3]:
        low, high = axes.get_ylim()
        drawn = np.concatenate([np.ravel(line.get_ydata()) for line in axes.lines])
        assert low == 0
        assert drawn.max() < high


@pytest.mark.slow
def test_the_quick_size_finds_the_way_to_the_healthy_state():
    found = [run(setting.values, seed=0) for setting in settings("quick")]
    assert max(one["returns"][0] for one in found) > 1e8


def test_gains_are_paired_by_seed():
    """Seeds differ by far more than methods do: only differences within a seed can tell."""
    records = [
        {"group": "embedded", "seed": seed, "eta_pi": eta, "returns": [1e9 * (seed + 1) + extra]}
        for seed in range(8)
        for eta, extra in ((None, 0.0), (20, 1e7 + 1e5 * (seed % 3)))
    ]
    assert claims(records)["embedded/capi-better-with-small-nodes"].holds is True


def test_rounds_draw_other_actions_and_learners_other_trees():
    nothing_learned = Learned(Uniform(4), [0.0], 0.0, 0.0)
    batch, _ = rounds(HIV(), lambda batch, k: nothing_learned, SMALL, seed=0)
    assert not np.array_equal(batch.actions[:60], batch.actions[60:])
    data = rounds(HIV(), lambda batch, k: nothing_learned, {**SMALL, "n_rounds": 1}, seed=0)[0]
    policies = [learner(SMALL, seed)(data, k).policy for seed, k in ((0, 0), (0, 1), (1, 0))]
    values = [policy.q.values(data.states) for policy in policies]
    assert not np.array_equal(values[0], values[1])
    assert not np.array_equal(values[0], values[2])
