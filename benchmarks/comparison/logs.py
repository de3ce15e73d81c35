"""The logs, made from seeds: arrays that any library can read. Needs capi; LunarLander also needs Box2D."""

import gymnasium
import numpy as np
from dependability.problems import Control, Patients

from capi.files.atomic import result_folder, written_whole

from .worlds import RANDOM_SHARE, landing, log_path

CONTROL = {"CartPole-v1": "cart-pole-v1", "Acrobot-v1": "acrobot-v1"}  # the names in benchmarks/dependability


def make_log(world, n_rows, seed, folder):
    """Write the log of a problem with a seed, unless it is there; return its path.

    Each decision is random with probability 1/2, otherwise that of a heuristic; the last episode is cut off. A smaller log of
    LunarLander is the beginning of a larger one with the same seed. HIV has one log for all seeds: the table of the package.
    """
    path = log_path(world, n_rows, seed, folder)
    if not path.exists():
        if world.name == "LunarLander-v3":
            columns = landings(n_rows, np.random.default_rng([seed, 0]))
        else:
            problem = Patients("embedded") if world.name == "HIV" else Control(CONTROL[world.name], n_rows)
            batch = problem.data(seed).batch
            names = ("states", "actions", "rewards", "next_states", "terminated")
            columns = {**{name: getattr(batch, name) for name in names}, "episode": batch.episodes}
        result_folder(path.parent)
        with written_whole(path) as place, place.open("wb") as file:
            np.savez_compressed(file, **columns)
    return path


def landings(n_rows, rng):
    """Return the columns of a half-random log of LunarLander."""
    rows, episode = [], 0
    while len(rows) < n_rows:
        environment = gymnasium.make("LunarLander-v3")
        state, _ = environment.reset(seed=int(rng.integers(2**31)))
        ended = False
        while not ended:
            by_chance = rng.random() < RANDOM_SHARE
            action = int(rng.integers(4)) if by_chance else int(landing(state[None])[0])
            following, reward, terminated, truncated, _ = environment.step(action)
            rows.append((state, action, reward, following, terminated, episode))
            state, ended = following, terminated or truncated
        episode += 1
    names = ("states", "actions", "rewards", "next_states", "terminated", "episode")
    return {name: np.array(column) for name, column in zip(names, zip(*rows[:n_rows], strict=True), strict=True)}
