"""A small policy of every kind that files hold, and states to ask them about."""

from functools import cache

import numpy as np

from capi._utils.state_rows import StateRows
from capi.data.schema import Schema
from capi.evaluators import LSTDQ, FittedQ, KernelFittedQ, Pessimistic
from capi.features import RKHS, Fourier, KernelDictionary, OneHot, Polynomial, RadialCentres, RadialGrid, Tiles
from capi.features.kernels import Gaussian
from capi.finite import TabularQ
from capi.learning.support import Support
from capi.policies import (
    Constant,
    EpsilonGreedy,
    Greedy,
    Mixture,
    NonStationary,
    Tabular,
    Training,
    Uniform,
    cloned,
    described,
)
from capi.policy_spaces import (
    Constrained,
    Forests,
    KernelPolicies,
    Linear,
    LocalAverages,
    Neighbors,
    OptimalTrees,
    Reweighted,
    Thresholds,
    Trees,
    Unrestricted,
)
from capi.policy_spaces.rules import Budget, Cap, Costs, Monotone, Never, Only
from capi.policy_spaces.supported import SupportedPolicy
from capi.testing import random_batch

NEWER = {
    "cloned-behaviour",
    "constrained-combined",
    "forest-combined",
    "lower-bounds",
    "lower-bounds-trees",
    "reweighted",
    "supported",
    "supported-tree",
    "tabular-features",
    "tabular-values-features",
}  # than version 1 of the format
LABELS = ("none", 2.5, None)
SCHEMA = Schema.of(3, 3, ["age", 'the "dose"', "weight\n"], LABELS)
PLACES = StateRows(np.array([[x, y, 0.5] for x in range(3) for y in range(2)]))
TRAINING = Training(0.9, 5, 60, {"capi": "0.1.0"})
RULES = [Never(2.5, when="age > 1", if_missing=True), Only(["none", None], when='the "dose" <= -1.5'), Cap(None, 0.6)]
SOFT_RULES = [Budget({2.5: 1.0}, at_most=0.5), Costs({"none": 0.1})]


def sample(missing=False, seed=0):
    """Return states (60, 3) and values (60, 3)."""
    rng = np.random.default_rng(seed)
    states = rng.normal(size=(60, 3))
    values = states @ rng.normal(size=(3, 3)) + rng.normal(size=(60, 3))
    if missing:
        states[rng.random(states.shape) < 0.15] = np.nan
    return states, values


def questions(n_features=3, missing=False, n=300):
    """Return states (n, d) to act in: far and near, round numbers among them."""
    rng = np.random.default_rng(9)
    states = rng.normal(size=(n, n_features)) * rng.choice([0.3, 1, 5], size=(n, 1))
    states[: n // 4] = states[: n // 4].round(1)
    if missing:
        states[rng.random(states.shape) < 0.2] = np.nan
    return states


def finite_questions():
    """Return indices of finite states (n, 1)."""
    return np.arange(6.0)[:, None]


def _greedy(evaluator):
    batch = random_batch()
    q = evaluator.evaluate(Constant(0, batch.n_actions), batch, discount=0.9)
    return Unrestricted().improve(batch.states, q.values(batch.states), q=q), questions(batch.n_features)


@cache
def policies():
    """Return, by name, policies and the states to ask them about."""
    states, values = sample()
    gaps, of_gaps = sample(missing=True)
    allowed = np.random.default_rng(1).random(values.shape) < 0.7
    allowed[:, 0] = True
    known, unknown = questions(), questions(missing=True)
    batch = random_batch()
    told = {
        "constant": (Constant(1, 3), unknown),
        "uniform": (Uniform(3), unknown),
        "epsilon-greedy": (EpsilonGreedy(Constant(2, 3), 0.25), unknown),
        "tabular": (Tabular(np.array([0, 1, 2, 1, 0, 2]), 3), finite_questions()),
        "tabular-values": (Greedy(TabularQ(np.random.default_rng(0).normal(size=(6, 3)))), finite_questions()),
        "tabular-features": (Tabular(np.array([0, 1, 2, 1, 0, 2]), 3, PLACES), PLACES.features),
        "tabular-values-features": (
            Greedy(TabularQ(np.random.default_rng(0).normal(size=(6, 3)), PLACES)),
            PLACES.features,
        ),
        "mixture": (Mixture([Constant(0, 3), Thresholds().improve(states, values)], [0.3, 0.7]), known),
        "non-stationary": (
            NonStationary([Constant(1, 3), Trees(max_depth=2).improve(states, values)], Uniform(3)),
            known,
        ),
        "threshold": (Thresholds().improve(states, values), known),
        "threshold-constant": (Thresholds().improve(states, values * 0 + [0, 1, 0]), known),
        "threshold-masked": (Thresholds().improve(states, values, allowed=allowed), known),
        "tree": (Trees(max_depth=4).improve(gaps, of_gaps), unknown),
        "tree-masked": (Trees(max_depth=3).improve(gaps, of_gaps, allowed=allowed), unknown),
        "optimal-tree": (OptimalTrees(max_depth=2).improve(gaps, of_gaps), unknown),
        "forest": (Forests(n_trees=7, max_depth=4).improve(gaps, of_gaps), unknown),
        "forest-masked": (Forests(n_trees=5, max_depth=3).improve(gaps, of_gaps, allowed=allowed), unknown),
        "forest-combined": (Forests(n_trees=5, max_depth=4, projections=4).improve(gaps, of_gaps), unknown),
        "linear": (Linear().improve(states, values), known),
        "linear-masked": (Linear().improve(states, values, allowed=allowed), known),
        "kernel": (KernelPolicies(Gaussian(0.5)).improve(states, values), known),
        "neighbors": (Neighbors(5).improve(states, values), known),
        "neighbors-distance": (
            Neighbors(5, "distance", "minkowski", {"p": 3}).improve(states.round(), values),
            known.round(),
        ),
        "local-averages": (LocalAverages(Gaussian(0.2)).improve(states, values), known),
        "constrained-tree": (Constrained(Trees(max_depth=3), RULES, SCHEMA).improve(gaps, of_gaps), unknown),
        "constrained-forest": (Constrained(Forests(5, max_depth=3), RULES, SCHEMA).improve(gaps, of_gaps), unknown),
        "constrained-combined": (
            Constrained(Forests(5, max_depth=3, projections=3), RULES, SCHEMA).improve(gaps, of_gaps),
            unknown,
        ),
        "constrained-linear": (Constrained(Linear(), [*RULES, *SOFT_RULES], SCHEMA).improve(states, values), known),
        "constrained-threshold": (Constrained(Thresholds(), RULES, SCHEMA).improve(states, values), known),
        "monotone": (Constrained(Thresholds(), [Monotone("age")], SCHEMA).improve(states, values), known),
        "monotone-tree": (Constrained(Trees(max_depth=3), [Monotone("age")], SCHEMA).improve(gaps, of_gaps), unknown),
        "fitted-values": _greedy(FittedQ(n_trees=5)),
        "fitted-values-input": _greedy(FittedQ(n_trees=5, actions="input")),
        "lower-bounds": _greedy(Pessimistic(FittedQ(n_trees=3), n_models=2)),
        "lower-bounds-trees": _greedy(Pessimistic(FittedQ(n_trees=3), spread="trees")),
        "linear-values": _greedy(LSTDQ(Polynomial(2))),
        "kernel-values": _greedy(KernelFittedQ(Gaussian(0.5))),
        "kernel-values-exact": _greedy(KernelFittedQ(Gaussian(0.5), threshold=None)),
        "kernel-span-values": _greedy(LSTDQ(RKHS(Gaussian(0.5)), ridge=1e-3, projection_ridge=1e-3)),
    }
    features = (OneHot(), Polynomial(2), Fourier(1), RadialGrid(2), RadialCentres(8), Tiles(2, 2), KernelDictionary())
    for kind in features:
        name = f"linear-{type(kind).__name__}".lower()
        told[name] = Linear(kind, max_iterations=20, polish=False).improve(states.round(), values), known.round()
    priced = Constrained(Unrestricted(), [Costs({0: 0.5})])
    q = FittedQ(n_trees=3).evaluate(Constant(0, batch.n_actions), batch, discount=0.9)
    done, asked = cloned(batch, projections=3), questions(batch.n_features, missing=True)
    behind = Support(0.4, max_depth=2).fit(batch)
    masked = behind.mask(batch)
    inner = Trees(max_depth=2).improve(batch.states, q.values(batch.states), allowed=masked.allowed)
    told["cloned-behaviour"] = done, asked
    told["supported"] = SupportedPolicy(inner, done, 0.4), asked
    told["supported-tree"] = behind.restrict(inner), asked
    coarse = FittedQ(n_trees=3, min_samples_leaf=5).evaluate(done, batch, discount=0.9)
    told["reweighted"] = Reweighted(done).improve(batch.states, coarse.values(batch.states), q=coarse), asked
    told["priced-values"] = priced.improve(batch.states, q.values(batch.states), q=q), questions(batch.n_features)
    words = {"threshold", "tree", "optimal-tree", "forest", "linear", "neighbors", "constrained-tree", "constant"}
    words.add("forest-combined")
    return {name: (described(p, SCHEMA, TRAINING) if name in words else p, x) for name, (p, x) in told.items()}


def masks(policy, states):
    """Return what to allow: all, at random if the policy needs to be told."""
    if not getattr(policy, "masked", False):
        return None
    allowed = np.random.default_rng(3).random((len(states), policy.n_actions)) < 0.6
    allowed[:, -1] = True
    return allowed
