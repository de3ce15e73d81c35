"""A score that compares policies on one batch: their value in models that stay the same for all of them.

Values in models with different trees do not compare, so all candidates are scored in the same ones. Their trees are grown on
the Bellman targets of all candidates together, so that they tell states apart wherever that matters to one of them.

Trees that were grown on the rows that they average flatter policies: they split where rewards happened to be high. With ``halves``,
half of the episodes decide where to split and the other half what each leaf is worth, both ways, and the mean counts. That takes
out the flattery of the trees, not that of the policies, which were learned from both halves; and each model has half of the rows, which
costs more than it gains on the problems that decision 23 reports. Either way this is a score, never evidence.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from capi._utils.threads import in_threads, one_blas_thread
from capi._utils.validation import Floats
from capi.data.transitions import Transitions
from capi.evaluators._sweeps import bellman_targets
from capi.evaluators.averager import Averager, averaged, why_not
from capi.evaluators.fitted_values import ForestModel
from capi.policies import decided, value_of
from capi.trees.forest import Growth
from capi.trees.projections import Projections
from capi.types import Policy, StateSample

N_TREES, FEW_TREES, MANY_ROWS = 30, 10, 200_000  # fewer trees for more rows
MIN_SAMPLES_SPLIT = 5
ROWS_PER_LEAF_ROW = 50_000  # rows per row of leaf size


@dataclass(frozen=True, eq=False)
class ScoringModels:
    """One model, or one for each half of the episodes."""

    models: Sequence[Averager]
    n_jobs: int = 1

    @classmethod
    def grown(
        cls,
        batch: Transitions,
        targets: Floats,
        *,
        discount: float,
        rng: np.random.Generator,
        starts: StateSample | None = None,
        halves: bool = False,
        n_jobs: int = 1,
        projections: Projections | None = None,
    ) -> ScoringModels:
        """Grow the trees on ``targets`` (n,) or, for several policies, (n, m), such as `settled_targets`.

        ``starts`` are the states in which episodes begin, by default the first ones of the batch, or of each half. A single episode
        is not divided. The trees also cut ``projections``.
        """
        growth, of_halves, of_trees = _growth(len(batch)), *rng.spawn(2)
        shared: dict[str, Any] = {"discount": discount, "starts": starts, "n_jobs": n_jobs, "projections": projections}
        if not halves or batch.n_episodes < 2:
            return cls([Averager.grown(batch, targets, growth, of_trees, **shared)], n_jobs)
        first = np.zeros(batch.n_episodes, dtype=bool)
        first[of_halves.permutation(len(first))[: len(first) // 2]] = True
        rows = np.repeat(first, batch.episode_lengths)
        parts = [(batch.subset(mine), targets[mine]) for mine in (rows, ~rows)]
        models = [
            Averager.grown(structure, its_targets, growth, stream, averages=averages, **shared)
            for (structure, its_targets), (averages, _), stream in zip(
                parts, parts[::-1], of_trees.spawn(2), strict=True
            )
        ]
        return cls(models, n_jobs)

    def score(self, policy: Policy) -> float:
        """Return the mean of the policy's values in the models."""
        return self.scores([policy])[0]

    def scores(self, policies: Sequence[Policy]) -> list[float]:
        """Return the score of each policy."""
        pairs = [(policy, model) for policy in policies for model in self.models]
        with one_blas_thread():
            values = in_threads(lambda pair: pair[1].value(pair[0]), pairs, self.n_jobs)
        return [float(np.mean(part)) for part in np.reshape(values, (len(policies), len(self.models)))]


def settled_targets(
    q: Any, batch: Transitions, policies: Sequence[Policy], discount: float, starts: StateSample | None = None
) -> Floats:
    """Return the Bellman targets of each policy (n, m): of its fixed point on the trees of ``q``, or of ``q`` itself if it has none."""
    if why_not(q, batch) is None:
        model = Averager.of(q, batch, discount=discount, starts=starts)
        return np.stack([batch.rewards + model.steps * model.under(policy).next_values for policy in policies], axis=1)
    values = q.values(batch.next_states)
    ahead = [value_of(decided(policy, batch.next_states, batch.next_masks()), values) for policy in policies]
    return np.stack([bellman_targets(batch, discount, following) for following in ahead], axis=1)


def projections_of(q: Any) -> Projections | None:
    """Return the combinations of columns that the trees of ``q`` cut, if any."""
    models = getattr(averaged(q), "models", ())
    return models[0].forest.projections if models and isinstance(models[0], ForestModel) else None


def _growth(n_rows: int) -> Growth:
    leaf = max(1, n_rows // ROWS_PER_LEAF_ROW)
    return Growth(
        n_trees=FEW_TREES if n_rows > MANY_ROWS else N_TREES,
        min_samples_split=max(MIN_SAMPLES_SPLIT, 2 * leaf),
        min_samples_leaf=leaf,
    )
