"""What the spaces share that learn from scores: the rows of a sample in which something is at stake."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from capi._utils.row_ops import row_max
from capi._utils.validation import Bools, Floats, Ints, as_allowed, as_q_values, as_states, as_weights
from capi.errors import InvalidInput
from capi.loss import regrets


@dataclass(frozen=True, eq=False)
class Stakes:
    """The rows with a weight and a gap, and what each action loses there; other rows cannot change any loss.

    Losses are in units in which the largest of each row sum to one, so that neither the scale of the values nor that of
    the weights matters.
    """

    states: Floats  # (n, d) as they were passed
    counting: Bools  # (n,) rows with weight
    rows: Ints  # (m,) rows with weight in which the allowed actions differ in value
    weights: Floats  # (m,) of these
    lost: Floats  # (m, A) regrets times weights; infinite where an action is not allowed
    masked: bool  # whether some action is not allowed somewhere

    @classmethod
    def of(cls, states: ArrayLike, q_values: ArrayLike, allowed: ArrayLike | None, weights: ArrayLike | None) -> Stakes:
        """Return what is at stake in what was passed to ``improve``, checked."""
        x = as_states(states)
        values = as_q_values(q_values, n_rows=len(x))
        mask = as_allowed(allowed, "allowed", values.shape)
        mask = None if mask is None or mask.all() else mask
        w = as_weights(weights, "weights", len(x))
        w = np.ones(len(x)) if w is None else w
        lost = regrets(values, mask)
        gap = row_max(lost if mask is None else np.where(mask, lost, 0.0))
        with np.errstate(over="ignore"):
            total = (gap * w).sum()
        if not np.isfinite(total):
            raise InvalidInput("the weighted gaps of q_values must have a finite sum. Scale q_values or weights down.")
        rows = np.flatnonzero(gap * w > 0)
        scaled = lost[rows] * w[rows, None] / total if rows.size else lost[rows]
        return cls(x, w > 0, rows, w[rows], scaled, mask is not None)

    @property
    def n_actions(self) -> int:
        """Number of actions, A."""
        return self.lost.shape[1]

    @cached_property
    def counted_states(self) -> Floats:
        """The states of the rows with weight."""
        return self.states if self.counting.all() else self.states[self.counting]

    @cached_property
    def own_states(self) -> Floats:
        """The states in which something is at stake (m, d)."""
        return self.states if len(self.rows) == len(self.states) else self.states[self.rows]
