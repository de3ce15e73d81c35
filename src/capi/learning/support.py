"""`Support`: learn only among actions that the log takes often enough in similar states."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from capi._utils.parameters import Constraints, at_least, check_parameters, optional, satisfying
from capi._utils.randomness import RandomState, as_generator, shuffled_folds
from capi._utils.threads import n_threads
from capi._utils.validation import Bools, Floats, as_share, as_states
from capi.data.transitions import Transitions
from capi.errors import InvalidInputError
from capi.policies.behaviour import PROJECTIONS, ClassifiedBehaviour, ClonedBehaviour, cloned, cross_fitted
from capi.policy_spaces.supported import SupportedPolicy, often_enough
from capi.simulation.engine import check_is_policy
from capi.trees.forest import Growth, grow
from capi.trees.projections import Projections
from capi.trees.ranks import encode
from capi.trees.readable_cuts import with_readable_cuts
from capi.types import Policy

RARELY = 0.05  # probability of an action in the log below which a policy that takes it leaves the log
SMALLEST_REGION = 20  # rows of which a share is told


@dataclass(frozen=True)
class Support:
    """Which actions a policy may take in a state: those that the log takes often enough in similar states.

    An action is allowed where a model of what was done finds it at least ``threshold`` times as probable as the most probable action
    there (Fujimoto, Meger and Precup 2019 use 0.3). The masks enter evaluation and improvement alike, and the learned policy makes
    its own masks in new states. Estimates for the rows of the batch come from models that have not seen their episodes.

    Parameters
    ----------
    threshold : float in [0, 1]
        0 allows all actions, 1 only the most frequent one.
    max_depth : int, optional
        A single tree of this depth as the model, so that rules, SQL and all other exports show one tree. By default many deep trees,
        which are better models.
    classifier : scikit-learn classifier, optional
        The model, instead of trees. Policies with it cannot be saved, because files hold no code.
    projections : int
        Number of random combinations of columns that the trees may cut beside the columns themselves.
    n_folds : int
        Number of folds of episodes for the estimates on the batch.
    n_jobs : int, optional
        Number of threads; -1 is all cores. The result does not depend on it.

    Examples
    --------
    In states with x0 below 0.5 the log never takes action 1, so nothing is known about it there:

    >>> x = np.linspace(0, 1, 200)[:, None]
    >>> actions = ((np.arange(200) % 2 == 1) & (x[:, 0] > 0.5)).astype(int)
    >>> batch = Transitions(x, actions, np.zeros(200), x, np.ones(200, dtype=bool))
    >>> support = Support(0.2, max_depth=1).fit(batch)
    >>> support.allowed(np.array([[0.1], [0.9]]))
    array([[ True, False],
           [ True,  True]])
    """

    threshold: float = 0.3
    max_depth: int | None = None
    classifier: Any = None
    projections: int = PROJECTIONS
    n_folds: int = 5
    n_jobs: int | None = -1

    _constraints: ClassVar[Constraints] = {
        "threshold": as_share,
        "max_depth": optional(at_least(1)),
        "classifier": optional(
            satisfying(
                lambda c: not isinstance(c, type) and hasattr(c, "fit") and hasattr(c, "predict_proba"),
                "have the methods fit and predict_proba",
            )
        ),
        "projections": at_least(0),
        "n_folds": at_least(2),
        "n_jobs": n_threads,
    }

    def __post_init__(self) -> None:
        check_parameters(self)
        if self.max_depth is not None and self.classifier is not None:
            raise InvalidInputError("max_depth is the depth of a tree; with a classifier, omit it.")

    def fit(self, batch: Transitions, *, random_state: RandomState = 0) -> FittedSupport:
        """Return the support with its model of what was done in ``batch``."""
        if not isinstance(batch, Transitions):
            raise InvalidInputError(
                f"Support needs a fixed batch, from which it learns what was done; got {type(batch).__name__}."
            )
        seed = int(as_generator(random_state).integers(2**31))
        behaviour = cloned(
            batch,
            classifier=self.classifier,
            max_depth=self.max_depth,
            projections=self.projections,
            calibrated=False,  # as those that make the masks of the batch
            random_state=seed,
            n_jobs=self.n_jobs,
        )
        return FittedSupport(self, behaviour, seed, batch.allowed is not None)


@dataclass(frozen=True, eq=False)
class FittedSupport:
    """A model of what was done, and the masks that follow from it."""

    settings: Support
    behaviour: ClonedBehaviour | ClassifiedBehaviour
    seed: int
    masked: bool = False  # whether the batch has masks of its own

    def allowed(self, states: Floats, allowed: Bools | None = None) -> Bools:
        """Return the supported actions in new states (n, A)."""
        return often_enough(self.behaviour.probabilities(states, allowed), self.settings.threshold) & (
            True if allowed is None else allowed
        )

    def mask(self, batch: Transitions) -> Transitions:
        """Return the batch with the supported actions as ``allowed`` and ``next_allowed``; a logged action is always allowed.

        The models of a row have not seen its episode, unless the model is a small tree or there are fewer than two episodes.
        """
        here, following = self._probabilities(batch)
        masks = often_enough(here, self.settings.threshold)
        masks = masks if batch.allowed is None else masks & batch.allowed
        masks[np.arange(len(batch)), batch.actions] = True
        after = often_enough(following, self.settings.threshold)
        further = batch.next_masks()
        return batch.with_masks(masks, after if further is None else after & further)

    def _probabilities(self, batch: Transitions) -> tuple[Floats, Floats]:
        if not isinstance(batch, Transitions):
            raise InvalidInputError(f"batch must be Transitions; got {type(batch).__name__}.")
        s = self.settings
        if s.max_depth is not None or batch.n_episodes < 2:
            further = batch.next_masks()
            return (
                self.behaviour.probabilities(batch.states, batch.allowed),
                self.behaviour.probabilities(batch.next_states, further),
            )
        rng = np.random.default_rng(self.seed)
        folds = shuffled_folds(batch.n_episodes, min(s.n_folds, batch.n_episodes), rng)
        combined = None if s.classifier is not None else Projections.drawn(batch.states, s.projections, rng)
        here, following = cross_fitted(
            batch, np.repeat(folds, batch.episode_lengths), s.classifier, rng, s.n_jobs, combined, following=True
        )
        if following is None:
            raise ValueError("the next states have no probabilities")
        return here, following

    def restrict(self, policy: Policy) -> SupportedPolicy:
        """Return a policy that was learned with these masks as one that makes its own."""
        return SupportedPolicy(policy, self.behaviour, self.settings.threshold, self.masked)

    def sample(self, states: Any, name: str) -> Any:
        """Return states for `fit`, an array or (states, weights[, allowed]), with the supported actions; None as None."""
        if states is None:
            return None
        if callable(states):
            raise InvalidInputError(f"{name} must be given as an array with support, which masks them; got a function.")
        given = tuple(states) if isinstance(states, tuple) else (states,)
        x, weights, allowed = (*given, None, None)[:3]
        return as_states(x, name), weights, self.allowed(as_states(x, name), allowed)

    def leaving(self, policy: Policy, batch: Transitions) -> Floats:
        """Return, for each row, how probable it is that the policy takes an action that the log takes in less than 5 % of similar states (n,)."""
        check_is_policy(policy)
        if policy.n_actions != batch.n_actions:
            raise InvalidInputError(
                f"policy must have the {batch.n_actions} actions of the batch; it has {policy.n_actions}."
            )
        here, _ = self._probabilities(batch)
        return np.asarray((policy.probabilities(batch.states, batch.allowed) * (here < RARELY)).sum(axis=1))

    def where_leaving(self, policy: Policy, batch: Transitions, *, max_depth: int = 2) -> str:
        """Return for which share of the rows the policy leaves the log, and in which states: a small tree of shares, as text.

        Examples
        --------
        >>> from capi.policies import Constant
        >>> x = np.linspace(0, 1, 400)[:, None]
        >>> batch = Transitions(x, (x[:, 0] > 0.5).astype(int), np.zeros(400), x, np.ones(400, dtype=bool))
        >>> print(Support(max_depth=1).fit(batch).where_leaving(Constant(1, 2), batch, max_depth=1))
        The policy takes actions that the log rarely takes in 50 % of the decisions:
        if x0 <= 0.5:
          in 100 %  (50 % of the decisions)
        else:
          in 0 %  (50 % of the decisions)
        """
        left = self.leaving(policy, batch)
        weights = np.ones(len(batch)) if batch.weights is None or not batch.weights.any() else batch.weights
        total = f"The policy takes actions that the log rarely takes in {_percent(np.average(left, weights=weights))} of the decisions"
        leaf = max(SMALLEST_REGION, len(batch) // 50)
        growth = Growth(max_depth=max_depth, min_samples_split=2 * leaf, min_samples_leaf=leaf, best_cuts=True)
        forest = grow(encode(batch.states, 1), left[:, None], growth, np.random.default_rng(self.seed), weights=weights)
        tree = with_readable_cuts(forest.trees[0])
        if len(tree.counts) == 1:
            return f"{total}."
        with_missing: Bools = np.asarray(np.isnan(batch.states).any(axis=0))

        def lines(number: int, indent: str) -> Iterator[str]:
            node = tree.nodes[number]
            first, j = int(node["left"]), int(node["feature"])
            if first < 0:
                share = tree.weights[-1 - first] / weights.sum()
                yield f"{indent}in {_percent(float(tree.means[-1 - first, 0]))}  ({_percent(share)} of the decisions)"
                return
            at_most = None if np.isinf(node["threshold"]) else float(node["threshold"])
            yield f"{indent}if {batch.schema.condition(j, at_most, bool(with_missing[j] and node['missing_left']))}:"
            yield from lines(first, indent + "  ")
            yield f"{indent}else:"
            yield from lines(first + 1, indent + "  ")

        return "\n".join([f"{total}:", *lines(0, "")])


def rarely_taken(batch: Transitions, *, n_folds: int = 5, seed: int = 0, n_jobs: int | None = -1) -> Bools:
    """Return which actions the log takes in less than 5 % of similar states (n, A), by models that have not seen the row's episode."""
    rng = np.random.default_rng(seed)
    folds = shuffled_folds(batch.n_episodes, min(n_folds, batch.n_episodes), rng)
    combined = Projections.drawn(batch.states, PROJECTIONS, rng)
    here, _ = cross_fitted(batch, np.repeat(folds, batch.episode_lengths), None, rng, n_jobs, combined)
    return np.asarray(here < RARELY)


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
