"""Intervals hold the true value about as often as they say, on the problems of benchmarks/intervals.py."""

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

from capi.offline import METHODS

FILE = Path(__file__).parents[2] / "benchmarks" / "intervals.py"
spec = importlib.util.spec_from_file_location("intervals_of_benchmarks", FILE)
simulated = importlib.util.module_from_spec(spec)
sys.modules[spec.name] = simulated
spec.loader.exec_module(simulated)

N_BATCHES = 40
TRIAL = METHODS
WALK = ("doubly-robust", "weighted-doubly-robust")


def found(name, n, n_batches, methods, **settings):
    """The records of many simulated batches, by estimator."""
    every = [r for b in range(n_batches) for r in simulated.evaluated(name, n, True, b, methods, **settings)]
    return {method: [r for r in every if r["method"] == method] for method in (*methods, "behaviour")}


def share(records, key):
    return np.mean([record[key] for record in records])


@pytest.fixture(scope="module")
def some():
    return {
        "bandit": found("bandit", 100, N_BATCHES, TRIAL, n_resamples=100),
        "mdp": found("mdp", 100, N_BATCHES, WALK, n_resamples=100, n_folds=2),
    }


CASES = [("bandit", m) for m in (*TRIAL, "behaviour")] + [("mdp", m) for m in (*WALK, "behaviour")]


@pytest.mark.parametrize(("problem", "method"), CASES)
def test_few_of_some_intervals_miss_the_truth(some, problem, method):
    """Of 40 intervals that hold it with probability 0.92, less than 32 do so once in two hundred times."""
    records = some[problem][method]
    assert share(records, "bootstrap") >= 0.8
    assert share(records, "asymptotic") >= 0.8


@pytest.mark.parametrize(("problem", "method"), CASES)
def test_standard_errors_are_as_large_as_errors(some, problem, method):
    """The spread of 40 errors is known to about 11 %."""
    records = some[problem][method]
    errors = np.array([r["error"] for r in records])
    assert np.sqrt(np.mean([r["se"] ** 2 for r in records])) == pytest.approx(errors.std(ddof=1), rel=0.4)


@pytest.mark.parametrize(("problem", "method"), [case for case in CASES if case[1] != "behaviour"])
def test_few_of_some_paired_differences_miss_the_truth(some, problem, method):
    assert share(some[problem][method], "paired bootstrap") >= 0.8


SURE = ("doubly-robust", "weighted-doubly-robust", "fitted-q", "behaviour")
CLAIMED = {
    ("bandit", 50): (*METHODS, "behaviour"),
    ("bandit", 200): (*METHODS, "behaviour"),
    ("mdp", 200): SURE,  # a rare episode with a large weight is missing in most logs: docs/evidence.md
    ("truncated", 200): (*METHODS, "behaviour"),
}


@pytest.mark.slow
@pytest.mark.parametrize(("problem", "n"), list(CLAIMED))
def test_intervals_cover_what_the_document_claims(problem, n):
    records = found(problem, n, simulated.N_BATCHES, METHODS)
    for method in CLAIMED[problem, n]:
        assert share(records[method], "bootstrap") >= 0.9, method
        assert share(records[method], "asymptotic") >= 0.9, method
