"""Rules for settings that the user leaves open: rounds, sweeps and sizes, from the batch and the discount.

Decision 23 has the measurements behind the numbers.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from capi._utils.randomness import numbered_rng
from capi._utils.shared import shared
from capi._utils.validation import Floats, Ints
from capi.data.elapsed import largest_discount
from capi.data.transitions import Transitions
from capi.errors import InvalidInputError, RareActionWarning
from capi.evaluators._sweeps import unwrapped, with_one_sweep
from capi.evaluators.boosted_q import BoostedQ
from capi.evaluators.fitted_q import FittedQ
from capi.learning.iteration import Loop, n_actions
from capi.learning.updates import NearLog
from capi.policies import Constant, Greedy, cloned
from capi.policy_spaces.reweighted import Reweighted
from capi.policy_spaces.trees.optimal import OptimalTrees
from capi.simulation.logged_steps import states_move
from capi.types import Policy, QFunction

NEGLIGIBLE = 0.05  # share of a value that may lie beyond the horizon
LONGER = 4  # a policy may keep the process going this many times as long as the longest logged episode
SHORTEST, LONGEST = 50, 3000  # steps that a horizon covers, for any episodes
ROUNDS = 20  # at least; enough if each evaluation is complete
STREAM = 7  # of the random numbers of the first policy; the loop and the candidates use those before
LOG_STREAM = 9  # of the model of what was done; the support has the one before
FROM_LOG, FEWEST_ROUNDS = 3, 10  # rounds that begin with what was done, in loops of at least so many rounds
PROJECTIONS = 20  # combinations of columns that the trees of the default evaluator may cut
DEPTH = 3
WORK_LIMIT = 500_000_000  # of the search for an optimal tree in each round: less than a second
LATE_WORK_LIMIT = 5_000_000_000  # and in the second half of the rounds: a few seconds
MANY_ROWS, FEWER_CUTS = 1_000, 64  # above so many rows, so many cuts per column
FEWEST_IN_LEAF, ROWS_PER_LEAF_ROW = (
    5,
    500,
)  # states in a leaf of the default space: at least five, and 0.2 % of the rows
FEWEST_ROWS = 5  # of an action that may be chosen


def with_rules(loop: Loop, transitions: Any, states: Any) -> Loop:
    """Return the settings of a loop with those filled in that its user left open."""
    batch = transitions if isinstance(transitions, Transitions) else None
    evaluator, space = loop.evaluator, loop.space
    if evaluator is None:
        if batch is None:
            raise InvalidInputError(
                "evaluator must be given, or a fixed batch from which its settings follow. Pass transitions to fit."
            )
        evaluator = default_evaluator(batch, loop.discount)
    space = default_space(0 if batch is None else len(batch)) if space is None else space
    one_step = isinstance(space, Reweighted)  # further steps are no better, and no longer evaluated where the log is
    follows = states is None and by_trees(evaluator, transitions)
    by_rule = 1 if one_step else default_rounds(evaluator, batch, loop.discount)
    rounds = by_rule if loop.n_iterations is None else loop.n_iterations
    _check_batch_is_fixed(loop, evaluator, transitions)
    if loop.state_weights not in (None, "batch") and states is not None:
        raise InvalidInputError(
            f"state_weights={loop.state_weights!r} chooses the states; omit states, or set state_weights='batch'."
        )
    filled = replace(
        loop,
        evaluator=evaluator,
        space=space,
        n_iterations=rounds,
        keep=("best" if follows else "last") if loop.keep is None else loop.keep,
        state_weights=("mixture" if follows else "batch") if loop.state_weights is None else loop.state_weights,
        until_settled=loop.n_iterations is None if loop.until_settled is None else loop.until_settled,
    )
    return replace(filled, n_from_log=rounds_from_log(filled, batch))


def _check_batch_is_fixed(loop: Loop, evaluator: Any, transitions: Any) -> None:
    """Refuse what compares or adds up rounds, if each of them has another batch or there is none."""
    if isinstance(transitions, Transitions):
        return
    exact = hasattr(evaluator, "mdp")
    if loop.keep == "best" and not exact:
        raise InvalidInputError(
            "keep='best' needs a fixed batch, in which all candidates are scored; this learner has none. Pass a batch, or a "
            "function as keep."
        )
    if loop.accept == "improving" and not exact:
        raise InvalidInputError(
            "accept='improving' needs a fixed batch, in which policies are compared; this learner has none. Pass a batch, or "
            "set accept='any'."
        )
    if loop.state_weights in ("occupancy", "mixture") and callable(transitions):
        raise InvalidInputError(
            f"state_weights={loop.state_weights!r} needs a fixed batch, whose rows policies visit; this one is drawn anew for each "
            "round. Pass a batch, or set state_weights='batch'."
        )


def rounds_from_log(loop: Loop, batch: Transitions | None) -> int:
    """Return how many rounds begin with what was done: some, if all rounds are compared in episodes and the user gives no first policy or update.

    What was done is the only policy whose values a log shows without averaging over states that it never reaches: where the other rounds see no
    danger, one step from it is the candidate that remains.
    """
    begins = loop.initial_policy is None and loop.keep == "best" and loop.state_weights not in (None, "batch")
    follows = loop.accept == "any" and (loop.update is None or isinstance(loop.update, NearLog))
    suits = begins and follows and loop.n_rounds >= FEWEST_ROUNDS and by_trees(loop.evaluator, batch)
    if not suits or batch is None or horizon(batch, loop.discount) == 1 or isinstance(loop.space, Reweighted):
        return 0
    return FROM_LOG if states_move(batch) else 0


def by_trees(evaluator: Any, transitions: Any) -> bool:
    """Return whether the evaluator averages a fixed batch in trees of its own, so that the two are a model."""
    inner = unwrapped(evaluator)
    return isinstance(inner, FittedQ) and inner.regressor is None and isinstance(transitions, Transitions)


def horizon(batch: Transitions | None, discount: float) -> int:
    """Return how many steps ahead a policy should look: what lies beyond is worth a twentieth of a value."""
    if discount == 0 or (batch is not None and bool(batch.terminated.all())):
        return 1
    slowest = discount if batch is None else largest_discount(batch, discount)
    steps = min(math.ceil(math.log(NEGLIGIBLE) / math.log(slowest)), LONGEST)
    if batch is not None and batch.episodes is not None:
        steps = min(steps, max(SHORTEST, LONGER * int(batch.episode_lengths.max())))
    return max(steps, 1)


def default_evaluator(batch: Transitions, discount: float) -> FittedQ:
    """Return fitted Q whose evaluations are complete; if nothing follows a decision, one sweep is."""
    return FittedQ(n_sweeps=1 if horizon(batch, discount) == 1 else None, n_jobs=-1, projections=PROJECTIONS)


@dataclass(frozen=True, eq=False)
class Beginnings:
    """The policies with which the loop begins, if the user gives none: what was done in the first rounds, each with other trees, then a first policy."""

    loop: Loop
    transitions: Any
    excluded: Ints
    seeds: np.random.SeedSequence

    @cached_property
    def what_was_done(self) -> Policy:
        """The policy of the log, roughly."""

        def made() -> Policy:
            return cloned(self.transitions, quick=True, random_state=numbered_rng(self.seeds, 0, LOG_STREAM), n_jobs=-1)

        return shared(made, self.transitions, "roughly what was done", self.seeds)

    def of_round(self, k: int) -> tuple[Policy, QFunction | None] | None:
        """Return the policy with which round ``k`` begins, and its Q, if any; None if it continues the round before."""
        if k > self.loop.n_from_log or self.loop.initial_policy is not None:
            return None
        if k < self.loop.n_from_log:
            return self.what_was_done, None
        return first_policy(self.loop, self.loop.evaluator, self.transitions, self.excluded, self.seeds)


def first_policy(
    loop: Loop, evaluator: Any, transitions: Any, excluded: Ints, seeds: np.random.SeedSequence
) -> tuple[Policy, QFunction | None]:
    """Return the policy that the loop begins with if the user gives none, and its Q, if any.

    If states count by their visits, the first policy decides which states are looked at, so it is the best of all policies, not
    only of the space: the optimal one of a model, or that of fitted Q iteration over the horizon. Otherwise it is the first action.
    """
    batch, n = transitions, n_actions(evaluator, transitions)
    first: Policy = Constant(int(np.setdiff1d(np.arange(n), excluded)[0]), n)
    if isinstance(loop.space, Reweighted) and loop.space.behaviour is not None:
        return loop.space.behaviour, None
    if loop.state_weights in (None, "batch"):
        return first, None
    if hasattr(evaluator, "mdp"):
        return evaluator.mdp.optimal_policy, None
    if not by_trees(evaluator, batch):
        return first, None
    sweep, discount = with_one_sweep(getattr(evaluator, "on_sample", evaluator)), loop.discount

    def made() -> tuple[Policy, QFunction | None]:
        policy, q, rng = first, None, numbered_rng(seeds, 0, STREAM)
        for _ in range(horizon(batch, discount)):
            q = sweep.evaluate(policy, batch, discount=discount, previous=q, rng=rng)
            policy = Greedy(q if not len(excluded) else WithoutActions(q, excluded), masked=batch.allowed is not None)
        return policy, q

    return shared(made, batch, "fitted Q iteration", sweep, discount, seeds)


def with_behaviour(part: Any, transitions: Any, seeds: np.random.SeedSequence) -> Any:
    """Return a space or an update; one that stays near the log gets what was done, if its user did not give it."""
    if not isinstance(part, Reweighted | NearLog) or part.behaviour is not None:
        return part
    if not isinstance(transitions, Transitions):
        raise InvalidInputError(
            f"{type(part).__name__} needs a fixed batch, or behaviour: what was done. Pass transitions to fit."
        )

    def made() -> Policy:
        return cloned(transitions, random_state=numbered_rng(seeds, 0, LOG_STREAM), n_jobs=-1)

    return replace(part, behaviour=shared(made, transitions, "what was done", seeds))


def default_space(n_rows: int) -> OptimalTrees:
    """Return the space of small trees, with larger leaves and fewer cuts for more rows."""
    return OptimalTrees(
        max_depth=DEPTH,
        n_thresholds=None if n_rows <= MANY_ROWS else FEWER_CUTS,
        min_samples_leaf=max(FEWEST_IN_LEAF, n_rows // ROWS_PER_LEAF_ROW),
        work_limit=WORK_LIMIT,
        late_work_limit=LATE_WORK_LIMIT,
        n_jobs=-1,
    )


def default_rounds(evaluator: Any, batch: Transitions | None, discount: float) -> int:
    """Return the number of rounds after which the evaluator's sweeps reach the horizon."""
    steps = horizon(batch, discount)
    if steps == 1 and not hasattr(evaluator, "mdp"):
        return 1
    n_sweeps = getattr(unwrapped(evaluator), "n_sweeps", None)
    return ROUNDS if n_sweeps is None else max(ROUNDS, math.ceil(steps / n_sweeps))


def excluded_actions(evaluator: Any, transitions: Any) -> Ints:
    """Return the actions that no policy may choose; evaluators other than fitted Q and boosting refuse a batch without an action, or extrapolate."""
    fits = isinstance(unwrapped(evaluator), FittedQ | BoostedQ) and isinstance(transitions, Transitions)
    return rare_actions(transitions) if fits else np.empty(0, dtype=np.int64)


def rare_actions(batch: Transitions) -> Ints:
    """Return the actions that the batch takes too rarely to be chosen, with a warning that names them."""
    counts = np.bincount(
        batch.actions if batch.weights is None else batch.actions[batch.weights > 0], minlength=batch.n_actions
    )
    fewest = min(FEWEST_ROWS, max(1, len(batch) // (10 * batch.n_actions)))  # small examples may have fewer
    rare = np.flatnonzero(counts < fewest)
    if len(rare) == batch.n_actions:
        raise InvalidInputError("rows must have positive weight; none has.")
    if len(rare):
        named = ", ".join(
            f"{batch.schema.action_labels[a]!r} ({counts[a]} row{'' if counts[a] == 1 else 's'})" for a in rare
        )
        warnings.warn(
            f"the batch takes some actions too rarely to learn what they are worth: {named}. No policy will choose them. "
            "Leave them out of the table, or merge them with similar ones.",
            RareActionWarning,
            stacklevel=3,
        )
    return rare


class WithoutActions:
    """A Q-function in which some actions are worse than all others, so that no policy chooses them."""

    def __init__(self, q: QFunction, excluded: Ints) -> None:
        self.q, self.excluded, self.n_actions = q, excluded, q.n_actions

    def values(self, states: Floats) -> Floats:
        """Return Q(x, a) for all actions; ``states`` (n, d) -> (n, A)."""
        return made_worst(self.q.values(states), self.excluded)

    def of_others(self) -> QFunction:
        """Return a Q-function that knows nothing of the excluded actions, so that it can be saved: their few rows stay private."""
        q: Any = self.q
        models = getattr(q, "models", None)
        if models is None or len(models) != self.n_actions:
            return self.q
        other = models[int(np.setdiff1d(np.arange(self.n_actions), self.excluded)[0])]
        kept = [other if a in set(self.excluded.tolist()) else model for a, model in enumerate(models)]
        return replace(q, models=kept, prepared=None)


def made_worst(values: Floats, excluded: Ints) -> Floats:
    """Return ``values`` (n, A) with the excluded actions below all others, by the range of the others or by one."""
    others = np.delete(values, excluded, axis=1)
    low, high = others.min(axis=1), others.max(axis=1)
    made = values.copy()
    made[:, excluded] = (low - np.maximum(high - low, 1.0))[:, None]
    return made
