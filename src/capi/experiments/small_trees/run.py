"""One tree for one problem: its exact value, and the processor time that it took."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from time import process_time
from typing import Any

import numpy as np
from sklearn.tree import DecisionTreeClassifier

from capi._utils.validation import Floats, Ints
from capi.baselines import FittedQIteration
from capi.data.transitions import Transitions
from capi.domains import (
    Blackjack,
    FrozenLake,
    InventoryManagement,
    MachineMaintenance,
    Navigation,
    SystemAdministrator,
    TicTacToe,
    TigerAndAntelope,
    TrafficIntersection,
)
from capi.evaluators import Exact, FittedQ
from capi.experiments.small_trees.milp import best_tree
from capi.experiments.small_trees.search import MOST_STATES, CompleteTree, TreeSearch
from capi.finite.mdp import FiniteMDP
from capi.learning.capi import CAPI
from capi.policies import Tabular, Uniform
from capi.policy_spaces import OptimalTrees, Trees
from capi.policy_spaces.trees.greedy import TreePolicy
from capi.simulation.sampling import sample_steps

DOMAINS: dict[str, Callable[[], Any]] = {
    "machine": MachineMaintenance,
    "frozen-lake-4x4": lambda: FrozenLake("4x4"),
    "frozen-lake-8x8": lambda: FrozenLake("8x8"),
    "frozen-lake-12x12": lambda: FrozenLake("12x12"),
    "administrator-tree": lambda: SystemAdministrator("tree"),
    "administrator-1": lambda: SystemAdministrator("random-1"),
    "administrator-2": lambda: SystemAdministrator("random-2"),
    "navigation": Navigation,
    "blackjack": Blackjack,
    "traffic": TrafficIntersection,
    "inventory": InventoryManagement,
    "inventory-published": lambda: InventoryManagement(squared_chances=True),
    "tiger-antelope": TigerAndAntelope,
    "tic-tac-toe": TicTacToe,
}
WEIGHTS = ("batch", "occupancy", "mixture")
ROUNDS, PATIENCE = 10, 2  # of the loop with a model
IMITATION_ROUNDS = 10
BATCH_ROUNDS = 15
SWEEPS = 20  # per round, from a batch
FQI_SWEEPS = 300
MOST_REFINED = 3  # trees of the loop from which the search starts
NODE_LIMIT = 200_000  # of each search for a tree of depth 3 or 4


def prepare() -> None:
    """Compile what is compiled, so that no run counts it."""
    lake = {"problem": "frozen-lake-12x12", "batch": 0, "n_samples": 300}
    for group, methods in (("model", _MODEL), ("batch", _BATCH)):
        for method in methods:
            for depth in (2, 3, 4):
                run({**lake, "group": group, "depth": depth, "method": method}, 0)


def run(values: Mapping[str, Any], seed: int, n_jobs: int = 1) -> dict[str, Any]:  # noqa: ARG001  all of it is one thread
    """Return the value of the start of the tree that a method finds, and of random actions and of the optimum."""
    domain = _domain(values["problem"])
    mdp: FiniteMDP = domain.mdp
    known = {"random": worth(mdp, Uniform(mdp.n_actions)), "optimum": float(mdp.start @ mdp.optimal_values)}
    depth = values["depth"]
    if values["method"] == "milp":
        solved = best_tree(mdp, depth, time_limit=values["time_limit"])
        value = None if solved.actions is None else worth(mdp, Tabular(solved.actions, mdp.n_actions, mdp.features))
        return {**known, "value": value, "bound": solved.bound, "proved": solved.proved, "cpu_seconds": solved.seconds}
    if values["group"] == "model":
        method = _MODEL[values["method"]]
        started = process_time()
        policy = method(mdp, depth)
    else:
        batch = batch_of(domain, values["n_samples"], values["batch"])
        started = process_time()
        policy = _BATCH[values["method"]](batch, mdp.discount, depth, values["batch"])
    seconds = process_time() - started
    return {**known, "value": worth(mdp, policy), "cpu_seconds": seconds}


def worth(mdp: FiniteMDP, policy: Any) -> float:
    """Return the exact value of the start."""
    return float(mdp.start @ mdp.values(policy))


@cache
def _domain(problem: str) -> Any:
    return DOMAINS[problem]()


# -- from the model -----------------------------------------------------------------------------------


def loops(mdp: FiniteMDP, depth: int, space: Any, more_starts: tuple[Any, ...] = ()) -> list[Any]:
    """Return the best policies of the loop with each kind of state weights from each start, and ``more_starts``, which are trees, the best one first."""
    found = list(more_starts)
    for start in (mdp.optimal_policy, Uniform(mdp.n_actions), *more_starts):
        for weights in WEIGHTS:
            learner = CAPI(
                Exact(mdp),
                space(depth),
                mdp.discount,
                ROUNDS,
                initial_policy=start,
                patience=PATIENCE,
                state_weights=weights,  # type: ignore[arg-type]
                keep=lambda step: worth(mdp, step.policy),
                random_state=0,
            )
            found.append(learner.fit().policy_)
    return sorted(found, key=lambda policy: -worth(mdp, policy))


def _optimal(depth: int) -> OptimalTrees:
    return OptimalTrees(max_depth=depth, min_samples_leaf=1, node_limit=NODE_LIMIT if depth > 2 else None)


def _greedy(depth: int) -> Trees:
    return Trees(max_depth=depth, min_samples_leaf=1)


def _capi(mdp: FiniteMDP, depth: int) -> Any:
    """Return the best tree of the loop, which also starts from the imitation tree and from the best tree with one level less."""
    starts = (_imitation(mdp, depth), *((_capi(mdp, depth - 1),) if depth > 1 else ()))
    return loops(mdp, depth, _optimal, starts)[0]


def _greedy_loop(mdp: FiniteMDP, depth: int) -> Any:
    """Return the best greedily grown tree of the loop, which also starts from the best one with one level less."""
    return loops(mdp, depth, _greedy, (_greedy_loop(mdp, depth - 1),) if depth > 1 else ())[0]


def _capi_search(mdp: FiniteMDP, depth: int) -> Any:
    """Return the best tree of searches node by node, from the best trees of the loop and from the best such tree with one level less."""
    if mdp.n_states > MOST_STATES:
        return _capi(mdp, depth)
    tree, search = _searched(mdp, depth)
    return Tabular(search.decisions(tree), mdp.n_actions, mdp.features)


def _searched(mdp: FiniteMDP, depth: int) -> tuple[CompleteTree, TreeSearch]:
    search = TreeSearch(mdp, depth)
    below, starts = [], []
    if depth > 1:
        smaller, _ = _searched(mdp, depth - 1)
        below = [smaller.deeper()]
        starts = [Tabular(search.decisions(below[0]), mdp.n_actions, mdp.features)]
    found = loops(mdp, depth, _optimal, (_imitation(mdp, depth), *starts))
    different = {round(worth(mdp, policy), 9): policy for policy in reversed(found) if isinstance(policy, TreePolicy)}
    trees = [search.of(different[value]) for value in sorted(different)[-MOST_REFINED:]]
    best, _ = max((search.improved(tree) for tree in (*trees, *below)), key=lambda pair: pair[1])
    return best, search


def _imitation(mdp: FiniteMDP, depth: int) -> Any:
    """Return the tree that loses least by the optimal values where the optimum and earlier trees are; VIPER's idea with optimal trees."""

    def imitate(weights: Floats) -> Any:
        return _optimal(depth).improve(mdp.states, mdp.optimal_action_values, weights=weights)

    return _aggregated(mdp, imitate)


def _viper(mdp: FiniteMDP, depth: int) -> Any:
    """Return VIPER's tree, with exact values and occupancies: CART on the optimal actions, weighted by the largest gap."""
    q, labels = mdp.optimal_action_values, mdp.optimal_policy.actions
    gaps = q.max(axis=1) - q.min(axis=1)

    def imitate(weights: Floats) -> Any:
        weighed = weights * gaps
        tree = DecisionTreeClassifier(max_depth=depth, random_state=0)
        tree.fit(mdp.states, labels, sample_weight=weighed if weighed.any() else weights)
        actions: Ints = tree.predict(mdp.states).astype(np.int64)
        return Tabular(actions, mdp.n_actions, mdp.features)

    return _aggregated(mdp, imitate)


def _aggregated(mdp: FiniteMDP, imitate: Callable[[Floats], Any]) -> Any:
    """Return the best of several trees; each is learned where the optimum and the trees before it are (DAgger)."""
    visits = mdp.discounted_occupancy(mdp.optimal_policy)
    found = []
    for _ in range(IMITATION_ROUNDS):
        found.append(imitate(visits))
        visits = visits + mdp.discounted_occupancy(found[-1])
    return max(found, key=lambda policy: worth(mdp, policy))


_MODEL: dict[str, Callable[[FiniteMDP, int], Any]] = {
    "capi": _capi,
    "capi-search": _capi_search,
    "imitation": _imitation,
    "viper": _viper,
    "greedy": _greedy_loop,
}


# -- from a batch -------------------------------------------------------------------------------------


def batch_of(domain: Any, n: int, number: int) -> Transitions:
    """Return transitions from states drawn from all that are not absorbing, with random actions."""
    rng = np.random.default_rng([number, n])
    states = domain.mdp.states[~domain.mdp.absorbing]
    return sample_steps(None, domain, states[rng.integers(len(states), size=n)], random_state=rng)


def _from_batch(space: Any) -> Callable[[Transitions, float, int, int], Any]:
    def learned(batch: Transitions, discount: float, depth: int, number: int) -> Any:
        learner = CAPI(FittedQ(n_sweeps=SWEEPS), space(depth), discount, BATCH_ROUNDS, random_state=number)
        return learner.fit(batch).policy_

    return learned


def _imitated(batch: Transitions, discount: float, depth: int, number: int) -> Any:
    """Return the tree that loses least by the values of Tree-FQI in the states of the batch."""
    teacher = FittedQIteration(FittedQ(n_sweeps=1), discount=discount, n_iterations=FQI_SWEEPS, random_state=number)
    values = teacher.fit(batch).q_.values(batch.states)
    return _optimal(depth).improve(batch.states, values)


_BATCH: dict[str, Callable[[Transitions, float, int, int], Any]] = {
    "capi": _from_batch(_optimal),
    "imitation": _imitated,
    "greedy": _from_batch(_greedy),
}
