"""Policies that ask all states of the sample, each as much as it is like the one in question."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar

import numpy as np

from capi._utils.parameters import Constraints, check_parameters, checked_by
from capi._utils.threads import in_threads, n_threads
from capi._utils.validation import Floats, as_states
from capi.errors import InvalidInputError
from capi.features.kernels import Gaussian, Kernel, check_kernel, likeness
from capi.features.scaling import Scale, check_scale
from capi.policy_spaces._problem import ImprovementProblem, ImprovementSolver
from capi.policy_spaces.neighbors._sample import Losses, NearbyPolicy, Origin, Sample, blocks
from capi.policy_spaces.neighbors._search import NearestRows, nearest_rows
from capi.types import Policy, QFunction

AT_ONCE = 2**21  # likenesses in one table: 16 MB
FAINT = 1e-100  # weights below, times small regrets, are too near to the smallest numbers there are


@dataclass(frozen=True, eq=False)
class LocalAveragesPolicy(NearbyPolicy):
    """The action with the least regret, averaged with the weights of a kernel; see `LocalAverages`."""

    sample: Sample = field(repr=False)
    kernel: Kernel

    def summary(self) -> str:
        """Return one sentence on what the policy is."""
        return f"{len(self.sample.rows)} states decide by what they lose, weighted by {self.kernel!r}."

    def regrets(self, states: Floats) -> Floats:
        """Return the kernel-weighted mean regret of each action; ``states`` (n, d) -> (n, A).

        With masks the mean is over the states of the sample that allow the action, and infinite if none does.
        """
        x = as_states(states, n_features=self.sample.n_features, allow_nan=False)
        parts = [x[part] for part in blocks(len(x), AT_ONCE // len(self.sample.points))]
        totals = in_threads(self._totals, parts, n_threads(self.n_jobs))
        return self.losses.means(np.concatenate(totals))

    def _totals(self, states: Floats) -> Floats:
        """Return the weighted sums of the losses (b, c)."""
        x, which = self.sample.asked(states)
        table = self._likeness(x)
        totals = table @ self._by_point
        faint = np.flatnonzero(self.losses.counts(totals).max(axis=1) < FAINT)
        if faint.size:
            totals[faint] = self._faint_totals(x[faint], table[faint])
        return totals if which is None else totals[which]

    def _faint_totals(self, x: Floats, table: Floats) -> Floats:
        """Return the sums for states far from all others: with weights relative to the largest, or the nearest row."""
        largest = table.max(axis=1)
        totals = self.losses.table[self._nearest.of(x)[0][:, 0]]
        seen = largest > 0
        totals[seen] = (table[seen] / largest[seen, None]) @ self._by_point
        return totals

    def _likeness(self, x: Floats) -> Floats:
        """Return the weight of each point for each state (b, m), checked."""
        table = likeness(self.kernel, x, self.sample.points)
        if table.min() < 0:
            raise InvalidInputError(
                f"the kernel of LocalAverages must not be negative, for it weighs losses; got {table.min():g}. "
                "Choose one that never is, such as Gaussian(0.1)."
            )
        return table

    @cached_property
    def _by_point(self) -> Floats:
        """The losses of each distinct state, summed over its rows (m, c)."""
        return np.add.reduceat(self.losses.table[self.sample.rows], self.sample.starts[:-1])

    @cached_property
    def _nearest(self) -> NearestRows:
        return nearest_rows(self.sample, 1)


@dataclass(frozen=True, eq=False)
class LocalAverages(ImprovementSolver[LocalAveragesPolicy]):
    r"""Policies that play what loses the least in a weighted average over the sample.

    .. math:: \pi(x) = \arg\min_a \sum_i k(x, X_i) \bigl[\max_b \hat Q(X_i, b) - \hat Q(X_i, a)\bigr]

    `Neighbors` asks a fixed number of states, this one those within a fixed distance, roughly. Where all weights are
    zero, because a state is too far from all others for the kernel, the nearest row decides (by Euclidean distance in
    the scaled states, the lowest row among equals).

    Parameters
    ----------
    kernel : callable
        How much a state of the sample counts for another: states (n, d) and (m, d) -> weights (n, m), none negative.
        It sees the scaled states. See `capi.features.kernels`; the wider the kernel, the smoother the policy.
    scale : "range", "deviation", array of shape (2, d) or None
        The units of the features, learned from the sample: "range" sends the smallest and the largest value to 0 and
        1, "deviation" the mean and the standard deviation, a box its two rows. None leaves the states as they are.
    n_jobs : int, optional
        Threads; -1 is all cores, None is one. The policy does not depend on it.

    Examples
    --------
    One state that matters outvotes two that hardly do, but not far from it:

    >>> states, q_values = np.array([[0.0], [0.1], [0.2], [1.0]]), [[0.1, 0.0], [0.1, 0.0], [0.0, 9.0], [1.0, 0.0]]
    >>> policy = LocalAverages(Gaussian(0.1)).improve(states, q_values)
    >>> policy.act(np.array([[0.1], [0.9], [-100.0]]))
    array([1, 0, 0])
    """

    kernel: Kernel = field(default_factory=Gaussian)
    scale: Scale = "range"
    n_jobs: int | None = None

    takes_missing: ClassVar[bool] = False
    _constraints: ClassVar[Constraints] = {
        "kernel": checked_by(check_kernel),
        "scale": checked_by(check_scale),
        "n_jobs": checked_by(n_threads),
    }

    def __post_init__(self) -> None:
        check_parameters(self)

    def solve(
        self,
        problem: ImprovementProblem,
        *,
        q: QFunction | None = None,  # noqa: ARG002  the sample decides alone
        previous: Policy | None = None,
        rng: np.random.Generator | None = None,  # noqa: ARG002
    ) -> LocalAveragesPolicy:
        """Return the policy of the weighted averages; a ``previous`` one on the same states lends its distinct states.

        The table of weights is not kept: it has as many entries as pairs of states.
        """
        origin, losses = Origin.of(problem, self), Losses.of(problem)
        if isinstance(previous, LocalAveragesPolicy) and origin.is_that_of(previous):
            sample = previous.sample
        else:
            sample = Sample.of(origin.counted_states(), self.scale)
        return LocalAveragesPolicy(losses, origin, self.n_jobs, sample, self.kernel)
