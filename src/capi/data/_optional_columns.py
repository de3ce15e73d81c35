"""Checks of the optional columns of a batch: masks, propensities, episode numbers and elapsed times."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from capi._utils.validation import (
    Bools,
    Floats,
    Ints,
    as_allowed,
    as_array,
    as_flags,
    as_floats,
    as_integers,
    check_rows,
    check_shape,
)
from capi.errors import InvalidInputError


def checked_allowed(value: ArrayLike | None, actions: Ints, n_actions: int) -> Bools | None:
    """Return masks (n, A) that allow the logged actions, None as None."""
    allowed = as_allowed(value, "allowed", (len(actions), n_actions), "states")
    if allowed is not None:
        taken = np.take_along_axis(allowed, actions[:, None], axis=1)[:, 0]
        check_rows(taken, actions, "actions", "must be allowed where they were taken", " Correct the mask or the row.")
    return allowed


def checked_next_allowed(value: ArrayLike | None, terminated: Bools, n_actions: int) -> Bools | None:
    """Return the checked mask of the next states; terminated rows, after which nothing is decided, may allow nothing."""
    if value is None:
        return None
    allowed = as_flags(value, "next_allowed", shape=(len(terminated), n_actions), rows_of="states")
    check_rows(
        allowed.any(axis=1) | terminated, allowed, "next_allowed", "must allow an action unless the row terminates"
    )
    return allowed


def checked_propensities(value: ArrayLike | None, n: int) -> Floats | None:
    """Return propensities (n,) in (0, 1], None as None."""
    if value is None:
        return None
    propensities = as_floats(value, "propensities", ndim=1)
    check_shape(propensities, "propensities", (n,), "states")
    advice = " It is the probability of the action that was taken, so it cannot be 0."
    check_rows((propensities > 0) & (propensities <= 1), propensities, "propensities", "must lie in (0, 1]", advice)
    return propensities


def checked_episodes(value: ArrayLike | None, terminated: Bools) -> Ints | None:
    """Return episode numbers (n,) whose rows are contiguous and end where the process terminates, None as None."""
    if value is None:
        return None
    episodes = as_integers(value, "episodes")
    check_shape(episodes, "episodes", terminated.shape, "states")
    starts = run_starts(episodes)
    ids = episodes[starts]
    first_run = np.zeros(len(ids), dtype=bool)
    first_run[np.unique(ids, return_index=True)[1]] = True
    if not first_run.all():
        i = int(starts[np.flatnonzero(~first_run)[0]])
        raise InvalidInputError(
            f"rows of an episode must be contiguous; episodes[{i}] = {episodes[i]} reappears after another episode. "
            "Sort the rows by episode and time, or give each episode its own number."
        )
    last = np.zeros(len(episodes), dtype=bool)
    last[np.append(starts[1:], len(episodes)) - 1] = True
    check_rows(
        last | ~terminated,
        episodes,
        "episodes",
        "must not continue after a terminated row",
        " Start a new episode number there.",
    )
    return episodes


def checked_elapsed(value: ArrayLike | None, terminated: Bools) -> Floats | None:
    """Return the positive length of each step (n,), one where the process terminated and nothing follows; None as None."""
    if value is None:
        return None
    given = as_array(value, "elapsed")
    check_shape(given, "elapsed", terminated.shape, "states")
    elapsed = as_floats(np.where(terminated, 1.0, given) if given.dtype.kind in "fiub" else given, "elapsed", ndim=1)
    advice = " It is the time to the next state, in units of the time that the discount refers to."
    check_rows(elapsed > 0, elapsed, "elapsed", "must be positive unless the row terminates", advice)
    return elapsed


def check_distinct_episodes(numbers: Sequence[Ints | None]) -> None:
    """Refuse batches, given by their episode numbers, that use the same number."""
    owner: dict[int, int] = {}
    for i, episodes in enumerate(numbers):
        for number in [] if episodes is None else np.unique(episodes).tolist():
            if owner.setdefault(number, i) != i:
                raise InvalidInputError(
                    f"episode {number} is in batches[{owner[number]}] and in batches[{i}]. "
                    "Pass renumber_episodes=True if they are different episodes."
                )


def run_starts(episode: Ints) -> Ints:
    """Return the first row of each run of equal numbers (E,)."""
    return np.flatnonzero(np.append(True, episode[1:] != episode[:-1]))
