import numpy as np
import pytest

from capi.domains import CartPole
from capi.experiments.pole import claims, figures, run, settings, summary, table
from capi.experiments.pole.run import batch_of
from capi.experiments.pole.settings import LEARNING, METHODS, ROLLOUTS, SAMPLES, SEEDS

SMALL = {**LEARNING, **ROLLOUTS, "n_trees": 10, "n_iterations": 60, "seed": 0, "track_limit": None}


def test_sizes():
    assert len(settings("full")) == SEEDS * 2 * (len(METHODS) * len(SAMPLES) + 3 * 4)
    quick = settings("quick")
    assert {s["seed"] for s in quick} == {0}
    assert {s["track_limit"] for s in quick} == {None, 2.4}


def test_a_batch_has_exactly_the_samples_asked_for():
    batch = batch_of(CartPole(), 700, np.random.default_rng(0))
    assert len(batch) == 700
    ends = np.append(batch.episodes[1:] != batch.episodes[:-1], True)
    assert batch.terminated[ends][:-1].all()


@pytest.mark.parametrize(("method", "eta"), METHODS[:2])
def test_values_from_a_small_batch_balance_the_pole(method, eta):
    record = run({**SMALL, "method": method, "eta_pi": eta, "n_samples": 3000})
    assert record["steps"] > 300  # a random policy falls after 33
    assert record["n_used"] == 3000


def test_rollouts_balance_it_too_with_more_samples():
    record = run({**SMALL, "method": "Tree-DPI", "eta_pi": 20, "n_samples": 1_000_000})
    assert record["steps"] > 1000
    assert 900_000 < record["n_used"] < 1_100_000


def test_records_become_figures_and_claims():
    def record(method, eta, n, seed, track):
        steps = {"Tree-FQI": n / 20, "Tree-CAPI": min(3000, n / 3), "Tree-DPI": 20.0}[method]
        common = {"method": method, "eta_pi": eta, "n_samples": n, "seed": seed, "track_limit": track}
        return {**common, "steps": steps if track is None else 100.0, "return": -0.1, "n_used": n, "seconds": 1.0}

    def records(seeds):
        return [
            record(method, eta, n, seed, track)
            for track in (None, 2.4)
            for method, eta in METHODS
            for n in (1000, 30000)
            for seed in range(seeds)
        ]

    rows = table(records(6))
    assert len(summary(rows)[2]) == 12
    assert sorted(figures(rows)) == ["pole-no-track-limit.png", "pole-with-track-limit.png"]
    assert {key: claim.holds for key, claim in claims(records(6)).items()} == {
        "no-track-limit/capi-solves-it-with-many-samples": True,
        "no-track-limit/capi-leads-with-few-samples": True,
        "no-track-limit/rollouts-need-more-samples": True,
        "track-limit/capi-solves-it-with-many-samples": False,
        "track-limit/capi-leads-with-few-samples": None,  # all the same: nothing is decided
        "track-limit/rollouts-need-more-samples": None,
    }
    assert {claim.holds for claim in claims(records(2)).values()} == {None}
