"""Means over the rows of a batch, the only statistics that the least-squares methods need.

The sums are accumulated in chunks, so memory holds the products of features with features and one chunk, whatever the
number of rows; those of the parts of a partitioned batch are added in their order. Rows are sorted by action, so each block of the products is a matrix product. Sorting by next action would
work, too, but then the last digits of the sums would depend on whether they were kept from the evaluation of another
policy.

Features cost more than their products. In a log most next states are the states of the next row, so a chunk of consecutive rows computes
features of its states, and of those next states that are not among them. A policy that is greedy for Q with the same features decides by
these, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from capi._utils.validation import Floats, Ints
from capi.data.elapsed import step_factors
from capi.data.survey import loaded, missing_state
from capi.data.transitions import Transitions
from capi.errors import InvalidInputError
from capi.evaluators._batches import AnyBatch, continued, next_shares, portable
from capi.evaluators._linear_model import LinearValues, features_on, known_on
from capi.evaluators._solving import Matrix, as_dense
from capi.features.tables import Features, FittedFeatures, Table, same_fitted
from capi.loss import greedy
from capi.policies import Greedy
from capi.policies.decisions import one_hot
from capi.types import Policy, QFunction

ENTRIES_AT_ONCE = 2**20  # entries of a chunk of features: 8 MiB, freed and reallocated without a system call
MOST_DENSE = 20_000  # maximum number of weights of a dense system: 3 GiB


@dataclass(frozen=True, eq=False)
class Means:
    """Weighted means over the rows of a batch, the only statistics that the least-squares methods need."""

    gram: Matrix  # phi phi^T (A p, A p): zero outside the diagonal blocks of the actions
    rewards: Floats  # phi r (A p,)
    cross: Matrix  # phi phi'^T (A p, A q); phi' may use other features


def means(
    features: Features,
    t: AnyBatch,
    policy: Policy,
    previous: QFunction | None = None,
    *,
    discount: float,
    dense: bool = False,
) -> tuple[Means, FittedFeatures, Any]:
    """Return the means of a batch, the fitted features, and what the next evaluation on the batch can reuse.

    Set ``dense`` if the method works with dense matrices even for sparse features. The ``discount`` matters for batches with
    elapsed times: products with next features are weighted so that times the discount each has the discount of its own step.
    """
    fitted, known = features_on(features, t, previous), known_on(features, t, previous)
    if dense or not fitted.sparse:
        _check_dense_size(fitted, t.n_actions)
    own = known.origin[1] if known is not None and known.origin is not None and len(known.origin) == 2 else None
    found = means_of(fitted, fitted, t, policy, discount, own)
    return found, fitted, (t, (found.gram, found.rewards))


def means_of(
    left: FittedFeatures,
    right: FittedFeatures,
    t: AnyBatch,
    policy: Policy,
    discount: float,
    own: tuple[Matrix, Floats] | None = None,
) -> Means:
    """Return the means with phi from the ``left`` and phi' from the ``right`` features, in one pass over the rows.

    ``own`` is (``gram``, ``rewards``) if already known: they do not depend on the policy.
    """
    following = None if right is left else right  # one object, which workers would get as two
    sums = _summed(_sums_of, t, left, following, _decider(policy, right), discount, own is None)
    gram, rewards, cross = sums.tables
    own = (gram.mean(sums.total), _finite(rewards / sums.total)) if own is None else own
    return Means(*own, cross.mean(sums.total))


def next_means(features: FittedFeatures, t: AnyBatch, policy: Policy, discount: float) -> tuple[Matrix, Floats]:
    """Return the means of phi' phi'^T (A p, A p) and of phi' r (A p,)."""
    sums = _summed(_next_sums_of, t, features, policy, discount)
    gram, rewards = sums.tables
    return gram.mean(sums.total), _finite(rewards / sums.total)


@dataclass(frozen=True, eq=False)
class _Sums:
    """Sums over some rows, and the weight of these."""

    tables: tuple[Any, ...]  # of `_Blocks` or arrays
    total: float

    def __add__(self, other: _Sums) -> _Sums:
        return _Sums(tuple(a + b for a, b in zip(self.tables, other.tables, strict=True)), self.total + other.total)


def _summed(sums: Any, t: AnyBatch, *arguments: Any) -> _Sums:
    """Return ``sums(t, *arguments)``; for a partitioned batch those of all its parts together."""
    if isinstance(t, Transitions):
        found: _Sums = sums(t, *arguments)
        return found
    shared = [t.crew.shared(portable(argument)) for argument in arguments]
    parts = t.crew.each(_sums_of_part, t.parts, sums, *shared)
    found = t.crew.merged(_plus, parts)
    return found


def _sums_of_part(source: Any, sums: Any, *arguments: Any) -> _Sums:
    batch = loaded(source)
    try:
        return sums(batch, *arguments)
    except InvalidInputError as error:
        if (missing := missing_state(source, "these features")) is not None:
            raise InvalidInputError(missing) from error
        raise


def _plus(a: _Sums, b: _Sums) -> _Sums:
    return a + b


@np.errstate(invalid="ignore", over="ignore")  # the means are checked for non-finite values
def _sums_of(
    t: Transitions,
    left: FittedFeatures,
    following: FittedFeatures | None,
    decider: Policy | Floats,
    discount: float,
    with_own: bool,
) -> _Sums:
    right = left if following is None else following
    A, p, q = t.n_actions, left.n_columns, right.n_columns
    decide = _decisions(t, right, decider, discount)
    gram, cross = _Blocks(A, (p, p), sparse=left.sparse), _Blocks(A, (p, q), sparse=left.sparse and right.sparse)
    rewards = np.zeros((A, p))
    for piece in _featured(t, left, right):
        shares = decide(piece)
        for a, run in _runs(t.actions[piece.rows]):
            rows, at, ahead_at = piece.rows[run], piece.at[run], piece.ahead_at[run]
            weight = _weight(t, rows)
            if with_own:
                table = piece.table[at]
                x = _times(table, weight)
                gram.add(a, a, x.T @ table)
                rewards[a] += x.T @ t.rewards[rows]
            for b, chosen, share in _parts(shares[run]):
                x, y = _times(piece.table[at[chosen]], weight[chosen]), piece.ahead[ahead_at[chosen]]
                cross.add(a, b, x.T @ _times(y, share))
    return _Sums((gram, rewards, cross), _total(t))


def _decider(policy: Policy, features: FittedFeatures) -> Policy | Floats:
    """Return the policy, or the weights (A, p) if it is greedy for values that are linear in the same dense features.

    A policy from a checkpoint has its own copy of the features. It must decide from the same tables as before the interruption, because
    the size of a table can change the last digits of products.
    """
    q = policy.q if isinstance(policy, Greedy) and not policy.masked else None
    if isinstance(q, LinearValues) and not features.sparse and same_fitted(q.features, features):
        return q.weights
    return policy


def _decisions(
    t: Transitions, features: FittedFeatures, decider: Policy | Floats, discount: float
) -> Callable[[_Piece], Floats]:
    """Return the function that gives the shares of the next actions of a piece's rows (m, A)."""
    if not isinstance(decider, np.ndarray):
        shares = next_shares(t, decider, discount)
        return lambda piece: shares[piece.rows]
    masks, factors = t.next_masks(), step_factors(t, discount)
    if features.keeps(t.next_states):  # decided at once, as the policy would
        values = features.product(t.next_states, decider.T)
        shares = continued(one_hot(greedy(values, masks), len(decider)), t.terminated, factors)
        return lambda piece: shares[piece.rows]

    def greedily(piece: _Piece) -> Floats:
        values = np.asarray(piece.ahead @ decider.T)
        if not np.isfinite(values).all():
            raise InvalidInputError("features(states) must be finite.")
        rows = piece.rows
        actions = greedy(values[piece.ahead_at], None if masks is None else masks[rows])
        return continued(one_hot(actions, len(decider)), t.terminated[rows], None if factors is None else factors[rows])

    return greedily


@dataclass(frozen=True, eq=False)
class _Piece:
    """Some rows, sorted by action, and where the features of their states and next states are."""

    rows: Ints  # (m,)
    table: Table
    at: Ints  # (m,) rows of ``table``
    ahead: Table
    ahead_at: Ints  # (m,) rows of ``ahead``


def _featured(t: Transitions, left: FittedFeatures, right: FittedFeatures) -> Iterator[_Piece]:
    """Yield chunks of rows with their features; those of ``right`` are for next states."""
    width = max(left.n_columns, right.n_columns)
    if left is right and not left.keeps(t.states):
        for rows in _pieces(np.arange(len(t)), width):
            yield _neighbours(t, left, rows)
        return
    for rows in _pieces(np.argsort(t.actions, kind="stable"), width):
        at = np.arange(len(rows))
        yield _Piece(rows, left.of_rows(t.states, rows), at, right.of_rows(t.next_states, rows), at)


def _neighbours(t: Transitions, features: FittedFeatures, rows: Ints) -> _Piece:
    """Return consecutive rows with one table of features: a next state that is the state of the next row is computed once."""
    states, following = t.states[rows[0] : rows[-1] + 1], t.next_states[rows[0] : rows[-1] + 1]
    ahead_at = np.arange(1, len(rows) + 1)
    other = np.append((following[:-1] != states[1:]).any(axis=1), True)
    ahead_at[other] = len(rows) + np.arange(np.count_nonzero(other))
    table = features.table_of(np.concatenate([states, following[other]]))
    order = np.argsort(t.actions[rows], kind="stable")
    return _Piece(rows[order], table, order, table, ahead_at[order])


@np.errstate(invalid="ignore", over="ignore")
def _next_sums_of(t: Transitions, features: FittedFeatures, policy: Policy, discount: float) -> _Sums:
    A, p = t.n_actions, features.n_columns
    shares = next_shares(t, policy, discount)
    gram, rewards = _Blocks(A, (p, p), sparse=False), np.zeros((A, p))
    for rows in _pieces(np.argsort(shares.argmax(axis=1), kind="stable"), p):
        root = np.sqrt(_weight(t, rows))
        table = _times(features.of_rows(t.next_states, rows), root)
        for b, chosen, share in _parts(shares[rows]):
            x = _times(table[chosen], share)
            rewards[b] += x.T @ (root * t.rewards[rows])[chosen]
            for c, also, other in _parts(shares[rows][chosen]):
                gram.add(b, c, x[also].T @ _times(table[chosen][also], other))
    return _Sums((gram, rewards), _total(t))


def _check_dense_size(features: FittedFeatures, n_actions: int) -> None:
    """Raise an error if a dense matrix over all pairs of weights would not fit into memory."""
    if (m := features.n_columns * n_actions) > MOST_DENSE:
        raise InvalidInputError(
            f"a dense system must have at most {MOST_DENSE} weights (features times actions); it has {m}. "
            "Use fewer features, or LSTDQ without projection_ridge on sparse features."
        )


class _Blocks:
    """Sums of products, in one block per pair of actions of the left and right features."""

    def __init__(self, n_actions: int, shape: tuple[int, int], *, sparse: bool) -> None:
        self.sparse = sparse
        self.sums: Any = np.zeros((n_actions, shape[0], n_actions, shape[1]))
        if sparse:
            self.sums = [[sp.csr_array(shape) for _ in range(n_actions)] for _ in range(n_actions)]

    def add(self, a: int, b: int, product: Any) -> None:
        """Add to the block of two actions."""
        if self.sparse:
            self.sums[a][b] = self.sums[a][b] + product
        else:
            self.sums[a, :, b, :] += as_dense(product)

    def __add__(self, other: _Blocks) -> _Blocks:
        made = object.__new__(_Blocks)
        made.sparse = self.sparse
        if self.sparse:
            made.sums = [
                [a + b for a, b in zip(*rows, strict=True)] for rows in zip(self.sums, other.sums, strict=True)
            ]
        else:
            made.sums = self.sums + other.sums
        return made

    def mean(self, total: float) -> Matrix:
        """Return the sums divided by ``total`` as one matrix."""
        if self.sparse:
            matrix = sp.csr_array(sp.block_array(self.sums) / total)
        else:
            A, p, _, q = self.sums.shape
            self.sums /= total
            matrix = self.sums.reshape(A * p, A * q)
        if not np.isfinite(matrix.data if self.sparse else matrix).all():
            raise InvalidInputError(
                "features(states) and their products must be finite; some are not. Correct the features or scale them down."
            )
        return matrix


def _pieces(order: Ints, width: int) -> Iterator[Ints]:
    """Yield chunks of row numbers such that features of that width fit into one chunk."""
    size = max(256, ENTRIES_AT_ONCE // width)
    for start in range(0, len(order), size):
        yield order[start : start + size]


def _runs(actions: Ints) -> Iterator[tuple[int, slice]]:
    """Yield each action of sorted rows with the slice of its rows."""
    starts = np.flatnonzero(np.append(True, actions[1:] != actions[:-1]))
    for start, stop in zip(starts, [*starts[1:], len(actions)], strict=True):
        yield int(actions[start]), slice(start, stop)


def _parts(shares: Floats) -> Iterator[tuple[int, Any, Floats]]:
    """Yield each next action, the rows with a positive share (a slice if contiguous), and the shares in these rows."""
    for b, share in enumerate(shares.T):
        rows = np.flatnonzero(share)
        if len(rows):
            together = rows[-1] - rows[0] + 1 == len(rows)
            chosen = slice(rows[0], rows[-1] + 1) if together else rows
            yield b, chosen, share[chosen]


def _times(table: Table, factors: Floats) -> Table:
    """Return the rows of the table times ``factors`` (n,), or the table itself if all factors are one."""
    if (factors == 1).all():
        return table
    return sp.csr_array(sp.diags_array(factors) @ table) if sp.issparse(table) else table * factors[:, None]


def _weight(t: Transitions, rows: Ints) -> Floats:
    return np.ones(len(rows)) if t.weights is None else t.weights[rows]


def _finite(rewards: Floats) -> Floats:
    """Return the mean products with rewards (A p,), or raise an error if they are not finite."""
    if not np.isfinite(rewards).all():
        raise InvalidInputError("features(states) times rewards must be finite; some are not. Scale the rewards down.")
    return rewards.ravel()


def _total(t: Transitions) -> float:
    return float(len(t) if t.weights is None else t.weights.sum())
