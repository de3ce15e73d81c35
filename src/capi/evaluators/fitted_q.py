r"""Fitted Q evaluation: regress Bellman targets on states and actions, sweep after sweep.

A sweep fits :math:`\hat Q \approx T^\pi \hat Q_{\text{old}}` to the targets :math:`R_i + \gamma \hat Q_{\text{old}}(X'_i, \pi(X'_i))`; nothing
is added where the process terminated. The forest's structure need not be grown anew in each sweep: on kept trees a sweep only averages
the targets in each leaf, and points that were sent down once are looked up.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, Protocol

import numpy as np
from sklearn.base import clone

from capi._utils.array_cache import Remembered
from capi._utils.parameters import Constraints, at_least, check_parameters, literal_or, one_of, optional, satisfying
from capi._utils.randomness import as_generator
from capi._utils.renamed import renamed
from capi._utils.row_ops import chosen_entries
from capi._utils.threads import n_threads
from capi._utils.validation import Floats, Ints, as_discount, as_states, is_fixed
from capi.data.transitions import Transitions
from capi.errors import InvalidInputError
from capi.evaluators._batches import batch_for
from capi.evaluators._sweeps import after_sweeps, bellman_targets, following_values, movements, stands_still
from capi.policies import Decisions, decided
from capi.trees.forest import Forest, Growth, grow, means_of_leaves, sums_of_targets
from capi.trees.predictor import Leaves
from capi.trees.ranks import EncodedStates, encode
from capi.trees.regressor import n_candidates
from capi.types import Policy, QFunction


class _Model(Protocol):
    """A fitted regression: inputs (n, d) -> (n,)."""

    def predict(self, inputs: Floats) -> Floats:
        """Return the predictions."""


@dataclass(frozen=True, eq=False)
class _ForestModel:
    """A forest on the rows of one group, and the leaves of points that were asked for before."""

    forest: Forest
    n_jobs: int
    remembers: bool  # worth it only if the trees stay for several sweeps
    known: Remembered[Leaves] = field(default_factory=Remembered)  # of points (T, n), or with all actions (A, T, n)

    def predict(self, inputs: Floats) -> Floats:
        """Return the mean over trees at ``inputs`` (n, d) -> (n,)."""
        if not self.remembers or not is_fixed(inputs):  # what can be changed cannot be remembered
            return self.forest.mean_values(inputs, self.n_jobs)[:, 0]
        return means_of_leaves([self.forest], [self.leaves(inputs)], self.n_jobs)[:, 0]

    def leaves(self, inputs: Floats) -> Leaves:
        """Return the leaves of points that cannot change, found once for as long as the trees stay (T, n)."""
        return self.known.of(inputs, lambda: self.forest.leaves_in_trees(inputs, self.n_jobs))

    def leaves_of_actions(self, states: Floats, n_actions: int) -> Leaves:
        """Return the same with each action's number as last input (A, T, n)."""
        return self.known.of(states, lambda: self.forest.leaves_of_actions(states, n_actions, self.n_jobs))

    def with_sums(self, sums: Floats) -> _ForestModel:
        """Return the same trees with the sums (l,) of other targets in their leaves."""
        return _ForestModel(self.forest.with_sums(sums[:, None]), self.n_jobs, self.remembers, self.known)


@dataclass(frozen=True, eq=False)
class _Prepared:
    """What all sweeps on one batch share: the rows that each model learns from, and their inputs as ranks."""

    batch: Transitions
    settings: FittedQ
    groups: list[Ints]
    inputs: list[EncodedStates]


@dataclass(frozen=True, eq=False)
class FittedValues:
    """The Q of a fitted evaluation: one model an action, or one over states and actions."""

    models: list[Any] = field(repr=False)
    n_actions: int
    n_features: int
    separate: bool
    prepared: _Prepared | None = field(default=None, repr=False)  # what the kept trees grew on
    age: int = 0  # sweeps on these trees
    n_sweeps: int = 0  # sweeps altogether
    known: Remembered[Floats] = field(default_factory=Remembered, repr=False)

    def values(self, states: Floats) -> Floats:
        """Return Q(x, a) for all actions; ``states`` (n, d) -> (n, A).

        The values of arrays that nobody can change, such as the states of the batch, are computed once.
        """
        checked = states in self.known or states in getattr(self.models[0], "known", ())
        x = states if checked else as_states(states, n_features=self.n_features)
        return self.known.of(x, lambda: self._table(x))

    def _table(self, states: Floats) -> Floats:
        if self._remembers(states):
            table = self._looked_up(states)
        elif not self.separate and isinstance(self.models[0], _ForestModel):
            model = self.models[0]
            table = model.forest.mean_values_of_actions(states, self.n_actions, model.n_jobs)
        else:
            table = np.stack([self.of_action(states, a) for a in range(self.n_actions)], axis=1)
        table.flags.writeable = not is_fixed(states)  # what is remembered must not change
        return table

    def _remembers(self, states: Floats) -> bool:
        """Whether the leaves of ``states`` are remembered, so that values are only looked up."""
        return getattr(self.models[0], "remembers", False) and is_fixed(states)

    def _looked_up(self, states: Floats) -> Floats:
        """Return Q(x, a) for all actions from remembered leaves, all in one go (n, A)."""
        if self.separate:
            models, leaves = self.models, [model.leaves(states) for model in self.models]
        else:
            models = self.models * self.n_actions
            leaves = list(self.models[0].leaves_of_actions(states, self.n_actions))
        return means_of_leaves([model.forest for model in models], leaves, models[0].n_jobs)

    def of_action(self, states: Floats, action: int) -> Floats:
        """Return Q(x, action); ``states`` (n, d) -> (n,)."""
        if self.separate:
            return np.asarray(self.models[action].predict(states), dtype=np.float64)
        inputs = np.column_stack([states, np.full(len(states), float(action))])
        return np.asarray(self.models[0].predict(inputs), dtype=np.float64)

    def expected(self, states: Floats, decisions: Decisions) -> Floats:
        """Return Q(x, .) under ``decisions``, asking only for actions that occur (n,)."""
        remembers = self._remembers(states)
        shares_paths = not self.separate and remembers  # then all actions cost hardly more than one
        table = self.values(states) if states in self.known or shares_paths else None
        if table is not None and decisions.ndim == 1:
            return chosen_entries(table, decisions)
        total = np.zeros(len(states))
        for a in range(self.n_actions):  # always in this order, so that what is remembered does not change a bit
            p = decisions[:, a] if decisions.ndim == 2 else (decisions == a).astype(np.float64)
            if table is not None:
                total += p * table[:, a]
                continue
            asked = np.flatnonzero(p)
            if self.separate and remembers and asked.size:
                total += p * self.of_action(states, a)
            elif asked.size:
                total[asked] += p[asked] * self.of_action(states[asked], a)
        return total


@renamed(sweeps="n_sweeps")
@dataclass(frozen=True)
class FittedQ:
    """Fitted Q evaluation with extremely randomised trees, or with any scikit-learn regressor.

    Parameters
    ----------
    n_trees : int
    min_samples_split : int
        A node with fewer rows is a leaf (the paper's eta_v).
    min_samples_leaf : int
    max_features : int, float or None
        Features looked at in a node; None is all.
    actions : "separate" or "input"
        One model for each action, or one over states and the action's number. ``docs/decisions`` argues the default.
    n_sweeps : int or None
        Sweeps of the Bellman operator an evaluation makes, from the previous Q on. None, with ``refresh_every="never"``,
        goes on until Q is within 1e-9 of its fixed point.
    refresh_every : int or "never"
        After how many sweeps at most the trees are grown anew; 1 is the paper's scheme. In between their leaves are averaged
        anew. Young trees, which grew on rewards alone or on little more, stay for no more sweeps than it took to get to them: without
        this limit they are grown in sweep 1, 2, 4, 8 and so on. The trees travel with Q from evaluation to evaluation on the same
        batch. "never" keeps the first ones.
    regressor : scikit-learn regressor, optional
        Used instead of our trees, fitted anew in each sweep.
    n_jobs : int, optional
        Threads; -1 is all cores, None is one. The result does not depend on it.

    Examples
    --------
    >>> from capi.policies import Constant
    >>> from capi.testing import random_batch
    >>> batch = random_batch()
    >>> q = FittedQ(n_trees=10, min_samples_split=5).evaluate(Constant(0, 3), batch, discount=0.9)
    >>> q.values(batch.states).shape == (len(batch), 3)
    True
    """

    n_trees: int = 30
    min_samples_split: int = 5
    min_samples_leaf: int = 1
    max_features: int | float | None = None
    actions: Literal["separate", "input"] = "separate"
    n_sweeps: int | None = 1
    refresh_every: int | Literal["never"] = 25
    regressor: Any = None
    n_jobs: int | None = None

    _constraints: ClassVar[Constraints] = {
        "n_trees": at_least(1),
        "min_samples_split": at_least(2),
        "min_samples_leaf": at_least(1),
        "actions": one_of("separate", "input"),
        "n_sweeps": optional(at_least(1)),
        "refresh_every": literal_or("never", at_least(1)),
        "regressor": optional(
            satisfying(lambda r: hasattr(r, "fit") and hasattr(r, "predict"), "have the methods fit and predict")
        ),
        "n_jobs": n_threads,
    }

    def __post_init__(self) -> None:
        check_parameters(self)
        if self.n_sweeps is None and (self.refresh_every != "never" or self.regressor is not None):
            raise InvalidInputError(
                'n_sweeps=None needs refresh_every="never" and our trees: else there is no fixed point to reach.'
            )

    def evaluate(
        self,
        policy: Policy,
        transitions: Transitions | None,
        *,
        discount: float,
        states: Floats | None = None,  # noqa: ARG002  what is asked for is remembered when it is
        previous: QFunction | None = None,
        rng: np.random.Generator | None = None,
    ) -> FittedValues:
        """Return Q after ``n_sweeps`` sweeps of T^pi from ``previous`` (None: zero) on."""
        t, discount = batch_for(transitions, policy, "FittedQ"), as_discount(discount)
        if self.actions == "separate":
            t.check_actions_taken(', or use FittedQ(actions="input"), which guesses from its neighbours.')
        generator = as_generator(0 if rng is None else rng)
        decisions = decided(policy, t.next_states, t.next_masks())

        def swept(q: QFunction | None) -> FittedValues:
            targets = bellman_targets(t, discount, following_values(q, FittedValues, t, decisions))
            return self._fitted(t, targets, q, generator)

        return after_sweeps(swept(previous), swept, self.n_sweeps, lambda first: _settled(first, swept, discount))

    def restored(self, q: FittedValues, transitions: Transitions, age: int, n_sweeps: int) -> FittedValues:
        """Return ``q``, which came out of a file, with what later sweeps on the same batch use of it: its trees and their rows.

        ``age`` is the number of sweeps that were made on its trees, ``n_sweeps`` that of all. Evaluations go on from here to the same bytes.
        """
        if not all(isinstance(model, _ForestModel) for model in q.models):
            return q
        prepared, threads = self._prepared(transitions, None), n_threads(self.n_jobs)
        if len(prepared.groups) != len(q.models):
            raise InvalidInputError("q does not belong to these settings: it has another number of models.")
        models = []
        for model, rows in zip(q.models, prepared.groups, strict=True):
            leaves = model.forest.leaves_in_trees(self._inputs(transitions, rows), threads)  # (T, n)
            trees = [
                replace(tree, leaf_of_row=of_tree.astype(np.int32))
                for tree, of_tree in zip(model.forest.trees, leaves, strict=True)
            ]
            models.append(_ForestModel(Forest(trees), threads, remembers=self.refresh_every != 1))
        return FittedValues(models, q.n_actions, q.n_features, q.separate, prepared, age, n_sweeps)

    def _fitted(self, t: Transitions, targets: Floats, old: QFunction | None, rng: np.random.Generator) -> FittedValues:
        if self.regressor is not None:
            models = [self._model(t, rows, targets, rng) for rows in self._groups(t)]
            return FittedValues(models, t.n_actions, t.n_features, self.actions == "separate")
        separate, prepared = self.actions == "separate", self._prepared(t, old)
        n_sweeps = 1 + (old.n_sweeps if isinstance(old, FittedValues) else 0)
        kept = old if isinstance(old, FittedValues) and old.prepared is prepared else None
        if kept is not None and self._stay(kept):
            weighted = targets if t.weights is None else t.weights * targets
            of_models, threads = [weighted[rows] for rows in prepared.groups], n_threads(self.n_jobs)
            sums = sums_of_targets([model.forest for model in kept.models], of_models, threads)
            models = [model.with_sums(of_model) for model, of_model in zip(kept.models, sums, strict=True)]
            return FittedValues(models, t.n_actions, t.n_features, separate, prepared, kept.age + 1, n_sweeps)
        models = [
            self._forest(inputs, targets[rows], _of(t.weights, rows), rng)
            for rows, inputs in zip(prepared.groups, prepared.inputs, strict=True)
        ]
        return FittedValues(models, t.n_actions, t.n_features, separate, prepared, 1, n_sweeps)

    def _stay(self, q: FittedValues) -> bool:
        """Return whether the trees of ``q`` serve one more sweep."""
        grown_in = q.n_sweeps - q.age + 1
        return self.refresh_every == "never" or q.age < min(self.refresh_every, grown_in)

    def _prepared(self, t: Transitions, old: QFunction | None) -> _Prepared:
        known = old.prepared if isinstance(old, FittedValues) else None
        if known is not None and known.batch is t and known.settings == self:
            return known
        groups = self._groups(t)
        return _Prepared(t, self, groups, [encode(self._inputs(t, rows), n_threads(self.n_jobs)) for rows in groups])

    def _groups(self, t: Transitions) -> list[Ints]:
        """Return the rows that each model learns from; a row without weight is no row."""
        rows = np.arange(len(t)) if t.weights is None else np.flatnonzero(t.weights)
        if self.actions == "input":
            return [rows]
        return [rows[t.actions[rows] == a] for a in range(t.n_actions)]

    def _inputs(self, t: Transitions, rows: Ints) -> Floats:
        x = t.states[rows]
        return x if self.actions == "separate" else np.column_stack([x, t.actions[rows].astype(np.float64)])

    def _forest(
        self, inputs: EncodedStates, targets: Floats, weights: Floats | None, rng: np.random.Generator
    ) -> _ForestModel:
        threads = n_threads(self.n_jobs)
        growth = Growth(
            n_trees=self.n_trees,
            n_candidates=n_candidates(self.max_features, inputs.n_features),
            min_samples_split=self.min_samples_split,
            min_samples_leaf=self.min_samples_leaf,
        )
        forest = grow(inputs, targets[:, None], growth, rng, weights=weights, n_jobs=threads)
        return _ForestModel(forest, threads, remembers=self.refresh_every != 1)

    def _model(self, t: Transitions, rows: Ints, targets: Floats, rng: np.random.Generator) -> _Model:
        model = clone(self.regressor)
        seeds = [name for name in model.get_params() if name.split("__")[-1] == "random_state"]  # in pipelines, too
        model.set_params(**{name: int(rng.integers(2**31)) for name in sorted(seeds)})
        w = _of(t.weights, rows)
        last_step = f"{model.steps[-1][0]}__" if hasattr(model, "steps") else ""
        weighting = {} if w is None else {f"{last_step}sample_weight": w}
        fitted: _Model = model.fit(self._inputs(t, rows), targets[rows], **weighting)
        return fitted


def _settled(first: FittedValues, swept: Callable[[FittedValues], FittedValues], discount: float) -> FittedValues:
    """Sweep on kept trees until Q stands still: averages of leaves do not expand, so each sweep contracts by the discount."""
    tiny = np.finfo(float).tiny
    rounds = movements(first, swept, _leaf_means)
    return next(q for q, moved, largest in rounds if stands_still(_finite(moved), max(largest, tiny), discount))


def _finite(moved: float) -> float:
    if not np.isfinite(moved):
        raise InvalidInputError("Q must stay finite; rewards or weights are too large or too small to be averaged.")
    return moved


def _leaf_means(q: FittedValues) -> Floats:
    return np.concatenate([model.forest.means for model in q.models])


def _of(weights: Floats | None, rows: Ints) -> Floats | None:
    return None if weights is None else weights[rows]
