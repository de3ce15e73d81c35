r"""Regularised LSTD and Bellman residual minimisation in a reproducing kernel Hilbert space (Farahmand et al. 2008).

By the representer theorem :math:`Q = \sum_j \alpha_j k(\tilde z_j, \cdot)` over the 2n pairs of the batch,
:math:`\tilde z = (Z_1 .. Z_n, Z'_1 .. Z'_n)`, where a next "pair" averages over the policy and is zero where the process
terminated. The kernel between pairs with different actions is zero. With row weights W of mean 1,

.. math:: E = K_h (K_h + n \lambda_h W^{-1})^{-1}, \quad C_1 = [I\;0], \quad C_2 = [0\;I] .
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from capi._utils.validation import Floats, as_states
from capi.data.transitions import Transitions
from capi.errors import InvalidInputError
from capi.evaluators._batches import next_shares, normalised_weights
from capi.evaluators._solving import solved
from capi.features.bases import RKHS
from capi.features.kernels import Kernel, likeness
from capi.features.scaling import Scaling, learned_scaling
from capi.policies import one_hot
from capi.types import Policy

MOST_ROWS = 5000  # the system has two unknowns per row
ROWS_AT_ONCE = 4096
NUMBERS_AT_ONCE = 2**25  # entries of a block of rows: 256 MiB, however many centres there are


@dataclass(frozen=True, eq=False)
class KernelSpanValues:
    """Q as a sum of kernels centred at the states and next states of a batch."""

    kernel: Kernel
    scaling: Scaling = field(repr=False)
    centres: Floats = field(repr=False)  # (m, d), scaled
    weights: Floats = field(repr=False)  # (m, A)

    @property
    def n_actions(self) -> int:
        """Number of actions, A."""
        return self.weights.shape[1]

    def values(self, states: Floats) -> Floats:
        """Return Q(x, a) for all actions; ``states`` (n, d) -> (n, A)."""
        x = self.scaling(as_states(states, n_features=self.centres.shape[1]))
        size = max(1, min(ROWS_AT_ONCE, NUMBERS_AT_ONCE // len(self.centres)))
        blocks = [x[i : i + size] for i in range(0, len(x), size)]
        return np.concatenate([likeness(self.kernel, block, self.centres) @ self.weights for block in blocks])


@dataclass(frozen=True, eq=False)
class _Pairs:
    """The 2n pairs of a batch: their states, and the share of each action."""

    space: RKHS
    scaling: Scaling
    points: Floats  # (2n, d), scaled
    shares: Floats  # (2n, A)
    rewards: Floats  # (n,)
    weight: Floats  # (n,) with mean 1

    @classmethod
    def of(cls, space: RKHS, t: Transitions, policy: Policy, discount: float) -> _Pairs:
        """Return the pairs of the rows with positive weight."""
        rows = np.arange(len(t)) if t.weights is None else np.flatnonzero(t.weights)
        if len(rows) > MOST_ROWS:
            raise InvalidInputError(
                f"with RKHS features the batch must have at most {MOST_ROWS} rows, because all pairs of rows are used; it has "
                f"{len(rows)}. Use features=KernelDictionary(kernel), which keeps only the states that matter, or KernelFittedQ."
            )
        scaling = learned_scaling(t.states[rows], space.scale)
        points = scaling(np.vstack([t.states[rows], t.next_states[rows]]))
        shares = np.vstack([one_hot(t.actions[rows], t.n_actions), next_shares(t, policy, discount)[rows]])
        return cls(space, scaling, points, shares, t.rewards[rows], normalised_weights(t)[rows])

    @property
    def gram(self) -> Floats:
        """Inner products of all pairs (2n, 2n)."""
        return likeness(self.space.kernel, self.points, self.points) * (self.shares @ self.shares.T)

    def values(self, alpha: Floats) -> KernelSpanValues:
        """Return Q with the weights ``alpha`` (2n,) on the pairs."""
        return KernelSpanValues(self.space.kernel, self.scaling, self.points, alpha[:, None] * self.shares)


def lstd(
    space: RKHS, t: Transitions, policy: Policy, discount: float, ridge: float, projection_ridge: float
) -> KernelSpanValues:
    """Return Q by regularised LSTD: alpha = (F^T W F K + n lambda_Q I)^{-1} F^T W E r with F = C_1 - discount E C_2."""
    pairs = _Pairs.of(space, t, policy, discount)
    gram, n = pairs.gram, len(pairs.rewards)
    smoother = _smoother(gram[:n, :n], pairs.weight, projection_ridge)
    F = np.hstack([np.eye(n), -discount * smoother])
    weighted = F.T * pairs.weight
    left = weighted @ (F @ gram)
    left.flat[:: 2 * n + 1] += n * ridge
    return pairs.values(solved(left, weighted @ (smoother @ pairs.rewards)))


def residual(
    space: RKHS, t: Transitions, policy: Policy, discount: float, ridge: float, projection_ridge: float
) -> KernelSpanValues:
    """Return Q by regularised Bellman residual minimisation.

    alpha = ([D^T W D - discount^2 (B C_2)^T W B C_2] K + n lambda_Q I)^{-1} (D^T W + discount C_2^T B^T W B) r,
    B = E - I, D = C_1 - discount C_2.
    """
    pairs = _Pairs.of(space, t, policy, discount)
    gram, n = pairs.gram, len(pairs.rewards)
    rest = _smoother(gram[:n, :n], pairs.weight, projection_ridge) - np.eye(n)
    noise = rest.T @ (pairs.weight[:, None] * rest)  # B^T W B
    w = np.diag(pairs.weight)
    loss = np.block([[w, -discount * w], [-discount * w, discount**2 * (w - noise)]])
    right = np.concatenate([w @ pairs.rewards, discount * (noise - w) @ pairs.rewards])
    left = loss @ gram
    left.flat[:: 2 * n + 1] += n * ridge
    return pairs.values(solved(left, right))


def check_ridges(ridge: float | None, projection_ridge: float | None) -> None:
    """Raise an error unless both penalties are positive: without them any target could be represented."""
    if not ridge or not projection_ridge:
        raise InvalidInputError(
            "with RKHS features ridge and projection_ridge must be positive, because a kernel can fit any noise; got "
            f"{ridge!r} and {projection_ridge!r}. Try 1e-4."
        )


def check_auxiliary(auxiliary: Any) -> None:
    """Raise an error if the auxiliary space is not the kernel's own."""
    if not (isinstance(auxiliary, str) and auxiliary == "same"):
        raise InvalidInputError(f"with RKHS features auxiliary must be 'same'; got {auxiliary!r}.")


def _smoother(gram: Floats, weight: Floats, ridge: float) -> Floats:
    """Return E (n, n), which maps targets to the fitted values of their kernel ridge regression."""
    left = gram.copy()
    left.flat[:: len(gram) + 1] += len(gram) * ridge / weight
    return solved(left, gram).T
