r"""Temporal differences: a small update of the weights of a linear Q with every row of the batch.

Let :math:`\phi_t = \phi(X_t, A_t)`, :math:`\delta_t = R_t + \gamma\, \theta \cdot \phi'_t - \theta \cdot \phi_t`, and let the mean next features
be :math:`\phi'_t = \sum_a \pi(a | X'_t)\, \phi(X'_t, a)`, zero where the process terminated. A step with sizes :math:`\alpha, \beta` is

.. math::
    e       &\leftarrow \gamma \lambda c_t\, e + \omega_t \phi_t \\
    \theta  &\leftarrow \theta + \alpha\, \delta_t e                                                            && \text{TD} \\
    \theta  &\leftarrow \theta + \alpha\, (\phi_t - \gamma \phi'_t)\, (e \cdot w)                               && \text{GTD, GTD2} \\
    \theta  &\leftarrow \theta + \alpha\, \bigl[\delta_t e + (e \cdot w - \omega_t \phi_t \cdot w)\, \phi_t
                                            - \gamma \phi'_t\, (e \cdot w)\bigr]                                && \text{TDC} \\
    w       &\leftarrow w + \beta\, (\delta_t e - \omega_t w)                                                   && \text{GTD} \\
    w       &\leftarrow w + \beta\, \bigl(\delta_t e - \omega_t (\phi_t \cdot w)\, \phi_t\bigr)                 && \text{GTD2, TDC}

(w on the right-hand side is always the old one). Without traces, :math:`\lambda = 0`, we have :math:`e = \omega_t \phi_t`: the next action is
the policy's, so data logged by any behaviour policy need no importance ratios. The trace is reset at the start of each episode, and
:math:`c_t` corrects it for the difference between the logged actions and the policy's. The weight of a row, :math:`\omega_t`, which
averages one, determines how much the row's own prediction counts; with traces, a row of weight 0 still contributes to what follows
earlier rows.

The fixed point of all four is :math:`\sum_t \delta_t e_t = 0`, the solution of least-squares temporal differences. GTD descends
:math:`|\sum_t \delta_t e_t|^2`; GTD2 and TDC descend the projected Bellman error, the same vector in the norm of the inverse of
:math:`\sum_t \omega_t \phi_t \phi_t^\top`, which w makes possible. The middle term of TDC makes this exact for every correction and for
episodes of any length. GQ(:math:`\lambda`) of Maei and Sutton does not have this term: with importance ratios on one infinite episode
its mean is :math:`\gamma \lambda \phi'_t (e \cdot w)`, which leaves their :math:`\gamma (1 - \lambda) \phi'_t (e \cdot w)`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from capi._utils.parameters import Constraints, at_least, callable_or, check_parameters, one_of
from capi._utils.randomness import as_generator
from capi._utils.renamed import renamed
from capi._utils.validation import Floats, Ints, as_array, as_discount, as_floats, as_positive, as_share, check_rows
from capi.data.elapsed import largest_discount, step_factors
from capi.data.transitions import Transitions
from capi.errors import DivergenceError, InvalidInputError
from capi.evaluators import _td_kernels
from capi.evaluators._batches import needs_batch, next_shares
from capi.evaluators._inherited_docs import with_inherited_parameters
from capi.evaluators._linear_model import LinearValues, features_on
from capi.evaluators._td_batch import Batch, Tables, memory_from
from capi.features.tables import Features, FittedFeatures, check_features, kept_settings
from capi.types import Policy, QFunction

Correction = Literal["importance", "tree-backup", "none"]
Schedule = Literal["constant", "decreasing"] | Callable[[Ints], Any]

FAR_OFF = 1e6  # Q has diverged if it is this many times the largest value that a policy can have


@dataclass(frozen=True)
class _Stepwise:
    r"""Base class of the four methods.

    Parameters
    ----------
    features : callable or transformer
        States (n, d) -> (n, p), dense or sparse, see `capi.features.bases`.
    trace : float in [0, 1]
        Trace decay :math:`\lambda`: how far back a temporal difference counts within an episode. Without episode numbers every
        row is its own episode, and the trace has no effect. It applies per row, whatever the elapsed time; the discount, which
        fades the trace as well, is that of the elapsed time.
    correction : "tree-backup", "importance" or "none"
        Factor of the trace in each row, because the logged action may differ from the policy's. "tree-backup" is the action's
        probability under the policy, :math:`\pi(A_t | X_t)`, and needs no propensities. "importance" divides it by the propensity
        in the batch, which forgets less and has a higher variance (both Precup, Sutton and Singh 2000). "none" is one, for
        data of the policy itself. Without traces the correction has no effect.
    step_size : float
        In units of 1 / (mean squared norm of the features on the batch), so their scale does not matter.
    schedule : "constant", "decreasing" or callable
        Factor of the step size at step t = 0, 1, ...: one; :math:`(1 + t / n)^{-\text{power}}`, where a pass has n steps; or the
        result of a function of an array of step numbers (m,).
        With traces the rows of an episode depend on each other, and a constant step size leaves a small bias.
    power : float
        Exponent of the decreasing schedule; between 1/2 and 1 the classical conditions on step sizes hold.
    n_passes : int
        Number of passes over all rows. Each pass uses the rows, or with traces whole episodes, in a new random order. The
        remaining error shrinks with rows times passes times ``step_size``: small batches need more passes.
    average : bool
        Return the mean of the weights over the second half of all steps (Polyak and Ruppert) rather than the last weights.
        Then a constant step size converges, too.
    """

    method: ClassVar[int]

    features: Features
    _: KW_ONLY
    trace: float = 0.0
    correction: Correction = "tree-backup"
    step_size: float = 0.1
    schedule: Schedule = "constant"
    power: float = 0.75
    n_passes: int = 20
    average: bool = True

    uses_weights: ClassVar[bool] = True
    _constraints: ClassVar[Constraints] = {
        "features": check_features,
        "trace": as_share,
        "correction": one_of("tree-backup", "importance", "none"),
        "step_size": as_positive,
        "schedule": callable_or(one_of("constant", "decreasing")),
        "power": as_positive,
        "n_passes": at_least(1),
        "average": one_of(True, False),
    }

    def __post_init__(self) -> None:
        check_parameters(self)

    def evaluate(
        self,
        policy: Policy,
        transitions: Transitions | None,
        *,
        discount: float,
        states: Floats | None = None,  # noqa: ARG002  only the batch matters
        previous: QFunction | None = None,
        rng: np.random.Generator | None = None,
    ) -> LinearValues:
        """Return Q of ``policy``, starting from the weights of ``previous`` if it has the same features and batch."""
        t, discount = needs_batch(transitions, policy, type(self).__name__), as_discount(discount)
        next_states = _complete_next_states(t)
        fitted = features_on(self.features, t, previous)
        batch = self._batch(policy, t, next_states, fitted, discount)
        start = np.zeros((t.n_actions, fitted.n_columns))
        if isinstance(previous, LinearValues) and previous.features is fitted:
            start = previous.weights
        limit = FAR_OFF * (float(np.abs(t.rewards).max()) / (1 - largest_discount(t, discount)) or 1.0)
        weights = self._learned(start, batch, limit, as_generator(0 if rng is None else rng))
        return LinearValues(weights, fitted, kept_settings(self.features), (t,))

    def _batch(
        self, policy: Policy, t: Transitions, next_states: Floats, fitted: FittedFeatures, discount: float
    ) -> Batch:
        ahead = discount * next_shares(t, policy, discount, next_states)
        weight = np.ones(len(t)) if t.weights is None else t.weights * (np.count_nonzero(t.weights) / t.weights.sum())
        starts, lengths = self._pieces(t, weight)
        carry = self._carry(policy, t, starts, discount)
        rows = _td_kernels.Rows(t.actions.astype(np.uint64), t.rewards, ahead, carry, weight)
        tables = Tables.of(fitted, t.states, next_states)
        return Batch(rows, tables, starts, lengths, tables.mean_square(weight))

    def _pieces(self, t: Transitions, weight: Floats) -> tuple[Ints, Ints]:
        """Return first rows and lengths of the segments to shuffle: rows with positive weight, or episodes with such a row."""
        lengths = t.episode_lengths if self.trace > 0 else np.ones(len(t), dtype=np.int64)
        starts = np.cumsum(lengths) - lengths
        counts = np.add.reduceat(weight, starts) > 0
        return starts[counts], lengths[counts]

    def _carry(self, policy: Policy, t: Transitions, starts: Ints, discount: float) -> Floats:
        """Return the factor by which the trace decays before each row (n,)."""
        carry = np.full(len(t), discount * self.trace)
        factors = step_factors(t, discount)
        if factors is not None:
            carry[1:] *= factors[:-1]  # from the row before; the first rows of episodes carry nothing
        if self.trace > 0 and self.correction != "none":
            chosen = policy.probabilities(t.states, t.allowed)[np.arange(len(t)), t.actions]
            carry *= chosen / _propensity(t) if self.correction == "importance" else chosen
        carry[starts] = 0.0
        return carry

    def _learned(self, start: Floats, batch: Batch, limit: float, rng: np.random.Generator) -> Floats:
        """Return the weights (A, p) after all passes, starting from ``start``."""
        memory = memory_from(start.ravel())
        sizes, n = self._step_sizes(batch.unit), batch.n_steps
        width = batch.tables.width if self.trace > 0 else np.uint64(0)
        for number in range(self.n_passes):
            times = np.arange(number * n, (number + 1) * n)
            factors, late = self._factors(times, n), self._late(times, self.n_passes * n)
            for part, block in batch.blocks(rng):
                steps, second_steps = (size * factors[part] for size in sizes)
                reached = _td_kernels.learn(self.method, *block, steps, second_steps, late[part], limit, width, memory)
                if part.start + reached < part.stop:
                    raise self._diverged(number, part.start + reached, n)
        weights = (memory.theta - memory.drift).reshape(start.shape)
        if not np.isfinite(weights).all():
            raise self._diverged(self.n_passes - 1, n - 1, n)
        return weights

    def _step_sizes(self, unit: float) -> tuple[float, float]:
        """Return both step sizes, given the mean squared norm of the features."""
        return self.step_size / unit, 0.0

    def _factors(self, times: Ints, n: int) -> Floats:
        """Return the factors of the step sizes at ``times`` (m,), counted in steps from the start."""
        if not callable(self.schedule):
            return np.ones(len(times)) if self.schedule == "constant" else (1 + times / n) ** -self.power
        found = as_array(self.schedule(times), "schedule(t)")
        if found.shape not in ((), times.shape):
            raise InvalidInputError(
                f"schedule(t) must be a number, or have shape {times.shape}, one number per step; got {found.shape}."
            )
        factors = as_floats(np.broadcast_to(found, times.shape), "schedule(t)", ndim=1)
        check_rows(factors >= 0, factors, "schedule(t)", "must not be negative")
        return factors

    def _late(self, times: Ints, total: int) -> Floats:
        """Return the share of the averaging window that precedes each of the steps ``times`` (m,)."""
        first = total // 2 if self.average else total
        return np.maximum(times - first, 0) / max(total - first, 1)

    def _diverged(self, number: int, step: int, n: int) -> DivergenceError:
        gradient = (
            "; use GTD2 or TDC, which need not diverge off-policy"
            if self.method == _td_kernels.TD
            else " and second_step_size"
        )
        return DivergenceError(
            f"{type(self).__name__} diverged in pass {number + 1} of {self.n_passes}, at step {step + 1} of {n}: its values are far "
            f"larger than the rewards allow. Lower step_size = {self.step_size:g}{gradient}; or solve directly with LSTDQ."
        )


@dataclass(frozen=True)
class _Gradient(_Stepwise):
    r"""Base class of the methods with second weights.

    Parameters
    ----------
    second_step_size : float
        Step size of the second weights, in the same units.
    schedule : "constant", "decreasing" or callable
        Factor of the step sizes at step t = 0, 1, ...: one; :math:`(1 + t / n)^{-\text{power}}`, where a pass has n steps; or the
        result of a function of an array of step numbers (m,).
        With traces the rows of an episode depend on each other, and constant step sizes leave a small bias.
    """

    step_size: float = 0.2
    second_step_size: float = 0.05
    n_passes: int = 40

    _constraints: ClassVar[Constraints] = {**_Stepwise._constraints, "second_step_size": as_positive}

    def _step_sizes(self, unit: float) -> tuple[float, float]:
        return self.step_size / unit, self.second_step_size / unit


@with_inherited_parameters
@renamed(passes="n_passes")
@dataclass(frozen=True)
class TD(_Stepwise):
    r"""Temporal differences, TD(:math:`\lambda`) (Sutton 1988), for action values.

    The cheapest of the four methods, and the fastest to learn. It converges if the rows are distributed as the policy visits
    them; with other data it may diverge unless the features are tabular, which raises `DivergenceError`.

    Examples
    --------
    >>> from capi.features.bases import OneHot
    >>> from capi.policies import Constant
    >>> rows = {"states": [[0.0], [1.0]] * 500, "actions": [0, 0] * 500, "rewards": [0.0, 1.0] * 500}
    >>> batch = Transitions(**rows, next_states=[[1.0], [1.0]] * 500, terminated=[False, False] * 500)
    >>> TD(OneHot(2)).evaluate(Constant(0, 1), batch, discount=0.5).values(batch.states[:2]).round(2)
    array([[1.],
           [2.]])
    """

    method = _td_kernels.TD


@with_inherited_parameters
@renamed(passes="n_passes")
@dataclass(frozen=True)
class GTD(_Gradient):
    r"""Gradient temporal differences (Sutton, Szepesvari and Maei 2008), which descend the norm of the expected update.

    Off-policy it does not diverge if the step sizes are small enough, but it is much slower than `GTD2` and `TDC`: directions
    in which the features vary little get little weight.

    Parameters
    ----------
    step_size : float
        In units of 1 / (mean squared norm of the features on the batch) squared: the second weights have units, too.
    second_step_size : float
        Step size of the second weights, as a fraction of the distance to the newest value.

    Examples
    --------
    >>> from capi.features.bases import OneHot
    >>> from capi.policies import Constant
    >>> rows = {"states": [[0.0], [1.0]] * 500, "actions": [0, 0] * 500, "rewards": [0.0, 1.0] * 500}
    >>> batch = Transitions(**rows, next_states=[[1.0], [1.0]] * 500, terminated=[False, False] * 500)
    >>> GTD(OneHot(2)).evaluate(Constant(0, 1), batch, discount=0.5).values(batch.states[:2]).round(2)
    array([[1.],
           [2.]])
    """

    method = _td_kernels.GTD

    step_size: float = 1.0

    def _step_sizes(self, unit: float) -> tuple[float, float]:
        return self.step_size / unit**2, self.second_step_size


@with_inherited_parameters
@renamed(passes="n_passes")
@dataclass(frozen=True)
class GTD2(_Gradient):
    r"""The second gradient method (Sutton et al. 2009), which descends the projected Bellman error.

    Off-policy it does not diverge if the step sizes are small enough. With traces it has the same objective as
    GQ(:math:`\lambda`) (Maei and Sutton 2010).

    Its speed is proportional to the square of 1 - discount. For discounts near one, let it start from the Q of `TD` on the
    same batch with the same features, ``previous=``, if that has converged.

    Examples
    --------
    >>> from capi.features.bases import OneHot
    >>> from capi.policies import Constant
    >>> rows = {"states": [[0.0], [1.0]] * 500, "actions": [0, 0] * 500, "rewards": [0.0, 1.0] * 500}
    >>> batch = Transitions(**rows, next_states=[[1.0], [1.0]] * 500, terminated=[False, False] * 500)
    >>> GTD2(OneHot(2)).evaluate(Constant(0, 1), batch, discount=0.5).values(batch.states[:2]).round(2)
    array([[1.],
           [2.]])
    """

    method = _td_kernels.GTD2


@with_inherited_parameters
@renamed(passes="n_passes")
@dataclass(frozen=True)
class TDC(_Gradient):
    r"""Temporal differences with gradient correction (Sutton et al. 2009); with traces GQ(:math:`\lambda`) (Maei and Sutton 2010).

    Like `GTD2` it descends the projected Bellman error, mostly with less noise: it adds to the steps of `TD` a correction that
    keeps them from diverging off-policy if ``second_step_size`` is not too small relative to ``step_size``.

    Its speed is proportional to the square of 1 - discount. For discounts near one, let it start from the Q of `TD` on the
    same batch with the same features, ``previous=``, if that has converged.

    Examples
    --------
    >>> from capi.features.bases import OneHot
    >>> from capi.policies import Constant
    >>> rows = {"states": [[0.0], [1.0]] * 500, "actions": [0, 0] * 500, "rewards": [0.0, 1.0] * 500}
    >>> batch = Transitions(**rows, next_states=[[1.0], [1.0]] * 500, terminated=[False, False] * 500)
    >>> TDC(OneHot(2)).evaluate(Constant(0, 1), batch, discount=0.5).values(batch.states[:2]).round(2)
    array([[1.],
           [2.]])
    """

    method = _td_kernels.TDC


def _complete_next_states(t: Transitions) -> Floats:
    """Return the next states, with missing ones after termination replaced by the state; raise an error for other NaN."""
    for name, states, counts in (("states", t.states, True), ("next_states", t.next_states, ~t.terminated)):
        missing = np.isnan(states).any(axis=1) & counts
        check_rows(
            ~missing, states, name, "must not have missing values", " Fill them in, or use FittedQ, which accepts NaN."
        )
    unknown = np.isnan(t.next_states).any(axis=1, keepdims=True)
    return np.where(unknown, t.states, t.next_states) if unknown.any() else t.next_states


def _propensity(t: Transitions) -> Floats:
    if t.propensities is None:
        raise InvalidInputError(
            'correction="importance" needs the probability of each logged action; the batch has no propensities. Add them, '
            'or use correction="tree-backup", which needs none.'
        )
    return t.propensities
