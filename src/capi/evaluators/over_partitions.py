r"""`OverPartitions`: fitted Q evaluation whose trees are grown on a sample and average all rows of a partitioned batch.

With the trees fixed, a sweep is a sum over rows: each adds its target :math:`R_i + \gamma\,Q(X'_i, \pi(X'_i))` to its leaf in every tree. A part of
the batch keeps, where it was read, the leaves of its rows and those of its next states under the policy (:math:`4 T` bytes per row for T
trees), and a sweep sends it the value of each leaf and gets one sum per leaf back.

Targets are rounded to whole multiples of a power of two, so small that the sums of all rows still fit into 63 bits. Whole numbers add up
to the same sum in any order: results do not depend on the partitioning, nor on the order in which workers finish. With n rows the
rounding is :math:`2^{-62} n` of the largest target, 2e-11 for a hundred million rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from capi._utils.late import late
from capi._utils.randomness import as_generator
from capi._utils.validation import Floats, Ints, as_discount
from capi.data.elapsed import step_factors, times_factors
from capi.data.partitions import PartitionedTransitions
from capi.data.survey import Survey, loaded
from capi.data.transitions import Transitions
from capi.errors import LEAST_SHOWN, InvalidInputError
from capi.evaluators._batches import portable
from capi.evaluators._fixed_points import check_finite, fixed_point, largest
from capi.evaluators.bellman_residual import BellmanResidual
from capi.evaluators.fitted_q import FittedQ
from capi.evaluators.fitted_values import FittedValues
from capi.evaluators.lstd import LSTDQ
from capi.policies import Decisions, decided
from capi.trees._kernels import averages
from capi.trees.cells import Asked, LookUps
from capi.trees.forest import Forest
from capi.types import Policy, QFunction

if TYPE_CHECKING:
    from capi.evaluators import partitioned_averager as parts_model
    from capi.evaluators.partitioned_averager import PartitionedAverager
else:
    parts_model = late("capi.evaluators.partitioned_averager")  # which builds on this module

BITS = 62  # of a sum of whole numbers
ERROR = 1e-6  # of the values of a complete evaluation, relative to the largest
MOST_LEAVES = 2**16  # of a tree: two bytes per row
ROWS_PER_LEAF = 4  # a tree on n rows has at most about n times this / min_samples_split leaves


@dataclass(frozen=True, eq=False)
class Structure:
    """The trees of all actions, as workers need them."""

    forests: list[Forest]
    separate: bool
    n_actions: int
    own: tuple[bool, ...]  # whether a forest averages only the rows of its action

    @classmethod
    def of(cls, q: FittedValues, sample: Transitions) -> Structure:
        """Return the trees of ``q``, which were grown on ``sample``."""
        taken = np.bincount(sample.actions, weights=sample.weights, minlength=q.n_actions) > 0
        own = tuple(taken.tolist()) if q.separate else (False,)
        return cls([model.forest.bare() for model in q.models], q.separate, q.n_actions, own)

    @property
    def starts(self) -> Ints:
        """Where the leaves of each forest start, and their number (F + 1,)."""
        return np.cumsum([0, *(forest.leaf_starts[-1] for forest in self.forests)])

    def asked(self, states: Floats, points: Ints, action: int, shares: Floats) -> Asked:
        """Return the leaves of some points (m,) with an action."""
        k = action if self.separate else 0
        forest, x = self.forests[k], states[points]
        if not self.separate:
            x = np.column_stack([x, np.full(len(x), float(action))])
        starts = forest.leaf_starts[:-1] + self.starts[k]
        return Asked(points, forest.leaves_in_trees(x), starts, shares)


@dataclass(frozen=True, eq=False)
class OwnLeaves:
    """What stays with a part while the trees stay: its rewards, weights, and the leaves of its rows."""

    rewards: Floats
    weights: Floats | None
    asked: list[Asked]
    n_leaves: int

    def __sizeof__(self) -> int:  # by which a cluster decides what to write to disk
        weights = 0 if self.weights is None else self.weights.nbytes
        return self.rewards.nbytes + weights + _n_bytes(self.asked)


@dataclass(frozen=True, eq=False)
class NextLeaves:
    """What stays with a part while the policy stays, too: the leaves of its next states, and the discounts of its steps."""

    look_ups: LookUps
    steps: Floats

    def __sizeof__(self) -> int:
        return self.steps.nbytes + _n_bytes(self.look_ups.asked)


def _n_bytes(asked: Sequence[Asked]) -> int:
    return sum(array.nbytes for part in asked for array in part)


def own_leaves(source: Any, structure: Structure) -> OwnLeaves:
    """Return the leaves of the rows of a part, each in the trees that it is averaged in."""
    t = loaded(source)
    rows = np.arange(len(t)) if t.weights is None else np.flatnonzero(t.weights)
    asked = []
    if structure.separate:
        for a, own in enumerate(structure.own):
            mine = rows[t.actions[rows] == a] if own else rows
            if len(mine):
                asked.append(structure.asked(t.states, mine, a, np.empty(0)))
    else:
        for a in range(t.n_actions):
            mine = rows[t.actions[rows] == a]
            if len(mine):
                asked.append(structure.asked(t.states, mine, a, np.empty(0)))
    return OwnLeaves(t.rewards, t.weights, asked, int(structure.starts[-1]))


def next_leaves(source: Any, structure: Structure, policy: Policy, discount: float) -> NextLeaves:
    """Return the leaves that the next states of a part look up under a policy."""
    t = loaded(source)
    ahead = (~t.terminated).astype(np.float64)
    decisions = decided(policy, t.next_states, t.next_masks())
    steps = discount * times_factors(ahead, step_factors(t, discount))
    return NextLeaves(decided_leaves(structure, t.next_states, decisions, ahead, t.n_actions), steps)


def decided_leaves(
    structure: Structure, states: Floats, decisions: Decisions, weights: Floats, n_actions: int
) -> LookUps:
    """Return the leaves that ``decisions`` look up in ``states`` (m, d), each state with its weight (m,)."""
    asked = []
    for a in range(n_actions):
        p = weights * (decisions[:, a] if decisions.ndim == 2 else (decisions == a))
        points = np.flatnonzero(p)
        if len(points):
            n_trees = len(structure.forests[a if structure.separate else 0].trees)
            asked.append(structure.asked(states, points, a, p[points] / n_trees))
    return LookUps(len(states), asked)


def swept(own: OwnLeaves, following: NextLeaves | None, leaf_values: Floats, with_rewards: bool, exponent: int) -> Ints:
    """Return the sum of the targets in each leaf (l,), in units of two to the power of minus ``exponent``."""
    targets = own.rewards if with_rewards else np.zeros(len(own.rewards))
    if following is not None:
        targets = targets + following.steps * following.look_ups.values(leaf_values)
    return _whole_sums(own, targets, exponent)


def counted(own: OwnLeaves, exponent: int) -> Ints:
    """Return the weight of each leaf (l,), in units of two to the power of minus ``exponent``."""
    return _whole_sums(own, np.ones(len(own.rewards)), exponent)


def longest_step(following: NextLeaves) -> float:
    """Return the largest discount of a step."""
    return float(following.steps.max(initial=0.0))


def _whole_sums(own: OwnLeaves, targets: Floats, exponent: int) -> Ints:
    weighted = targets if own.weights is None else own.weights * targets
    whole = np.rint(np.ldexp(weighted, exponent)).astype(np.int64)
    sums = np.zeros(own.n_leaves, dtype=np.int64)
    for part in own.asked:
        averages.look_back(part.leaves, part.starts, 0, len(part.leaves), whole[part.points], sums)
    return sums


def plus(a: Any, b: Any) -> Any:
    """Return the sum of two results."""
    return a + b


# -- the evaluator -----------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Kept:
    """What the workers keep while the trees stay."""

    nodes: tuple[Any, ...]  # of all trees: the identity of the structure
    structure: Any
    shared: Any
    own: list[Any]
    weights: Floats  # of the leaves (l,)


@dataclass(frozen=True, eq=False)
class OverPartitions:
    """An evaluator that learns from all rows of a partitioned batch; the learner's own batch is a sample of it.

    `FittedQ` grows its trees on the sample, with at most 65,536 leaves each, and averages all rows in them. `LSTDQ` and `BellmanResidual` sum their
    moments over all rows. No other evaluator can be written as sums over rows.

    Parameters
    ----------
    evaluator : FittedQ, LSTDQ or BellmanResidual
    partitions : PartitionedTransitions
    survey : Survey
        Of these partitions, with the sample.
    """

    evaluator: Any
    partitions: PartitionedTransitions
    survey: Survey
    memory: dict[str, Any] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        is_ours = isinstance(self.evaluator, FittedQ) and self.evaluator.regressor is None
        if not is_ours and not isinstance(self.evaluator, LSTDQ | BellmanResidual):
            raise InvalidInputError(
                f"{type(self.evaluator).__name__} cannot learn from partitions, because it is no sum over rows. Use FittedQ with its own "
                "trees, LSTDQ or BellmanResidual, or learn from transitions.sample()."
            )

    def evaluate(
        self,
        policy: Policy,
        transitions: Transitions | None,
        *,
        discount: float,
        states: Floats | None = None,
        previous: QFunction | None = None,
        rng: np.random.Generator | None = None,
    ) -> QFunction:
        """Return Q of ``policy``; ``transitions`` is the sample."""
        discount = as_discount(discount)
        if not isinstance(self.evaluator, FittedQ):
            return self.evaluator.evaluate(policy, self.partitions, discount=discount, previous=previous, rng=rng)
        sample = self.survey.sample if transitions is None else transitions
        old, n_sweeps = previous if isinstance(previous, FittedValues) else None, self.evaluator.n_sweeps
        q = self.on_sample.evaluate(
            policy,
            sample,
            discount=discount,
            states=states,
            previous=previous,
            rng=as_generator(0 if rng is None else rng),
        )
        kept = self._kept(q, sample)
        crew, parts = self.partitions.crew, self.partitions.parts
        decider = crew.shared(portable(policy))
        following = crew.each(next_leaves, parts, kept.shared, decider, discount)
        own_values = _leaf_means(q)
        if n_sweeps is None:
            values = self._solved(kept, following, own_values)
            return _with_values(q, values)
        if old is None:
            values = self._swept(kept, None, own_values, True)
        elif _nodes(old) == kept.nodes:
            values = self._swept(kept, following, _leaf_means(old), True)
        else:  # new trees: the first targets come from the values on the old ones
            structure = Structure.of(old, sample)
            through_old = crew.each(next_leaves, parts, crew.shared(structure), decider, discount)
            values = self._swept(kept, through_old, _leaf_means(old), True)
        for _ in range(n_sweeps - 1):
            values = self._swept(kept, following, values, True)
        return replace(_with_values(q, values), age=q.age + n_sweeps - 1, n_sweeps=q.n_sweeps + n_sweeps - 1)

    def restored(self, q: Any, transitions: Transitions, age: int, n_sweeps: int) -> Any:
        """Return ``q``, loaded from a file, as the evaluator of the sample does."""
        return self.on_sample.restored(q, transitions, age, n_sweeps)

    def model(self, q: FittedValues, discount: float) -> PartitionedAverager:
        """Return the model that the trees of ``q``, which this evaluator returned, and all rows are."""
        kept, survey = self._kept(q, self.survey.sample), self.survey
        return parts_model.PartitionedAverager(
            self.partitions,
            as_discount(discount),
            survey.n_rows,
            survey.largest_reward,
            survey.largest_weight,
            kept.shared,
            kept.own,
            kept.weights,
        )

    @property
    def n_sweeps(self) -> int | None:
        """Those of the evaluator."""
        return getattr(self.evaluator, "n_sweeps", None)

    @property
    def on_sample(self) -> FittedQ:
        """The evaluator that grows trees on the sample.

        Its nodes have as many of all rows as in memory, as far as the sample can show them, and are so large that their leaves can be
        numbered in two bytes. Leaves that must have several rows, as in files of some policies, have as many of the sample. It makes one
        sweep, unless evaluations are complete.
        """
        sample, inner = self.survey.sample, self.evaluator
        rows = len(sample) if inner.actions == "input" else int(np.bincount(sample.actions).max())
        least = -(-ROWS_PER_LEAF * rows // MOST_LEAVES)
        found: FittedQ = replace(
            inner,
            n_sweeps=None if inner.n_sweeps is None else 1,
            min_samples_split=max(2, least, self._in_sample(inner.min_samples_split)),
            min_samples_leaf=max(self._in_sample(inner.min_samples_leaf), min(inner.min_samples_leaf, LEAST_SHOWN)),
        )
        return found

    def _in_sample(self, n_rows: int) -> int:
        """Return how many rows of the sample stand for a number of all rows: at least one."""
        return max(1, round(n_rows * len(self.survey.sample) / self.survey.n_rows))

    def _kept(self, q: FittedValues, sample: Transitions) -> _Kept:
        """Return what the workers keep for the trees of ``q``, found anew if the trees are new."""
        nodes, known = _nodes(q), self.memory.get("kept")
        if known is not None and known.nodes == nodes:
            return known
        self.memory.pop("kept", None)  # before the new ones: both together would take twice the memory
        crew, structure = self.partitions.crew, Structure.of(q, sample)
        shared = crew.shared(structure)
        own = crew.each(own_leaves, self.partitions.parts, shared)
        exponent = self._exponent(1.0)
        weights = np.ldexp(crew.merged(plus, crew.each(counted, own, exponent)).astype(np.float64), -exponent)
        self.memory["kept"] = _Kept(nodes, structure, shared, own, weights)
        return self.memory["kept"]

    def _exponent(self, largest_target: float) -> int:
        """Return the power of two by which targets are multiplied before they are rounded."""
        bound = max(largest_target, np.finfo(np.float64).tiny) * self.survey.largest_weight * self.survey.n_rows
        check_finite(bound)
        return int(BITS - 1 - np.frexp(bound)[1])

    def _swept(self, kept: _Kept, following: list[Any] | None, values: Floats, with_rewards: bool) -> Floats:
        """Return the averages of the targets in the leaves (l,)."""
        crew = self.partitions.crew
        bound = (self.survey.largest_reward if with_rewards else 0.0) + (0.0 if following is None else largest(values))
        exponent = self._exponent(bound)
        ahead = [None] * len(kept.own) if following is None else following
        handles = crew.each(swept, kept.own, ahead, crew.shared(values), with_rewards, exponent)
        sums = crew.merged(plus, handles)
        return np.ldexp(sums.astype(np.float64), -exponent) / kept.weights

    def _solved(self, kept: _Kept, following: list[Any], start: Floats) -> Floats:
        """Return the values of the leaves (l,) that a further sweep does not change."""
        crew = self.partitions.crew
        constant = self._swept(kept, None, start, True)
        discount = max(crew.results(crew.each(longest_step, following)))
        if discount == 0:
            return constant
        found = fixed_point(
            lambda c, x: c + self._swept(kept, following, x, False),
            constant,
            discount=discount,
            tolerance=ERROR,
            norm=largest,
            start=start,
        )
        self.memory["n_products"] = found.n_products
        return found.x


def _nodes(q: FittedValues) -> tuple[Any, ...]:
    return tuple(id(tree.nodes) for model in q.models for tree in model.forest.trees)


def _leaf_means(q: FittedValues) -> Floats:
    return np.concatenate([model.forest.means[:, 0] for model in q.models])


def _with_values(q: FittedValues, values: Floats) -> FittedValues:
    """Return ``q`` with other averages in its leaves (l,)."""
    ends = np.cumsum([0, *(model.forest.leaf_starts[-1] for model in q.models)])
    models = [
        model.with_sums(values[a:b] * model.forest.leaf_weights)
        for model, a, b in zip(q.models, ends, ends[1:], strict=False)
    ]
    return replace(q, models=models, known=type(q.known)())
