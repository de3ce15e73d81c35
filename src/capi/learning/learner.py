"""`Learner`: the loop, its results, and the scikit-learn interface.

`capi.learning.capi.CAPI` is the learner whose parts the user names; the baselines are learners that name them themselves.
Both only say in ``loop()`` what the loop runs with.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from numbers import Real
from time import perf_counter
from typing import TYPE_CHECKING, Any, Self, Unpack

from numpy.typing import ArrayLike, NDArray

from capi._utils import registry
from capi._utils.late import rich, sklearn
from capi._utils.nested_parameters import changed as changed_parameters
from capi._utils.nested_parameters import with_nested
from capi._utils.randomness import numbered_rng, seed_sequence
from capi._utils.validation import Bools, Floats, as_allowed, as_states
from capi._utils.versions import versions
from capi.data.columns import is_table
from capi.data.readers.roles import RoleNames
from capi.data.schema import Schema
from capi.data.sketch import sketch
from capi.data.transitions import Transitions
from capi.errors import CapiError, InvalidInputError, not_fitted
from capi.learning.iteration import (
    ByIteration,
    Iteration,
    Loop,
    States,
    batch_of,
    check_batch,
    check_policy,
    checked_values,
    distance,
    n_actions,
    resolved,
    state_sample,
)
from capi.plotting.gaps import draw_gaps
from capi.plotting.history import draw_history
from capi.policies import Constant, Decisions, Training, decided, described, value_of
from capi.policy_spaces._problem import ImprovementProblem, improved
from capi.types import Policy, PolicyEvaluator, PolicySpace, QFunction, StateSample

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LEARNED = ("policy_", "q_", "history_", "schema_", "roles_")


class Learner:
    """The loop and its results; subclasses say in `loop` what it runs with.

    Follows scikit-learn: ``__init__`` only stores its arguments, which ``get_params`` and ``set_params``
    know by name (so ``sklearn.base.clone`` works), and what is learned ends in an underscore. Parameters of the parts have nested
    names: ``set_params(evaluator__n_trees=50)``. ``score`` and whole-episode splits (`capi.EpisodeKFold`) serve ``GridSearchCV``.
    """

    def loop(self) -> Loop:
        """Return what the loop runs with, checked."""
        raise CapiError(f"{type(self).__name__} must define loop().")

    def iterate(
        self,
        transitions: Transitions | ByIteration[Transitions] | None = None,
        *,
        states: States | ByIteration[States] | None = None,
        after: Iteration | None = None,
    ) -> Iterator[Iteration]:
        """Yield each round of the paper's Algorithm 1; `fit` only consumes this.

        Stop, look and go on between rounds as you like. ``after`` continues behind a round that was
        yielded earlier, with the same results as if the loop had not been left.
        """
        loop = self.loop()
        check_batch(transitions)
        if after is not None and not isinstance(after, Iteration):
            raise InvalidInputError(f"after must be an Iteration that iterate has yielded; got {after!r}.")
        seeds = seed_sequence(loop.random_state) if after is None else after.seeds
        policy = loop.initial_policy if after is None else after.policy
        q = None if after is None else after.q
        if policy is None:
            policy = Constant(0, n_actions(loop.evaluator, transitions))
        sample: StateSample | None = None  # kept from round to round if nothing about it can change
        sources: list[Any] = [source for source in (states, transitions) if source is not None]
        fixed = not any(map(callable, sources or [loop.evaluator]))
        before: Decisions | None = None  # the policy's decisions on a fixed sample

        for k in range(0 if after is None else after.k + 1, loop.n_iterations):
            if after is not None and loop.ends_with(after):
                return
            started = perf_counter()
            rng = partial(numbered_rng, seeds, k)  # each consumer below has a stream of its own
            batch = resolved(transitions, k, policy, partial(rng, 0), Transitions)
            evaluator = resolved(loop.evaluator, k, policy, partial(rng, 1), PolicyEvaluator)
            space = resolved(loop.space, k, policy, partial(rng, 2), PolicySpace)
            if sample is None or not fixed:
                sample = state_sample(states, batch, loop.sample_of, evaluator, k, policy, partial(rng, 3))
                before = None
            x, weights, allowed = sample

            q = evaluator.evaluate(policy, batch, discount=loop.discount, states=x, previous=q, rng=rng(4))
            values = checked_values(q, x, policy.n_actions, type(evaluator).__name__)
            problem = ImprovementProblem(x, values, weights, allowed)  # each part was checked where it came in
            scored = problem.scored_zero_one() if loop.loss == "zero-one" else problem
            new = improved(space, scored, q=q, previous=policy, rng=rng(5))
            check_policy(new, policy.n_actions, f"{type(space).__name__}.improve must return a Policy")
            if loop.update is not None:
                updated = loop.update(policy, new, q=q, states=x, k=k)
                if updated is None:
                    return
                check_policy(updated, policy.n_actions, "update must return a Policy or None")
                new = updated

            before = decided(policy, x, allowed) if before is None else before
            decisions = decided(new, x, allowed)
            changed = problem.mean(distance(before, decisions, policy.n_actions))
            loss = scored.loss_of(decisions)
            value = problem.mean(value_of(decisions, values))
            n_unchanged = (0 if after is None else after.n_unchanged) + 1 if changed == 0 else 0
            before, policy = decisions, new
            schema = getattr(evaluator if batch is None else batch, "schema", None)
            n_drawn = len(batch) if batch is not None and callable(transitions) else 0
            seconds = perf_counter() - started
            after = Iteration(k, q, policy, loss, changed, seconds, n_unchanged, seeds, schema, value, n_drawn)
            yield after

    def fit(
        self,
        transitions: Any = None,
        y: None = None,
        *,
        states: States | ByIteration[States] | None = None,
        progress: bool = False,
        **roles: Unpack[RoleNames],
    ) -> Self:
        """Run the loop and keep its policy.

        Parameters
        ----------
        transitions : Transitions, or function (k, policy, rng) -> Transitions, or table, optional
            The batch that the evaluator learns from. Not needed by evaluators that hold a model. A table (pandas, polars, Arrow,
            or a mapping of columns) needs ``roles``.
        y : None
            Takes the place of scikit-learn's targets; the rewards are in the batch.
        states : array of shape (n, d), or tuple (states, weights[, allowed]), or function of (k, policy, rng), optional
            The sample of nu on which the policy is improved. By default the states of the batch, with
            its weights and masks; without a batch, all states of the evaluator's model.
        progress : bool
            Show a progress bar with loss and changed decisions on the terminal.
        **roles
            With a table: its columns by role (``episode``, ``time``, ``state``, ``action``, ``reward``, ...), as in
            `Transitions.from_frame`.

        Returns
        -------
        self
            With ``policy_``, ``q_`` and ``history_``, which are up to date after each round: an interrupted
            ``fit`` keeps what it had.
        """
        loop = self.loop()
        _check_no_targets(y)
        table_roles = dict(roles) or None
        transitions = batch_of(transitions, roles, loop.discount, "fit")
        training = training_of(transitions, loop.discount, 0)
        for name in LEARNED:
            self.__dict__.pop(name, None)
        history: list[dict[str, float]] = []
        best = None
        words: Schema | None = None
        rounds = self.iterate(transitions, states=states)
        for iteration in _shown(rounds, loop.n_iterations) if progress else rounds:
            schema, score = iteration.schema, _score(loop.keep, iteration)
            if history and schema != words:
                raise InvalidInputError(
                    f"features and actions must not change; at k = {iteration.k} they are {schema}."
                )
            if best is None or score is None or score > best:
                trained = replace(training, n_iterations=iteration.k + 1)
                self.policy_: Policy = described(iteration.policy, schema, trained)
                self.q_: QFunction = iteration.q
                best = score
            history.append(iteration.numbers() | ({} if score is None else {"score": score}))
            words = schema
            self.schema_, self.history_, self.roles_ = words, history, table_roles
        if "policy_" not in self.__dict__:
            raise InvalidInputError(
                "update ended the loop in the first round: there is no policy. Return a Policy at k = 0."
            )
        return self

    def predict(self, states: Any, allowed: ArrayLike | None = None) -> NDArray[Any]:
        """Return the policy's action in each state, in the caller's own labels (n,).

        Parameters
        ----------
        states : array of shape (n, d), or table, or Transitions
            A pandas, polars or Arrow table, or a mapping of columns, is read by the names of the columns that were learned from.
            A batch brings its masks.
        allowed : array of shape (n, A), optional
            The actions to choose from, if not all of them.
        """
        x, mask = self._asked(states, allowed)
        actions = self.policy_.act(x, mask)
        return actions if self.schema_ is None else self.schema_.labels_of(actions)

    def score(self, transitions: Any, y: None = None, **roles: Unpack[RoleNames]) -> float:
        """Return what the policy is worth on the episodes of a batch, estimated from these episodes alone; larger is better.

        This is `capi.offline.fitted_value`: fitted Q evaluation of ``policy_``, averaged over the first states of the episodes. It
        needs no propensities, has no importance weights that explode on a small fold, and uses the same regression and seed for
        every policy, so scores on the same batch compare. On episodes that were not learned from it serves to choose parameters.
        It is not evidence: use `capi.offline.evaluate` for that. Values under different discounts do not compare, so do not
        search over ``discount`` with this score.

        Parameters
        ----------
        transitions : Transitions, or table
            Episodes that were not learned from.
        y : None
            Takes the place of scikit-learn's targets.
        **roles
            With a table: its columns by role, as in `fit`; by default those given to `fit`.
        """
        _check_no_targets(y)
        policy, discount = self.policy_, self.loop().discount
        named: dict[str, Any] = dict(roles)
        if is_table(transitions):
            named = named or dict(self.roles_ or {})
            if self.schema_ is not None:  # features and actions as learned, not as found in this table
                named.pop("action_labels", None)
                named.setdefault("schema", self.schema_)
        return registry.score_policy(policy, batch_of(transitions, named, discount, "score"), discount)

    def _asked(self, states: Any, allowed: ArrayLike | None) -> tuple[Floats, Bools | None]:
        """Return the states (n, d) and masks (n, A) that a question is about."""
        schema, policy = self.schema_, self.policy_
        if isinstance(states, Transitions):
            states, allowed = states.states, states.allowed if allowed is None else allowed
        x = as_states(states) if schema is None else schema.states_of(states)
        return x, as_allowed(allowed, "allowed", (len(x), policy.n_actions))

    def plot_history(self) -> Figure:
        """Return a picture of loss, share of changed decisions and value by iteration; see `capi.plotting.history.draw_history`."""
        return draw_history(self.history_)

    def plot_gap(self, states: Any, allowed: ArrayLike | None = None) -> Figure:
        """Return a picture of how much the choice matters, by ``q_``; see `capi.plotting.gaps.draw_gaps`.

        Parameters
        ----------
        states : Transitions, array of shape (n, d), or table
            Where to look, such as the batch; its masks are used, too.
        allowed : array of shape (n, A), optional
            The actions to choose from in these states, if not all of them.
        """
        x, mask = self._asked(states, allowed)
        labels = None if self.schema_ is None else self.schema_.action_labels
        return draw_gaps(self.q_.values(x), mask, self.policy_.act(x, mask), labels)

    def __getattr__(self, name: str) -> Any:
        """Say what to do about learned attributes that are not there yet."""
        if name in LEARNED:
            raise not_fitted(f"this {type(self).__name__} has no {name} yet: call fit first.")
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    # -- what scikit-learn expects of an estimator's settings ----------------------------------------

    @classmethod
    def _parameter_names(cls) -> list[str]:
        return [name for name in inspect.signature(cls).parameters if name != "self"]

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the settings by name; with ``deep`` also those of the parts, such as ``evaluator__n_trees``."""
        own = {name: getattr(self, name) for name in self._parameter_names()}
        return with_nested(own) if deep else own

    def set_params(self, **params: Any) -> Self:
        """Change settings by name, also those of parts, and return self.

        Parts are frozen settings, so a part is replaced by a changed one. If a name or value is wrong, nothing changes.

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
        raise InvalidInputError(f"y must be None: a batch holds its rewards; got a {type(y).__name__}.")


def _score(keep: Any, iteration: Iteration) -> float | None:
    if not callable(keep):
        return None
    score = keep(iteration)
    if not isinstance(score, Real) or score != score:  # NaN
        raise InvalidInputError(f"keep must return a number to compare; at k = {iteration.k} it returned {score!r}.")
    return float(score)


def training_of(transitions: Any, discount: float, n_iterations: int) -> Training:
    """Return how a policy came about that was learned from ``transitions``, if they are a batch, in so many rounds."""
    if not isinstance(transitions, Transitions):
        return Training(discount, n_iterations, None, versions())
    return Training(discount, n_iterations, len(transitions), versions(), sketch(transitions.episode_hashes()))


def _shown(rounds: Iterator[Iteration], total: int) -> Iterator[Iteration]:
    """Yield ``rounds`` under a progress bar on standard error."""
    parts = rich.progress
    columns = (
        parts.BarColumn(),
        parts.MofNCompleteColumn(),
        parts.TimeRemainingColumn(),
        parts.TextColumn("{task.description}"),
    )
    with parts.Progress(*columns, console=rich.console.Console(stderr=True)) as bar:
        task = bar.add_task("", total=total)
        for iteration in rounds:
            text = f"loss {iteration.loss:.4g}, changed {iteration.changed:.1%}".replace("%", " %")
            bar.update(task, advance=1, description=text)
            yield iteration
