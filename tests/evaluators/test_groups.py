"""Groups of similar points: transposes, a twin by dense matrices, and fewer products."""

from types import SimpleNamespace

import numpy as np
import pytest

import builders
from capi.data.transitions import Transitions
from capi.evaluators import FittedQ, _groups, under_policy
from capi.evaluators.averager import Averager
from capi.policies import Constant, Uniform


@pytest.fixture(autouse=True)
def _always_on_leaves(monkeypatch):
    monkeypatch.setattr(under_policy, "MANY_ROWS", 0)
    monkeypatch.setattr(_groups, "POINTS_OF_GROUP", 16)


def modelled(policy, discount=0.98, n_episodes=100):
    batch = builders.wandering(0, n_episodes=n_episodes)
    q = FittedQ(n_trees=8, min_samples_split=5).evaluate(policy, batch, discount=discount)
    return Averager.of(q, batch, discount=discount).under(policy)


@pytest.mark.parametrize("policy", [Constant(1, 3), Uniform(3)])
def test_a_rough_solution_solves_the_flows_between_groups(policy):
    groups = modelled(policy)._on_leaves.groups
    n, k = len(groups.group), len(groups.sizes)
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=n), rng.normal(size=n)
    averaging = (groups.group == np.arange(k)[:, None]) / groups.sizes[:, None]
    dense = np.eye(n) + (groups.group[:, None] == np.arange(k)) @ groups.change @ averaging
    np.testing.assert_allclose(groups.ahead(x), dense @ x, atol=1e-10)
    np.testing.assert_allclose(groups.back(y), dense.T @ y, atol=1e-10)


def test_flows_between_groups_are_at_most_the_discount():
    groups = modelled(Uniform(3), discount=0.9)._on_leaves.groups
    identity = np.eye(len(groups.sizes))
    flows = identity - np.linalg.inv(groups.change + identity)
    assert flows.min() > -1e-12
    assert flows.sum(axis=1).max() <= 0.9 + 1e-12


def test_they_save_products_and_change_no_result(monkeypatch):
    with_groups = in_a_circle()
    assert with_groups._on_leaves.groups is not None
    monkeypatch.setattr(_groups, "FEWEST_GROUPS", 10**9)
    without = in_a_circle()
    assert without._on_leaves.groups is None
    assert with_groups.value == pytest.approx(without.value, rel=3e-6)
    assert np.abs(with_groups.occupancy - without.occupancy).sum() <= 2.1e-3 * without.occupancy.sum()
    for solution in ("value_solution", "occupancy_solution"):
        assert getattr(with_groups, solution).n_products < getattr(without, solution).n_products


def in_a_circle(n=3000, discount=0.99):
    """Return a model of a process that slowly moves in a circle."""
    rng = np.random.default_rng(0)
    states = rng.random((n, 1))
    after = (states + 0.02 + 0.005 * rng.normal(size=(n, 1))) % 1.0
    batch = Transitions(states, rng.integers(2, size=n), (states[:, 0] < 0.1) * 1.0, after, np.zeros(n, dtype=bool))
    q = FittedQ(n_trees=8, min_samples_split=20).evaluate(Constant(1, 2), batch, discount=discount)
    return Averager.of(q, batch, discount=discount).under(Constant(1, 2))


def test_few_points_have_no_groups():
    assert modelled(Constant(1, 3), n_episodes=2)._on_leaves.groups is None


def test_visits_are_never_negative():
    """A solution below zero counts as zero."""
    under = modelled(Constant(0, 3))
    solution = under.occupancy_solution
    under.__dict__["occupancy_solution"] = SimpleNamespace(x=np.full_like(solution.x, -1.0))
    assert under.occupancy.min() >= 0
