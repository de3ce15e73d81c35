"""The protocol with few patients and iterations; its full size takes days."""

import numpy as np
import pytest

from capi.domains import HIV
from capi.experiments.hiv import claims, figures, run, settings, summary, table
from capi.experiments.hiv.run import learner, rounds
from capi.experiments.hiv.settings import ETAS, SEEDS
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
}


def test_sizes():
    quick = settings("quick")
    assert [(setting["data"], setting["methods"]) for setting in quick] == [
        ("shared", [eta]) for eta in (None, 20, 500)
    ]
    full = settings("full")
    assert len(full) == SEEDS * (1 + len(ETAS)) + SEEDS
    own = full[0]
    assert (own["n_patients"], own["n_steps"], own["n_rounds"], own["eta_v"], own["n_trees"]) == (30, 200, 10, 50, 30)


def test_rounds_accumulate_and_explore():
    batch, returns = rounds(HIV(), learner({**SMALL, "seed": 0}, None), {**SMALL, "seed": 0})
    assert len(batch) == 2 * 3 * 20
    assert batch.n_episodes == 6
    assert len(returns) == 2
    np.testing.assert_allclose(batch.propensities[:60], 0.25)
    assert set(np.unique(batch.propensities[60:].round(4))) <= {0.0375, 0.8875}


def test_methods_are_paired_by_their_seed():
    firsts = [
        rounds(HIV(), learner({**SMALL, "seed": 5}, eta), {**SMALL, "seed": 5})[0].states[:60] for eta in (None, 20)
    ]
    np.testing.assert_array_equal(*firsts)


def test_records_become_the_papers_figure():
    records = [run({"data": "own", "seed": 0, "eta_pi": eta, **SMALL}) for eta in (None, 2, 20)]
    shared = run({"data": "shared", "batch": "collected", "seed": 0, "methods": [None, 2, 20], **SMALL})
    assert [r["n_transitions"] for r in (*records, shared)] == [120] * 4
    rows = table([*records, shared])
    assert [(r["data"], r["method"], r["eta_pi"]) for r in rows[:3]] == [
        ("own", "Tree-FQI", ""),
        ("own", "Tree-CAPI", 2),
        ("own", "Tree-CAPI", 20),
    ]
    assert len(summary(rows)[2]) == 6
    assert list(figures(rows)) == ["hiv-return.png"]
    assert all(claim.holds is None for claim in claims([*records, shared]).values())


def synthetic(gain_small, gain_large):
    rng = np.random.default_rng(0)
    return [
        {
            "data": "own",
            "seed": seed,
            "eta_pi": eta,
            "returns_by_round": [1e9 * (1 + gain) + 1e7 * rng.normal()],
            "n_transitions": 1,
        }
        for seed in range(20)
        for eta, gain in ((None, 0.0), (2, gain_small), (100, gain_small), (2000, gain_large))
    ]


@pytest.mark.parametrize(
    ("gains", "verdicts"),
    [((0.24, -0.5), [True, True, True]), ((0.01, 0.01), [True, False, False]), ((-0.1, -0.1), [False, False, True])],
)
def test_many_seeds_decide_the_claims(gains, verdicts):
    assert [claim.holds for claim in claims(synthetic(*gains)).values()] == verdicts


@pytest.mark.slow
def test_the_quick_size_finds_the_way_to_the_healthy_state():
    records = [run(setting) for setting in settings("quick")]
    assert max(record["returns"][0] for record in records) > 1e8


def test_gains_are_paired_by_seed():
    """Seeds differ by far more than methods do: only differences within a seed can tell."""
    records = [
        {"data": "own", "seed": seed, "eta_pi": eta, "returns_by_round": [1e9 * (seed + 1) + extra], "n_transitions": 1}
        for seed in range(8)
        for eta, extra in ((None, 0.0), (20, 1e7 + 1e5 * (seed % 3)))
    ]
    assert claims(records)["own/capi-better-with-small-nodes"].holds is True


def test_rounds_draw_other_actions_and_learners_other_trees():
    batch, _ = rounds(HIV(), lambda batch, k: Uniform(4), {**SMALL, "seed": 0})
    assert not np.array_equal(batch.actions[:60], batch.actions[60:])
    data = rounds(HIV(), lambda batch, k: Uniform(4), {**SMALL, "seed": 0, "n_rounds": 1})[0]
    values = [learner({**SMALL, "seed": s}, None)(data, k).q.values(data.states) for s, k in ((0, 0), (0, 1), (1, 0))]
    assert not np.array_equal(values[0], values[1])
    assert not np.array_equal(values[0], values[2])
