r"""Fitted Q evaluation by kernel ridge regression: the regression step of regularised fitted Q iteration.

A sweep solves, for each action on its own rows,

.. math::
    \hat Q(\cdot, a) = \arg\min_{q} \sum_{i : A_i = a} w_i \bigl(q(X_i) - Y_i\bigr)^2 + \lambda n \|q\|^2,
    \qquad Y_i = R_i + \gamma \hat Q_{\text{old}}(X'_i, \pi(X'_i)),

in the space of the kernel (Farahmand, Ghavamzadeh, Szepesvari and Mannor 2009, with the policy in place of the maximum);
:math:`Y_i = R_i` where the process terminated. This is equivalent to one kernel
:math:`k((x, a), (x', a')) = k(x, x') 1\{a = a'\}` over states and actions. Only the right-hand sides change between sweeps, so each
action's matrix is factorised once, and the kernel of fixed states is evaluated once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from capi._utils.array_cache import Remembered
from capi._utils.parameters import Constraints, at_least, check_parameters, optional
from capi._utils.renamed import renamed
from capi._utils.row_ops import row_sum
from capi._utils.validation import Floats, Ints, as_discount, as_floats, as_positive, as_states, check_rows, is_fixed
from capi.data.elapsed import largest_discount
from capi.data.transitions import Transitions
from capi.evaluators._batches import batch_for, normalised_weights
from capi.evaluators._ridge import (
    Coefficients,
    DualRidge,
    ExactBasis,
    KeptFeatures,
    PrimalRidge,
    Ridge,
    SparseBasis,
    Tables,
    factorised,
)
from capi.evaluators._sweeps import (
    after_sweeps,
    bellman_targets,
    finite_targets,
    following_values,
    settled_targets,
    with_one_sweep,
)
from capi.features.dictionary import DEFAULT_KERNEL, KernelDictionary
from capi.features.kernels import Kernel, check_kernel, likeness
from capi.features.scaling import Scale, check_scale, learned_scaling
from capi.types import Policy, QFunction

WHAT_EXPANDS = (
    "Rewards are too large, or kernel ridge regression expands with each sweep. "
    "Use a larger ridge, a smaller discount, or fewer sweeps."
)
WHAT_MAY_NOT_SETTLE = (
    "Kernel ridge regression may expand, and then the sweeps do not converge. "
    "Use a larger ridge, a smaller discount, or a fixed number of sweeps."
)
WORTH_GATHERING = 3  # number of sweeps from which it pays to gather the features of one policy's decisions


@dataclass(frozen=True, eq=False)
class _Prepared:
    """Data shared by all sweeps on one batch."""

    batch: Transitions
    settings: KernelFittedQ  # with one sweep, because the number of sweeps does not matter here
    features: KeptFeatures
    ridge: Ridge


@dataclass(frozen=True, eq=False)
class KernelValues:
    """Q of a kernel evaluation: for each action, linear in features of the state.

    Parameters
    ----------
    features : features of states
        They keep the tables of the last four read-only arrays, such as the states of the batch. A table takes ``8 n m`` bytes
        for m features; tables of more than a gigabyte are recomputed whenever they are needed.
    coefficients : tuple of arrays (m_a,)
        One array per action.
    n_features : int
        Number of columns of a state, d.
    prepared : optional
        The batch and its factorised matrices, for the next evaluation on the same batch.
    """

    features: KeptFeatures = field(repr=False)
    coefficients: Coefficients = field(repr=False)
    n_features: int
    prepared: _Prepared | None = field(default=None, repr=False)
    known: Remembered[Floats] = field(default_factory=Remembered, repr=False)

    @property
    def n_actions(self) -> int:
        """Number of actions, A."""
        return len(self.coefficients)

    def values(self, states: Floats) -> Floats:
        """Return Q(x, a) for all actions; ``states`` (n, d) -> (n, A).

        The values of read-only arrays, such as the states of the batch, are computed once.
        """
        x = as_states(states, n_features=self.n_features, allow_nan=False)
        return self.known.of(x, lambda: self._table(x))

    def __getstate__(self) -> dict[str, Any]:
        """Return everything except the batch: sharing a policy must not share the data."""
        return {**self.__dict__, "prepared": None}

    def expected(self, states: Floats, probabilities: Floats) -> Floats:
        """Return the mean of Q(x, .) under ``probabilities`` (n, A), evaluating only actions that occur (n,)."""
        if states in self.known:
            table = self.values(states)
        else:
            table = self._columns(states, np.flatnonzero(probabilities.any(axis=0)))
        return row_sum(probabilities, table)

    def _table(self, states: Floats) -> Floats:
        table = self._columns(states, np.arange(self.n_actions))
        table.flags.writeable = not is_fixed(states)  # cached values must not change
        return table

    def _columns(self, states: Floats, actions: Ints) -> Floats:
        """Return a table (n, A) with the values of ``actions`` and zeros for the others."""
        table = np.zeros((len(states), self.n_actions))
        for rows, tables in self.features.blocks(states):
            for a in actions:
                table[rows, a] = tables[a] @ self.coefficients[a]
        return table


@renamed(sweeps="n_sweeps")
@dataclass(frozen=True)
class KernelFittedQ:
    r"""Regularised fitted Q evaluation: kernel ridge regression of Bellman targets, separately for each action.

    Parameters
    ----------
    kernel : function of states (n, d) and (m, d)
        Similarity of two states, such as ``capi.features.kernels.Gaussian``; it receives scaled states.
    ridge : float
        Added to the diagonal: n times the lambda of [1]_, whose experiments use ``lambda = 0.01 / n``.
    threshold : float, optional
        Squared distance above which a state is not considered spanned by the states before it (the nu of [2]_). Q is then
        represented on a dictionary of m states, and time and memory grow with n m instead of n squared. With None there is no
        sparsification: exact kernel ridge regression on all rows, with a table (n_a, n_a) for each action.
    max_size : int, optional
        Maximum number of states in the dictionary; a warning is issued if they do not suffice. None means unlimited.
    scale : "range", "deviation", array of shape (2, d) or None
        Scaling of the columns. "range" maps the smallest and the largest value in the batch to 0 and 1, "deviation" scales to
        mean 0 and standard deviation 1 in the batch, an array maps the lowest and the highest state of a box to 0 and 1, and
        None does not scale.
    n_sweeps : int, optional
        Number of Bellman sweeps per evaluation, starting from the previous Q. None sweeps until Q is within 1e-9 of its fixed
        point, relative to its largest value (or as close as rounding allows), and raises `DivergenceError` if it does not
        converge: unlike averaging, ridge regression may expand.

    Notes
    -----
    Weights of the batch are divided by their mean, so only their ratios matter; rows of weight 0 are ignored, also for the
    dictionary and the scale. Later evaluations on the same batch reuse the factorisations, the dictionary and the features of
    read-only arrays, which are stored with Q.

    References
    ----------
    .. [1] A.-m. Farahmand, M. Ghavamzadeh, C. Szepesvari, S. Mannor, "Regularized fitted Q-iteration for planning in
       continuous-space Markovian decision problems", American Control Conference, 2009.
    .. [2] Y. Engel, S. Mannor, R. Meir, "The kernel recursive least-squares algorithm", IEEE Transactions on Signal
       Processing 52(8), 2004.

    Examples
    --------
    >>> from capi.policies import Constant
    >>> from capi.testing import random_batch
    >>> batch = random_batch()
    >>> q = KernelFittedQ(n_sweeps=5).evaluate(Constant(0, 3), batch, discount=0.9)
    >>> q.values(batch.states).shape == (len(batch), 3)
    True
    """

    kernel: Kernel = DEFAULT_KERNEL
    ridge: float = 0.01
    threshold: float | None = 1e-3
    max_size: int | None = 2000
    scale: Scale = "range"
    n_sweeps: int | None = 1

    uses_weights: ClassVar[bool] = True
    _constraints: ClassVar[Constraints] = {
        "kernel": check_kernel,
        "ridge": as_positive,
        "threshold": optional(as_positive),
        "max_size": optional(at_least(1)),
        "scale": check_scale,
        "n_sweeps": optional(at_least(1)),
    }

    def __post_init__(self) -> None:
        check_parameters(self)
        if self.scale is not None and not isinstance(self.scale, str):
            box = as_floats(self.scale, "scale", ndim=2).tolist()
            object.__setattr__(self, "scale", tuple(map(tuple, box)))  # tuples are immutable and comparable

    def evaluate(
        self,
        policy: Policy,
        transitions: Transitions | None,
        *,
        discount: float,
        states: Floats | None = None,  # noqa: ARG002  values are computed and cached on demand
        previous: QFunction | None = None,
        rng: np.random.Generator | None = None,  # noqa: ARG002  nothing is random
    ) -> KernelValues:
        """Return Q after ``n_sweeps`` sweeps of T^pi, starting from ``previous`` (None: zero)."""
        t, discount = batch_for(transitions, policy, "KernelFittedQ"), as_discount(discount)
        prepared = self._prepared(t, previous)
        pi = policy.probabilities(t.next_states, t.next_masks())  # (n, A)
        ahead = self._ahead(prepared, pi)

        def targets_of(following: Floats) -> Floats:
            return finite_targets(bellman_targets(t, discount, following), WHAT_EXPANDS)

        def swept(targets: Floats) -> Floats:
            return targets_of(ahead(prepared.ridge.coefficients(targets)))

        def settled(targets: Floats) -> Floats:
            slowest = largest_discount(t, discount)
            return settled_targets(targets, swept, slowest, np.abs(t.rewards).max(), WHAT_MAY_NOT_SETTLE)

        following = following_values(previous, KernelValues, t, pi)
        with np.errstate(over="ignore", invalid="ignore"):  # non-finite values raise an error with advice
            targets = after_sweeps(targets_of(following), swept, self.n_sweeps, settled)
            coefficients = prepared.ridge.coefficients(targets)
        return KernelValues(prepared.features, coefficients, t.n_features, prepared)

    def _ahead(self, prepared: _Prepared, pi: Floats) -> Callable[[Coefficients], Floats]:
        """Return the function from coefficients to the mean of Q(x', .) under ``pi`` (n, A) at the next states (n,)."""
        t, features = prepared.batch, prepared.features
        many = self.n_sweeps is None or self.n_sweeps >= WORTH_GATHERING
        if many and bool((np.count_nonzero(pi, axis=1) == 1).all()):
            tables = features.kept(t.next_states)
            if tables is not None:
                return _gathered(tables, np.where(t.terminated[:, None], 0.0, pi))
        return lambda coefficients: KernelValues(features, coefficients, t.n_features).expected(t.next_states, pi)

    def _prepared(self, t: Transitions, old: QFunction | None) -> _Prepared:
        settings = with_one_sweep(self)
        known = old.prepared if isinstance(old, KernelValues) else None
        if known is not None and known.batch is t and known.settings == settings:
            return known
        _check_complete(t)
        weights = normalised_weights(t)
        groups = tuple(np.flatnonzero((t.actions == a) & (weights > 0)) for a in range(t.n_actions))
        t.check_actions_taken()
        if self.threshold is None:
            features, ridge = self._exact(t, weights, groups)
        else:
            features, ridge = self._sparse(t, weights, groups, self.threshold)
        return _Prepared(t, settings, features, ridge)

    def _exact(self, t: Transitions, weights: Floats, groups: tuple[Ints, ...]) -> tuple[KeptFeatures, Ridge]:
        scaling = learned_scaling(t.states[weights > 0], self.scale)
        scaled = scaling(t.states)
        centres, roots = tuple(scaled[rows] for rows in groups), tuple(np.sqrt(weights[rows]) for rows in groups)
        factors = []
        for x, root in zip(centres, roots, strict=True):
            matrix = root[:, None] * likeness(self.kernel, x, x)
            matrix *= root
            factors.append(factorised(matrix, self.ridge))
        return KeptFeatures(ExactBasis(self.kernel, scaling, centres)), DualRidge(groups, roots, tuple(factors))

    def _sparse(
        self, t: Transitions, weights: Floats, groups: tuple[Ints, ...], nu: float
    ) -> tuple[KeptFeatures, Ridge]:
        dictionary = KernelDictionary(self.kernel, threshold=nu, max_size=self.max_size, scale=self.scale)
        features = KeptFeatures(SparseBasis(dictionary.fit(t.states[weights > 0]), t.n_actions))
        of_action = np.zeros((len(t), t.n_actions))  # weights
        for a, rows in enumerate(groups):
            of_action[rows, a] = weights[rows]
        grams = np.zeros((t.n_actions, features.basis.width, features.basis.width))
        for part, tables in features.blocks(t.states):
            for a, w in enumerate(of_action[part].T):
                taken = np.flatnonzero(w)
                z = tables[a][taken] * np.sqrt(w[taken, None])
                grams[a] += z.T @ z  # Z_a' W Z_a
        factors = tuple(factorised(gram, self.ridge) for gram in grams)
        return features, PrimalRidge(features, t.states, of_action, factors)


def _gathered(tables: Tables, pi: Floats) -> Callable[[Coefficients], Floats]:
    """Return the function from coefficients to the mean of Q under ``pi`` (n, A), which has at most one action per row.

    It uses copies of only the features that it needs, which take as much memory as the tables of one action.
    """
    chosen = [np.flatnonzero(p) for p in pi.T]
    parts = [(a, rows, tables[a][rows]) for a, rows in enumerate(chosen) if rows.size]

    def ahead(coefficients: Coefficients) -> Floats:
        following = np.zeros(len(pi))
        for a, rows, table in parts:
            following[rows] = table @ coefficients[a]
        return following

    return ahead


def _check_complete(t: Transitions) -> None:
    rule = "must not have missing values: a kernel cannot compare them"
    for name in ("states", "next_states"):
        x = getattr(t, name)
        advice = " Fill them in, or use FittedQ, whose trees accept NaN."
        if name == "next_states":
            advice += " Where the process terminated, any number will do."
        check_rows(~np.isnan(x).any(axis=1), x, name, rule, advice)
