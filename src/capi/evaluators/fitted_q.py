r"""Fitted Q evaluation: repeated regression of Bellman targets on states and actions.

A sweep fits :math:`\hat Q \approx T^\pi \hat Q_{\text{old}}` to the targets :math:`R_i + \gamma \hat Q_{\text{old}}(X'_i, \pi(X'_i))`, or
:math:`R_i` where the process terminated. The trees need not be regrown in each sweep: on kept trees a sweep only averages the
targets in each leaf, and the leaves of points that were predicted before are looked up.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Protocol

import numpy as np

from capi._utils.late import sklearn
from capi._utils.own_filters import own_filters
from capi._utils.parameters import Constraints, at_least, check_parameters, literal_or, one_of, optional, satisfying
from capi._utils.randomness import as_generator
from capi._utils.renamed import renamed
from capi._utils.threads import n_threads
from capi._utils.validation import Floats, Ints, as_discount
from capi.data.transitions import Transitions
from capi.errors import InvalidInputError
from capi.evaluators._batches import batch_for, of_rows, rows_of_actions
from capi.evaluators._sweeps import SETTLED, after_sweeps, bellman_targets, following_values
from capi.evaluators.averager import Averager
from capi.evaluators.fitted_values import FittedValues, ForestModel
from capi.policies import decided
from capi.trees.forest import Forest, Growth, grow, n_candidates, sums_of_targets
from capi.trees.projections import Projections
from capi.trees.ranks import EncodedStates, encode
from capi.types import Policy, QFunction


class _Model(Protocol):
    """A fitted regression model: inputs (n, d) -> (n,)."""

    def predict(self, inputs: Floats) -> Floats:
        """Return the predictions."""


@dataclass(frozen=True, eq=False)
class _Prepared:
    """Data shared by all sweeps on one batch: the rows that each model learns from, and their inputs as ranks."""

    batch: Transitions
    settings: FittedQ
    groups: list[Ints]
    inputs: list[EncodedStates]

    @property
    def projections(self) -> Projections | None:
        """The combinations of columns that all forests cut."""
        return self.inputs[0].projections


@renamed(sweeps="n_sweeps")
@dataclass(frozen=True)
class FittedQ:
    """Fitted Q evaluation with extremely randomised trees, or with any scikit-learn regressor.

    Parameters
    ----------
    n_trees : int
        Number of trees per model.
    min_samples_split : int
        Minimum number of rows to split a node; a node with fewer is a leaf (the paper's eta_v).
    min_samples_leaf : int
        Minimum number of rows in a leaf.
    max_features : int, float or None
        Number or fraction of the features to consider per node; None is all.
    actions : "separate" or "input"
        One model per action, or one model with the action's number as an input. ``docs/decisions`` justifies the default.
        The model of an action that is never taken averages all rows; `CAPI` then never chooses that action.
    n_sweeps : int or None
        Number of Bellman sweeps per evaluation, starting from the previous Q. None makes one sweep and then solves for the fixed
        point of all further sweeps on the same trees, up to 1e-9 of its largest value (`capi.evaluators.averager`). If the trees
        are too old by ``refresh_every``, new ones are grown on the targets of that fixed point, and it is solved again.
    refresh_every : int or "never"
        Maximum number of sweeps before the trees are regrown; 1 is the paper's scheme. In between, only the averages in the
        leaves are updated. Early trees, which were grown from little more than the rewards, are kept for at most as many sweeps
        as came before them: without any other limit trees are grown in sweeps 1, 2, 4, 8 and so on. Later evaluations on
        the same batch continue with the trees of the previous Q. "never" keeps the first trees.
    regressor : scikit-learn regressor, optional
        Replaces the built-in trees; refitted in each sweep.
    n_jobs : int, optional
        Number of threads; -1 is all cores, None is one. The result does not depend on it.
    projections : int
        Number of random combinations of two or three scaled columns that the built-in trees may cut beside the columns themselves. They
        help where what matters is oblique, such as an angle plus its speed, and cost time in proportion to the columns.

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
    projections: int = 0

    uses_weights: ClassVar[bool] = True
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
        "projections": at_least(0),
    }

    def __post_init__(self) -> None:
        check_parameters(self)
        if self.projections and self.regressor is not None:
            raise InvalidInputError(
                "projections are for the built-in trees. Combine columns in the regressor, for example in a pipeline."
            )
        if self.n_sweeps is None and self.regressor is not None:
            raise InvalidInputError(
                "n_sweeps=None requires the built-in trees: a regressor may have no fixed point. Give a number of sweeps."
            )

    def evaluate(
        self,
        policy: Policy,
        transitions: Transitions | None,
        *,
        discount: float,
        states: Floats | None = None,  # noqa: ARG002  values are computed and cached on demand
        previous: QFunction | None = None,
        rng: np.random.Generator | None = None,
    ) -> FittedValues:
        """Return Q after ``n_sweeps`` sweeps of T^pi, starting from ``previous`` (None: zero)."""
        t, discount = batch_for(transitions, policy, "FittedQ"), as_discount(discount)
        generator = as_generator(0 if rng is None else rng)
        decisions = decided(policy, t.next_states, t.next_masks())

        def swept(q: QFunction | None) -> FittedValues:
            targets = bellman_targets(t, discount, following_values(q, FittedValues, t, decisions))
            return self._fitted(t, targets, q, generator)

        def settled(q: FittedValues, *, keeps: bool = False) -> FittedValues:
            model = Averager.of(q, t, discount=discount)
            found = model.under(policy).solved_values(t.rewards, tolerance=SETTLED)
            keeps = keeps or self._stay(q)
            after = self._fitted(t, t.rewards + model.steps * found.x, q, generator, keeps=keeps)
            return after if keeps else settled(after, keeps=True)  # values on old trees are not those on new ones

        return after_sweeps(swept(previous), swept, self.n_sweeps, settled)

    def restored(self, q: FittedValues, transitions: Transitions, age: int, n_sweeps: int) -> FittedValues:
        """Return ``q``, loaded from a file, with the data that later sweeps on the same batch need: its trees and their rows.

        ``age`` is the number of sweeps made on its trees, ``n_sweeps`` the total number of sweeps. Later evaluations give the
        same bytes as without the file.
        """
        if not all(isinstance(model, ForestModel) for model in q.models):
            return q
        prepared = self._prepared(transitions, None, q.models[0].forest.projections)
        threads = n_threads(self.n_jobs)
        if len(prepared.groups) != len(q.models):
            raise InvalidInputError(
                f"q must fit these settings, with {len(prepared.groups)} models; it has {len(q.models)}."
            )
        models = []
        for model, rows in zip(q.models, prepared.groups, strict=True):
            leaves = model.forest.leaves_in_trees(self._inputs(transitions, rows), threads)  # (T, n)
            trees = [
                replace(tree, leaf_of_row=of_tree.astype(np.int32))
                for tree, of_tree in zip(model.forest.trees, leaves, strict=True)
            ]
            models.append(ForestModel(Forest(trees, prepared.projections), threads, remembers=self.refresh_every != 1))
        return FittedValues(models, q.n_actions, q.n_features, q.separate, prepared, age, n_sweeps)

    def _fitted(
        self,
        t: Transitions,
        targets: Floats,
        old: QFunction | None,
        rng: np.random.Generator,
        *,
        keeps: bool = False,  # the trees of ``old``, whatever their age
    ) -> FittedValues:
        if self.regressor is not None:
            models = [self._model(t, rows, targets, rng) for rows in self._groups(t)]
            return FittedValues(models, t.n_actions, t.n_features, self.actions == "separate")
        separate, prepared = self.actions == "separate", self._prepared(t, old, rng)
        n_sweeps = 1 + (old.n_sweeps if isinstance(old, FittedValues) else 0)
        kept = old if isinstance(old, FittedValues) and old.prepared is prepared else None
        if kept is not None and (keeps or self._stay(kept)):
            weighted = targets if t.weights is None else t.weights * targets
            of_models, threads = [weighted[rows] for rows in prepared.groups], n_threads(self.n_jobs)
            sums = sums_of_targets([model.forest for model in kept.models], of_models, threads)
            models = [model.with_sums(of_model) for model, of_model in zip(kept.models, sums, strict=True)]
            return FittedValues(models, t.n_actions, t.n_features, separate, prepared, kept.age + 1, n_sweeps)
        models = [
            self._forest(inputs, targets[rows], of_rows(t.weights, rows), rng)
            for rows, inputs in zip(prepared.groups, prepared.inputs, strict=True)
        ]
        return FittedValues(models, t.n_actions, t.n_features, separate, prepared, 1, n_sweeps)

    def _stay(self, q: FittedValues) -> bool:
        """Return whether to use the trees of ``q`` for another sweep."""
        grown_in = q.n_sweeps - q.age + 1
        return self.refresh_every == "never" or q.age < min(self.refresh_every, grown_in)

    def _prepared(
        self, t: Transitions, old: QFunction | None, combined: Projections | np.random.Generator | None
    ) -> _Prepared:
        """Return the data of all sweeps on a batch; ``combined`` are combinations of columns, or draws them."""
        known = old.prepared if isinstance(old, FittedValues) else None
        if known is not None and known.batch is t and known.settings == self:
            return known
        groups, threads = self._groups(t), n_threads(self.n_jobs)
        if isinstance(combined, np.random.Generator):
            combined = Projections.drawn(t.states, self.projections, combined) if self.projections else None
        inputs = [encode(self._inputs(t, rows), threads, projections=combined) for rows in groups]
        return _Prepared(t, self, groups, inputs)

    def _groups(self, t: Transitions) -> list[Ints]:
        """Return the rows that each model learns from; rows of weight 0 are ignored."""
        if self.actions == "input":
            return [np.arange(len(t)) if t.weights is None else np.flatnonzero(t.weights)]
        return rows_of_actions(t)

    def _inputs(self, t: Transitions, rows: Ints) -> Floats:
        x = t.states[rows]
        return x if self.actions == "separate" else np.column_stack([x, t.actions[rows].astype(np.float64)])

    def _forest(
        self, inputs: EncodedStates, targets: Floats, weights: Floats | None, rng: np.random.Generator
    ) -> ForestModel:
        threads = n_threads(self.n_jobs)
        growth = Growth(
            n_trees=self.n_trees,
            n_candidates=n_candidates(self.max_features, inputs.n_features),
            min_samples_split=self.min_samples_split,
            min_samples_leaf=self.min_samples_leaf,
        )
        forest = grow(inputs, targets[:, None], growth, rng, weights=weights, n_jobs=threads)
        return ForestModel(forest, threads, remembers=self.refresh_every != 1)

    def _model(self, t: Transitions, rows: Ints, targets: Floats, rng: np.random.Generator) -> _Model:
        model = sklearn.base.clone(self.regressor)
        seeds = [name for name in model.get_params() if name.split("__")[-1] == "random_state"]  # in pipelines, too
        model.set_params(**{name: int(rng.integers(2**31)) for name in sorted(seeds)})
        w = of_rows(t.weights, rows)
        last_step = f"{model.steps[-1][0]}__" if hasattr(model, "steps") else ""
        weighting = {} if w is None else {f"{last_step}sample_weight": w}
        with own_filters():
            fitted: _Model = model.fit(self._inputs(t, rows), targets[rows], **weighting)
        return fitted
