r"""Fitted Q evaluation by gradient boosting that continues from sweep to sweep.

A sweep does not fit :math:`T^\pi \hat Q_{\text{old}}` anew. It adds a few trees that are fitted to what the old model lacks, the Bellman
residuals :math:`R_i + \gamma \hat Q_{\text{old}}(X'_i, \pi(X'_i)) - \hat Q_{\text{old}}(X_i, A_i)`: a step of functional gradient descent
(Friedman 2001) on targets that move slowly (Tosatto et al. 2017 boost fitted Q in this way). The values of the batch's states are kept, so
a sweep evaluates only the trees that it added.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from typing import Any, ClassVar, Literal, Protocol

import numpy as np

from capi._utils.array_cache import Remembered
from capi._utils.late import sklearn
from capi._utils.own_filters import own_filters
from capi._utils.parameters import Constraints, all_of, at_least, check_parameters, one_of, optional
from capi._utils.randomness import as_generator
from capi._utils.threads import openmp_threads_for
from capi._utils.validation import Floats, as_discount, as_positive, as_share, as_states, is_fixed
from capi.data.transitions import Transitions
from capi.errors import InvalidInputError
from capi.evaluators._batches import batch_for, of_rows, rows_of_actions
from capi.evaluators._sweeps import after_sweeps, bellman_targets, finite_targets, following_values
from capi.policies import decided
from capi.types import Policy, QFunction


class _Booster(Protocol):
    """A fitted boosting model: inputs (n, d) -> (n,)."""

    def predict(self, inputs: Floats) -> Floats:
        """Return the predictions."""


@dataclass(frozen=True, eq=False)
class BoostedModel:
    """A sum of boosting models, each fitted to what the sum of those before it lacks."""

    stages: tuple[_Booster, ...]
    n_trees: int
    known: Remembered[Floats] = field(default_factory=Remembered, repr=False)

    def predict(self, inputs: Floats) -> Floats:
        """Return the sum of all stages at ``inputs`` (n, d) -> (n,); that of read-only arrays is computed once."""
        return self.known.of(inputs, lambda: self._sum(inputs))

    def _sum(self, inputs: Floats) -> Floats:
        with openmp_threads_for(len(inputs)):
            total = self.stages[0].predict(inputs)
            for stage in self.stages[1:]:  # in the order of `and_then`, so that results do not depend on the cache
                total = total + stage.predict(inputs)
            return total

    def and_then(self, stage: _Booster, n_trees: int) -> BoostedModel:
        """Return the model with another stage; what is known of the others stays known."""
        longer = BoostedModel((*self.stages, stage), self.n_trees + n_trees)
        for inputs, values in self.known.items():
            with openmp_threads_for(len(inputs)):
                longer.known.of(inputs, lambda x=inputs, before=values: before + stage.predict(x))  # type: ignore[misc]
        return longer


@dataclass(frozen=True, eq=False)
class BoostedValues:
    """Q of `BoostedQ`: one sum of boosting models per action."""

    models: tuple[BoostedModel, ...] = field(repr=False)
    batch: Transitions = field(repr=False)
    settings: BoostedQ
    known: Remembered[Floats] = field(default_factory=Remembered, repr=False)

    @property
    def n_actions(self) -> int:
        """Number of actions, A."""
        return len(self.models)

    def values(self, states: Floats) -> Floats:
        """Return Q(x, a) for all actions; ``states`` (n, d) -> (n, A). The values of read-only arrays are computed once."""
        x = states if states in self.known else as_states(states, n_features=self.batch.n_features)
        return self.known.of(x, lambda: self._table(x))

    def _table(self, states: Floats) -> Floats:
        table = np.stack([model.predict(states) for model in self.models], axis=1)
        table.flags.writeable = not is_fixed(states)  # cached values must not change
        return table


def _engine(value: Any, name: str) -> None:
    one_of("auto", "scikit-learn", "lightgbm")(value, name)
    if value == "lightgbm" and find_spec("lightgbm") is None:
        raise InvalidInputError(
            "engine='lightgbm' needs lightgbm: pip install capi[boosting]. Or use engine='scikit-learn'."
        )


@dataclass(frozen=True)
class BoostedQ:
    """Fitted Q evaluation by gradient boosting: each sweep adds a few trees instead of fitting new ones.

    There is one model per action, as in `FittedQ`; that of an action that is never taken learns from all rows. Missing values and
    weights are handled by the boosting library. The prediction is not an average of targets, so there is no fixed point to
    solve for, and ``state_weights`` and ``keep="best"`` need `FittedQ`.

    Parameters
    ----------
    n_trees : int
        Number of trees of a model that is fitted from scratch, in the first sweep and in refits.
    added : int or None
        Number of trees that each further sweep on the same batch adds to each model; None fits from scratch in every sweep.
    learning_rate : float in (0, 1]
        Share of each tree's correction that is used.
    max_leaf_nodes : int
        Maximum number of leaves of a tree.
    min_samples_leaf : int
        Minimum number of rows in a leaf.
    max_trees : int
        A model that would get more trees is fitted from scratch on the current targets: its first trees describe targets that are long
        outdated, and long models are slow to evaluate.
    n_sweeps : int
        Number of Bellman sweeps per evaluation, starting from the previous Q.
    engine : "auto", "scikit-learn" or "lightgbm"
        The library that grows the trees; LightGBM needs ``pip install capi[boosting]``. "auto" is scikit-learn, so that results do
        not depend on what is installed.

    References
    ----------
    .. [1] J. H. Friedman, "Greedy function approximation: a gradient boosting machine", Annals of Statistics 29(5), 2001.
    .. [2] S. Tosatto, M. Pirotta, C. D'Eramo, M. Restelli, "Boosted fitted Q-iteration", ICML 2017.

    Examples
    --------
    >>> from capi.policies import Constant
    >>> from capi.testing import random_batch
    >>> batch = random_batch()
    >>> q = BoostedQ(n_trees=20, min_samples_leaf=2, n_sweeps=5).evaluate(Constant(0, 3), batch, discount=0.9)
    >>> q.values(batch.states).shape == (len(batch), 3)
    True
    """

    n_trees: int = 100
    added: int | None = 10
    learning_rate: float = 0.1
    max_leaf_nodes: int = 31
    min_samples_leaf: int = 20
    max_trees: int = 500
    n_sweeps: int = 1
    engine: Literal["auto", "scikit-learn", "lightgbm"] = "auto"

    uses_weights: ClassVar[bool] = True
    _constraints: ClassVar[Constraints] = {
        "n_trees": at_least(1),
        "added": optional(at_least(1)),
        "learning_rate": all_of(as_positive, as_share),
        "max_leaf_nodes": at_least(2),
        "min_samples_leaf": at_least(1),
        "max_trees": at_least(1),
        "n_sweeps": at_least(1),
        "engine": _engine,
    }

    def __post_init__(self) -> None:
        check_parameters(self)
        if self.max_trees < self.n_trees:
            raise InvalidInputError(
                f"max_trees must be at least n_trees, {self.n_trees}; got {self.max_trees}. Raise it, or lower n_trees."
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
    ) -> BoostedValues:
        """Return Q after ``n_sweeps`` sweeps of T^pi, starting from ``previous`` (None: zero)."""
        t, discount = batch_for(transitions, policy, "BoostedQ"), as_discount(discount)
        generator = as_generator(0 if rng is None else rng)
        decisions = decided(policy, t.next_states, t.next_masks())

        def swept(q: QFunction | None) -> BoostedValues:
            targets = bellman_targets(t, discount, following_values(q, (), t, decisions))
            return self._fitted(t, finite_targets(targets, "Lower the learning rate, or use FittedQ."), q, generator)

        return after_sweeps(swept(previous), swept, self.n_sweeps, lambda q: q)

    def _fitted(
        self, t: Transitions, targets: Floats, old: QFunction | None, rng: np.random.Generator
    ) -> BoostedValues:
        continues = isinstance(old, BoostedValues) and old.batch is t and old.settings == self
        kept: Any = old if continues else None
        groups = rows_of_actions(t)
        models = [
            self._model(t, rows, targets, None if kept is None else kept.models[a], int(rng.integers(2**31)))
            for a, rows in enumerate(groups)
        ]
        return BoostedValues(tuple(models), t, self)

    def _model(self, t: Transitions, rows: Any, targets: Floats, old: BoostedModel | None, seed: int) -> BoostedModel:
        x, w = t.states[rows], of_rows(t.weights, rows)
        if old is None or self.added is None or old.n_trees + self.added > self.max_trees:
            return BoostedModel((self._booster(self.n_trees, seed)(x, targets[rows], w),), self.n_trees)
        lacking = targets[rows] - old.predict(t.states)[rows]
        return old.and_then(self._booster(self.added, seed)(x, lacking, w), self.added)

    def _booster(self, n_trees: int, seed: int) -> Callable[[Floats, Floats, Floats | None], _Booster]:
        """Return the function that fits ``n_trees`` trees to inputs, targets and weights."""
        if self.engine == "lightgbm":
            model = import_module("lightgbm").LGBMRegressor(
                n_estimators=n_trees,
                learning_rate=self.learning_rate,
                num_leaves=self.max_leaf_nodes,
                min_child_samples=self.min_samples_leaf,
                random_state=seed,
                n_jobs=1,  # with more threads, sums may differ in their last digits
                deterministic=True,
                force_col_wise=True,
                verbose=-1,
            )
        else:
            model = sklearn.ensemble.HistGradientBoostingRegressor(
                max_iter=n_trees,
                learning_rate=self.learning_rate,
                max_leaf_nodes=self.max_leaf_nodes,
                min_samples_leaf=self.min_samples_leaf,
                early_stopping=False,
                random_state=seed,
            )

        def fitted(x: Floats, y: Floats, w: Floats | None) -> _Booster:
            with own_filters(), openmp_threads_for(len(x)):
                return model.fit(x, y, sample_weight=w)

        return fitted
