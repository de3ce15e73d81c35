"""Episode structure of a batch: the position of each row, and how each episode ends."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from capi._utils.validation import Bools, Floats, Ints
from capi.data.elapsed import step_factors, times_factors
from capi.data.transitions import Transitions
from capi.errors import InvalidInputError


@dataclass(frozen=True, eq=False)
class Extent:
    """The size of a log, which the estimators of one of its parts need to know; those of several parts add up."""

    n_rows: int
    n_episodes: int
    weight: float  # sum of the episodes' weights, as in the table
    n_steps: int  # rows of the longest episode
    truncated: bool  # whether some episode was cut off by the log
    allowed: Bools  # (A,) actions that every row allows
    next_allowed: Bools  # (A,) actions that every next state allows

    def __add__(self, other: Extent) -> Extent:
        return Extent(
            self.n_rows + other.n_rows,
            self.n_episodes + other.n_episodes,
            self.weight + other.weight,
            max(self.n_steps, other.n_steps),
            self.truncated or other.truncated,
            self.allowed & other.allowed,
            self.next_allowed & other.next_allowed,
        )

    @property
    def mean_weight(self) -> float:
        """The mean weight of an episode."""
        return self.weight / self.n_episodes


@dataclass(frozen=True, eq=False)
class Episodes:
    """The episodes of a batch, in the batch's order, with the discount factor of each step."""

    batch: Transitions
    discount: float  # of a step that lasts one unit of time; without elapsed times, of every step
    whole: Extent | None = None  # of the log that these episodes are a part of; by default they are all of it

    @classmethod
    def counted(cls, batch: Transitions, discount: float) -> Episodes:
        """Return the episodes of ``batch`` with positive weight; the others are dropped."""
        episodes = cls(batch, discount)
        kept = episodes.weights > 0
        return episodes if kept.all() else cls(batch.subset(kept[episodes.of_row]), discount)

    @cached_property
    def extent(self) -> Extent:
        """The size of the whole log."""
        if self.whole is not None:
            return self.whole
        t = self.batch
        every: Bools = np.ones(t.n_actions, dtype=bool)
        following: Bools = every if t.next_allowed is None else np.atleast_1d(np.asarray(t.next_masks()).all(axis=0))
        weight = float(len(self)) if t.weights is None else float(t.weights[self.starts].sum())
        allowed: Bools = every if t.allowed is None else np.atleast_1d(t.allowed.all(axis=0))
        cut = bool(self.truncated.any())
        return Extent(len(t), len(self), weight, int(self.lengths.max()), cut, allowed, following)

    def __len__(self) -> int:
        return len(self.starts)

    @cached_property
    def starts(self) -> Ints:
        """Index of the first row of each episode (E,)."""
        return self.batch.episode_starts

    @cached_property
    def lengths(self) -> Ints:
        """Number of rows of each episode (E,)."""
        return self.batch.episode_lengths

    @cached_property
    def last(self) -> Ints:
        """Index of the last row of each episode (E,)."""
        return self.starts + self.lengths - 1

    @cached_property
    def of_row(self) -> Ints:
        """The episode of each row, counted from 0 (n,)."""
        return np.repeat(np.arange(len(self)), self.lengths)

    @cached_property
    def time(self) -> Ints:
        """Number of steps from the start of the episode to each row (n,)."""
        return np.arange(len(self.batch)) - np.repeat(self.starts, self.lengths)

    @cached_property
    def elapsed(self) -> Floats:
        """Time from the start of the episode to each row (n,), in the unit of time of the discount."""
        steps = self.batch.elapsed
        if steps is None:
            return self.time.astype(np.float64)
        before = np.append(0.0, steps[:-1])
        before[self.starts] = 0.0
        before[self.starts[1:]] -= self.summed(before)[:-1]  # keeps sums small, however long the log is
        sums = np.cumsum(before)
        return sums - np.repeat(sums[self.starts], self.lengths)

    @cached_property
    def worth(self) -> Floats:
        """Discount factor of each row's reward, counted from the start of its episode (n,)."""
        return np.power(self.discount, self.elapsed)

    @cached_property
    def _factors(self) -> Floats | None:
        return step_factors(self.batch, self.discount)

    def over_steps(self, values: Floats) -> Floats:
        """Return ``values`` (n,) of the next states such that, times the discount, each is discounted over its own step (n,)."""
        return times_factors(values, self._factors)

    @cached_property
    def truncated(self) -> Bools:
        """Which episodes were cut off by the log (E,): the process continued, and later rewards have a positive discount factor."""
        if self.discount == 0:
            return np.zeros(len(self), dtype=bool)
        return ~self.batch.terminated[self.last]

    @cached_property
    def one_step(self) -> bool:
        """Whether a single decision per episode counts, and its reward is all that follows."""
        return self.discount == 0 or (self.extent.n_steps == 1 and not self.extent.truncated)

    @cached_property
    def weights(self) -> Floats:
        """Weight of each episode, with mean 1 in the whole log (E,); all weights are positive after `counted`."""
        w = self.batch.weights
        if w is None:
            return np.ones(len(self))
        of_episode = w[self.starts]
        if not w.any():
            raise InvalidInputError("weight must be positive in at least one episode; it is zero in all.")
        if not np.array_equal(w, of_episode[self.of_row]):
            row = int(np.flatnonzero(w != of_episode[self.of_row])[0])
            raise InvalidInputError(
                f"weight must be the same in all rows of an episode to evaluate a policy; row {row} has {w[row]}, the first row of "
                f"its episode {of_episode[self.of_row[row]]}. Use one weight per episode."
            )
        return of_episode / (of_episode.mean() if self.whole is None else self.whole.mean_weight)

    def summed(self, values: Floats) -> Floats:
        """Return the sum of ``values`` (n,) in each episode (E,)."""
        return np.add.reduceat(values, self.starts)
