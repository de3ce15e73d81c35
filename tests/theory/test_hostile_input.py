"""Bad arguments are refused by name, and the smallest legal ones give finite numbers."""

import inspect

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import capi.theory
from capi import CAPI, FiniteMDP, theory
from capi.errors import CapiError, InvalidInputError
from capi.evaluators import FittedQ
from capi.evaluators.averager import Averager
from capi.policies import Constant
from capi.policy_spaces import OptimalTrees, Thresholds, Unrestricted
from capi.testing import random_batch
from theory.problems import random_mdp

MDP = random_mdp(0)
STATES, Q = np.arange(4.0)[:, None], np.array([[0.0, 1.0], [2.0, 0.0], [0.5, 0.5], [0.0, 3.0]])
ROWS = [0, 1, 1, 0]
FUTURES = theory.Concentrability(np.array([4.0, 3.0]), 0.0, discount=0.8)
RUN = [[0, 0, 0, 0], [0, 1, 1, 0], [1, 1, 1, 0]]
BATCH = random_batch(0, n_episodes=8)
LEARNER = CAPI(FittedQ(n_sweeps=1), Thresholds(), discount=0.5, n_iterations=1)

NOT_NEGATIVE = [-1.0, np.nan, np.inf, "much", None]
COUNTS = [0, -1, 1.5, "many", None, np.nan]
TABLES = [[], [1.0, 2.0], [[np.nan, 1.0]], [[np.inf, 1.0]], "abc", np.zeros((0, 2)), np.zeros((4, 2, 2, 2))]
COLUMNS = [[1.0], [-1.0, 1.0, 1.0, 1.0], [0.0] * 4, [np.nan] * 4, "abcd"]
ACTIONS = [[0], [0, 1, 2, 0], [0, 1, -1, 0], [0.5, 0, 0, 0], "0110", [[0, 1, 1, 0]]]
POLICIES = [[], [0, 1], [[0, 1, 2, 0]], [[-1, 0, 0, 0]], [[0.5, 0, 0, 0]], [[np.nan, 0, 0, 0]], "half-spaces"]
MDPS = ["chain", None, FiniteMDP, np.eye(4)]
SPACES = ["thresholds", None, [[0, 1]], [[0.5, 0, 0, 0]], [[0, 1, 2, 0]], [], Thresholds]
SHARES = [-0.1, 1.1, np.nan, "half", None]
DELTAS = [0.0, 1.0, -0.1, np.nan, "small", None]
SURROGATES = ["huber", None, 3]

# function, legal arguments, bad values of some of them
CASES = {
    "gap_regularity": (
        {"q_values": Q, "weights": None, "zeta": 1.0, "n_resamples": 2},
        {
            "q_values": TABLES,
            "weights": COLUMNS,
            "zeta": NOT_NEGATIVE[:-1],
            "n_resamples": COUNTS[1:],
            "groups": [[1], [[1]] * 4],
        },
    ),
    "rademacher": (
        {"space": Thresholds(), "states": STATES, "q_values": Q, "n_draws": 2},
        {
            "space": SPACES,
            "states": [[], [1.0], "abc", np.zeros((4, 1, 1)), [[np.nan]] * 4],
            "q_values": [*TABLES, np.zeros((3, 2))],
            "n": COUNTS[:-2],
            "nu": COLUMNS,
            "radius": NOT_NEGATIVE[:-1],
            "n_draws": [*COUNTS, 1],
        },
    ),
    "fixed_point": (
        {"space": Thresholds(), "states": STATES, "q_values": Q, "n_draws": 2},
        {"space": SPACES, "nu": COLUMNS, "scale": ["max", 0.0, -1.0, np.nan, 2.9, [3.0]], "n_draws": [*COUNTS, 1]},
    ),
    "log_growth": (
        {"space": Thresholds(), "n": 5},
        {
            "space": [0, -1, 1.5, True, "trees", None],
            "n": COUNTS,
            "n_features": COUNTS,
            "n_actions": COUNTS,
            "n_cuts": COUNTS[1:-2],
        },
    ),
    "vc_radius": (
        {"log_growth": 1.0, "n": 5, "scale": 1.0},
        {"log_growth": NOT_NEGATIVE, "n": COUNTS, "scale": NOT_NEGATIVE},
    ),
    "greedy_error": ({"mdp": MDP, "policies": RUN}, {"mdp": MDPS, "policies": POLICIES, "nu": COLUMNS}),
    "concentrability": (
        {"mdp": MDP, "policy": ROWS, "m1": 1, "m2": 1},
        {"mdp": MDPS, "policy": ACTIONS, "m1": COUNTS[1:], "m2": COUNTS[1:], "rho": COLUMNS, "nu": COLUMNS},
    ),
    "discounted_concentrability": (
        {"mdp": MDP, "policies": RUN, "n_rounds": 2},
        {
            "mdp": MDPS,
            "policies": POLICIES,
            "n_rounds": COUNTS,
            "rho": COLUMNS,
            "nu": COLUMNS,
            "relative_error": [0.0, -1.0, np.nan, None],
        },
    ),
    "propagation": (
        {"mdp": MDP, "policies": RUN},
        {
            "mdp": MDPS,
            "policies": [*POLICIES, [[0, 1, 1, 0]]],
            "futures": [
                "far",
                theory.Concentrability(np.ones(1), 0.0, 0.8),
                theory.Concentrability(np.ones(2), 0.0, 0.5),
            ],
            "rho": COLUMNS,
            "nu": COLUMNS,
        },
    ),
    "improvement_bound": (
        {"radius": 0.1, "scale": 1.0, "n": 10, "delta": 0.1},
        {
            "radius": NOT_NEGATIVE,
            "scale": [0.0, *NOT_NEGATIVE],
            "n": COUNTS,
            "delta": DELTAS,
            "approximation": NOT_NEGATIVE,
            "error": NOT_NEGATIVE,
            "optimization": NOT_NEGATIVE,
            "regularity": ["regular", 1.0],
            "largest_gap": [2.0, *NOT_NEGATIVE[:-1]],
            "constants": [3, "tight", theory.Constants],
        },
    ),
    "performance_bound": (
        {"futures": FUTURES, "radius": 0.1, "scale": 1.0, "n": 10, "delta": 0.1, "reward_bound": 1.0},
        {
            "futures": ["far", None, np.ones(2)],
            "radius": NOT_NEGATIVE,
            "scale": NOT_NEGATIVE,
            "n": COUNTS,
            "delta": DELTAS,
            "reward_bound": NOT_NEGATIVE,
            "greedy_error": NOT_NEGATIVE,
            "optimization": NOT_NEGATIVE,
            "errors": [0.1, [0.1] * 3, [-0.1, 0.1], [np.nan], [], "small"],
            "regularity": ["regular"],
            "largest_gap": [2.0],
            "constants": [3],
        },
    ),
    "distortion_by_disagreement": (
        {"q_values": Q, "estimates": Q + 0.1, "learned": ROWS, "other": ROWS},
        {
            "q_values": TABLES,
            "estimates": [*TABLES, np.zeros((3, 2))],
            "learned": ACTIONS,
            "other": ACTIONS,
            "weights": COLUMNS,
        },
    ),
    "distortion_by_gaps": (
        {"q_values": Q, "estimates": Q + 0.1, "other": ROWS},
        {"q_values": TABLES, "estimates": TABLES, "other": ACTIONS, "weights": COLUMNS, "t": [2.0, *NOT_NEGATIVE]},
    ),
    "distortion_in_norm": (
        {"q_values": Q, "estimates": Q + 0.1, "other": ROWS},
        {
            "q_values": TABLES,
            "estimates": TABLES,
            "other": ACTIONS,
            "weights": COLUMNS,
            "p": [1.0, *NOT_NEGATIVE],
            "t": [0.0, *NOT_NEGATIVE[:-1]],
        },
    ),
    "psi_transform": ({"surrogate": "hinge", "theta": 0.5}, {"surrogate": SURROGATES, "theta": SHARES}),
    "measured_calibration": (
        {"scores": [1.0, 0.0, -1.0, 2.0], "q_values": Q, "surrogate": "hinge"},
        {
            "scores": [[1.0], [np.nan] * 4, "abcd"],
            "q_values": [*TABLES, np.zeros((4, 3))],
            "surrogate": SURROGATES,
            "weights": COLUMNS,
        },
    ),
    "best_half_space_loss": (
        {"states": STATES, "q_values": Q},
        {"states": [[], np.zeros((4, 3)), [[np.nan]] * 4], "q_values": [*TABLES, np.zeros((4, 3))], "weights": COLUMNS},
    ),
    "excess_over_half_spaces": (
        {"policy": Constant(0, 2), "states": STATES, "q_values": Q},
        {"policy": ["always left", None, Constant], "states": [[], np.zeros((4, 3))], "q_values": TABLES},
    ),
    "half_spaces": ({"n_states": 3}, {"n_states": COUNTS}),
    "certificate": (
        {"learner": LEARNER, "batch": BATCH, "n_draws": 2},
        {
            "learner": ["capi", None, CAPI],
            "batch": ["table", None, BATCH.states],
            "delta": DELTAS,
            "units": ["days", None],
            "n_draws": [*COUNTS, 1],
        },
    ),
}


def test_every_public_function_is_attacked():
    functions = {name for name in capi.theory.__all__ if inspect.isfunction(getattr(theory, name))}
    assert functions == set(CASES)


@pytest.mark.parametrize("function", CASES)
def test_the_legal_arguments_are_legal(function):
    getattr(theory, function)(**CASES[function][0])


@pytest.mark.parametrize(
    ("function", "argument", "bad"),
    [
        pytest.param(function, argument, bad, id=f"{function}-{argument}-{i}")
        for function, (_, attacks) in CASES.items()
        for argument, values in attacks.items()
        for i, bad in enumerate(values)
    ],
)
def test_bad_arguments_are_refused_by_name(function, argument, bad):
    with pytest.raises(CapiError) as caught:
        getattr(theory, function)(**{**CASES[function][0], argument: bad})
    first = str(caught.value).split(";")[0]
    otherwise = {"log_growth": "the growth function of", "best_half_space_loss": "tries all half-spaces"}
    assert (
        argument in first
        or otherwise.get(function.replace("excess_over_half_spaces", "best_half_space_loss"), "-") in first
    )


def test_in_the_model_of_a_batch_bad_policies_and_own_states_are_refused():
    q = FittedQ(min_samples_split=30, n_sweeps=1).evaluate(Constant(0, 3), BATCH, discount=0.5)
    model = Averager.of(q, BATCH, discount=0.5)
    for bad in ("left", None, [0, 1], Constant(0, 2)):
        with pytest.raises(InvalidInputError, match="policy must"):
            theory.concentrability(model, bad, 0, 0)
        with pytest.raises(InvalidInputError, match=r"policies\[0\] must"):
            theory.discounted_concentrability(model, [bad], 1)
    for bad in (None, np.zeros((2, 3)), [], Constant(0, 3)):
        with pytest.raises(InvalidInputError, match="policies must be a sequence"):
            theory.discounted_concentrability(model, bad, 1)
    with pytest.raises(InvalidInputError, match="nu of an Averager is that of its batch"):
        theory.concentrability(model, Constant(0, 3), 0, 0, nu=[1.0])
    with pytest.raises(InvalidInputError, match="rho of an Averager is that of its batch"):
        theory.discounted_concentrability(model, [Constant(0, 3)], 1, rho=[1.0])


@settings(max_examples=40)
@given(st.integers(0, 10**6), st.integers(1, 3), st.integers(1, 3), st.sampled_from([0.0, 0.5, 0.999]), st.booleans())
def test_the_smallest_problems_give_finite_numbers(seed, n_states, n_actions, discount, without_gaps):
    """One state, one action, discounts at both ends, and values without gaps."""
    mdp = random_mdp(seed, n_states, n_actions, discount, reward_scale=0.0 if without_gaps else 1.0)
    rng = np.random.default_rng(seed)
    policies = rng.integers(n_actions, size=(2, n_states))
    spread = theory.propagation(mdp, policies)
    assert 0 <= spread.loss <= spread.vector_bound + 1e-9 * (1 + spread.vector_bound)
    assert np.isfinite(spread.theorem_bound)
    q, x = mdp.action_values(policies[0]), mdp.states
    assert 0 <= theory.greedy_error(mdp, policies).value < np.inf
    for space in (Thresholds(), OptimalTrees(max_depth=2), Unrestricted(), policies):
        point = theory.fixed_point(space, x, q, n=5, n_draws=3, random_state=seed)
        assert 0 <= point.radius < np.inf
        futures = theory.discounted_concentrability(mdp, policies, 2)
        one = theory.improvement_bound(point.radius, point.scale, 5, 0.1, error=0.1)
        two = theory.performance_bound(futures, point.radius, point.scale, 5, 0.1, reward_bound=1.0, errors=[0.0, 0.1])
        assert 0 <= one.total < np.inf
        assert 0 <= two.total < np.inf
    assert theory.distortion_in_norm(q, q, policies[0], p=400.0) >= 0
    if n_actions > 1:
        regularity = theory.gap_regularity(q, n_resamples=3)
        assert regularity.mass_up_to(regularity.largest) == pytest.approx(1.0)
        assert np.isfinite([regularity.c_g, regularity.zeta]).all()
