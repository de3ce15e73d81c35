"""The only place where a ``random_state`` is interpreted.

Users pass ``random_state`` (an int, a Generator or None) to the outermost call. Inside, randomness is
always an argument ``rng``. Each iteration of a loop has its own seed sequence, addressed by its
number, so iteration k draws the same numbers whether or not the iterations before it ran in this process.
"""

from __future__ import annotations

from numbers import Integral
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from capi.errors import InvalidInputError

RandomState: TypeAlias = int | np.random.Generator | np.random.SeedSequence | None


def seed_sequence(random_state: RandomState) -> np.random.SeedSequence:
    """Return the seed sequence that ``random_state`` specifies.

    An int always gives the same one; a Generator is advanced; None takes entropy from the system.
    """
    if isinstance(random_state, np.random.SeedSequence):
        return random_state
    if isinstance(random_state, np.random.Generator):
        return np.random.SeedSequence([int(word) for word in random_state.integers(2**63, size=4)])
    if random_state is None:
        return np.random.SeedSequence()
    is_int = isinstance(random_state, Integral) and not isinstance(random_state, bool)
    if not is_int or random_state < 0:
        raise InvalidInputError(
            f"random_state must be a non-negative int, a numpy Generator, a SeedSequence or None; got {random_state!r}."
        )
    return np.random.SeedSequence(int(random_state))


def as_generator(random_state: RandomState) -> np.random.Generator:
    """Return a Generator; a Generator is returned unchanged."""
    if isinstance(random_state, np.random.Generator):
        return random_state
    return np.random.default_rng(seed_sequence(random_state))


def numbered_rng(seeds: np.random.SeedSequence, *numbers: int) -> np.random.Generator:
    """Return the generator of the step addressed by ``numbers``, independent of earlier draws."""
    step = np.random.SeedSequence(seeds.entropy, spawn_key=(*seeds.spawn_key, *numbers))
    return np.random.default_rng(step)


def shuffled_folds(n_episodes: int, n_folds: int, random_state: RandomState) -> NDArray[np.int64]:
    """Return the fold of each episode (E,); sizes differ by at most one."""
    fold = np.empty(n_episodes, dtype=np.int64)
    fold[as_generator(random_state).permutation(n_episodes)] = np.arange(n_episodes) % n_folds
    return fold
