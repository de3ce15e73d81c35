"""What the estimates of a policy rest on: sums over the episodes of a log, and what follows from them for its caveats."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from capi._utils.validation import Floats
from capi.offline.behaviour import RARE, Behaviour, binned, calibration_of_bins
from capi.offline.importance_weights import Overlap
from capi.offline.log import Log
from capi.offline.nuisances import Quantities

RARELY = 0.01  # share of an action among the decisions in similar states below which nothing is known about it
TINY = 1e-9  # smaller probabilities count as zero
NOT_ONE = 0.1  # tolerated distance of the mean ratio from one


@dataclass(frozen=True, eq=False)
class LogSums:
    """Sums over the rows of a log, whatever the policy; those of several parts add up."""

    n_rows: int
    n_episodes: int
    in_groups: Floats  # (nodes, A) weight of each action's rows in each group of similar states
    inverse: (
        Floats | None
    )  # (4, nodes, A) of 1 / p: rows, rows with the action, sum, sum of squares; None if p is estimated
    n_improbable: int  # rows whose action had a probability below `RARE`
    bins: Floats | None  # (3, A, bins) by which estimated probabilities are checked; None if they are given

    def __add__(self, other: LogSums) -> LogSums:
        return LogSums(
            self.n_rows + other.n_rows,
            self.n_episodes + other.n_episodes,
            self.in_groups + other.in_groups,
            None if self.inverse is None or other.inverse is None else self.inverse + other.inverse,
            self.n_improbable + other.n_improbable,
            None if self.bins is None or other.bins is None else self.bins + other.bins,
        )

    def behaviour(self, probability: Floats) -> Behaviour:
        """Return what is known of the behaviour probabilities, from sums over a log in parts."""
        rare = self.n_improbable / self.n_rows
        if self.bins is None:
            return Behaviour(probability, True, np.nan, np.nan, rare)
        return Behaviour(probability, False, *calibration_of_bins(self.bins, self.n_rows), rare)


@dataclass(frozen=True, eq=False)
class PolicySums:
    """Sums over the rows of a log under a policy; those of several parts add up."""

    overlap: Overlap
    decisions: Floats  # (nodes, A) the policy's weighted decisions in each group of similar states
    tail: float  # size of the values beyond the end of truncated episodes
    start: float  # size of the values of the first states
    ratios: Floats  # (5,) sums of s, r, s s, s r and r r: s and r are an episode's sum of ratios and its number of rows

    def __add__(self, other: PolicySums) -> PolicySums:
        return PolicySums(
            self.overlap + other.overlap,
            self.decisions + other.decisions,
            self.tail + other.tail,
            self.start + other.start,
            self.ratios + other.ratios,
        )


def log_sums(log: Log) -> LogSums:
    """Return the sums over the rows of a log or a part of it."""
    t, b = log.batch, log.behaviour
    leaves, counts = log.by_leaf
    inverse = None
    if b.given:
        taken = 1 / np.maximum(b.probability, TINY)
        allowed = np.ones((len(t), t.n_actions)) if t.allowed is None else t.allowed.astype(np.float64)
        inverse = np.zeros((4, *counts.shape))
        np.add.at(inverse[0], leaves, allowed)
        counted = np.flatnonzero(allowed[np.arange(len(t)), t.actions])
        for sums, values in zip(inverse[1:], (np.ones(len(t)), taken, taken**2), strict=True):
            np.add.at(sums, (leaves[counted], t.actions[counted]), values[counted])
    edges = None if log.from_sample is None else log.from_sample.edges
    bins = None if edges is None or log.predicted is None else binned(log.predicted, t.actions, edges)
    improbable = int((b.probability < RARE).sum())
    return LogSums(len(t), len(log.episodes), counts, inverse, improbable, bins)


def policy_sums(q: Quantities, log: Log) -> PolicySums:
    """Return the sums over the rows of a log or a part of it, under the policy of ``q``."""
    e, (leaves, counts) = log.episodes, log.by_leaf
    decisions = np.zeros(counts.shape)
    np.add.at(decisions, leaves, e.weights[e.of_row][:, None] * q.probabilities)
    tail = 0.0
    if e.truncated.any():
        ends = e.last[e.truncated]
        beyond = np.abs(e.worth[ends] * e.discount * e.over_steps(q.next_values)[ends])
        tail = float((e.weights[e.truncated] * beyond).sum())
    with np.errstate(over="ignore", invalid="ignore"):  # infinite ratios are seen in the end
        s, r = e.weights * e.summed(q.weights.ratios), e.weights * e.lengths
        ratios = np.array([s.sum(), r.sum(), s @ s, s @ r, r @ r])
    start = float((e.weights * np.abs(q.start_values)).sum())
    return PolicySums(q.weights.overlap, decisions, tail, start, ratios)


@dataclass(frozen=True, eq=False)
class Facts:
    """What the estimates of a policy rest on."""

    log: Log  # the whole log, or the sample of it that models were fitted on
    of_log: LogSums
    of_policy: PolicySums
    behaviour: Behaviour

    @property
    def n_rows(self) -> int:
        """Number of decisions."""
        return self.of_log.n_rows

    @property
    def n_episodes(self) -> int:
        """Number of episodes."""
        return self.of_log.n_episodes

    @property
    def overlap(self) -> Overlap:
        """How well the policy and the log overlap."""
        return self.of_policy.overlap

    @cached_property
    def rarely_taken(self) -> tuple[float, dict[int, float]]:
        """The share of the policy's decisions that were rarely taken in similar states, and the share of each action that was never taken."""
        counts, decisions = self.of_log.in_groups, self.of_policy.decisions
        rows = counts * (self.n_rows / counts.sum())  # the scale of weights is arbitrary
        shares = (rows + 1) / (rows + 1).sum(
            axis=1, keepdims=True
        )  # by Laplace's rule, because a few rows prove nothing
        never = counts.sum(axis=0) == 0
        rare = (shares < RARELY) | never
        mean = decisions.sum(axis=0) / decisions.sum()
        taken = {int(a): float(mean[a]) for a in np.flatnonzero(never & (mean > 0))}
        return float((decisions * rare).sum() / decisions.sum()), taken

    @property
    def extrapolated_share(self) -> float:
        """The share of the value that lies beyond the end of the log, according to the fitted values."""
        tail, start = self.of_policy.tail, self.of_policy.start
        return min(tail / start, 1.0) if start > 0 else float(tail > 0)

    @property
    def mean_ratio(self) -> float | None:
        """The mean ratio of the policy's to the log's probabilities if it differs from 1 by more than chance explains, otherwise None."""
        if self.overlap.overflows:  # covered by another warning
            return None
        s, r, ss, sr, rr = self.of_policy.ratios
        with np.errstate(over="ignore", invalid="ignore"):
            mean, squares = float(s / r), float(ss - 2 * (s / r) * sr + (s / r) ** 2 * rr)
        if not np.isfinite(squares):  # an infinite ratio makes the noise infinite
            return None
        noise = float(np.sqrt(max(squares, 0.0))) / r
        return mean if abs(mean - 1) > max(NOT_ONE, 4 * noise) else None
