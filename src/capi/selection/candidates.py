"""Candidates of a selection: learners with their settings, what was done, and the best single action."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, is_dataclass, replace
from numbers import Integral
from typing import Any

import numpy as np

from capi._utils.late import sklearn
from capi._utils.shared import shared
from capi.data.transitions import Transitions
from capi.errors import InvalidInputError, RareActionWarning
from capi.evaluators import LSTDQ, BoostedQ, Pessimistic
from capi.features.bases import Polynomial
from capi.learning import rules
from capi.learning.capi import CAPI
from capi.learning.learner import Learner, training_of
from capi.learning.support import Support
from capi.learning.updates import NearLog
from capi.offline.score import fitted_value
from capi.policies import Constant, cloned, described
from capi.policy_spaces import Forests, Neighbors, OptimalTrees, Reweighted
from capi.selection.result import BEHAVIOUR
from capi.types import Policy

QUICK_ROUNDS = 5  # of a learner that is only compared roughly
FINE, COARSE = 5, 30  # rows of a node of the value trees, for data with little and with much noise
FOREST, NEAR_LOG, WITH_SUPPORT = 10_000, 20_000, 1  # sizes of policies that are not read
SUPPORT, SHARE = 0.3, 0.3  # threshold of a support; share of decisions that stay as they were
SWEEPS = 10  # of boosted values
NEIGHBOURS, RIDGE, MANY_COLUMNS = 20, 1e-3, 20  # above so many columns, linear values have no products of columns


@dataclass(frozen=True, eq=False)
class Candidate:
    """A way to a policy.

    Parameters
    ----------
    name : str
    learner : Learner, or dataclass with the method fit
        Not fitted; ``fit(batch)`` must set ``policy_``.
    size : int
        At least 1. Orders candidates by simplicity: of two that are as good, the one with the smaller size is chosen.
    """

    name: str
    learner: Any
    size: int

    @property
    def near_log(self) -> bool:
        """Whether its policies draw actions nearly as the log does."""
        mixed = isinstance(getattr(self.learner, "update", None), NearLog)
        return mixed or isinstance(getattr(self.learner, "space", None), Reweighted)

    def fitted(self, batch: Transitions, *, quick: bool = False) -> Any:
        """Return the learner after learning from ``batch``; a quick one makes fewer rounds."""
        learner = sklearn.base.clone(self.learner) if isinstance(self.learner, Learner) else replace(self.learner)
        if quick and isinstance(learner, CAPI):
            by_rule = rules.with_rules(learner.loop(), batch, None).n_rounds
            learner.set_params(n_iterations=min(QUICK_ROUNDS, by_rule))
        return learner.fit(batch)

    def learned(self, batch: Transitions) -> Any:
        """Return the learner after learning from all learning episodes, in `sharing` always the same one; `warn_of_rare_actions` warns instead of it."""

        def made() -> Any:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", RareActionWarning)
                return self.fitted(batch)

        return shared(made, batch, self)

    def warn_of_rare_actions(self, batch: Transitions) -> None:
        """Warn of actions that the learner does not choose because the batch takes them too rarely."""
        if isinstance(self.learner, Learner):
            rules.excluded_actions(rules.with_rules(self.learner.loop(), batch, None).evaluator, batch)


@dataclass
class WhatWasDone:
    """The logged behaviour, cloned with its probabilities; with a depth, as one small tree."""

    discount: float
    max_depth: int | None = None
    random_state: int = 0
    policy_: Policy = field(init=False, repr=False)

    def fit(self, batch: Transitions) -> WhatWasDone:
        """Clone the behaviour of ``batch``."""
        clone = cloned(batch, max_depth=self.max_depth, random_state=self.random_state, n_jobs=-1)
        self.policy_ = described(clone, batch.schema, training_of(batch, self.discount, 0))
        return self


@dataclass
class BestSingleAction:
    """The same action for everybody: the one with the largest fitted value, out of those that are allowed everywhere and taken in 1 % of the rows."""

    discount: float
    random_state: int = 0
    policy_: Policy = field(init=False, repr=False)

    def fit(self, batch: Transitions) -> BestSingleAction:
        """Choose the action."""
        shares = np.bincount(batch.actions, minlength=batch.n_actions) / len(batch)
        everywhere = np.ones(batch.n_actions, dtype=bool) if batch.allowed is None else batch.allowed.all(axis=0)
        known = np.flatnonzero((shares >= 0.01) & everywhere)
        known = known if len(known) else np.array([shares.argmax()])
        policies = [Constant(int(a), batch.n_actions) for a in known]
        values = [fitted_value(policy, batch, discount=self.discount, n_jobs=-1) for policy in policies]
        best = policies[int(np.argmax(values))]
        self.policy_ = described(best, batch.schema, training_of(batch, self.discount, 0))
        return self


def default_candidates(batch: Transitions, discount: float, *, random_state: int = 0) -> list[Candidate]:
    """Return a list of learners that covers values by trees, boosting and linear functions, small and large policies, and policies near the log.

    Parameters
    ----------
    batch : Transitions
        Only its size, its episodes and whether values are missing are used.
    discount : float in [0, 1)
    random_state : int
        Of all learners.
    """
    if not isinstance(batch, Transitions):
        raise InvalidInputError(f"batch must be Transitions; got {type(batch).__name__}.")
    fine = rules.default_evaluator(batch, discount)
    coarse = replace(fine, min_samples_split=COARSE)
    unsplit = replace(fine, min_samples_leaf=FINE)  # its leaves may be saved
    space = rules.default_space(len(batch))
    if not isinstance(space, OptimalTrees):
        raise InvalidInputError("the default space must be optimal trees")

    def learner(evaluator: Any, space: Any, **options: Any) -> CAPI:
        return CAPI(evaluator, space, discount, random_state=random_state, **options)

    trees = {depth: replace(space, max_depth=depth) for depth in (1, 2, 3)}
    forests, near = Forests(n_jobs=-1), Support(SUPPORT)
    sweeps = 1 if rules.horizon(batch, discount) == 1 else SWEEPS
    boosted = BoostedQ(50, 5, max_leaf_nodes=15, n_sweeps=sweeps)  # smaller than its defaults, for its time
    found = [
        Candidate("tree of depth 1", learner(fine, trees[1]), 2),
        Candidate("tree of depth 2", learner(fine, trees[2]), 4),
        Candidate("tree of depth 3", learner(fine, trees[3]), 8),
        Candidate("tree of depth 3, coarse values", learner(coarse, trees[3]), 8),
        Candidate("tree of depth 3, near the log", learner(fine, trees[3], support=near), 8 + WITH_SUPPORT),
        Candidate("forest", learner(fine, forests), FOREST),
        Candidate("forest, coarse values", learner(coarse, forests), FOREST),
        Candidate("forest, cautious values", learner(Pessimistic(fine, 1.0, "trees"), forests), FOREST),
        Candidate("forest, near the log", learner(fine, forests, support=near), FOREST + WITH_SUPPORT),
        Candidate("log, reweighted", learner(unsplit, Reweighted()), NEAR_LOG),
        Candidate("log, reweighted a little", learner(unsplit, Reweighted(temperature=4.0)), NEAR_LOG),
        Candidate("forest, mixed with the log", learner(fine, forests, update=NearLog(None, SHARE)), NEAR_LOG),
    ]
    if np.isfinite(batch.states).all():  # neither has a place for missing values
        degree = 2 if batch.n_features <= MANY_COLUMNS else 1
        linear = LSTDQ(Polynomial(degree), ridge=RIDGE)
        found += [
            Candidate("tree of depth 3, linear values", learner(linear, trees[3]), 8),
            Candidate("neighbours", learner(fine, Neighbors(NEIGHBOURS, n_jobs=-1)), FOREST),
        ]
    return [
        *found,
        Candidate(
            "forest, boosted values, near the log", learner(boosted, forests, support=near), FOREST + WITH_SUPPORT
        ),
    ]


def baselines(discount: float, *, random_state: int = 0) -> list[Candidate]:
    """Return what a learned policy must beat: what was done, with its probabilities and as a small tree, and the best single action."""
    return [
        Candidate(BEHAVIOUR, WhatWasDone(discount, random_state=random_state), 0),
        Candidate("what was done, as a tree of depth 3", WhatWasDone(discount, 3, random_state), 0),
        Candidate("the best single action", BestSingleAction(discount, random_state), 0),
    ]


def checked_candidates(candidates: Any, reserved: Sequence[str] = ()) -> list[Candidate]:
    """Return a list of candidates with different names; a mapping from names to learners is ordered by simplicity."""
    if hasattr(candidates, "items"):
        candidates = [
            Candidate(str(name), learner, number) for number, (name, learner) in enumerate(candidates.items(), start=1)
        ]
    found = list(candidates) if isinstance(candidates, Sequence) else []
    if not found or not all(isinstance(c, Candidate) and _can_learn(c.learner) for c in found):
        raise InvalidInputError(
            "candidates must be a mapping from names to learners (such as CAPI(...), not fitted), the simplest first, or a list of Candidate; "
            f"got {candidates!r}."
        )
    for c in found:
        if not isinstance(c.name, str) or not c.name:
            raise InvalidInputError(f"the name of a candidate must be a text; got {c.name!r}.")
        if isinstance(c.size, bool) or not isinstance(c.size, Integral) or c.size < 1:
            raise InvalidInputError(
                f"the size of candidate {c.name!r} must be a whole number, at least 1; got {c.size!r}."
            )
    names = [c.name for c in found]
    for name in names:
        if name in reserved:
            raise InvalidInputError(f"{name!r} is the name of a baseline. Choose another name for the candidate.")
        if names.count(name) > 1:
            raise InvalidInputError(
                f"candidates must have different names; {name!r} appears {names.count(name)} times."
            )
    return found


def _can_learn(learner: Any) -> bool:
    """Whether an object is a learner, or one that can be copied and fitted to a batch."""
    own = is_dataclass(learner) and not isinstance(learner, type) and hasattr(learner, "fit")
    return own or isinstance(learner, Learner)
