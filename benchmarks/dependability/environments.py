"""Three Gymnasium environments as domains, from their published equations, and the heuristics that collect data.

A `Domain` runs all test episodes at once, which an environment cannot. Tests compare each step with Gymnasium's.
"""

from dataclasses import dataclass

import numpy as np

from capi.domains import CartPole
from capi.policies import Deterministic

# Acrobot: Sutton and Barto, "Reinforcement learning: an introduction", with Gymnasium's constants
GRAVITY, MASS, LENGTH, CENTRE, INERTIA = 9.8, 1.0, 1.0, 0.5, 1.0  # both links are alike
STEP = 0.2  # seconds, one Runge-Kutta step
TOP_SPEEDS = np.array([4 * np.pi, 9 * np.pi])


@dataclass(frozen=True, eq=False)
class CartPoleV1:
    """Gymnasium's CartPole-v1: fails beyond 12 degrees or 2.4 m; reward 1 per step, including the one that fails."""

    discount: float = 0.99

    n_actions = 2
    feature_names = CartPole.feature_names
    action_labels = CartPole.action_labels

    @property
    def poles(self):
        return CartPole(angle_limit=12.0, track_limit=2.4, integrator="euler", reward="survival")

    def initial(self, n, rng):
        return rng.uniform(-0.05, 0.05, size=(n, 4))

    def step(self, states, actions, rng):
        following, rewards, terminated = self.poles.step(states, actions, rng)
        return following, rewards + terminated, terminated


@dataclass(frozen=True, eq=False)
class MountainCarV0:
    """Gymnasium's MountainCar-v0: starts at rest in the valley; a car beyond the goal at 0.5 is recorded up to 0.6."""

    discount: float = 0.99

    n_actions = 3
    feature_names = ("position", "velocity")
    action_labels = ("back", "coast", "forward")

    def initial(self, n, rng):
        return np.column_stack([rng.uniform(-0.6, -0.4, size=n), np.zeros(n)])

    def step(self, states, actions, rng):
        position, velocity = states.T
        velocity = np.clip(velocity + 0.001 * (actions - 1) - 0.0025 * np.cos(3 * position), -0.07, 0.07)
        position = np.clip(position + velocity, -1.2, 0.6)
        velocity = np.where((position == -1.2) & (velocity < 0), 0.0, velocity)
        return np.column_stack([position, velocity]), np.full(len(states), -1.0), (position >= 0.5) & (velocity >= 0)


@dataclass(frozen=True, eq=False)
class AcrobotV1:
    """Gymnasium's Acrobot-v1: two links hang from a joint; a torque between them swings their end above a line.

    The state has cosine and sine of the first angle (from hanging) and of the second (from the first link), and both
    angular velocities. Each step costs 1 except the one that reaches the line.
    """

    discount: float = 0.99

    n_actions = 3
    feature_names = ("cos1", "sin1", "cos2", "sin2", "velocity1", "velocity2")
    action_labels = ("-1", "0", "+1")

    def initial(self, n, rng):
        return observed(rng.uniform(-0.1, 0.1, size=(n, 4)))

    def step(self, states, actions, rng):
        cos1, sin1, cos2, sin2, *velocities = states.T
        angles = np.column_stack([np.arctan2(sin1, cos1), np.arctan2(sin2, cos2), *velocities])
        moved = _runge_kutta(angles, actions - 1.0)
        moved[:, 2:] = np.clip(moved[:, 2:], -TOP_SPEEDS, TOP_SPEEDS)
        terminated = -np.cos(moved[:, 0]) - np.cos(moved[:, 0] + moved[:, 1]) > 1.0
        return observed(moved), terminated - 1.0, terminated


def observed(angles):
    """Return the state of angles and velocities (n, 4) -> (n, 6)."""
    first, second, *velocities = angles.T
    return np.column_stack([np.cos(first), np.sin(first), np.cos(second), np.sin(second), *velocities])


def _runge_kutta(x, torque):
    k1 = _rates(x, torque)
    k2 = _rates(x + STEP / 2 * k1, torque)
    k3 = _rates(x + STEP / 2 * k2, torque)
    k4 = _rates(x + STEP * k3, torque)
    return x + STEP / 6 * (k1 + 2 * k2 + 2 * k3 + k4)


def _rates(x, torque):
    """Return the derivative of angles and velocities (n, 4) under ``torque`` (n,): the book's equations."""
    theta1, theta2, omega1, omega2 = x.T
    cos2, sin2, lever = np.cos(theta2), np.sin(theta2), MASS * LENGTH * CENTRE
    d1 = MASS * CENTRE**2 + MASS * (LENGTH**2 + CENTRE**2 + 2 * LENGTH * CENTRE * cos2) + 2 * INERTIA
    d2 = MASS * (CENTRE**2 + LENGTH * CENTRE * cos2) + INERTIA
    phi2 = MASS * CENTRE * GRAVITY * np.cos(theta1 + theta2 - np.pi / 2)
    phi1 = (
        -lever * omega2**2 * sin2
        - 2 * lever * omega2 * omega1 * sin2
        + (MASS * CENTRE + MASS * LENGTH) * GRAVITY * np.cos(theta1 - np.pi / 2)
        + phi2
    )
    second = (torque + d2 / d1 * phi1 - lever * omega1**2 * sin2 - phi2) / (MASS * CENTRE**2 + INERTIA - d2**2 / d1)
    first = -(d2 * second + phi1) / d1
    return np.column_stack([omega1, omega2, first, second])


@dataclass(frozen=True, eq=False)
class ByTheSign(Deterministic):
    """The last action where a weighted sum of the state is positive or zero, action 0 elsewhere."""

    weights: tuple
    n_actions: int

    def act(self, states, allowed=None):
        return np.where(states @ np.array(self.weights) < 0, 0, self.n_actions - 1)


HEURISTICS = {
    "mountain-car": ByTheSign((0.0, 1.0), 3),  # push in the direction of motion
    "pole": ByTheSign((0.5, 1.0, 10.0, 2.0), 2),  # push to the side to which cart and pole move and lean
    "cart-pole-v1": ByTheSign((0.5, 1.0, 10.0, 2.0), 2),
    "mountain-car-v0": ByTheSign((0.0, 1.0), 3),
    "acrobot-v1": ByTheSign(
        (0.0, 0.0, 0.0, 0.0, 0.0, 1.0), 3
    ),  # torque in the direction in which the second joint turns
}
