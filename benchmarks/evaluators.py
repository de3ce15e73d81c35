"""All evaluators on the same two problems: the error of their Q, their running time, and the resulting policy.

Produces the table in docs/choosing.md. Chain: 200 states, success 0.9, discount 0.99, 20,000 transitions of random actions
in random states; the evaluated policy goes right in the lower half and left in the upper half. Mountain-Car: 5,000
transitions of random actions in random states; the policy pushes in the direction of the velocity, and its true Q comes from
simulation, which is exact because nothing is random. Errors are root mean squares over all states (chain) or 1,000 random
ones, and all actions, in per cent of the standard deviation of the true Q there. "steps" is the mean number of steps to the
goal (at most 200, from 300 random states) of CAPI with 30 rounds and nearest-neighbour policies (near-optimal: 49); rollouts
start from 500 states of the batch.
"""

import dataclasses
import sys
import time
import warnings

import numpy as np
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import OrthogonalMatchingPursuit
from sklearn.neural_network import MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from capi import CAPI
from capi.domains import ChainWalk, MountainCar
from capi.errors import CapiError
from capi.evaluators import (
    GTD,
    GTD2,
    LSTDQ,
    TD,
    TDC,
    BellmanResidual,
    FittedQ,
    KernelFittedQ,
    LassoTD,
    Rollouts,
    RolloutsWithCritic,
)
from capi.features import Fourier, OneHot, RadialGrid, Tiles
from capi.features.kernels import Gaussian
from capi.policies import Tabular
from capi.policy_spaces import Neighbors
from capi.simulation import performance, sample_steps

ROUNDS = 30


def chain_problem():
    chain = ChainWalk(success=0.9)
    policy = Tabular((np.arange(200) < 100).astype(int), 2)
    rng = np.random.default_rng(0)
    batch = sample_steps(None, chain, chain.initial(20_000, rng), random_state=1)
    return chain, policy, batch, 0.99, chain.mdp.states, chain.mdp.action_values(policy)


def car_problem():
    car = MountainCar()
    rng = np.random.default_rng(0)
    batch = sample_steps(None, car, car.initial(5_000, rng), random_state=1)
    policy, test = car.energy_pumping(), car.initial(1_000, rng)
    truth = Rollouts(car, horizon=1_000).evaluate(policy, discount=0.98, states=test).values(test)
    return car, policy, batch, 0.98, test, truth


def settings(domain, box):
    basis = OneHot(200) if box is None else RadialGrid(12, scale=box)
    scaled = StandardScaler()
    chain = box is None
    n_sweeps = 200
    return {
        "LSTDQ, one-hot / RBF": LSTDQ(basis),
        "LSTDQ, Fourier(12)": LSTDQ(Fourier(12, scale="range" if chain else box)),
        "LSTDQ, tiles": LSTDQ(Tiles(8, 8, scale="range" if chain else box), ridge=1e-6),
        "LSTDQ, regularised": LSTDQ(basis, ridge=1e-7, projection_ridge=1e-7),
        "BellmanResidual": BellmanResidual(basis),
        "BellmanResidual, plain": BellmanResidual(basis, auxiliary=None),
        "LassoTD": LassoTD(basis),
        "TD": TD(basis),
        "GTD": GTD(basis),
        "GTD2": GTD2(basis),
        "TDC": TDC(basis),
        "FittedQ, trees": FittedQ(n_sweeps=n_sweeps, n_jobs=-1),
        "FittedQ, boosting": FittedQ(regressor=HistGradientBoostingRegressor(), n_sweeps=30),
        "FittedQ, value pursuit": FittedQ(
            regressor=make_pipeline(Fourier(60 if chain else 12), OrthogonalMatchingPursuit(n_nonzero_coefs=30)),
            n_sweeps=n_sweeps,
        ),
        "KernelFittedQ": KernelFittedQ(
            Gaussian(0.02 if chain else 0.1), n_sweeps=n_sweeps, scale="range" if chain else box
        ),
        "Rollouts, 1 of 50 steps": Rollouts(domain, horizon=50),
        "RolloutsWithCritic": RolloutsWithCritic(domain, LSTDQ(basis), horizon=10),
        "FittedQ, neural net": FittedQ(
            regressor=make_pipeline(scaled, MLPRegressor(hidden_layer_sizes=(64, 64), early_stopping=True)), n_sweeps=20
        ),
    }


def control_of(evaluator):
    """Return the evaluator with one sweep per round, if it has sweeps, as in the paper."""
    return dataclasses.replace(evaluator, n_sweeps=1) if hasattr(evaluator, "n_sweeps") else evaluator


def main():
    warnings.simplefilter("ignore", ConvergenceWarning)
    chosen = sys.argv[1:]
    chain, car = chain_problem(), car_problem()
    starts = car[0].initial(300, np.random.default_rng(9))
    print(
        f"{'evaluator':28}{'chain: error':>14}{'seconds':>9}{'car: error':>12}{'seconds':>9}{'steps':>7}{'seconds':>9}"
    )
    for name in settings(chain[0], None):
        if chosen and not any(word in name for word in chosen):
            continue
        cells = ""
        for problem, box in ((chain, None), (car, car[0].box)):
            domain, policy, batch, discount, states, truth = problem
            cells += measured(settings(domain, box)[name], policy, batch, discount, states, truth)
        print(f"{name:28}{cells}{controlled(settings(car[0], car[0].box)[name], car, starts)}", flush=True)


def measured(evaluator, policy, batch, discount, states, truth):
    started = time.perf_counter()
    try:
        q = evaluator.evaluate(policy, batch, discount=discount, states=states, rng=np.random.default_rng(0))
    except CapiError as error:
        return f"{type(error).__name__:>14}{'':9}"
    seconds = time.perf_counter() - started
    error = np.sqrt(np.mean(np.square(q.values(states) - truth))) / truth.std()
    return f"{100 * error:12.1f} %{seconds:9.2f}"


def controlled(evaluator, problem, starts):
    car, _, batch, discount = problem[:4]
    started = time.perf_counter()
    try:
        learner = CAPI(control_of(evaluator), Neighbors(75, scale=car.box), discount, ROUNDS, random_state=0)
        learner.fit(batch, states=batch.states[:500] if hasattr(evaluator, "horizon") else None)
    except CapiError as error:
        return f"  {type(error).__name__}"
    seconds = time.perf_counter() - started
    steps = performance(learner.policy_, car, starts=starts, discount=discount, max_steps=200).lengths.mean()
    return f"{steps:7.0f}{seconds:9.1f}"


if __name__ == "__main__":
    main()
