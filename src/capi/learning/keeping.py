"""The iterate worth keeping: candidates of many rounds, all scored in the same way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from capi._utils.randomness import numbered_rng
from capi._utils.threads import available_cores
from capi.data.transitions import Transitions
from capi.evaluators.averager import Averager, why_not
from capi.evaluators.pessimistic import PessimisticValues
from capi.evaluators.scoring_models import ScoringModels, projections_of, settled_targets
from capi.learning.episode_scores import EpisodeScores, episode_scores
from capi.learning.iteration import Iteration, Yardstick
from capi.learning.leaf_rows import with_rows
from capi.types import Policy, QFunction, StateSample

MOST_CANDIDATES = 10  # of each half of the loop
STREAM = 6  # of the random numbers of a round; the loop uses those before
EPISODES_STREAM = 10  # those between are in `capi.learning.rules` and `capi.learning.support`


@dataclass(frozen=True, eq=False)
class Best:
    """The policy that is kept, the Q that belongs to it, its round, and the scores of all candidates by round."""

    policy: Policy
    q: QFunction
    k: int
    scores: dict[int, float]
    careful: dict[int, float] = field(
        default_factory=dict
    )  # scores with decisions far from the log counted as dangerous

    def mark(self, history: list[dict[str, float]]) -> None:
        """Write the scores into the rows of a history, and which round is kept."""
        for name, scores in (("score", self.scores), ("careful_score", self.careful)):
            for k, score in scores.items():
                history[k][name] = score
        history[self.k]["kept"] = 1.0


@dataclass(eq=False)
class Candidates:
    """Policies of the rounds from the log, of at most ten rounds of the first half of the loop, of ten of its later half, and of the last round."""

    n_iterations: int
    n_from_log: int = 0
    policies: dict[int, Policy] = field(default_factory=dict)  # by round

    def add(self, iteration: Iteration) -> None:
        """Remember the policy of a round, if it is a candidate."""
        if iteration.k in candidate_rounds(self.n_iterations, self.n_from_log):
            self.policies[iteration.k] = iteration.policy

    def best(self, last: Iteration, batch: Any, discount: float, evaluator: Any, starts: StateSample | None) -> Best:
        """Return the best candidate, the first one in case of a tie.

        Candidates of all rounds are compared exactly if the evaluator has a model, else in simulated episodes, if the states of the batch move.
        Otherwise those of the later half of the rounds that were made are, by their values in the model that the batch and trees are.
        """
        policies = {**self.policies, last.k: last.policy}
        mdp = exact_model(evaluator)
        exact = mdp is not None
        episodes = None if exact else score_in_episodes(list(policies.values()), last, batch, discount, starts)
        careful: dict[int, float] = {}
        if episodes is not None:
            scored = episodes.values.tolist()
            careful = dict(zip(policies, episodes.careful.tolist(), strict=True))
            k = list(policies)[episodes.best]
        else:
            if not exact:
                policies = {k: p for k, p in policies.items() if k >= (last.k + 1) // 2}
            candidates = list(policies.values())
            scored = (
                [float(mdp.start @ mdp.values(policy)) for policy in candidates]
                if exact
                else score_policies(candidates, last, batch, discount, starts)
            )
            k = max(zip(scored, policies, strict=True), key=lambda pair: (pair[0], -pair[1]))[1]
        q = self._q_of(k, policies[k], last, batch, discount, evaluator, starts)
        kept = with_rows(policies[k], q, batch, last, evaluator)
        return Best(kept, q, k, dict(zip(policies, scored, strict=True)), careful)

    def _q_of(
        self,
        k: int,
        policy: Policy,
        last: Iteration,
        batch: Any,
        discount: float,
        evaluator: Any,
        starts: StateSample | None,
    ) -> Any:
        """Return the Q that belongs to the kept policy: its own on the last trees, or in the evaluator's model; else the last one."""
        q: Any = last.q
        if k == last.k:
            return q
        if isinstance(batch, Transitions) and why_not(q, batch) is None:

            def kept(own: Any, of: Transitions) -> Any:
                values = Averager.of(own, of, discount=discount, starts=starts).action_values(policy)
                return replace(values, prepared=own.prepared)  # the same trees of the same batch

            return q.under(kept) if isinstance(q, PessimisticValues) else kept(q, batch)
        if getattr(evaluator, "mdp", None) is not None:
            return evaluator.evaluate(policy, None, discount=discount)
        return q


@dataclass(eq=False)
class Judge:
    """Accepts a policy only if its score rises, in a model that changes rarely; the old policy is then scored again.

    A new model grows in rounds 1, 2, 4, 8 and so on, because early Qs know little more than the rewards.
    """

    batch: Any  # Transitions; not used with a model
    discount: float
    starts: StateSample | None
    seeds: np.random.SeedSequence
    mdp: Any = None  # the evaluator's model, in which values are exact
    yardstick: Yardstick | None = None
    models: ScoringModels | None = None
    known: tuple[Policy, float] | None = None  # the last accepted policy and its score

    @classmethod
    def of(
        cls,
        batch: Any,
        discount: float,
        starts: StateSample | None,
        seeds: np.random.SeedSequence,
        after: Iteration | None,
        evaluator: Any,
    ) -> Judge:
        """Return a judge that continues after a round."""
        judge = cls(batch, discount, starts, seeds, exact_model(evaluator))
        if after is not None and after.yardstick is not None:
            judge._grow(after.yardstick)
        return judge

    def judged(self, k: int, q: QFunction, old: Policy, new: Policy) -> tuple[float, bool]:
        """Return the score of the new policy, and whether it is better than that of the old one."""
        if self.mdp is not None:
            return self._accepted(k, old, new, lambda policy: float(self.mdp.start @ self.mdp.values(policy)))
        if self.models is None or (k + 1) & k == 0:
            targets = settled_targets(q, self.batch, [old, new], self.discount, self.starts)
            self._grow(Yardstick(targets, k, projections_of(q)))
        models = self.models
        if models is None:
            raise ValueError("no model was grown")
        return self._accepted(k, old, new, models.score)

    def _accepted(self, k: int, old: Policy, new: Policy, score: Callable[[Policy], float]) -> tuple[float, bool]:
        of_old = self.known[1] if self.known is not None and self.known[0] is old else score(old)
        of_new = score(new)
        accepted = k == 0 or of_new > of_old  # the first policy need not belong to the space
        self.known = (new, of_new) if accepted else (old, of_old)
        return of_new, accepted

    def _grow(self, yardstick: Yardstick) -> None:
        rng = numbered_rng(self.seeds, yardstick.k, STREAM)
        self.models = ScoringModels.grown(
            self.batch,
            yardstick.targets,
            discount=self.discount,
            rng=rng,
            starts=self.starts,
            n_jobs=available_cores(),
            projections=yardstick.projections,
        )
        self.yardstick, self.known = yardstick, None


def exact_model(evaluator: Any) -> Any:
    """Return the finite MDP of an evaluator that has one, such as `Exact`; else None."""
    mdp = getattr(evaluator, "mdp", None)
    return mdp if hasattr(mdp, "discounted_occupancy") else None


def candidate_rounds(n_iterations: int, n_from_log: int = 0) -> set[int]:
    """Return the rounds whose policies are candidates: those from the log, and at most ten of each half of the loop, spread evenly."""
    middle = n_iterations // 2
    spread = [
        np.linspace(first, last - 1, min(MOST_CANDIDATES, last - first)).round().astype(int).tolist()
        for first, last in ((0, middle), (middle, n_iterations))
    ]
    return {k for half in spread for k in half} | set(range(n_from_log))


def score_in_episodes(
    policies: Sequence[Policy], last: Iteration, batch: Any, discount: float, starts: StateSample | None = None
) -> EpisodeScores | None:
    """Return the scores of policies in simulated episodes, the same ones for the same last round; None if they do not suit the batch."""
    seed = int(numbered_rng(last.seeds, last.k, EPISODES_STREAM).integers(2**31))
    return episode_scores(policies, batch, discount, starts, seed) if isinstance(batch, Transitions) else None


def score_policies(
    policies: Sequence[Policy],
    last: Iteration,
    batch: Transitions,
    discount: float,
    starts: StateSample | None = None,
    *,
    halves: bool = False,
) -> list[float]:
    """Return the value of each policy in the model that the batch and the last round's Q give (`ScoringModels`)."""
    chosen = np.linspace(0, len(policies) - 1, min(len(policies), MOST_CANDIDATES)).round().astype(int)
    targets = settled_targets(last.q, batch, [policies[i] for i in chosen], discount, starts)
    rng = numbered_rng(last.seeds, last.k, STREAM)
    models = ScoringModels.grown(
        batch,
        targets,
        discount=discount,
        rng=rng,
        starts=starts,
        halves=halves,
        n_jobs=available_cores(),
        projections=projections_of(last.q),
    )
    return models.scores(policies)
