"""A score that compares policies on one batch: their value in two models, each with trees of one half and averages of the other.

Trees that were grown on the rows that they average flatter the policy: they split where rewards happened to be high. Here half of
the episodes decide where to split, and the other half what each leaf is worth; both ways, and the mean counts. All candidates are scored in the
same pair of models, because values in models with different trees do not compare. This takes out the flattery of the
trees, not that of the policies, which were learned from both halves: it is a score, never evidence.
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
from capi.evaluators.averager import Averager, why_not
from capi.policies import decided, value_of
from capi.trees.forest import Growth
from capi.types import Policy, StateSample

N_TREES, FEW_TREES, MANY_ROWS = 30, 10, 200_000  # fewer trees for more rows
MIN_SAMPLES_SPLIT = 5
ROWS_PER_LEAF_ROW = 50_000  # rows per row of leaf size


@dataclass(frozen=True, eq=False)
class HonestPair:
    """The two models; with a single episode there is one, whose trees average the rows that they were grown on."""

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
        n_jobs: int = 1,
    ) -> HonestPair:
        """Grow the trees of both models on ``targets`` (n,), such as `settled_targets`.

        ``starts`` are the states in which episodes begin, by default the first ones of each half.
        """
        growth, of_halves, of_trees = _growth(len(batch)), *rng.spawn(2)
        if batch.n_episodes < 2:
            return cls(
                [Averager.grown(batch, targets, growth, of_trees, discount=discount, starts=starts, n_jobs=n_jobs)],
                n_jobs,
            )
        first = np.zeros(batch.n_episodes, dtype=bool)
        first[of_halves.permutation(len(first))[: len(first) // 2]] = True
        rows = np.repeat(first, batch.episode_lengths)
        halves = [(batch.subset(mine), targets[mine]) for mine in (rows, ~rows)]
        models = [
            Averager.grown(
                structure,
                its_targets,
                growth,
                stream,
                discount=discount,
                averages=averages,
                starts=starts,
                n_jobs=n_jobs,
            )
            for (structure, its_targets), (averages, _), stream in zip(
                halves, halves[::-1], of_trees.spawn(2), strict=True
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
    q: Any, batch: Transitions, policy: Policy, discount: float, starts: StateSample | None = None
) -> Floats:
    """Return the Bellman targets (n,) of ``policy``: those of the fixed point on the trees of ``q``, or of ``q`` itself if it has none."""
    if why_not(q, batch) is None:
        under = Averager.of(q, batch, discount=discount, starts=starts).under(policy)
        return batch.rewards + under.model.steps * under.next_values
    decisions = decided(policy, batch.next_states, batch.next_masks())
    return bellman_targets(batch, discount, value_of(decisions, q.values(batch.next_states)))


def _growth(n_rows: int) -> Growth:
    leaf = max(1, n_rows // ROWS_PER_LEAF_ROW)
    return Growth(
        n_trees=FEW_TREES if n_rows > MANY_ROWS else N_TREES,
        min_samples_split=max(MIN_SAMPLES_SPLIT, 2 * leaf),
        min_samples_leaf=leaf,
    )
