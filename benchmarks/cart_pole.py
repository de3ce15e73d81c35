"""Steps of the pole-balancing simulator, with random pushes; fallen poles are restarted.

Peers in the same process: Gymnasium's CartPole-v1 in a Python loop, one pole at a time, and its vector environment with as
many poles as ours. Both take one Euler step per action, so our Euler integrator is the fair comparison; our default,
Runge-Kutta, computes eight times as many accelerations. Ours uses one thread for up to 32,767 poles and two for more; the
peers use one.
"""

import time

import gymnasium
import numpy as np
from timing import best_of

from capi.domains.cart_pole import CartPole

STEPS = 1_000_000
LOOP_STEPS = 50_000
BARTO = {"angle_limit": 12.0, "track_limit": 2.4, "integrator": "euler"}


def line(name, ours, theirs=None):
    peer = "" if theirs is None else f"{theirs * 1e3:11.1f} ms{theirs / ours:7.1f}x"
    print(f"{name:58}{ours * 1e3:10.1f} ms{peer}", flush=True)


def ours(poles, n_poles):
    """Take `STEPS` steps with ``n_poles`` at once."""
    rng = np.random.default_rng(0)
    states = poles.initial(n_poles, rng)
    for _ in range(STEPS // n_poles):
        states, _, terminated = poles.step(states, rng.integers(2, size=n_poles), rng)
        ended = np.flatnonzero(terminated)
        states[ended] = poles.initial(len(ended), rng)


def loop():
    """Take `LOOP_STEPS` steps with one pole."""
    environment = gymnasium.make("CartPole-v1")
    actions = np.random.default_rng(0).integers(2, size=LOOP_STEPS)
    environment.reset(seed=0)
    for action in actions:
        _, _, terminated, truncated, _ = environment.step(action)
        if terminated or truncated:
            environment.reset()


def vector(n_poles):
    """Take `STEPS` steps with ``n_poles`` at once; the environment restarts fallen poles itself."""
    environment = gymnasium.make_vec("CartPole-v1", num_envs=n_poles, vectorization_mode="vector_entry_point")
    rng = np.random.default_rng(0)
    environment.reset(seed=0)
    for _ in range(STEPS // n_poles):
        environment.step(rng.integers(2, size=n_poles))


def main():
    started = time.perf_counter()
    for poles in (CartPole(), CartPole(**BARTO)):
        poles.step(poles.initial(1, np.random.default_rng(0)), np.zeros(1, dtype=int), np.random.default_rng(0))
    print(f"first call, including compilation or loading its cache: {time.perf_counter() - started:.1f} s")
    alone = best_of(loop)[0] * STEPS / LOOP_STEPS
    print(f"{STEPS} steps (the peer's loop is timed for {LOOP_STEPS} and scaled)")
    print(f"{'':58}{'capi':>13}{'peer':>14}{'ratio':>8}")
    for n_poles in (1_000, 10_000, 100_000):
        together = best_of(lambda: vector(n_poles))[0]  # noqa: B023
        for name, settings in (("Euler", BARTO), ("Runge-Kutta", {})):
            poles = CartPole(**settings, n_jobs=2)
            taken = best_of(lambda: ours(poles, n_poles))[0]  # noqa: B023
            line(f"{n_poles} poles at once, {name}; peer loop", taken, alone)
            line(f"{n_poles} poles at once, {name}; peer vector", taken, together)


if __name__ == "__main__":
    main()
