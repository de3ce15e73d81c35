"""A batch as episodes: which row is where in which of them, and how they end."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from capi._utils.validation import Bools, Floats, Ints
from capi.data.transitions import Transitions
from capi.errors import InvalidInputError


@dataclass(frozen=True, eq=False)
class Episodes:
    """The episodes of a batch, in the batch's order, with what a reward of each of their steps is worth at their start."""

    batch: Transitions
    discount: float

    @classmethod
    def counted(cls, batch: Transitions, discount: float) -> Episodes:
        """Return the episodes of ``batch`` that have weight: what does not count is not there."""
        episodes = cls(batch, discount)
        kept = episodes.weights > 0
        return episodes if kept.all() else cls(batch.subset(kept[episodes.of_row]), discount)

    def __len__(self) -> int:
        return len(self.starts)

    @cached_property
    def starts(self) -> Ints:
        """First row of each episode (E,)."""
        return self.batch.episode_starts

    @cached_property
    def lengths(self) -> Ints:
        """Rows of each episode (E,)."""
        return self.batch.episode_lengths

    @cached_property
    def last(self) -> Ints:
        """Last row of each episode (E,)."""
        return self.starts + self.lengths - 1

    @cached_property
    def of_row(self) -> Ints:
        """The episode of each row, from 0 (n,)."""
        return np.repeat(np.arange(len(self)), self.lengths)

    @cached_property
    def time(self) -> Ints:
        """Steps of each row from the start of its episode (n,)."""
        return np.arange(len(self.batch)) - np.repeat(self.starts, self.lengths)

    @cached_property
    def worth(self) -> Floats:
        """What a reward of each row is worth at the start of its episode (n,)."""
        return np.power(self.discount, self.time)

    @cached_property
    def truncated(self) -> Bools:
        """Which episodes stopped only in the log (E,): the process went on, and what came is worth something."""
        if self.discount == 0:
            return np.zeros(len(self), dtype=bool)
        return ~self.batch.terminated[self.last]

    @cached_property
    def weights(self) -> Floats:
        """How much each episode counts, in the mean 1 (E,); all of them are positive after `counted`."""
        w = self.batch.weights
        if w is None:
            return np.ones(len(self))
        of_episode = w[self.starts]
        if not w.any():
            raise InvalidInputError("weight must be positive in some episode; it is zero in all.")
        if not np.array_equal(w, of_episode[self.of_row]):
            row = int(np.flatnonzero(w != of_episode[self.of_row])[0])
            raise InvalidInputError(
                f"weight must be the same in all rows of an episode to evaluate a policy; row {row} has {w[row]}, the first row of "
                f"its episode {of_episode[self.of_row[row]]}. An episode counts as a whole."
            )
        return of_episode / of_episode.mean()

    def summed(self, values: Floats) -> Floats:
        """Return the sum of ``values`` (n,) in each episode (E,)."""
        return np.add.reduceat(values, self.starts)
