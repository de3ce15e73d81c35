r"""Lower bounds of action values: :math:`\hat Q(x, a) - \kappa\,\hat\sigma(x, a)`, where :math:`\hat\sigma` says how uncertain the batch leaves Q.

A policy that is greedy in estimates prefers actions whose values are overestimated, and those are the rarely tried ones. If the penalty
covers the error of the estimate, a policy that is greedy in the lower bounds loses only what the best policy's own
actions are uncertain about, whatever the batch says about all others (Jin, Yang and Wang 2021).
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

import numpy as np

from capi._utils.late import sklearn
from capi._utils.parameters import Constraints, at_least, check_parameters, one_of, satisfying
from capi._utils.randomness import as_generator, numbered_rng
from capi._utils.validation import Floats, as_not_negative
from capi.data.transitions import Transitions
from capi.errors import InvalidInputError
from capi.evaluators._batches import batch_for
from capi.evaluators.boosted_q import BoostedQ
from capi.evaluators.fitted_q import FittedQ
from capi.evaluators.fitted_values import FittedValues
from capi.types import Policy, PolicyEvaluator, QFunction

MOST_DRAWS = 100  # until every action is taken, for evaluators that need that
LARGEST_SEED = 2**53  # whole numbers up to here survive JSON


@dataclass(frozen=True, eq=False)
class PessimisticValues:
    """Lower bounds of action values: those of the wrapped evaluator, less ``kappa`` times their spread."""

    mean: Any  # the Q of the wrapped evaluator
    models: tuple[Any, ...] = field(repr=False)  # the Qs of further evaluations; none for the spread over trees
    kappa: float
    spread: str
    seed: int  # of the resamples
    batch: Transitions | None = field(default=None, repr=False)  # None: loaded from a file
    resamples: tuple[Transitions, ...] = field(default=(), repr=False)  # one per model

    @property
    def n_actions(self) -> int:
        """Number of actions, A."""
        n: int = self.mean.n_actions
        return n

    def values(self, states: Floats) -> Floats:
        """Return the lower bounds for all actions; ``states`` (n, d) -> (n, A)."""
        values: Floats = self.mean.values(states)
        return values if self.kappa == 0 else values - self.kappa * self.spreads(states)

    def spreads(self, states: Floats) -> Floats:
        """Return how uncertain the values are; ``states`` (n, d) -> (n, A)."""
        if self.spread == "trees":
            return self.mean.spread_of_trees(states)
        values = [model.values(states) for model in self.models]
        if self.spread == "halves":
            return np.abs(values[0] - values[1]) / 2
        return np.std(values, axis=0, ddof=1)

    def under(self, values_of: Callable[[Any, Transitions], Any]) -> PessimisticValues:
        """Return the lower bounds with each Q replaced by ``values_of`` it and its batch."""
        models = [values_of(model, own) for model, own in zip(self.models, self.resamples, strict=True)]
        return replace(self, mean=values_of(self.mean, self.batch), models=tuple(models))  # type: ignore[arg-type]


@dataclass(frozen=True)
class Pessimistic:
    """An evaluator that returns lower bounds, so that policies avoid actions whose values the batch leaves uncertain.

    The bounds are the values of another evaluator less ``kappa`` times their spread. Pessimism enters where policies are improved: every
    Q is evaluated under the policy without a penalty, so with "bootstrap" and "halves" the spread contains the uncertainty of all
    later steps, too. The value that `CAPI` reports for a round is a mean of lower bounds; ``keep="best"``, ``state_weights`` and ``accept``
    use the wrapped evaluator's own values.

    Parameters
    ----------
    evaluator : PolicyEvaluator
        The evaluator whose values are lowered. It must learn from a batch.
    kappa : float
        Number of spreads that are subtracted; 0 gives the values of ``evaluator``.
    spread : "bootstrap", "halves" or "trees"
        "bootstrap": the standard deviation over ``n_models`` further evaluations, each on as many episodes, drawn with replacement; the
        evaluator must use the weights of rows. "halves": half of the difference of two evaluations, each on
        half of the episodes. "trees": the standard deviation over the trees of a `FittedQ` with its own trees, which costs no evaluation; it
        shows how much the cuts of the trees matter, not how much the rewards of the same rows vary.
    n_models : int
        Number of further evaluations for "bootstrap", at least 2. An evaluation takes ``1 + n_models`` times as long.

    Notes
    -----
    All rounds of a run use the same resamples, and each model continues from its own previous Q, on its own trees. An evaluator of your own
    that uses ``transitions.weights`` says so with the class attribute ``uses_weights = True``.

    References
    ----------
    .. [1] Y. Jin, Z. Yang, Z. Wang, "Is pessimism provably efficient for offline RL?", ICML 2021.

    Examples
    --------
    >>> from capi.evaluators import FittedQ
    >>> from capi.policies import Constant
    >>> from capi.testing import random_batch
    >>> batch = random_batch()
    >>> q = Pessimistic(FittedQ(n_trees=10), kappa=1.0).evaluate(Constant(0, 3), batch, discount=0.9)
    >>> bool((q.values(batch.states) <= q.mean.values(batch.states)).all())
    True
    """

    evaluator: PolicyEvaluator
    kappa: float = 1.0
    spread: Literal["bootstrap", "halves", "trees"] = "bootstrap"
    n_models: int = 5

    uses_weights: ClassVar[bool] = True
    _constraints: ClassVar[Constraints] = {
        "evaluator": satisfying(
            lambda part: isinstance(part, PolicyEvaluator) and not isinstance(part, type), "have the method evaluate"
        ),
        "kappa": as_not_negative,
        "spread": one_of("bootstrap", "halves", "trees"),
        "n_models": at_least(2),
    }

    def __post_init__(self) -> None:
        check_parameters(self)
        name = type(self.evaluator).__name__
        if isinstance(self.evaluator, Pessimistic):
            raise InvalidInputError("evaluator must not be pessimistic itself. Raise kappa instead.")
        if hasattr(self.evaluator, "mdp") or hasattr(self.evaluator, "domain"):
            raise InvalidInputError(
                f"evaluator must learn from a batch, whose episodes show how uncertain its values are; {name} has a model or a "
                "simulator. Use it without Pessimistic."
            )
        own_trees = isinstance(self.evaluator, FittedQ) and self.evaluator.regressor is None
        if self.spread == "trees" and not (own_trees and self.evaluator.n_trees > 1):  # type: ignore[attr-defined]
            raise InvalidInputError(
                f"spread='trees' needs FittedQ with at least two trees of its own; got {self.evaluator!r}. Use spread='bootstrap'."
            )
        if self.spread == "bootstrap" and not _uses_weights(self.evaluator):
            raise InvalidInputError(
                f"spread='bootstrap' needs an evaluator that uses the weights of rows; {name} does not say that it does. Use "
                "spread='halves', or, if it does, set the attribute uses_weights = True of its class."
            )

    def evaluate(
        self,
        policy: Policy,
        transitions: Transitions | None,
        *,
        discount: float,
        states: Floats | None = None,
        previous: QFunction | None = None,
        rng: np.random.Generator | None = None,
    ) -> PessimisticValues:
        """Return lower bounds of Q; those of ``previous`` continue, each model from its own."""
        t = batch_for(transitions, policy, "Pessimistic")
        generator = as_generator(0 if rng is None else rng)
        old = previous if isinstance(previous, PessimisticValues) else None

        def evaluated(batch: Transitions, q: QFunction | None, stream: np.random.Generator) -> QFunction:
            return self.evaluator.evaluate(policy, batch, discount=discount, states=states, previous=q, rng=stream)

        mean = evaluated(t, previous if old is None else old.mean, generator)
        more = deepcopy(generator)  # what the wrapped evaluator draws does not depend on the other models
        seed = int(more.integers(LARGEST_SEED)) if old is None else old.seed
        n = {"bootstrap": self.n_models, "halves": 2, "trees": 0}[self.spread]
        known = old is not None and old.batch is t and old.spread == self.spread and len(old.resamples) == n
        resamples = old.resamples if old is not None and known else self._resamples(t, seed)
        earlier = (
            old.models if old is not None and len(old.models) == n else [previous if old is None else old.mean] * n
        )
        parts = zip(resamples, earlier, more.spawn(n), strict=True)
        return PessimisticValues(
            mean, tuple(evaluated(*part) for part in parts), float(self.kappa), self.spread, seed, t, resamples
        )

    def restored(self, q: PessimisticValues, transitions: Transitions) -> PessimisticValues:
        """Return ``q``, loaded from a file, with what later evaluations need; they then give the same bytes as without the file."""
        resamples = self._resamples(transitions, q.seed)
        if len(resamples) != len(q.models) or q.spread != self.spread:
            raise InvalidInputError(
                f"q must fit these settings, with {len(resamples)} models for the spread {self.spread!r}; it has "
                f"{len(q.models)} for {q.spread!r}."
            )

        def whole(model: Any, batch: Transitions) -> Any:
            if isinstance(model, FittedValues) and isinstance(self.evaluator, FittedQ):
                return self.evaluator.restored(model, batch, model.age, model.n_sweeps)
            return model

        return replace(q, batch=transitions, resamples=resamples).under(whole)

    def _resamples(self, t: Transitions, seed: int) -> tuple[Transitions, ...]:
        """Return the batches of the further models, which depend only on the batch and ``seed``."""
        if self.spread == "trees":
            return ()
        if t.n_episodes < 2:
            raise InvalidInputError(
                f"spread={self.spread!r} needs at least two episodes; this batch has {t.n_episodes}. Use spread='trees'."
            )
        seeds = np.random.SeedSequence(seed)
        if self.spread == "bootstrap":
            return tuple(self._drawn(t, numbered_rng(seeds, b), _bootstrapped)[0] for b in range(self.n_models))
        return self._drawn(t, numbered_rng(seeds, 0), _halves)

    def _drawn(
        self, t: Transitions, rng: np.random.Generator, draw: Callable[..., tuple[Transitions, ...]]
    ) -> tuple[Transitions, ...]:
        """Return batches that ``draw`` makes; most evaluators need every action in each of them."""
        if isinstance(self.evaluator, FittedQ | BoostedQ):
            return draw(t, rng)
        for _ in range(MOST_DRAWS):
            drawn = draw(t, rng)
            if all(map(_takes_all_actions, drawn)):
                break
        return drawn


def _bootstrapped(t: Transitions, rng: np.random.Generator) -> tuple[Transitions, ...]:
    """Return a batch whose weights count how often each episode was drawn."""
    n = t.n_episodes
    counts = np.bincount(rng.integers(n, size=n), minlength=n).astype(np.float64)
    weights = np.repeat(counts, t.episode_lengths)
    weights = weights if t.weights is None else weights * t.weights
    if not weights.any():
        return _bootstrapped(t, rng)
    return (t._with({"weights": weights}),)


def _halves(t: Transitions, rng: np.random.Generator) -> tuple[Transitions, ...]:
    """Return two batches of half of the episodes each."""
    return t.split(0.5, random_state=rng)


def _takes_all_actions(t: Transitions) -> bool:
    return bool(np.bincount(t.actions, weights=t.weights, minlength=t.n_actions).all())


def _uses_weights(evaluator: Any) -> bool:
    regressor = getattr(evaluator, "regressor", None)
    if regressor is not None:
        last = regressor.steps[-1][1] if hasattr(regressor, "steps") else regressor
        return bool(sklearn.utils.validation.has_fit_parameter(last, "sample_weight"))
    return bool(getattr(evaluator, "uses_weights", False))
