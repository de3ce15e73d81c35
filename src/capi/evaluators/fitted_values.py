"""Q of a fitted evaluation: regression models per action, or one over states and actions."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from capi._utils.array_cache import Remembered
from capi._utils.row_ops import chosen_entries
from capi._utils.validation import Floats, as_states, is_fixed
from capi.policies import Decisions
from capi.trees.forest import Forest, means_of_leaves
from capi.trees.predictor import Leaves


@dataclass(frozen=True, eq=False)
class ForestModel:
    """A forest fitted to the rows of one group, and the cached leaves of points that were predicted before."""

    forest: Forest
    n_jobs: int
    remembers: bool  # whether to cache leaves, which pays only if the trees are kept for several sweeps
    known: Remembered[Leaves] = field(
        default_factory=Remembered
    )  # leaves of points (T, n), or for all actions (A, T, n)

    def predict(self, inputs: Floats) -> Floats:
        """Return the mean over trees at ``inputs`` (n, d) -> (n,)."""
        if not self.remembers or not is_fixed(inputs):  # only results for read-only arrays are cached
            return self.forest.mean_values(inputs, self.n_jobs)[:, 0]
        return means_of_leaves([self.forest], [self.leaves(inputs)], self.n_jobs)[:, 0]

    def leaves(self, inputs: Floats) -> Leaves:
        """Return the leaves of the points of a read-only array (T, n), computed once while the trees are kept."""
        return self.known.of(inputs, lambda: self.forest.leaves_in_trees(inputs, self.n_jobs))

    def leaves_of_actions(self, states: Floats, n_actions: int) -> Leaves:
        """Return the leaves with each action's number as the last input (A, T, n)."""
        return self.known.of(states, lambda: self.forest.leaves_of_actions(states, n_actions, self.n_jobs))

    def bare(self) -> ForestModel:
        """Return the same forest without the leaves of its rows."""
        return ForestModel(self.forest.bare(), 1, remembers=False)

    def with_sums(self, sums: Floats) -> ForestModel:
        """Return the same trees with other sums of targets (l,) in their leaves."""
        return ForestModel(self.forest.with_sums(sums[:, None]), self.n_jobs, self.remembers, self.known)


@dataclass(frozen=True, eq=False)
class FittedValues:
    """Q of a fitted evaluation: one model per action, or one model over states and actions."""

    models: list[Any] = field(repr=False)
    n_actions: int
    n_features: int
    separate: bool
    prepared: Any = field(default=None, repr=False)  # data from which the kept trees were grown; None: unknown
    age: int = 0  # sweeps on these trees
    n_sweeps: int = 0  # sweeps in total
    known: Remembered[Floats] = field(default_factory=Remembered, repr=False)

    def bare(self) -> FittedValues:
        """Return the same values without the rows that the trees were grown on and without what is remembered of others."""
        models = [model.bare() if isinstance(model, ForestModel) else model for model in self.models]
        return FittedValues(models, self.n_actions, self.n_features, self.separate)

    def values(self, states: Floats) -> Floats:
        """Return Q(x, a) for all actions; ``states`` (n, d) -> (n, A).

        The values of read-only arrays, such as the states of the batch, are computed once.
        """
        checked = states in self.known or states in getattr(self.models[0], "known", ())
        x = states if checked else as_states(states, n_features=self.n_features)
        return self.known.of(x, lambda: self._table(x))

    def _table(self, states: Floats) -> Floats:
        if self._remembers(states):
            table = self._looked_up(states)
        elif not self.separate and isinstance(self.models[0], ForestModel):
            model = self.models[0]
            table = model.forest.mean_values_of_actions(states, self.n_actions, model.n_jobs)
        else:
            table = np.stack([self.of_action(states, a) for a in range(self.n_actions)], axis=1)
        table.flags.writeable = not is_fixed(states)  # cached values must not change
        return table

    def _remembers(self, states: Floats) -> bool:
        """Return whether the leaves of ``states`` are cached, so values only need to be looked up."""
        return getattr(self.models[0], "remembers", False) and is_fixed(states)

    def _looked_up(self, states: Floats) -> Floats:
        """Return Q(x, a) for all actions from cached leaves, in one call (n, A)."""
        if self.separate:
            models, leaves = self.models, [model.leaves(states) for model in self.models]
        else:
            models = self.models * self.n_actions
            leaves = list(self.models[0].leaves_of_actions(states, self.n_actions))
        return means_of_leaves([model.forest for model in models], leaves, models[0].n_jobs)

    def spread_of_trees(self, states: Floats) -> Floats:
        """Return the standard deviation over the trees of each forest; ``states`` (n, d) -> (n, A)."""
        x = as_states(states, n_features=self.n_features)
        if self.separate:
            pairs = [(model.forest, model.leaves(x)) for model in self.models]
        else:
            model = self.models[0]
            pairs = [(model.forest, leaves) for leaves in model.leaves_of_actions(x, self.n_actions)]
        return np.stack([forest.spread_of_leaves(leaves) for forest, leaves in pairs], axis=1)

    def of_action(self, states: Floats, action: int) -> Floats:
        """Return Q(x, action); ``states`` (n, d) -> (n,)."""
        if self.separate:
            return np.asarray(self.models[action].predict(states), dtype=np.float64)
        inputs = np.column_stack([states, np.full(len(states), float(action))])
        return np.asarray(self.models[0].predict(inputs), dtype=np.float64)

    def expected(self, states: Floats, decisions: Decisions) -> Floats:
        """Return the mean of Q(x, .) under ``decisions`` (n,), evaluating only actions that occur."""
        remembers = self._remembers(states)
        shares_paths = not self.separate and remembers  # then all leaves cost little more than one
        if shares_paths and decisions.ndim == 1 and states not in self.known:
            model = self.models[0]
            x = states if states in model.known else as_states(states, n_features=self.n_features)
            leaves = model.leaves_of_actions(x, self.n_actions)
            return np.asarray(model.forest.mean_of_decisions(leaves, decisions, model.n_jobs))
        table = self.values(states) if states in self.known or shares_paths else None
        if table is not None and decisions.ndim == 1:
            return chosen_entries(table, decisions)
        total = np.zeros(len(states))
        for a in range(self.n_actions):  # a fixed order of summation, so that results do not depend on the cache
            p = decisions[:, a] if decisions.ndim == 2 else (decisions == a).astype(np.float64)
            if table is not None:
                total += p * table[:, a]
                continue
            taken = np.flatnonzero(p)
            if self.separate and remembers and taken.size:
                total += p * self.of_action(states, a)
            elif taken.size:
                total[taken] += p[taken] * self.of_action(states[taken], a)
        return total
