"""The experiments of the paper run the paper's loop, whatever the defaults of `CAPI` are."""

import pytest

from capi.datasets import load_hiv_batch
from capi.experiments import combinations, pole, sensitivity
from capi.experiments.combinations.settings import COMMON
from capi.experiments.hiv.run import learner
from capi.experiments.hiv.settings import LAST
from capi.experiments.pole.settings import LEARNING, ROLLOUTS
from capi.experiments.sensitivity.settings import BASE
from capi.learning import rules

FEW = {"n_trees": 2, "n_iterations": 12}  # rounds enough for the default loop to begin with what was done
SMALL = {**FEW, "n_samples": 200, "method": "Tree-CAPI"}


@pytest.fixture
def loops(monkeypatch):
    """The settings of all loops that a test runs, after the library's rules."""
    found, with_rules = [], rules.with_rules

    def noted(*given):
        found.append(with_rules(*given))
        return found[-1]

    monkeypatch.setattr(rules, "with_rules", noted)
    return found


def run_hiv():
    values = {**FEW, **LAST, "eta_v": 50, "eta_pi": 20, "refresh_every": 10, "last_every": 1}
    learner(values, seed=0)(load_hiv_batch().subset(range(400)), 0)


def run_pole():
    pole.run({**LEARNING, **ROLLOUTS, **SMALL, "track_limit": None, "eta_pi": 20}, seed=0)


def run_sensitivity():
    sensitivity.run({**BASE["pole"], **SMALL, "problem": "pole"}, seed=0)


def run_combinations():
    combinations.run({**COMMON, "evaluator": "FittedQ", "space": "Trees", "n_iterations": 12}, seed=0)


@pytest.mark.parametrize("run", [run_hiv, run_pole, run_sensitivity, run_combinations])
def test_it_is_the_papers_loop(run, loops):
    run()
    assert loops
    for loop in loops:
        assert (loop.keep, loop.state_weights, loop.accept, loop.n_from_log) == ("last", "batch", "any", 0)
        assert (loop.initial_policy, loop.update, loop.support) == (None, None, None)
