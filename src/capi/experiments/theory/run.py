"""One case of one claim: losses by level of effort or error, from one seed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from capi._utils.randomness import numbered_rng, seed_sequence
from capi._utils.validation import Floats, Ints
from capi.baselines import CPI, DPI, RFQI
from capi.data.transitions import Transitions
from capi.datasets import load_hiv_batch
from capi.domains import HIV, ChainWalk, MountainCar
from capi.evaluators import LSTDQ, Exact, FittedQ, KernelFittedQ, RolloutsWithCritic
from capi.experiments.mountain_car.run import batch_of
from capi.features.bases import OneHot, RadialGrid
from capi.features.kernels import Gaussian
from capi.learning import ImportantStates, UncertainStates
from capi.learning.capi import CAPI
from capi.policies import Constant, Uniform
from capi.policy_spaces import Thresholds, Trees, Unrestricted
from capi.simulation.returns import performance
from capi.simulation.sampling import sample_steps
from capi.theory import gap_regularity

N_STATES = 200_000  # of the problems with gaps of a given law
ROUNDS = 10
CPI_ROUNDS = 50  # each adds a policy to the mixture
CRITIC_STEPS = 5  # length of rollouts that end with a critic's value
ROLLOUT_STEPS, ROLLOUT_ROUNDS = 100, 5
CENTRES = 40  # of the smooth values: one in five states
TESTS, MAX_STEPS = 200, 200  # of Mountain-Car
AT_ONCE, ADDITIONS, CANDIDATES, SWEEPS = (
    100,
    7,
    2_000,
    60,
)  # transitions; how often more are added; states to choose from; sweeps
DAYS = 200  # steps of five days, of an HIV patient


def run(values: Mapping[str, Any], seed: int, n_jobs: int = 1) -> dict[str, Any]:
    """Return the loss at each level, and what else the claim needs."""
    return _GROUPS[values["group"]](values, seed, n_jobs)


# -- later rounds matter more ---------------------------------------------------------------------


def effort_of(schedule: str, n_rounds: int) -> Ints:
    """Return the effort of each round (n_rounds,); all schedules have the same sum."""
    rising = np.arange(1, n_rounds + 1)
    even = np.full(n_rounds, int(rising.sum()) // n_rounds)
    even[: int(rising.sum()) - int(even.sum())] += 1
    return {"early": rising[::-1], "evenly": even, "late": rising}[schedule]


def _later(values: Mapping[str, Any], seed: int, n_jobs: int) -> dict[str, Any]:
    return {"chain": _later_chain, "mountain-car": _later_car, "hiv": _later_hiv}[values["problem"]](
        values["case"], seed, n_jobs
    )


def _later_chain(schedule: str, seed: int, n_jobs: int) -> dict[str, Any]:  # noqa: ARG001
    """Sweeps of the known model and fresh states of each round."""
    chain = ChainWalk(variant=1, success=0.7)
    effort = effort_of(schedule, 11)
    learner = CAPI(
        lambda k, policy, rng: Exact(chain.mdp, n_sweeps=int(effort[k])),  # noqa: ARG005
        Thresholds(),
        discount=0.99,
        n_iterations=len(effort),
        initial_policy=chain.mdp.greedy(chain.mdp.rewards),
        random_state=seed,
    )
    learner.fit(states=lambda k, policy, rng: chain.initial(int(10 * effort[k]), rng))  # noqa: ARG005
    return _only(chain.mdp.performance_loss(learner.policy_))


def _later_car(schedule: str, seed: int, n_jobs: int) -> dict[str, Any]:  # noqa: ARG001
    """Sweeps and fresh transitions of each round; steps to the goal."""
    cars, effort, seeds = MountainCar(), effort_of(schedule, 8), seed_sequence(seed)

    def evaluator(k: int, policy: Any, rng: Any) -> KernelFittedQ:  # noqa: ARG001
        return KernelFittedQ(Gaussian(0.1), ridge=0.01, threshold=1e-3, scale=cars.box, n_sweeps=int(3 * effort[k]))

    first = Constant(1, cars.n_actions)
    learner = CAPI(evaluator, Unrestricted(), cars.discount, len(effort), initial_policy=first, random_state=seed)
    learner.fit(lambda k, policy, rng: batch_of(cars, int(100 * effort[k]), rng))  # noqa: ARG005
    return _only(_steps(learner.policy_, cars, numbered_rng(seeds, 9)))


def _later_hiv(schedule: str, seed: int, n_jobs: int) -> dict[str, Any]:
    """Sweeps and patients of each round; minus the logarithm of the return, which covers orders of magnitude."""
    batch, effort = load_hiv_batch(), effort_of(schedule, 6)

    def patients(k: int, policy: Any, rng: np.random.Generator) -> Transitions:  # noqa: ARG001
        chosen = np.zeros(batch.n_episodes, dtype=bool)
        chosen[rng.permutation(batch.n_episodes)[: int(5 * effort[k])]] = True
        return batch.subset(np.repeat(chosen, batch.episode_lengths))

    def evaluator(k: int, policy: Any, rng: Any) -> FittedQ:  # noqa: ARG001
        return FittedQ(n_sweeps=int(10 * effort[k]), n_jobs=n_jobs)

    first = Constant(0, batch.n_actions)
    learner = CAPI(evaluator, Unrestricted(), 0.98, len(effort), initial_policy=first, random_state=seed).fit(patients)
    result = performance(learner.policy_, HIV(), n_episodes=1, max_steps=DAYS, random_state=seed)
    return _only(-float(np.log10(max(result.mean, 1.0))))


# -- errors of values, and rates -------------------------------------------------------------------


def gaps_of(zeta: float | None, n: int, rng: np.random.Generator) -> Floats:
    """Return gaps (n,) with P(g <= e) = e ** zeta up to 1; None: all are 1."""
    return np.ones(n) if zeta is None else rng.random(n) ** (1 / zeta)


def _damping(values: Mapping[str, Any], seed: int, n_jobs: int) -> dict[str, Any]:  # noqa: ARG001
    """Greedy decisions in values with an error that is uniform up to each level."""
    rng = np.random.default_rng(seed)
    if values["problem"] == "chain":
        q = ChainWalk(variant=2).mdp.optimal_action_values
        q = np.tile(q, (N_STATES // 200, 1))
        zeta = gap_regularity(q[:200]).zeta
    else:
        zeta = values["zeta"]
        gap = gaps_of(zeta, N_STATES, rng) * rng.choice([-1.0, 1.0], N_STATES)
        q = np.stack([np.zeros(N_STATES), gap], axis=1)
    losses = [_greedy_loss(q, q + e * rng.uniform(-1, 1, q.shape)) for e in values["levels"]]
    return {"levels": list(values["levels"]), "losses": losses, "zeta_of_gaps": zeta}


def _rates(values: Mapping[str, Any], seed: int, n_jobs: int) -> dict[str, Any]:  # noqa: ARG001
    rng = np.random.default_rng(seed)
    one = _rewards if values["problem"] == "rewards" else _states
    return {"levels": list(values["levels"]), "losses": [one(values, n, rng) for n in values["levels"]]}


def _rewards(values: Mapping[str, Any], n: int, rng: np.random.Generator) -> float:
    """Greedy decisions in means of n rewards with variance 1 of each action in each state."""
    gap = gaps_of(values["zeta"], N_STATES, rng)
    q = np.stack([np.zeros(N_STATES), gap], axis=1)
    return _greedy_loss(q, q + rng.normal(size=q.shape) / np.sqrt(n))


def _states(values: Mapping[str, Any], n: int, rng: np.random.Generator, n_runs: int = 40) -> float:
    """Return the mean excess loss of cuts that are learned from n states with gaps of 1.

    The better action changes at one place, or at three: then two cuts lose almost the same, and telling them apart takes n states if their losses differ by
    n ** -0.5. This is the hardest such problem for n.
    """
    excess = []
    for _ in range(n_runs):
        x = rng.random((n, 1))
        if values["case"] == "fits":
            policy = Thresholds().improve(x, _values_of(x[:, 0] > 0.4))
            excess.append(abs(min(max(policy.cut, 0.0), 1.0) - 0.4))
        else:
            tilt = 0.5 / np.sqrt(n)
            places = np.array([0.3, 0.6 + tilt / 2, 0.9])  # the second stretch is longer: the cut at 0.9 is worse
            policy = Thresholds().improve(x, _values_of(np.searchsorted(places, x[:, 0]) % 2 == 1))
            grid = (np.arange(20_000) + 0.5) / 20_000
            better = np.searchsorted(places, grid) % 2 == 1
            lost = float(np.mean(policy.act(grid[:, None]) != better))
            excess.append(lost - (places[2] - places[1]))
    return float(np.mean(np.maximum(excess, 0.0)))


def _values_of(better: Any) -> Floats:
    """Return action values with a gap of 1, the second action better where ``better`` (n,) is true."""
    return np.stack([~better, better], axis=1).astype(np.float64)


def _greedy_loss(q: Floats, estimates: Floats) -> float:
    chosen = estimates.argmax(axis=1)
    return float(np.mean(q.max(axis=1) - q[np.arange(len(q)), chosen]))


# -- methods, regularities and losses ---------------------------------------------------------------


def _methods(values: Mapping[str, Any], seed: int, n_jobs: int) -> dict[str, Any]:  # noqa: ARG001
    chain = ChainWalk(variant=2)
    learned = [_METHODS[values["case"]](chain, n, seed) for n in values["levels"]]
    return {"levels": list(values["levels"]), "losses": [chain.mdp.performance_loss(policy) for policy in learned]}


def random_steps(chain: ChainWalk, n: int, seed: int) -> Transitions:
    """Return transitions of random actions from uniform states; the same for all methods with a seed."""
    rng = np.random.default_rng([seed, n])
    return sample_steps(None, chain, chain.initial(n, rng), random_state=rng)


def _capi(chain: ChainWalk, n: int, seed: int) -> Any:
    learner = CAPI(_tabular(), Thresholds(), 0.99, ROUNDS, initial_policy=Uniform(2), random_state=seed)
    return learner.fit(random_steps(chain, n, seed)).policy_


def _cpi(chain: ChainWalk, n: int, seed: int, step_size: float | None = None) -> Any:
    learner = CPI(
        _tabular(), Thresholds(), 0.99, CPI_ROUNDS, step_size=step_size, initial_policy=Uniform(2), random_state=seed
    )
    return learner.fit(random_steps(chain, n, seed), states=chain.mdp.states).policy_


def _dpi(chain: ChainWalk, n: int, seed: int) -> Any:
    n_states = max(n // (ROLLOUT_ROUNDS * 2 * ROLLOUT_STEPS), 1)
    learner = DPI(
        chain, Thresholds(), n_iterations=ROLLOUT_ROUNDS, n_states=n_states, horizon=ROLLOUT_STEPS, random_state=seed
    )
    return learner.fit().policy_


def _cbmpi(chain: ChainWalk, n: int, seed: int) -> Any:
    """Half of the transitions for the critic, half for short rollouts from fresh states of each round."""
    n_states = max(n // 2 // (ROUNDS * 2 * CRITIC_STEPS), 1)
    evaluator = RolloutsWithCritic(chain, _tabular(), 1, CRITIC_STEPS)
    learner = CAPI(evaluator, Thresholds(), 0.99, ROUNDS, initial_policy=Uniform(2), random_state=seed)
    learner.fit(
        random_steps(chain, n // 2, seed),
        states=lambda k, policy, rng: chain.initial(n_states, rng),  # noqa: ARG005
    )
    return learner.policy_


_METHODS: dict[str, Callable[[ChainWalk, int, int], Any]] = {
    "capi": _capi,
    "cpi": _cpi,
    "cpi-0.1": lambda chain, n, seed: _cpi(chain, n, seed, 0.1),
    "dpi": _dpi,
    "cbmpi": _cbmpi,
}


def _tabular() -> LSTDQ:
    return LSTDQ(OneHot(200), ridge=1e-6)


def _regularities(values: Mapping[str, Any], seed: int, n_jobs: int) -> dict[str, Any]:  # noqa: ARG001
    chain = ChainWalk(variant=2)
    how, where = values["case"].split("/")
    evaluator = _tabular() if how == "tabular" else LSTDQ(RadialGrid(CENTRES), ridge=1e-6)
    space = Thresholds() if where == "thresholds" else Unrestricted()
    losses = []
    for n in values["levels"]:
        learner = CAPI(evaluator, space, 0.99, ROUNDS, initial_policy=Uniform(2), random_state=seed)
        losses.append(chain.mdp.performance_loss(learner.fit(random_steps(chain, n, seed)).policy_))
    return {"levels": list(values["levels"]), "losses": losses}


def _losses(values: Mapping[str, Any], seed: int, n_jobs: int) -> dict[str, Any]:  # noqa: ARG001
    loss: Any = {"gap-weighted": "gap", "zero-one": "zero-one"}[values["case"]]
    if values["problem"] == "mountain-car":
        cars, seeds = MountainCar(), seed_sequence(seed)
        evaluator = KernelFittedQ(Gaussian(0.1), ridge=0.01, threshold=1e-3, scale=cars.box, n_sweeps=2)
        learner = CAPI(evaluator, Trees(max_depth=4), cars.discount, 40, loss=loss, random_state=seed)
        learner.fit(batch_of(cars, 1_000, numbered_rng(seeds, 0)))
        return _only(_steps(learner.policy_, cars, numbered_rng(seeds, 9)))
    _, variant, success = values["problem"].split("-")
    chain = ChainWalk(variant=1 if variant == "1" else 2, success=float(success))
    learner = CAPI(_tabular(), Thresholds(), 0.99, ROUNDS, loss=loss, initial_policy=Constant(0, 2), random_state=seed)
    return _only(chain.mdp.performance_loss(learner.fit(random_steps(chain, 4_000, seed)).policy_))


# -- new states -----------------------------------------------------------------------------------


def _informative(values: Mapping[str, Any], seed: int, n_jobs: int) -> dict[str, Any]:  # noqa: ARG001
    """Transitions from 100 states of the box, then seven times 100 more, chosen by what was learned from those before."""
    cars, seeds = MountainCar(), seed_sequence(seed)

    def learned(batch: Transitions) -> RFQI:
        evaluator = KernelFittedQ(Gaussian(0.1), ridge=0.01, threshold=1e-3, scale=cars.box, n_sweeps=1)
        return RFQI(evaluator, discount=cars.discount, n_iterations=SWEEPS, random_state=0).fit(batch)

    batch = sample_steps(None, cars, cars.initial(AT_ONCE, numbered_rng(seeds, 0)), random_state=numbered_rng(seeds, 1))
    for k in range(ADDITIONS):
        rng, drawing = numbered_rng(seeds, 2, k), numbered_rng(seeds, 3, k)
        candidates = cars.initial(CANDIDATES, rng)
        if values["case"] == "uniform":
            chosen = candidates[:AT_ONCE]
        elif values["case"] == "important":
            q = learned(batch).q_
            chosen = ImportantStates(candidates, partial(_known, q), AT_ONCE)(k, Constant(0, 3), rng).states
        else:
            halves = [learned(half).q_ for half in batch.split(0.5, random_state=rng)]
            chosen = UncertainStates(candidates, partial(_known, halves), AT_ONCE)(k, Constant(0, 3), rng).states
        batch = Transitions.concat([batch, sample_steps(None, cars, chosen, random_state=drawing)])
    return _only(_steps(learned(batch).policy_, cars, numbered_rng(seeds, 9)))


def _known(found: Any, policy: Any, rng: Any) -> Any:  # noqa: ARG001
    """Return values that are known already."""
    return found


def _steps(policy: Any, cars: MountainCar, rng: np.random.Generator) -> float:
    result = performance(policy, cars, starts=cars.initial(TESTS, rng), max_steps=MAX_STEPS)
    return float(result.lengths.mean())


def _only(loss: float) -> dict[str, Any]:
    return {"levels": [0], "losses": [loss]}


_GROUPS = {
    "later": _later,
    "damping": _damping,
    "rates": _rates,
    "methods": _methods,
    "regularities": _regularities,
    "losses": _losses,
    "informative": _informative,
}
