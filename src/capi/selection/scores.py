"""Scores of policies and action values on episodes that they were not learned from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from capi._utils.randomness import RandomState, as_generator, shuffled_folds
from capi._utils.row_ops import chosen_entries
from capi._utils.threads import n_threads
from capi._utils.validation import Floats, as_array, as_discount, check_rows, check_shape
from capi.data.transitions import Transitions
from capi.errors import InvalidInputError
from capi.evaluators._sweeps import bellman_targets
from capi.offline.episodes import Episodes
from capi.offline.importance_weights import Weights, enough_overlap
from capi.policies import decided, value_of
from capi.policy_spaces._problem import ImprovementProblem
from capi.simulation.engine import check_is_policy
from capi.trees.forest import Growth, grow
from capi.trees.ranks import encode
from capi.types import Policy, QFunction

N_TREES, LEAF = 60, 5  # of the regression that estimates the noise of Bellman targets
N_FOLDS = 5
SMALLEST = 1e-3  # probability of a logged action that a weight divides by


def bellman_error(
    q: QFunction,
    policy: Policy,
    batch: Transitions,
    *,
    discount: float,
    corrected: bool = True,
    random_state: RandomState = 0,
    n_jobs: int | None = None,
) -> float:
    r"""Return the mean squared Bellman error of ``q`` under ``policy`` on episodes that it was not learned from.

    The plain mean of :math:`(Q(X, A) - R - \gamma Q(X', \pi))^2` also contains the variance of the targets, which is smaller for flat
    value functions, so it prefers them. With ``corrected`` that variance is estimated, by a regression of the targets that is
    cross-fitted over episodes, and subtracted (as in BErMin: Farahmand and Szepesvári 2011). The result may be slightly negative.

    Parameters
    ----------
    q : QFunction
    policy : Policy
        The policy whose values ``q`` should be.
    batch : Transitions
        Other episodes than those that ``q`` was learned from.
    discount : float in [0, 1)
    corrected : bool
        Whether to subtract the variance of the targets.
    random_state : int, Generator or None
    n_jobs : int, optional
        Number of threads; the result does not depend on it.

    Examples
    --------
    >>> from capi.evaluators import FittedQ
    >>> from capi.policies import Constant
    >>> from capi.testing import random_batch
    >>> first, second = random_batch().split(0.5, random_state=0)
    >>> q = FittedQ(min_samples_split=20, n_sweeps=20).evaluate(Constant(0, 3), first, discount=0.5)
    >>> plain = bellman_error(q, Constant(0, 3), second, discount=0.5, corrected=False)
    >>> bellman_error(q, Constant(0, 3), second, discount=0.5) < plain
    True
    """
    _check_parts(q, policy, batch)
    following = value_of(decided(policy, batch.next_states, batch.next_masks()), q.values(batch.next_states))
    targets = bellman_targets(batch, as_discount(discount), following)
    mine = np.take_along_axis(q.values(batch.states), batch.actions[:, None], axis=1)[:, 0]
    plain = np.square(mine - targets)
    if not corrected:
        return float(np.average(plain, weights=batch.weights))
    noise = np.square(targets - _regressed(batch, targets, as_generator(random_state), n_threads(n_jobs)))
    return float(np.average(plain - noise, weights=batch.weights))


def held_out_loss(policy: Policy, q: QFunction, batch: Transitions) -> float:
    """Return the gap-weighted loss of a policy in the states of other episodes.

    Parameters
    ----------
    policy : Policy
    q : QFunction
        The values of a learner that has not seen these episodes, nor those that the policy was learned from.
    batch : Transitions
        Other episodes.
    """
    _check_parts(q, policy, batch)
    problem = ImprovementProblem.of(batch.states, q.values(batch.states), weights=batch.weights, allowed=batch.allowed)
    return problem.loss_of(decided(policy, batch.states, batch.allowed))


@dataclass(frozen=True, eq=False)
class RobustValue:
    """A doubly robust value of a policy.

    Parameters
    ----------
    value : float
        Mean discounted return from the first states of the episodes.
    of_episodes : array of shape (E,)
        How much each episode differs from it.
    effective_episodes : float
        Kish's effective number of episodes of the importance weights.
    """

    value: float
    of_episodes: Floats
    effective_episodes: float

    @property
    def overlaps(self) -> bool:
        """Whether policy and log overlap enough for this value to be used."""
        return enough_overlap(self.effective_episodes, len(self.of_episodes))


def doubly_robust(
    policy: Policy, q: QFunction | None, batch: Transitions, logged: Floats, *, discount: float
) -> RobustValue:
    r"""Return the value of a policy on other episodes than those that ``q`` and the policy were learned from.

    For each episode :math:`\hat V(X_0) + \sum_t \gamma^t w_t (R_t + \gamma \hat V(X_{t+1}) - \hat Q(X_t, A_t))` with the importance weights
    :math:`w_t` (Jiang and Li 2016): right in the mean if either the probabilities of the log or the values are.

    Parameters
    ----------
    policy : Policy
    q : QFunction or None
        Its values; None counts them as zero, which is importance sampling.
    batch : Transitions
        Other episodes, with the same weight in all rows of an episode.
    logged : array of shape (n,) or (n, A)
        Probabilities with which the log took its actions, or with which it takes any action in these states.
    discount : float in [0, 1)

    Examples
    --------
    >>> from capi.policies import Constant
    >>> batch = Transitions([[0.0]] * 20, [0, 1] * 10, [0.0, 1.0] * 10, [[0.0]] * 20, [True] * 20)
    >>> doubly_robust(Constant(1, 2), None, batch, np.full(20, 0.5), discount=0.9).value
    1.0
    """
    check_is_policy(policy)
    _check_batch(batch)
    probabilities = as_array(logged, "logged").astype(np.float64)
    shape = (len(batch),) if probabilities.ndim == 1 else (len(batch), batch.n_actions)
    check_shape(probabilities, "logged", shape, "the batch")
    fine = (probabilities >= 0) & (probabilities <= 1)
    check_rows(
        fine if fine.ndim == 1 else fine.all(axis=1), probabilities, "logged", "must be probabilities, from 0 to 1"
    )
    _check_whole_episodes(batch)
    taken = probabilities if probabilities.ndim == 1 else chosen_entries(probabilities, batch.actions)
    mine = policy.probabilities(batch.states, batch.allowed)
    ratios = chosen_entries(mine, batch.actions) / np.maximum(taken, SMALLEST)
    episodes = Episodes(batch, as_discount(discount))
    weights = Weights(episodes, ratios)
    here = np.zeros((len(batch), batch.n_actions)) if q is None else q.values(batch.states)
    after = (
        np.zeros(len(batch))
        if q is None
        else value_of(decided(policy, batch.next_states, batch.next_masks()), q.values(batch.next_states))
    )
    surprises = bellman_targets(batch, episodes.discount, after) - chosen_entries(here, batch.actions)
    first = (mine * np.where(mine > 0, here, 0.0)).sum(axis=1)[episodes.starts]
    with np.errstate(over="ignore", invalid="ignore"):
        of = first + np.bincount(episodes.of_row, episodes.worth * weights.of_rows * surprises)
    value = float(np.average(of, weights=episodes.weights))
    return RobustValue(value, of - value, weights.effective_episodes)


def _check_parts(q: Any, policy: Any, batch: Any) -> None:
    _check_batch(batch)
    check_is_policy(policy)
    if isinstance(q, type) or not isinstance(q, QFunction):
        raise InvalidInputError(f"q must be a QFunction (n_actions, values); got {q!r}.")


def _check_batch(batch: Any) -> None:
    if not isinstance(batch, Transitions):
        raise InvalidInputError(f"batch must be Transitions; got {type(batch).__name__}.")


def _check_whole_episodes(batch: Transitions) -> None:
    w = batch.weights
    if w is not None and not np.array_equal(w, np.repeat(w[batch.episode_starts], batch.episode_lengths)):
        raise InvalidInputError("the weights of a batch must be the same in all rows of an episode, which they count.")


def _regressed(batch: Transitions, targets: Floats, rng: np.random.Generator, n_jobs: int) -> Floats:
    """Return an estimate of the mean target in each row's state and action, from other episodes (n,)."""
    n_folds = min(N_FOLDS, batch.n_episodes)
    if n_folds < 2:
        raise InvalidInputError("the corrected Bellman error needs at least two episodes; this batch has one.")
    fold = np.repeat(shuffled_folds(batch.n_episodes, n_folds, rng), batch.episode_lengths)
    found, counts = np.zeros(len(batch)), np.ones(len(batch)) if batch.weights is None else batch.weights
    for k in range(n_folds):
        for a in range(batch.n_actions):
            asked = np.flatnonzero((fold == k) & (batch.actions == a))
            known = np.flatnonzero((fold != k) & (batch.actions == a) & (counts > 0))
            if not len(asked):
                continue
            if not len(known):
                found[asked] = targets[(fold != k) & (counts > 0)].mean()
                continue
            growth = Growth(n_trees=N_TREES, min_samples_split=2 * LEAF, min_samples_leaf=LEAF)
            inputs = encode(batch.states[known], n_jobs)
            forest = grow(inputs, targets[known, None], growth, rng, weights=counts[known], n_jobs=n_jobs)
            found[asked] = forest.mean_values(batch.states[asked], n_jobs)[:, 0]
    return found
