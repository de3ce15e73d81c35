"""Mountain-Car: a car in a valley with an engine too weak to climb out directly.

What it is: every step the car accelerates backwards, not at all or forwards; an episode ends on top of the hill in
front. What is hard about it: every step costs the same until the goal is reached, and to get there the car must first
drive away from it, up the opposite hill, to gain momentum. Random actions rarely do that, so the goal is rare in their data.

Source: the Mountain-Car of the paper's experiments, after Example 8.2 of Sutton and Barto, "Reinforcement learning: an
introduction" (1998), with a discount of 0.98 and starts all over the box of states. The second edition (2018) starts at
rest near the bottom of the valley: that is an argument. Gymnasium's MountainCar-v0 has the same dynamics and
differs only where it does not matter: it starts as the second edition does, and a car that overshoots the goal is
recorded where it got to, up to 0.6, while here it is recorded at 0.5.

From uniform starts, with episodes cut off at 200 steps, uniformly random actions reach the goal in a fifth of them and take
162 steps on average; always pushing in the direction of motion takes 52, a near-optimal policy 49 (discounted return -28.7).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from capi._utils.parameters import Constraints, check_parameters, one_of
from capi._utils.validation import Bools, Floats, Ints, as_discount, as_domain_step, as_int, as_states
from capi.policies import Deterministic, permitted

BACK, COAST, FORWARD = 0, 1, 2
WALL, GOAL = -1.2, 0.5  # the lowest and the highest position
TOP_SPEED = 0.07
ENGINE, GRAVITY = 0.001, 0.0025  # velocity that a step adds: by the engine, and by the slope at its steepest
STARTS = {  # lowest and highest start state
    "box": ((WALL, -TOP_SPEED), (GOAL, TOP_SPEED)),
    "valley": ((-0.6, 0.0), (-0.4, 0.0)),
}


@dataclass(frozen=True, eq=False)
class MountainCar:
    """The Mountain-Car problem, as a `Domain`.

    =============  ===============================================================================================
    state          position in [-1.2, 0.5], velocity in [-0.07, 0.07] (position per step)
    actions        0 back, 1 coast, 2 forward
    dynamics       velocity + 0.001 (action - 1) - 0.0025 cos(3 position), then position + velocity, both clipped
                   to the box; the wall at -1.2 stops the car; no noise
    reward         -1 per step, including the last
    start          uniform, in the whole box or at rest near the bottom
    end            position 0.5
    =============  ===============================================================================================

    Parameters
    ----------
    starts : "box" or "valley"
        Uniform over all positions and velocities, or at rest with a position in [-0.6, -0.4].
    discount : float in [0, 1)
        Discount factor per step: `capi.simulation.returns` discounts returns with it.

    Examples
    --------
    >>> cars = MountainCar()
    >>> following, rewards, terminated = cars.step(
    ...     np.array([[-0.5, 0.0], [0.45, 0.06]]), np.array([0, 2]), np.random.default_rng(0)
    ... )
    >>> following.round(4)
    array([[-0.5012, -0.0012],
           [ 0.5   ,  0.0605]])
    >>> rewards
    array([-1., -1.])
    >>> terminated
    array([False,  True])
    """

    starts: Literal["box", "valley"] = "box"
    discount: float = 0.98

    n_actions = 3
    feature_names = ("position", "velocity")
    action_labels = ("back", "coast", "forward")

    _constraints: ClassVar[Constraints] = {"starts": one_of(*STARTS), "discount": as_discount}

    def __post_init__(self) -> None:
        check_parameters(self)

    @property
    def box(self) -> Floats:
        """The lowest and the highest state (2, 2), for scaling position and velocity alike."""
        return np.array(STARTS["box"])

    @staticmethod
    def energy_pumping() -> EnergyPumping:
        """Return a hand-written policy that reaches the goal from every state, as a reference."""
        return EnergyPumping()

    def initial(self, n: int, rng: np.random.Generator) -> Floats:
        """Draw ``n`` start states (n, 2)."""
        return rng.uniform(*STARTS[self.starts], size=(as_int(n, "n", minimum=0), 2))

    def step(
        self,
        states: Floats,
        actions: Ints,
        rng: np.random.Generator,  # noqa: ARG002  the dynamics are deterministic
    ) -> tuple[Floats, Floats, Bools]:
        """Move the car of each state (n, 2) by one step with its action (n,)."""
        x, a = as_domain_step(states, actions, n_features=2, n_actions=self.n_actions)
        position, velocity = x.T
        pull = ENGINE * (a - COAST) - GRAVITY * np.cos(3 * position)
        velocity = np.clip(velocity + pull, -TOP_SPEED, TOP_SPEED)
        position = np.clip(position + velocity, WALL, GOAL)
        velocity = np.where((position == WALL) & (velocity < 0), 0.0, velocity)
        return np.column_stack([position, velocity]), np.full(len(x), -1.0), position >= GOAL


@dataclass(frozen=True, eq=False)
class EnergyPumping(Deterministic):
    """Push in the direction of motion, forward at rest: each step adds energy.

    Examples
    --------
    >>> EnergyPumping().act(np.array([[-0.5, 0.01], [-0.5, -0.01], [-0.5, 0.0]]))
    array([2, 0, 2])
    """

    n_actions = 3

    def act(self, states: Floats, allowed: Bools | None = None) -> Ints:
        """Return the action in each state (n, 2), or the lowest allowed one where it is not allowed (n,)."""
        velocity = as_states(states, n_features=2, allow_nan=False)[:, 1]
        return permitted(np.where(velocity < 0, BACK, FORWARD), allowed, self.n_actions)
