r"""`Averager`: the finite decision process that a batch and kept trees are together.

On kept trees a sweep of fitted Q evaluation is linear in its targets. Let S average rows into leaves, with the rows' weights, and
let :math:`G_\pi` look up, for the next state of each row, the leaves of the policy's actions, averaged over trees and over the
policy's probabilities; its rows are zero where the process terminated. :math:`G_0` does the same for start states, which have the
weights :math:`d_0`. With :math:`\gamma` the discount of each row's step,

.. math::
    v   &= G_\pi S\,(r + \gamma v)                                        && \text{value of each next state} \\
    J   &= d_0^\top G_0 S\,(r + \gamma v)                                 && \text{value of the policy} \\
    \mu &= S^\top (G_0^\top d_0 + G_\pi^\top \gamma \mu)                  && \text{discounted visits to each row;}\ J = \mu^\top r

(Gordon 1995; Ormoneit and Sen 2002). So every policy has an exact value and an exact occupancy, and no tree needs to be grown to
compare many of them. If every leaf that is looked up has rows, :math:`\sum_i \mu_i (1 - \gamma_i) = 1`, with :math:`\gamma_i = 0` where the
process terminated. Trees may be grown on one set of episodes and averaged over another: a leaf without rows takes the average of its nearest
ancestor that has some.

Decisions are made at the start states, with weight :math:`d_0`, and at the next states, with weight :math:`\gamma_i \mu_i`. If Q is the
model's own fixed point for :math:`\pi`, the derivative of J along :math:`(1 - a) \pi + a \pi'` at a = 0 is the sum over these
points of their weight times :math:`Q(x, \pi') - Q(x, \pi)`: the gap-weighted loss with these weights is a first-order model of J.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from capi._utils.array_cache import Remembered
from capi._utils.row_ops import chosen_entries
from capi._utils.threads import n_threads
from capi._utils.validation import Floats, Ints, as_allowed, as_discount, as_states, as_weights
from capi.data.elapsed import largest_discount, step_factors, times_factors
from capi.data.transitions import Transitions
from capi.errors import InvalidInputError
from capi.evaluators._batches import rows_of_actions
from capi.evaluators._fixed_points import largest
from capi.evaluators.fitted_values import FittedValues, ForestModel
from capi.evaluators.under_policy import VALUE_ERROR, UnderPolicy
from capi.loss import greedy
from capi.policies import Decisions, Greedy, changes_with_time, decided
from capi.simulation.engine import check_is_policy
from capi.trees.cells import Cells, LookUps
from capi.trees.forest import Forest, Growth, grow
from capi.trees.predictor import Leaves
from capi.trees.projections import Projections
from capi.trees.ranks import encode
from capi.types import Policy, StateSample

EXACT = 1e-9  # of the values of which the best policy is greedy
FEWEST = 2  # rows of an action; with fewer, its trees average all rows
MOST_IMPROVEMENTS = 100  # policy iteration ends after some ten


@dataclass(frozen=True, eq=False)
class Averager:
    """The decision process that a batch and kept trees are: exact values and occupancies of any policy.

    Create one with `of`, from the Q of `FittedQ`, or with `grown`.

    Examples
    --------
    >>> from capi.evaluators import FittedQ
    >>> from capi.policies import Constant
    >>> from capi.testing import random_batch
    >>> batch, policy = random_batch(), Constant(0, 3)
    >>> model = Averager.of(FittedQ(n_trees=10).evaluate(policy, batch, discount=0.9), batch, discount=0.9)
    >>> visits = model.occupancy(policy)
    >>> bool(abs(visits @ batch.rewards - model.value(policy)) < 1e-2 * abs(model.value(policy)))
    True
    """

    batch: Transitions
    discount: float
    forests: Sequence[Forest]  # one per action, or one with the action's number as last input
    cells: Cells
    starts: StateSample  # where episodes begin
    weights: Floats  # (n,) of the rows
    separate: bool = True  # whether each action has a forest of its own
    n_jobs: int = 1
    known: Sequence[Remembered[Leaves]] = field(default=(), repr=False)  # leaves of fixed states in each forest
    remembers: bool = (
        True  # whether to keep the leaves of all next states, which pays if several policies are asked about
    )

    @classmethod
    def of(
        cls,
        q: Any,
        batch: Transitions,
        *,
        discount: float,
        starts: Any = None,
        n_jobs: int | None = None,
    ) -> Averager:
        """Return the model that ``batch`` and the trees of ``q``, which were grown on it, are.

        Parameters
        ----------
        q : FittedValues
            What ``FittedQ.evaluate`` returned for this batch, with the built-in trees; or lower bounds of that.
        batch : Transitions
        discount : float
        starts : StateSample, array or tuple (states, weights[, allowed]), optional
            States in which episodes begin, with weights and masks; by default the first states of the batch's episodes.
        n_jobs : int, optional
            Number of threads; by default that of ``q``.
        """
        reason, q = why_not(q, batch), averaged(q)
        if reason is not None:
            raise InvalidInputError(reason)
        forests = [model.forest for model in q.models]
        threads = q.models[0].n_jobs if n_jobs is None else n_threads(n_jobs)
        rows = q.prepared.groups
        cells = Cells.of(forests, rows, [forest.leaves_in_trees_of_rows for forest in forests], len(batch), threads)
        known = [model.known for model in q.models]
        return cls._made(batch, discount, forests, cells, starts, q.separate, threads, known)

    @classmethod
    def grown(
        cls,
        structure: Transitions,
        targets: Floats,
        growth: Growth,
        rng: np.random.Generator,
        *,
        discount: float,
        averages: Transitions | None = None,
        starts: StateSample | None = None,
        n_jobs: int = 1,
        projections: Projections | None = None,
    ) -> Averager:
        """Grow one forest per action on ``targets`` (n,) or (n, m) of the batch ``structure``, and average over the batch ``averages``.

        By default both are the same batch. An action with fewer than two rows has trees of all rows. The trees also cut ``projections``.
        """
        own = structure if averages is None else averages
        outputs, forests = targets.reshape(len(targets), -1), []
        of_structure, of_own = rows_of_actions(structure, FEWEST), rows_of_actions(own, FEWEST)
        for rows, stream in zip(of_structure, rng.spawn(structure.n_actions), strict=True):
            w = None if structure.weights is None else structure.weights[rows]
            inputs = encode(structure.states[rows], n_jobs, projections=projections)
            forests.append(grow(inputs, outputs[rows], growth, stream, weights=w, n_jobs=n_jobs))
        if averages is None:
            leaves: list[Leaves] = [forest.leaves_in_trees_of_rows for forest in forests]
        else:
            leaves = [
                forest.leaves_in_trees(own.states[rows], n_jobs) for forest, rows in zip(forests, of_own, strict=True)
            ]
        cells = Cells.of(forests, of_own, leaves, len(own), n_jobs)
        known = [Remembered[Leaves]() for _ in forests]
        return cls._made(own, discount, forests, cells, starts, True, n_jobs, known)

    @classmethod
    def _made(
        cls,
        batch: Transitions,
        discount: float,
        forests: list[Forest],
        cells: Cells,
        starts: Any,
        separate: bool,
        n_jobs: int,
        known: Sequence[Remembered[Leaves]],
    ) -> Averager:
        discount, weights = as_discount(discount), np.ones(len(batch)) if batch.weights is None else batch.weights
        return cls(batch, discount, forests, cells, checked_starts(starts, batch), weights, separate, n_jobs, known)

    def value(self, policy: Policy) -> float:
        """Return the value of ``policy`` in the model, averaged over the start states."""
        return self.under(policy).value

    def action_values(self, policy: Policy) -> FittedValues:
        """Return the action values of ``policy`` in the model."""
        return self.under(policy).action_values

    def occupancy(self, policy: Policy) -> Floats:
        """Return the discounted number of visits of ``policy`` to each row (n,)."""
        return self.under(policy).occupancy

    def effective_rows(self, policy: Policy) -> float:
        """Return the number of rows on which ``policy`` lives: the inverse of the sum of its squared shares of visits."""
        return self.under(policy).effective_rows

    def under(self, policy: Policy) -> UnderPolicy:
        """Return the model under a policy, for several questions about the same one."""
        check_is_policy(policy)
        if changes_with_time(policy):
            raise InvalidInputError(
                f"policy must decide by the state alone; {type(policy).__name__} decides by the number of the step, which the states of the "
                "model do not have. Evaluate the policies of its steps; in a loop, use state_weights='batch', keep='last' and accept='any'."
            )
        if policy.n_actions != self.batch.n_actions:
            raise InvalidInputError(
                f"policy must have the {self.batch.n_actions} actions of the batch; it has {policy.n_actions}."
            )
        t, (states, _, allowed) = self.batch, self.starts
        return self.under_decisions(decided(policy, t.next_states, t.next_masks()), decided(policy, states, allowed))

    def best_policy(self) -> Greedy:
        """Return the best of all policies in the model, by policy iteration; it is greedy in its own action values."""
        t, (states, _, allowed) = self.batch, self.starts
        masks = t.next_masks()
        following, initial = (
            greedy(np.zeros((len(x), t.n_actions)), mask) for x, mask in ((t.next_states, masks), (states, allowed))
        )
        values = None
        for _ in range(MOST_IMPROVEMENTS):
            under = self.under_decisions(following, initial)
            solution = under.solved_values(t.rewards, values, EXACT)
            values = solution.x
            q = self.q_of(self.leaf_means(t.rewards + self.steps * values))
            table = q.values(t.next_states)
            better = greedy(table, masks)
            gains = chosen_entries(table, better) - chosen_entries(table, following)
            improves = (gains > 2 * EXACT * largest(values)) & ~t.terminated
            if not improves.any():
                break
            following = np.where(improves, better, following)
        return Greedy(q, masked=masks is not None)

    def reweighted(self, weights: Floats) -> Averager:
        """Return the model with other weights (n,) of the rows, for resampling; the trees and the start states stay.

        A leaf whose rows all have weight 0 takes the average of its nearest ancestor with others. Rows whose weight in the batch is 0 stay out.
        """
        checked = as_weights(weights, "weights", len(self.batch), "the batch")
        w = np.ones(len(self.batch)) if checked is None else checked
        return replace(self, weights=w, cells=self.cells.weighted(w, self.n_jobs))

    def q_of(self, leaf_values: Floats) -> FittedValues:
        """Return the Q-function with these values of the leaves (l,)."""
        starts = self.cells.forest_starts
        models = [
            ForestModel(
                forest.with_sums((leaf_values[starts[k] : starts[k + 1]] * forest.leaf_weights)[:, None]),
                self.n_jobs,
                True,
                self.known[k],
            )
            for k, forest in enumerate(self.forests)
        ]
        return FittedValues(models, self.batch.n_actions, self.batch.n_features, self.separate)

    def look_ups(self, states: Floats, decisions: Decisions, weights: Floats | None = None) -> LookUps:
        """Return the leaves that ``decisions`` look up in ``states`` (m, d), each point weighted by ``weights`` (m,)."""
        asked = []
        for a in range(self.batch.n_actions):
            p = decisions[:, a] if decisions.ndim == 2 else (decisions == a).astype(np.float64)
            p = p if weights is None else p * weights
            points = np.flatnonzero(p)
            if len(points):
                forest = self.forests[a if self.separate else 0]
                starts = forest.leaf_starts[:-1] + self.cells.forest_starts[a if self.separate else 0]
                asked.append((points, self._leaves(states, points, a), starts, p[points] / len(forest.trees)))
        return LookUps.of(len(states), asked)

    def _leaves(self, states: Floats, points: Ints, action: int) -> Leaves:
        """Return the leaves of some points (T, m); those of all next states are computed once."""
        k = action if self.separate else 0
        model = ForestModel(self.forests[k], self.n_jobs, self.remembers, self.known[k])
        known = self.remembers and states is self.batch.next_states
        x = states if known else states[points]
        leaves = model.leaves(x) if self.separate else model.leaves_of_actions(x, self.batch.n_actions)[action]
        return np.ascontiguousarray(leaves[:, points]) if known else leaves

    def under_decisions(
        self, following: Decisions, initial: Decisions, *, tolerance: float = VALUE_ERROR, guess: Floats | None = None
    ) -> UnderPolicy:
        """Return the model under a policy whose decisions in the next states and in the start states are known.

        Values are solved for up to ``tolerance``, relative to the largest, from a ``guess`` (n,) of the values of the next states.
        """
        t = self.batch
        ahead = None if not t.terminated.any() else (~t.terminated).astype(np.float64)
        return UnderPolicy(
            self,
            self.look_ups(t.next_states, following, ahead),
            self.look_ups(self.starts.states, initial),
            tolerance,
            guess,
        )

    @cached_property
    def steps(self) -> Floats:
        """The discount of each row's step (n,): zero where the process terminated."""
        t = self.batch
        return self.discount * times_factors((~t.terminated).astype(np.float64), step_factors(t, self.discount))

    @cached_property
    def inverse(self) -> Floats:
        """One divided by the weight of each leaf (l,); zero for leaves without weight."""
        sums = self.cells.sums(self.weights, self.n_jobs)
        return np.divide(1.0, sums, out=np.zeros_like(sums), where=sums > 0)

    @cached_property
    def start_shares(self) -> Floats:
        """The weights of the start states, with sum 1."""
        w = self.starts.weights
        return np.full(len(self.starts.states), 1 / len(self.starts.states)) if w is None else w / w.sum()

    @cached_property
    def slowest(self) -> float:
        """A discount by which every sweep contracts."""
        return min(largest_discount(self.batch, self.discount), float(self.steps.max()))

    def leaf_means(self, targets: Floats) -> Floats:
        """Return the average of ``targets`` (n,) in each leaf (l,): the product with S."""
        return self.inverse * self.cells.sums(self.weights * targets, self.n_jobs)

    def shared_back(self, of_leaves: Floats) -> Floats:
        """Return how much of the weight ``of_leaves`` (l,) each row gets (n,): the product with the transpose of S."""
        return self.weights * self.cells.spread(self.inverse * of_leaves, self.n_jobs)


def averaged(q: Any) -> Any:
    """Return the Q that may average rows: that under lower bounds (`Pessimistic`), otherwise ``q`` itself."""
    return getattr(q, "mean", q)


def why_not(q: Any, batch: Any) -> str | None:
    """Return why ``q`` and ``batch`` are no averager, in a sentence; None if they are."""
    q = averaged(q)
    if not isinstance(q, FittedValues):
        return (
            f"{type(q).__name__} does not average rows in the leaves of trees, so it has no exact model of the batch. "
            "Use FittedQ with its own trees."
        )
    if not all(isinstance(model, ForestModel) for model in q.models):
        return (
            "The regressor of this FittedQ may give rows negative weights, or none, so it has no exact model of the batch. "
            "Use FittedQ without a regressor."
        )
    if q.prepared is None or q.prepared.batch is not batch:
        return (
            "q must come from FittedQ.evaluate on this batch: its leaves are those of the batch's rows. Evaluate again."
        )
    return None


def checked_starts(starts: Any, batch: Transitions) -> StateSample:
    """Return the start states of a model: the given ones, or the first states of the batch's episodes with positive weight."""
    if starts is not None:
        given = StateSample.of(starts, "starts")
        states = as_states(given.states, "starts", n_features=batch.n_features)
        weights = as_weights(given.weights, "weights of the starts", len(states))
        allowed = as_allowed(given.allowed, "allowed actions of the starts", (len(states), batch.n_actions))
        return StateSample(states, weights, allowed)
    first = batch.episode_starts
    if batch.weights is not None:
        first = first[batch.weights[first] > 0]
    if len(first) == 0:
        raise InvalidInputError(
            "the first row of an episode must have positive weight; none has. Pass the states in which episodes begin, fit(..., starts=...), "
            "or set state_weights='batch' and keep='last'."
        )
    weights = None if batch.weights is None else batch.weights[first]
    return StateSample(batch.states[first], weights, None if batch.allowed is None else batch.allowed[first])
