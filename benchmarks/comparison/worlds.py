"""The problems: what is played, for how many test episodes, and what collected the logs. Needs numpy and Gymnasium only.

The true return of a policy is the mean undiscounted return over test episodes of the Gymnasium environment, whose seeds are the
same for all policies. HIV treatment has one test episode, discounted, in a process that has capi (hiv_patient.py).
"""

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path

import gymnasium
import numpy as np

TEST_SEED = 1_000_000  # of the first test episode; the following ones have the following numbers
RANDOM_SHARE = 0.5  # of the logged decisions
MOST_TILT = 0.4  # radians, which the lander aims for
DEAD_ZONE = 0.05  # below this, the lander's engines stay off


@dataclass(frozen=True)
class World:
    """A problem, and the sizes of its logs."""

    name: str
    n_actions: int
    n_test: int  # episodes
    sizes: tuple  # rows of the logs
    discount: float = 0.99


WORLDS = {
    world.name: world
    for world in (
        World("LunarLander-v3", 4, 50, (20_000, 5_000)),
        World("CartPole-v1", 2, 100, (5_000,)),
        World("Acrobot-v1", 3, 100, (5_000,)),
        World("HIV", 4, 1, (30_000,), discount=0.98),
    )
}


def log_path(world, n_rows, seed, folder):
    """Return where a log is."""
    return Path(folder) / f"{world.name}-{n_rows}-{seed}.npz"


def logged_returns(log, world):
    """Return the returns of the logged episodes: undiscounted, without the last one, which is cut off; of HIV discounted, all."""
    episode, rewards = log["episode"], log["rewards"]
    if world.name != "HIV":
        return np.bincount(episode, rewards)[:-1]
    first = np.append(True, episode[1:] != episode[:-1])
    numbers = np.cumsum(first) - 1
    ages = np.arange(len(episode)) - np.flatnonzero(first)[numbers]
    return np.bincount(numbers, world.discount**ages * rewards)


def returns_of(act, world, capi=None):
    """Return the returns of the test episodes; ``act`` maps states (n, d) to actions (n,).

    Episodes run side by side, so that ``act`` decides for all of them at once. ``capi`` is the Python that HIV needs.
    """
    if world.name == "HIV":
        return np.array([patient_return(act, world, capi)])
    environments = [gymnasium.make(world.name) for _ in range(world.n_test)]
    states = np.array([one.reset(seed=TEST_SEED + i)[0] for i, one in enumerate(environments)])
    returns, running = np.zeros(world.n_test), np.arange(world.n_test)
    while len(running):
        actions = act(states[running])
        ended = np.zeros(len(running), dtype=bool)
        for k, (i, action) in enumerate(zip(running, actions, strict=True)):
            states[i], reward, terminated, truncated, _ = environments[i].step(int(action))
            returns[i] += reward
            ended[k] = terminated or truncated
        running = running[~ended]
    return returns


def patient_return(act, world, capi):
    """Return the discounted return of 1,000 decisions from the unhealthy state, simulated by the Python ``capi``."""
    command = [capi, Path(__file__).parent / "hiv_patient.py"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as patient:
        total, worth = 0.0, 1.0
        for line in patient.stdout:  # the state, and the reward of the decision before it
            state, reward = json.loads(line)
            if reward is not None:
                total += worth * reward
                worth *= world.discount
            if state is None:
                break
            print(int(act(np.array([state]))[0]), file=patient.stdin, flush=True)
    return total


def landing(states):
    """Return the decisions of a heuristic for LunarLander (n, 8) -> (n,): that of Gymnasium, for many states at once.

    Tilt towards the pad, as far as position and drift say, and keep above a cone around it. The larger of the two errors gets
    its engine. Once a leg touches the ground, only the fall is slowed.
    """
    x, y, drift, climb, tilt, spin, left, right = states.T
    touching = (left != 0) | (right != 0)
    turn = 0.5 * (np.clip(0.5 * x + drift, -MOST_TILT, MOST_TILT) - tilt) - spin
    lift = 0.5 * (0.55 * np.abs(x) - y) - 0.5 * climb
    turn, lift = np.where(touching, 0.0, turn), np.where(touching, -0.5 * climb, lift)
    main = (lift > np.abs(turn)) & (lift > DEAD_ZONE)
    return np.select([main, turn < -DEAD_ZONE, turn > DEAD_ZONE], [2, 3, 1], 0)


def balancing(states):
    """Return the decisions for CartPole: push to the side to which cart and pole move and lean."""
    return (states @ np.array([0.5, 1.0, 10.0, 2.0]) >= 0).astype(np.int64)


def swinging(states):
    """Return the decisions for Acrobot: torque in the direction in which the second joint turns."""
    return np.where(states[:, 5] < 0, 0, 2)


HEURISTICS = {"LunarLander-v3": landing, "CartPole-v1": balancing, "Acrobot-v1": swinging}


def random_actions(world, seed):
    """Return a policy that draws its decisions uniformly."""
    rng = np.random.default_rng(seed)
    return lambda states: rng.integers(world.n_actions, size=len(states))
