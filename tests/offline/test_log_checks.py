"""Faults of a table that the log itself reveals."""

import sys
from pathlib import Path

import numpy as np
import pytest

from capi import Transitions
from capi.offline.caveats import about_given_probabilities
from capi.offline.facts import log_sums
from capi.offline.log import Settings, log_of
from capi.offline.log_checks import absent_region, log_caveats, repeated_share, shift

SCRIPTS = Path(__file__).parents[2] / "scripts"


@pytest.fixture(scope="module")
def study():
    sys.path.insert(0, str(SCRIPTS))
    try:
        import planted_faults
    finally:
        sys.path.remove(str(SCRIPTS))
    return planted_faults


def kinds(batch, discount=0.9):
    log = log_of(batch, Settings(discount, n_jobs=1))
    return {
        caveat.kind
        for caveat in (*about_given_probabilities(log_sums(log), log.batch.schema.action_labels), *log_caveats(log))
    }


@pytest.mark.parametrize("kind", ["episodes", "single decisions"])
@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        ("clean", set()),
        ("propensities off by a factor of 2", {"wrong-probabilities"}),
        ("one action absent in 20 % of the states", {"absent-action"}),
        ("10 % of the episodes doubled", {"repeated-episodes"}),
        ("features shifted by one row", {"shifted-features"}),
    ],
)
def test_planted_faults_are_found(study, kind, fault, expected):
    for seed in range(3):
        rng = np.random.default_rng(seed)
        batch = study.planted(fault, study.simulated(kind, 1000, rng, fault), rng)
        assert kinds(batch) == expected


@pytest.mark.parametrize("way", [1, -1])
@pytest.mark.parametrize("kind", ["episodes", "single decisions"])
def test_the_direction_of_a_shift_is_found(study, kind, way):
    rng = np.random.default_rng(0)
    rows = study.simulated(kind, 2000, rng, "clean")
    length = rows["length"]
    x = np.roll(rows["x"], way, axis=0)
    episodes = np.repeat(np.arange(len(x) // length), length)
    batch = Transitions(x, rows["a"], rows["r"], x, rows["end"], episodes=episodes, n_actions=rows["n_actions"])
    assert shift(batch, batch.episode_starts) == way


def test_noise_has_no_shift():
    for seed in range(20):
        rng = np.random.default_rng(seed)
        x = rng.normal(size=(300, 5))
        batch = Transitions(x, rng.integers(3, size=300), rng.normal(size=300), x, np.ones(300, dtype=bool))
        assert shift(batch, batch.episode_starts) == 0


def test_columns_that_never_change_or_are_missing_are_no_evidence():
    x = np.column_stack([np.zeros(300), np.full(300, np.nan), np.arange(300.0)])
    batch = Transitions(x, np.arange(300) % 2, np.zeros(300), x, np.ones(300, dtype=bool), n_actions=2)
    assert shift(batch, batch.episode_starts) == 0


def test_the_region_without_an_action_is_the_widest_gap():
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 1, size=(1000, 2))
    actions = np.where((x[:, 1] > 0.3) & (x[:, 1] < 0.5), 0, rng.integers(2, size=1000))
    batch = Transitions(x, actions, np.zeros(1000), x, np.ones(1000, dtype=bool))
    nothing = np.zeros(1000, dtype=np.int64)
    region = absent_region(batch, 1, nothing)
    inside = x[:, 1][actions == 1]
    low, high = inside[inside < 0.4].max(), inside[inside > 0.4].min()
    assert region.share == np.mean((x[:, 1] > low) & (x[:, 1] < high))
    assert region.elsewhere == pytest.approx(0.5, abs=0.05)
    ends = np.quantile(x[:, 1][(x[:, 1] > low) & (x[:, 1] < high)], [0.1, 0.9])
    assert region.where == f"where x1 is mostly between {ends[0]:.3g} and {ends[1]:.3g}"
    assert absent_region(batch, 0, nothing) is None
    assert kinds(batch, 0.0) == {"absent-action"}


def test_an_action_that_is_not_allowed_is_not_absent():
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 1, size=(1000, 1))
    actions = np.where(x[:, 0] < 0.2, 0, rng.integers(2, size=1000))
    allowed = np.column_stack([np.ones(1000, dtype=bool), x[:, 0] >= 0.2])
    batch = Transitions(x, actions, np.zeros(1000), x, np.ones(1000, dtype=bool), allowed=allowed, next_allowed=allowed)
    assert absent_region(batch, 1, np.zeros(1000, dtype=np.int64)) is None


def test_repetitions_that_chance_explains_are_not_copies():
    rng = np.random.default_rng(0)
    n = 1000
    few = rng.integers(30, size=(n, 2)) * 1.0  # 900 states: many rows agree by chance
    batch = Transitions(few, rng.integers(2, size=n), np.zeros(n), few, np.ones(n, dtype=bool))
    share, by_chance = repeated_share(batch, batch.episode_starts)
    assert 0.01 < share <= by_chance
    copied = np.concatenate([np.arange(n), np.arange(100)])
    fine = rng.random((n, 2))
    doubled = Transitions(
        fine[copied], batch.actions[copied], np.zeros(n + 100), fine[copied], np.ones(n + 100, dtype=bool)
    )
    share, by_chance = repeated_share(doubled, doubled.episode_starts)
    assert share == pytest.approx(100 / 1100)
    assert by_chance < share
