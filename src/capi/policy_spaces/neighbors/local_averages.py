"""Policies based on all states of the sample, weighted by their similarity to the current state."""

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

AT_ONCE = 2**21  # similarities in one table: 16 MB
FAINT = 1e-100  # smaller weights times small regrets come too close to the smallest floats


@dataclass(frozen=True, eq=False)
class LocalAveragesPolicy(NearbyPolicy):
    """The action with the least kernel-weighted mean regret; see `LocalAverages`."""

    sample: Sample = field(repr=False)
    kernel: Kernel

    def summary(self) -> str:
        """Return one sentence that describes the policy."""
        return f"{len(self.sample.rows)} states decide by their mean regret, weighted by {self.kernel!r}."

    def regrets(self, states: Floats) -> Floats:
        """Return the kernel-weighted mean regret of each action; ``states`` (n, d) -> (n, A).

        With masks, the mean is over the states of the sample that allow the action; it is infinite if none does.
        """
        x = as_states(states, n_features=self.sample.n_features, allow_nan=False)
        parts = [x[part] for part in blocks(len(x), AT_ONCE // len(self.sample.points))]
        totals = in_threads(self._totals, parts, n_threads(self.n_jobs))
        return self.losses.means(np.concatenate(totals))

    def _totals(self, states: Floats) -> Floats:
        """Return the weighted sums of the losses (b, c)."""
        x, which = self.sample.asked(states)
        table = self._similarity(x)
        totals = table @ self._by_point
        faint = np.flatnonzero(self.losses.counts(totals).max(axis=1) < FAINT)
        if faint.size:
            totals[faint] = self._faint_totals(x[faint], table[faint])
        return totals if which is None else totals[which]

    def _faint_totals(self, x: Floats, table: Floats) -> Floats:
        """Return the sums for states far from the sample: with weights relative to the largest, or from the nearest row."""
        largest = table.max(axis=1)
        totals = self.losses.table[self._nearest.of(x)[0][:, 0]]
        seen = largest > 0
        totals[seen] = (table[seen] / largest[seen, None]) @ self._by_point
        return totals

    def _similarity(self, x: Floats) -> Floats:
        """Return the weight of each point for each state (b, m), checked."""
        table = likeness(self.kernel, x, self.sample.points)
        if table.min() < 0:
            raise InvalidInputError(
                f"the kernel of LocalAverages must not be negative, because it weights losses; got {table.min():g}. "
                "Choose a nonnegative kernel, such as Gaussian(0.1)."
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
    r"""Policies that take the action with the least kernel-weighted mean regret over the sample.

    .. math:: \pi(x) = \arg\min_a \sum_i k(x, X_i) \bigl[\max_b \hat Q(X_i, b) - \hat Q(X_i, a)\bigr]

    `Neighbors` uses a fixed number of states; this space uses, roughly, those within a fixed distance. Where all weights
    are zero, because a state is too far from all others for the kernel, the nearest row decides (by Euclidean distance
    of the scaled states; ties go to the lowest row).

    Parameters
    ----------
    kernel : callable
        Weight of each state of the sample for another state: states (n, d) and (m, d) -> nonnegative weights (n, m).
        It is applied to scaled states. See `capi.features.kernels`; the wider the kernel, the smoother the policy.
    scale : "range", "deviation", array of shape (2, d) or None
        Scaling of the features, learned from the sample: "range" maps the smallest and the largest value to 0 and 1,
        "deviation" standardises to mean 0 and standard deviation 1, a box maps its two rows to 0 and 1. None leaves the
        states unscaled.
    n_jobs : int, optional
        Number of threads; -1: all cores, None: one. The policy does not depend on it.

    Examples
    --------
    One state with a large gap outvotes two with small gaps, but not far from it:

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
        """Return the policy of the weighted averages; the distinct states of a ``previous`` one on the same states are reused.

        The table of weights is not stored: it has one entry per pair of states.
        """
        origin, losses = Origin.of(problem, self), Losses.of(problem)
        if isinstance(previous, LocalAveragesPolicy) and origin.is_that_of(previous):
            sample = previous.sample
        else:
            sample = Sample.of(origin.counted_states(), self.scale)
        return LocalAveragesPolicy(losses, origin, self.n_jobs, sample, self.kernel)
