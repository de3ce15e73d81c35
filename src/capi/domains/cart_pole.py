"""Pole balancing: a pole hinged on a cart, kept upright by pushing the cart left or right.

What it is: every 0.02 s the cart is pushed with 10 N to one side; an episode ends when the pole leans too far. What is
hard about it: the only signal is the failure at the end. Good policies are simple, though: the sign of a weighted sum of
the state balances for 3000 steps, one minute, after which the paper stops.

Source: the pole balancing of the paper's experiments, after Barto, Sutton and Anderson, "Neuronlike adaptive elements
that can solve difficult learning control problems" (1983), with the simulator of Gomez and Miikkulainen. The paper gives
neither reward, limits, start states nor integrator: all are arguments. The track limit decides the result. When leaving
+-2.4 m is a failure, policies learned from 10,000 random steps of episodes that start near upright last a few hundred
steps, with both Tree-FQI and Tree-CAPI; when only the angle counts they balance for 3000 steps, as in the paper's figure.
Hence the track is endless by default.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import ClassVar, Literal

import numpy as np

from capi._utils.parameters import Constraints, check_parameters, one_of, optional
from capi._utils.threads import in_threads, n_threads
from capi._utils.validation import (
    Bools,
    Floats,
    Ints,
    as_discount,
    as_domain_step,
    as_int,
    as_positive,
    as_share,
    as_states,
    check_rows,
)
from capi.domains import _cart_pole
from capi.errors import InvalidInputError
from capi.policies import Deterministic, permitted

LEFT, RIGHT = 0, 1
POSITION, ANGLE = 0, 2  # columns of a state
ROWS_AT_ONCE = 4096
WORTH_A_THREAD = 16384  # rows
MOST_RADIANS = 1e5  # for larger angles the kernels' sine loses digits
INTEGRATORS = {
    "rk4": (_cart_pole.rk4, 0.01, 2),
    "euler": (_cart_pole.euler, 0.02, 1),
}  # rule, seconds per step, steps per action
STARTS = {"near": (0.05, 0.05, 0.05, 0.05), "wide": (1.2, 1.2 / 5, float(np.radians(18)), float(np.radians(75)))}


@dataclass(frozen=True, eq=False)
class CartPole:
    """The cart-pole problem, as a `Domain`.

    =============  =====================================================================================
    state          position (m), velocity (m/s), angle from upright (rad), its velocity (rad/s)
    actions        0 left, 1 right: a push for 0.02 s
    dynamics       cart 1 kg, pole 0.1 kg and 1 m long, gravity 9.8 m/s^2; no noise
    reward         -1 on the step that fails, otherwise 0; or 1 on each step that does not fail
    start          uniform, each coordinate independently
    end            angle beyond ``angle_limit`` or, if there is one, position beyond ``track_limit``
    =============  =====================================================================================

    Parameters
    ----------
    angle_limit : float
        In degrees.
    track_limit : float, optional
        In metres; None, the default, means an endless track. It decides how hard the problem is; see the module's docstring.
    integrator : "rk4" or "euler"
        Two Runge-Kutta steps of 0.01 s per action, or one Euler step of 0.02 s.
    reward : "failure" or "survival"
        Reward of a step. Gymnasium's reward is "survival" with 1 also for the step that fails.
    starts : "near" or "wide"
        Within +-0.05 in each coordinate, or within +-(1.2 m, 0.24 m/s, 18 degrees, 75 degrees/s).
    force : float
        Force of a push, in newtons.
    discount : float in [0, 1)
    pole_friction : float in [0, 1]
        At the hinge, in newton metres per rad/s. Barto, Sutton and Anderson have 2e-6.
    cart_friction : float in [0, 1]
        Of the cart on the track, in newtons. Barto, Sutton and Anderson have 5e-4.
    n_jobs : int, optional
        Number of threads, at most one per 16384 states of a step; -1 uses all cores. The result is the same for any number.

    Examples
    --------
    >>> poles = CartPole()
    >>> poles.test_states.shape
    (81, 4)
    >>> following, rewards, terminated = poles.step(
    ...     np.array([[0.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.62, 1.0]]), np.array([1, 0]), np.random.default_rng(0)
    ... )
    >>> following[0].round(4)
    array([ 0.002 ,  0.1951, -0.0029, -0.293 ])
    >>> rewards
    array([ 0., -1.])
    >>> terminated
    array([False,  True])
    """

    angle_limit: float = 36.0
    track_limit: float | None = None
    integrator: Literal["rk4", "euler"] = "rk4"
    reward: Literal["failure", "survival"] = "failure"
    starts: Literal["near", "wide"] = "near"
    force: float = 10.0
    discount: float = 0.99
    pole_friction: float = 0.0
    cart_friction: float = 0.0
    n_jobs: int | None = None

    n_actions = 2
    feature_names = ("position", "velocity", "angle", "angular_velocity")
    action_labels = ("left", "right")

    _constraints: ClassVar[Constraints] = {
        "integrator": one_of(*INTEGRATORS),
        "reward": one_of("failure", "survival"),
        "starts": one_of(*STARTS),
        "angle_limit": as_positive,
        "track_limit": optional(as_positive),
        "force": as_positive,
        "discount": as_discount,
        "pole_friction": as_share,
        "cart_friction": as_share,
        "n_jobs": n_threads,
    }

    def __post_init__(self) -> None:
        check_parameters(self)
        reach = STARTS[self.starts]
        if np.radians(self.angle_limit) < reach[ANGLE]:
            raise InvalidInputError(
                f"angle_limit must not be below the start states' {np.degrees(reach[ANGLE]):.3g} degrees "
                f"(starts={self.starts!r}); got {self.angle_limit!r}. It is in degrees."
            )
        if self.track_limit is not None and self.track_limit < reach[POSITION]:
            raise InvalidInputError(
                f"track_limit must not be below the start states' {reach[POSITION]} m (starts={self.starts!r}); "
                f"got {self.track_limit!r}. For an endless track pass None."
            )

    @property
    def test_states(self) -> Floats:
        """The 81 states of a 3^4 grid over the wide starts: lowest, middle and highest value of each (81, 4)."""
        return np.array(list(product(*([-most, 0.0, most] for most in STARTS["wide"]))))

    @staticmethod
    def bang_bang() -> BangBang:
        """Return a hand-written policy that balances the pole, as a reference."""
        return BangBang()

    def initial(self, n: int, rng: np.random.Generator) -> Floats:
        """Draw ``n`` start states (n, 4)."""
        return rng.uniform(-1.0, 1.0, size=(as_int(n, "n", minimum=0), 4)) * STARTS[self.starts]

    def step(
        self,
        states: Floats,
        actions: Ints,
        rng: np.random.Generator,  # noqa: ARG002  the dynamics are deterministic
    ) -> tuple[Floats, Floats, Bools]:
        """Push the cart of each state (n, 4) in the direction of its action (n,) for 0.02 s."""
        x, a = as_domain_step(states, actions, n_features=4, n_actions=self.n_actions)
        check_rows(np.abs(x[:, ANGLE]) <= MOST_RADIANS, x, "states", f"must have angles within +-{MOST_RADIANS:g} rad")
        following = self._moved(x, np.float64(self.force) * (2 * a - 1))
        if not np.isfinite(following).all():
            finite = np.isfinite(following).all(axis=1)
            check_rows(finite, x, "states", "must be small enough to stay finite in a step", " Check their units.")
        terminated = np.abs(following[:, ANGLE]) > np.radians(self.angle_limit)
        if self.track_limit is not None:
            terminated |= np.abs(following[:, POSITION]) > self.track_limit
        rewards = (0.0 if self.reward == "failure" else 1.0) - terminated
        return following, rewards, terminated

    def _moved(self, states: Floats, forces: Floats) -> Floats:
        """Return the states (n, 4) after 0.02 s under ``forces`` (n,)."""
        rule, seconds, n_steps = INTEGRATORS[self.integrator]
        friction = float(self.pole_friction), float(self.cart_friction)
        following = np.empty_like(states, order="C")

        def move(start: int) -> None:
            rows = slice(start, start + ROWS_AT_ONCE)
            columns = np.array(states[rows].T, order="C")
            rule(columns, forces[rows], seconds, n_steps, *friction)
            following[rows] = columns.T

        threads = min(n_threads(self.n_jobs), len(states) // WORTH_A_THREAD)
        in_threads(move, range(0, len(states), ROWS_AT_ONCE), threads)
        return following


@dataclass(frozen=True, eq=False)
class BangBang(Deterministic):
    """Push right where 0.5 position + velocity + 10 angle + 2 angular velocity is positive, left otherwise.

    Examples
    --------
    >>> BangBang().act(np.array([[0.0, 0.0, 0.1, 0.0], [0.0, -1.5, 0.1, 0.0]]))
    array([1, 0])
    """

    n_actions = 2

    def act(self, states: Floats, allowed: Bools | None = None) -> Ints:
        """Return the action in each state (n, 4), or the lowest allowed one where it is not allowed (n,)."""
        position, velocity, angle, angular_velocity = as_states(states, n_features=4, allow_nan=False).T
        lean = 0.5 * position + velocity + 10 * angle + 2 * angular_velocity
        return permitted(np.where(lean > 0, RIGHT, LEFT), allowed, self.n_actions)
