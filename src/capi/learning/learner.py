"""`Learner`: the loop, its results, and the scikit-learn interface.

In `capi.learning.capi.CAPI` the user chooses the evaluator and the policy space; the baselines choose their own. Each
learner only defines ``loop()``, which returns the settings of the loop.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, Self, Unpack

from numpy.typing import ArrayLike, NDArray

from capi._utils import registry
from capi._utils.compiling import announced
from capi._utils.late import late, rich, sklearn
from capi._utils.nested_parameters import changed as changed_parameters
from capi._utils.nested_parameters import with_nested
from capi._utils.randomness import numbered_rng, seed_sequence
from capi._utils.shared import shared
from capi._utils.validation import Bools, Floats, as_allowed, as_states
from capi._utils.versions import versions
from capi.data.columns import is_table
from capi.data.elapsed import discount_unit
from capi.data.learned_episodes import LearnedEpisodes
from capi.data.partitions import PartitionedTransitions
from capi.data.readers.roles import RoleNames
from capi.data.schema import Schema
from capi.data.transitions import Transitions
from capi.errors import CapiError, InvalidInputError, not_fitted
from capi.learning.iteration import (
    HARDLY,
    ByIteration,
    Iteration,
    Loop,
    States,
    batch_of,
    check_batch,
    check_policy,
    checked_values,
    distance,
    resolved,
    start_sample,
    state_sample,
)
from capi.plotting.gaps import draw_gaps
from capi.plotting.history import draw_history
from capi.policies import Decisions, Training, decided, described, value_of
from capi.policy_spaces._problem import ImprovementProblem, improved, in_round
from capi.types import Policy, PolicyEvaluator, PolicySpace, QFunction, StateSample

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from capi.learning import decision_points, keeping, leaf_rows, partitioned, rules
else:  # they need the compiler
    decision_points, keeping, leaf_rows, partitioned, rules = (
        late(f"capi.learning.{name}") for name in ("decision_points", "keeping", "leaf_rows", "partitioned", "rules")
    )

SUPPORT_STREAM = 8  # of the random numbers; the rounds, candidates and first policy use those before
LEARNED = ("policy_", "q_", "history_", "schema_", "roles_", "support_")


class Learner:
    """The loop and its results; subclasses define its settings in `loop`.

    Follows scikit-learn: ``__init__`` only stores its arguments, ``get_params`` and ``set_params`` access them by name (so
    ``sklearn.base.clone`` works), and learned attributes end in an underscore. Parameters of the evaluator and of the space
    have nested names: ``set_params(evaluator__n_trees=50)``. With ``score`` and splits into whole episodes
    (`capi.EpisodeKFold`), ``GridSearchCV`` works, too.
    """

    def loop(self) -> Loop:
        """Return the checked settings of the loop."""
        raise CapiError(f"{type(self).__name__} must define loop().")

    def iterate(
        self,
        transitions: Transitions | ByIteration[Transitions] | None = None,
        *,
        states: States | ByIteration[States] | None = None,
        starts: States | None = None,
        after: Iteration | None = None,
    ) -> Iterator[Iteration]:
        """Yield each round of the paper's Algorithm 1; `fit` consumes this iterator.

        You can inspect or stop the loop between rounds. ``after`` resumes after a round that was yielded earlier, with the
        same results as without the interruption.
        """
        loop = self.loop()
        if isinstance(transitions, PartitionedTransitions):
            local = partitioned.localised(
                loop if after is None else replace(loop, random_state=after.seeds), transitions, states
            )
            return self._rounds(local.loop, local.batch, local.states, starts, after)
        made = getattr(after, "supported", None)
        if made is None or made[0] is not transitions:
            made = transitions, *supported(loop, transitions)
        _, batch, support = made
        if support is None:
            return self._rounds(loop, batch, states, starts, after)
        rounds = self._rounds(loop, batch, support.sample(states, "states"), support.sample(starts, "starts"), after)
        return (replace(iteration, supported=made) for iteration in rounds)

    @staticmethod
    def _rounds(loop: Loop, transitions: Any, states: Any, starts: Any, after: Iteration | None) -> Iterator[Iteration]:
        """Yield the rounds on a batch that has its masks."""
        check_batch(transitions)
        loop = rules.with_rules(loop, transitions, states)
        first = start_sample(starts, transitions)
        if after is not None and not isinstance(after, Iteration):
            raise InvalidInputError(f"after must be an Iteration yielded by iterate; got {after!r}.")
        seeds = seed_sequence(loop.random_state) if after is None else after.seeds
        loop = replace(
            loop,
            space=rules.with_behaviour(loop.space, transitions, seeds),
            update=rules.with_behaviour(loop.update, transitions, seeds),
        )
        policy: Any = loop.initial_policy if after is None else after.policy
        q = None if after is None else after.q
        excluded = rules.excluded_actions(loop.evaluator, transitions)
        beginnings = rules.Beginnings(loop, transitions, excluded, seeds)
        sample: StateSample | None = None  # kept between rounds if its sources are fixed
        sources: list[Any] = [source for source in (states, transitions) if source is not None]
        fixed = not any(map(callable, sources or [loop.evaluator]))
        before: Decisions | None = None  # the policy's decisions on a fixed sample
        points: decision_points.Points | None = None  # where policies decide, if states count by their visits
        visits = None if after is None else after.visits
        judge: keeping.Judge | None = None

        for k in range(0 if after is None else after.k + 1, loop.n_rounds):
            if after is not None and loop.ends_with(after):
                return
            started = perf_counter()
            begun = beginnings.of_round(k)
            if begun is not None:  # anew; the rounds before are only candidates
                policy, q = begun
                after = before = visits = None
            rng = partial(numbered_rng, seeds, k)  # each consumer below has its own stream
            batch = resolved(transitions, k, policy, partial(rng, 0), Transitions)
            evaluator = resolved(loop.evaluator, k, policy, partial(rng, 1), PolicyEvaluator)
            space = in_round(resolved(loop.space, k, policy, partial(rng, 2), PolicySpace), k, loop.n_rounds)
            effective = None
            if loop.state_weights in (None, "batch"):
                if sample is None or not fixed:
                    sample = state_sample(states, batch, loop.sample_of, evaluator, k, policy, partial(rng, 3))
                    before = None
                x, weights, allowed = sample
                q = evaluator.evaluate(policy, batch, discount=loop.discount, states=x, previous=q, rng=rng(4))
                values = checked_values(q, x, policy.n_actions, type(evaluator).__name__)
            else:
                if points is None or not fixed:
                    points, before = decision_points.points_of(evaluator, batch, first), None
                x, allowed = points.states, points.allowed
                q = evaluator.evaluate(policy, batch, discount=loop.discount, states=x, previous=q, rng=rng(4))
                values = points.values(q, policy.n_actions, type(evaluator).__name__)
                found = decision_points.visited(loop.state_weights, points, q, policy, loop.discount, visits)
                weights, visits, effective = found.weights, found.visits, found.effective

            chosen_by = q if not len(excluded) else rules.WithoutActions(q, excluded)
            values = values if not len(excluded) else rules.made_worst(values, excluded)
            problem = ImprovementProblem(x, values, weights, allowed)  # all parts are checked already
            scored = problem.scored_zero_one() if loop.loss == "zero-one" else problem
            new = improved(space, scored, q=chosen_by, previous=policy, rng=rng(5))
            check_policy(new, policy.n_actions, f"{type(space).__name__}.improve must return a Policy")
            if getattr(new, "stopped_by", None) == "interrupt":  # a tree that depends on when Ctrl-C was pressed
                raise KeyboardInterrupt
            if loop.update is not None:
                updated = loop.update(policy, new, q=q, states=x, k=k)
                if updated is None:
                    return
                check_policy(updated, policy.n_actions, "update must return a Policy or None")
                new = updated
            score, accepted, yardstick = None, True, None
            if loop.accept == "improving":
                judge = judge or keeping.Judge.of(batch, loop.discount, first, seeds, after, evaluator)
                score, accepted = judge.judged(k, q, policy, new)
                yardstick = judge.yardstick
                if not accepted:
                    if visits is not None and points is not None:
                        visits = visits + points.occupancy(q, new, loop.discount)[0]
                    new = policy

            before = decided(policy, x, allowed) if before is None else before
            decisions = decided(new, x, allowed)
            changed = problem.mean(distance(before, decisions, policy.n_actions))
            loss = scored.loss_of(decisions)
            value = problem.mean(value_of(decisions, values))
            n_unchanged = (0 if after is None else after.n_unchanged) + 1 if changed == 0 else 0
            still = after is not None and changed == 0 and abs(value - after.value) <= HARDLY * abs(value)
            n_settled = (0 if after is None else after.n_settled) + 1 if still else 0
            before, policy = decisions, new
            schema = getattr(evaluator if batch is None else batch, "schema", None)
            n_drawn = len(batch) if batch is not None and callable(transitions) else 0
            seconds = perf_counter() - started
            after = Iteration(
                k,
                q,
                policy,
                loss,
                changed,
                seconds,
                n_unchanged,
                seeds,
                schema,
                value,
                n_drawn,
                n_settled,
                visits,
                effective,
                score,
                accepted,
                yardstick,
            )
            yield after

    def fit(
        self,
        transitions: Any = None,
        y: None = None,
        *,
        states: States | ByIteration[States] | None = None,
        starts: States | None = None,
        progress: bool = False,
        **roles: Unpack[RoleNames],
    ) -> Self:
        """Run the loop and keep its policy.

        Parameters
        ----------
        transitions : Transitions, PartitionedTransitions, or function (k, policy, rng) -> Transitions, or table, optional
            The batch to learn from. Evaluators that have a model do not need it. A table (pandas, polars, Arrow, or a
            mapping of columns) needs ``roles``. From a partitioned batch the loop learns the structure of trees on a sample of
            episodes, and their averages on all rows (``docs/scale.md``).
        y : None
            Must be None; for compatibility with scikit-learn. The rewards are in the batch.
        states : array of shape (n, d), or tuple (states, weights[, allowed]), or function of (k, policy, rng), optional
            The sample of nu on which the policy is improved. By default the states of the batch, with
            its weights and masks; without a batch, all states of the evaluator's model.
        starts : array of shape (m, d), or tuple (states, weights[, allowed]), optional
            The states in which episodes will begin, if those are not the first states of the batch's episodes; used by
            ``state_weights``, ``keep`` and ``accept``.
        progress : bool
            Show a progress bar with the loss and the fraction of changed decisions in the terminal.
        **roles
            For a table: its columns by role (``episode``, ``time``, ``state``, ``action``, ``reward``, ...), as in
            `Transitions.from_frame`.

        Returns
        -------
        self
            With ``policy_``, ``q_`` and ``history_``, which are updated after each round, so an interrupted ``fit`` keeps
            the results of the rounds that it finished.
        """
        loop = self.loop()
        _check_no_targets(y)
        table_roles = dict(roles) or None
        transitions = batch_of(transitions, roles, loop.discount, "fit")
        local = None
        if isinstance(transitions, PartitionedTransitions):
            local = partitioned.localised(loop, transitions, states)
            loop, transitions, states = local.loop, local.batch, local.states
        training = training_of(transitions, loop.discount, 0)
        if local is not None:
            training = replace(training, n_rows=local.survey.n_rows)
        transitions, support = supported(loop, transitions)
        if support is not None:
            states, starts = support.sample(states, "states"), support.sample(starts, "starts")
        for name in LEARNED:
            self.__dict__.pop(name, None)
        loop = rules.with_rules(loop, transitions, states)
        history: list[dict[str, float]] = []
        best = None
        iteration: Iteration | None = None
        held: Iteration | None = None  # whose policy is kept, unless candidates are compared in the end
        candidates = keeping.Candidates(loop.n_rounds, loop.n_from_log) if loop.keep == "best" else None
        earlier_schema: Schema | None = None
        rounds = (
            self.iterate(transitions, states=states, starts=starts)
            if support is None and local is None
            else self._rounds(self.loop() if local is None else loop, transitions, states, starts, None)
        )
        for iteration in _with_progress_bar(rounds, loop.n_rounds) if progress else rounds:
            schema, score = iteration.schema, loop.score_of(iteration)
            if history and schema != earlier_schema:
                raise InvalidInputError(
                    f"features and actions must not change between rounds; at k = {iteration.k} they are {schema}."
                )
            if best is None or score is None or score > best:
                kept = iteration.policy if support is None else support.restrict(iteration.policy)
                self._keep(kept, iteration.q, schema, replace(training, n_iterations=iteration.k + 1))
                best, held = score, iteration
            if candidates is not None:
                candidates.add(iteration)
            history.append(iteration.numbers() | ({} if score is None else {"score": score}))
            earlier_schema = schema
            self.schema_, self.history_, self.roles_, self.support_ = schema, history, table_roles, support
        if candidates is not None and iteration is not None:
            chosen = candidates.best(
                iteration, transitions, loop.discount, loop.evaluator, start_sample(starts, transitions)
            )
            kept = chosen.policy if support is None else support.restrict(chosen.policy)
            self._keep(kept, chosen.q, iteration.schema, replace(training, n_iterations=chosen.k + 1))
            chosen.mark(history)
        elif held is not None:
            if callable(loop.keep):
                history[held.k]["kept"] = 1.0
            counted = leaf_rows.with_rows(held.policy, held.q, transitions, held, loop.evaluator)
            kept = counted if support is None else support.restrict(counted)
            self._keep(kept, held.q, held.schema, replace(training, n_iterations=held.k + 1))
        if local is not None and iteration is not None:
            k = chosen.k if candidates is not None else iteration.k if held is None else held.k
            is_last = candidates is None or k == iteration.k
            kept = local.finished(self.policy_, self.q_, history[k], is_last=is_last)
            self._keep(kept, self.q_, iteration.schema, replace(training, n_iterations=k + 1))
        if "policy_" not in self.__dict__:
            raise InvalidInputError("update must return a Policy at k = 0; it returned None, so no policy was learned.")
        return self

    def _keep(self, policy: Policy, q: QFunction, schema: Schema | None, training: Training) -> None:
        self.policy_: Policy = described(policy, schema, training)
        self.q_: QFunction = q

    def predict(self, states: Any, allowed: ArrayLike | None = None) -> NDArray[Any]:
        """Return the policy's action in each state, as labels of the batch's actions (n,).

        Parameters
        ----------
        states : array of shape (n, d), or table, or Transitions
            From a table (pandas, polars, Arrow, or a mapping of columns) the columns that were used for learning are
            selected by name. A batch also provides its masks.
        allowed : array of shape (n, A), optional
            The actions to choose from; by default all of them.
        """
        x, mask = self._states_and_masks(states, allowed)
        actions = self.policy_.act(x, mask)
        return actions if self.schema_ is None else self.schema_.labels_of(actions)

    def score(self, transitions: Any, y: None = None, **roles: Unpack[RoleNames]) -> float:
        """Return the estimated value of the policy on the episodes of a batch; larger is better.

        This is `capi.offline.fitted_value`: fitted Q evaluation of ``policy_`` on these episodes alone, averaged over their
        first states. It needs no propensities, has no importance weights that explode on a small fold, and uses the same
        regression and seed for every policy, so scores on the same batch are comparable. Use it on held-out episodes to
        choose parameters. It is not evidence: use `capi.offline.evaluate` for that. Values under different discounts are
        not comparable, so do not search over ``discount`` with this score.

        Parameters
        ----------
        transitions : Transitions, or table
            Held-out episodes.
        y : None
            Must be None; for compatibility with scikit-learn.
        **roles
            For a table: its columns by role, as in `fit`; by default those given to `fit`.
        """
        _check_no_targets(y)
        policy, discount = self.policy_, self.loop().discount
        named: dict[str, Any] = dict(roles)
        if is_table(transitions):
            named = named or dict(self.roles_ or {})
            if self.schema_ is not None:  # use the learned features and actions, not those found in this table
                named.pop("action_labels", None)
                named.setdefault("schema", self.schema_)
        return registry.score_policy(policy, batch_of(transitions, named, discount, "score"), discount)

    def _states_and_masks(self, states: Any, allowed: ArrayLike | None) -> tuple[Floats, Bools | None]:
        """Return the states as an array (n, d), and the masks (n, A) or None."""
        schema, policy = self.schema_, self.policy_
        if isinstance(states, Transitions):
            states, allowed = states.states, states.allowed if allowed is None else allowed
        x = as_states(states) if schema is None else schema.states_of(states)
        return x, as_allowed(allowed, "allowed", (len(x), policy.n_actions))

    def plot_history(self) -> Figure:
        """Plot loss, fraction of changed decisions and value by iteration; see `capi.plotting.history.draw_history`."""
        return draw_history(self.history_)

    def plot_gap(self, states: Any, allowed: ArrayLike | None = None) -> Figure:
        """Plot how much the choice of action matters according to ``q_``; see `capi.plotting.gaps.draw_gaps`.

        Parameters
        ----------
        states : Transitions, array of shape (n, d), or table
            The states to plot, such as those of the batch, whose masks are then used.
        allowed : array of shape (n, A), optional
            The actions to choose from in these states; by default all of them.
        """
        x, mask = self._states_and_masks(states, allowed)
        labels = None if self.schema_ is None else self.schema_.action_labels
        return draw_gaps(self.q_.values(x), mask, self.policy_.act(x, mask), labels)

    def __getattr__(self, name: str) -> Any:
        """Raise `NotFittedError` for learned attributes that do not exist yet."""
        if name in LEARNED:
            raise not_fitted(f"this {type(self).__name__} has no {name} yet: call fit first.")
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    # -- scikit-learn's interface for parameters -----------------------------------------------------

    @classmethod
    def _parameter_names(cls) -> list[str]:
        return [name for name in inspect.signature(cls).parameters if name != "self"]

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters by name; with ``deep`` also nested ones, such as ``evaluator__n_trees``."""
        own = {name: getattr(self, name) for name in self._parameter_names()}
        return with_nested(own) if deep else own

    def set_params(self, **params: Any) -> Self:
        """Set parameters by name, including nested ones, and return self.

        Evaluators and spaces are frozen, so a changed copy replaces them. If a name or value is invalid, nothing changes.

        Examples
        --------
        >>> from capi import CAPI
        >>> from capi.domains import ChainWalk
        >>> from capi.evaluators import Rollouts
        >>> from capi.policy_spaces import Thresholds
        >>> learner = CAPI(Rollouts(ChainWalk()), Thresholds(), discount=0.9)
        >>> learner.set_params(evaluator__n_rollouts=20, evaluator__domain__success=0.8).evaluator.domain.success
        0.8
        """
        for name, value in changed_parameters(self.get_params(deep=False), params, type(self).__name__).items():
            setattr(self, name, value)
        return self

    def __sklearn_is_fitted__(self) -> bool:
        return "policy_" in self.__dict__

    def __sklearn_tags__(self) -> Any:
        tags = sklearn.utils
        return tags.Tags(
            estimator_type=None,
            target_tags=tags.TargetTags(required=False),
            input_tags=tags.InputTags(two_d_array=False, allow_nan=True),
        )

    def _repr_html_(self) -> str:
        return registry.learner_html(self)

    def __repr__(self) -> str:
        parameters = inspect.signature(type(self)).parameters
        shown = [f"{n}={v!r}" for n, v in self.get_params(deep=False).items() if v is not parameters[n].default]
        return f"{type(self).__name__}({', '.join(shown)})"


def _check_no_targets(y: Any) -> None:
    if y is not None:
        raise InvalidInputError(f"y must be None, because the batch contains the rewards; got a {type(y).__name__}.")


def supported(loop: Loop, transitions: Any) -> tuple[Any, Any]:
    """Return the batch with the masks of the loop's support, and the fitted support; without one, the batch and None.

    The model's seed follows from that of the loop.
    """
    if loop.support is None:
        return transitions, None
    seeds = seed_sequence(loop.random_state)

    def made() -> tuple[Any, Any]:
        fitted = loop.support.fit(transitions, random_state=numbered_rng(seeds, 0, SUPPORT_STREAM))
        return fitted.mask(transitions), fitted

    return shared(made, transitions, loop.support, seeds)


def training_of(transitions: Any, discount: float, n_iterations: int) -> Training:
    """Return the training record of a policy that was learned from ``transitions`` in ``n_iterations`` rounds."""
    if not isinstance(transitions, Transitions):
        return Training(discount, n_iterations, None, versions())
    episodes, unit = LearnedEpisodes.of(transitions), discount_unit(transitions)
    return Training(discount, n_iterations, len(transitions), versions(), episodes, unit)


def _with_progress_bar(rounds: Iterator[Iteration], total: int) -> Iterator[Iteration]:
    """Yield ``rounds`` and show a progress bar on standard error."""
    parts = rich.progress
    columns = (
        parts.BarColumn(),
        parts.MofNCompleteColumn(),
        parts.TimeRemainingColumn(),
        parts.TextColumn("{task.description}"),
    )
    bar = parts.Progress(*columns, console=rich.console.Console(stderr=True))
    with announced(bar.console.print), bar:
        task = bar.add_task("", total=total)
        for iteration in rounds:
            text = f"loss {iteration.loss:.4g}, changed {iteration.changed:.1%}".replace("%", " %")
            bar.update(task, advance=1, description=text)
            yield iteration
