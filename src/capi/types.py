"""Protocols of the library: any object with these members can be used.

    QFunction          an action-value estimate                 values
    Policy             a decision rule                          act, probabilities
    PolicyEvaluator    the paper's PolicyEval                   evaluate
    PolicySpace        the paper's Pi                           improve
    Domain             a generative model, outside the core     initial, step

Shapes: n rows, d features of a state, A actions. `capi.testing` checks all of these contracts.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from capi._utils.validation import Bools, Floats, Ints
from capi.data.transitions import Transitions
from capi.errors import InvalidInputError


@runtime_checkable
class QFunction(Protocol):
    """An action-value estimate, defined for every state."""

    @property
    def n_actions(self) -> int:
        """Number of actions, A."""

    def values(self, states: Floats) -> Floats:
        """Return Q(x, a) for all actions; ``states`` (n, d) -> (n, A)."""


@runtime_checkable
class Policy(Protocol):
    """A decision rule."""

    @property
    def n_actions(self) -> int:
        """Number of actions, A."""

    def act(self, states: Floats, allowed: Bools | None = None) -> Ints:
        """Return the most probable action in each state; ``states`` (n, d), ``allowed`` (n, A) -> (n,)."""

    def probabilities(self, states: Floats, allowed: Bools | None = None) -> Floats:
        """Return the distribution of the decision (n, A): one-hot for a deterministic policy."""


@runtime_checkable
class PolicyEvaluator(Protocol):
    """The evaluation half of CAPI: the paper's PolicyEval."""

    def evaluate(
        self,
        policy: Policy,
        transitions: Transitions | None,
        *,
        discount: float,
        states: Floats | None = None,
        previous: QFunction | None = None,
        rng: np.random.Generator | None = None,
    ) -> QFunction:
        """Return an estimate of the action values of ``policy``.

        ``transitions`` is None for evaluators that hold a model. ``states`` (n, d) are the states
        at which the improvement step needs values. ``previous`` is the estimate of the last iteration;
        None means Q = 0. ``rng=None`` means a fixed seed. Arguments are never modified.
        If ``transitions`` has ``elapsed`` times, the discount of a row is ``discount ** elapsed``
        (`capi.data.elapsed.step_factors`). A model counts each of its own steps as one unit of time.
        """


@runtime_checkable
class PolicySpace(Protocol):
    """The improvement half of CAPI: a set of policies over which a loss is minimised."""

    def improve(
        self,
        states: Floats,
        q_values: Floats,
        *,
        q: QFunction | None = None,
        previous: Policy | None = None,
        allowed: Bools | None = None,
        weights: Floats | None = None,
        rng: np.random.Generator | None = None,
    ) -> Policy:
        """Return the member with the least action-gap-weighted loss on the sample.

        ``states`` (n, d), ``q_values`` and ``allowed`` (n, A), ``weights`` (n,). ``q`` is the function
        that gave ``q_values``, ``previous`` the last policy; ``rng=None`` means a fixed seed. The loss is
        `capi.loss.gap_weighted_loss`; each space derives labels and gaps itself.
        """


@runtime_checkable
class Domain(Protocol):
    """A vectorised, stateless generative model.

    It may also have ``allowed(states) -> (n, A)``. Time limits are not part of a domain: they belong
    to sampling and to performance measurement.
    """

    @property
    def n_actions(self) -> int:
        """Number of actions, A."""

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the d columns of a state."""

    @property
    def action_labels(self) -> tuple[Any, ...]:
        """Labels of the A actions."""

    def initial(self, n: int, rng: np.random.Generator) -> Floats:
        """Draw ``n`` start states (n, d)."""

    def step(self, states: Floats, actions: Ints, rng: np.random.Generator) -> tuple[Floats, Floats, Bools]:
        """Take ``actions`` (n,) in ``states`` (n, d); return next states (n, d), rewards (n,), terminated (n,)."""


class StateSample(NamedTuple):
    """The states on which a policy is improved: a sample of nu."""

    states: Floats  # (n, d)
    weights: Floats | None = None  # (n,)
    allowed: Bools | None = None  # (n, A)

    @classmethod
    def of(cls, states: Any, name: str) -> StateSample:
        """Return what a user gave as ``name``, an array or a tuple (states, weights[, allowed]), as a sample; its parts are not yet checked."""
        if not isinstance(states, tuple):
            return cls(states)
        if not 1 <= len(states) <= 3:
            raise InvalidInputError(
                f"{name} must be an array or (states, weights, allowed); got a tuple of {len(states)}."
            )
        return cls(*states)
