r"""Conservative policy iteration (Kakade and Langford 2002), as a setting of the CAPI loop.

Each round mixes a small fraction of a new policy :math:`\pi'` into the old one, :math:`\pi \leftarrow (1 - \alpha) \pi + \alpha \pi'`,
so the policies cannot oscillate in a restricted space. The fraction follows from

.. math::
    \mathbb A(\pi') &= (1 - \gamma) \sum_x d_\pi(x) \sum_a \bigl(\pi'(a|x) - \pi(a|x)\bigr) Q^\pi(x, a)   && \text{(advantage)} \\
    \eta(\pi)       &= (1 - \gamma) \sum_x \mu(x) V^\pi(x)                                            && \text{(performance)} \\
    \eta(\pi_{new}) - \eta(\pi) &\ge \frac{\alpha}{1 - \gamma} \Bigl(\mathbb A(\pi') - \frac{2 \alpha R}{1 - \gamma}\Bigr)

where :math:`d_\pi` is the policy's discounted occupancy from the start distribution :math:`\mu` (the inequality is Theorem 4.1 of
[1]_; the largest advantage in a state is at most R). The paper's values are means over discounted time, :math:`1 - \gamma` times ours.
Hence the factor in both definitions; with it, advantage, performance and R are all rewards per step. The paper's rewards lie in
:math:`[0, R]`. Adding a constant to all rewards does not change any advantage, so R is their *range*, :math:`r_{max} - r_{min}`,
whatever their sign; a process that can end earns 0 afterwards, so the range must then include 0.

The right-hand side is largest at :math:`\alpha = (1 - \gamma) \mathbb A / (4 R)`, where it is :math:`\mathbb A^2 / (8 R)` (Corollary 4.2).
If the estimate of the advantage may be wrong by :math:`\epsilon / 3`, :math:`\hat{\mathbb A} - \epsilon / 3` takes its place, and the loop
ends when :math:`\hat{\mathbb A} < 2 \epsilon / 3`. Each earlier step raises the performance, which lies within :math:`[0, R]`, by at least
:math:`\epsilon^2 / (72 R)`, so there are at most :math:`72 R^2 / \epsilon^2` steps.

.. [1] S. Kakade, J. Langford, "Approximately optimal approximate reinforcement learning", ICML 2002.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np

from capi._utils.parameters import Constraints, all_of, at_least, check_parameters, optional, satisfying
from capi._utils.randomness import RandomState
from capi._utils.row_ops import row_sum
from capi._utils.validation import as_discount, as_not_negative, as_positive, as_share, as_weights
from capi.data.elapsed import largest_discount
from capi.data.transitions import Transitions
from capi.errors import InvalidInputError
from capi.finite.mdp import FiniteMDP
from capi.learning.iteration import Iteration, Keep, Loop, own_states
from capi.learning.learner import Learner
from capi.policies import Mixture
from capi.policy_spaces._problem import ImprovementProblem, ImprovementSolver, improved
from capi.simulation.engine import check_domain, drawn_starts, masks_of, steps
from capi.types import Domain, Policy, PolicyEvaluator, PolicySpace, QFunction, StateSample


class CPI(Learner):
    r"""Conservative policy iteration (Kakade and Langford 2002): each new policy gets a small weight in a mixture.

    The states of a round are those that its policy visits: all states of a finite model, weighted by the policy's discounted
    occupancy; states of a simulator, each reached from a start state after a geometric number of steps; or, with only a batch,
    the states of the batch. With exact values and occupancies no round lowers the performance from the start states, in any
    policy space. On the states of a batch the advantage is an average over these states, so the guarantee holds as far as the
    policy stays among them.

    Parameters
    ----------
    evaluator : PolicyEvaluator
        Estimates Q of the mixture.
    space : PolicySpace
        The space that contains each round's new policy; the mixture itself need not belong to it.
    discount : float in [0, 1)
        Discount factor.
    n_iterations : int
        Maximum number of rounds.
    domain : FiniteMDP or Domain, optional
        Where the policy visits states, from ``mdp.start`` or ``domain.initial``. By default the evaluator's own ``mdp`` or
        ``domain``; if it has neither, the states of the batch are used. ``states`` given to ``fit`` replace it.
    n_states : int
        Number of episodes simulated per round to draw states. An episode that ends too early yields no state and counts as a
        state without advantage.
    epsilon : float
        Required accuracy, as a reward per step (values times 1 - discount). The loop ends when the new policy's advantage is
        below two thirds of it or, with 0, when it is not positive.
    step_size : float in (0, 1], optional
        A constant weight for each new policy. By default the weight that [1]_ proves safe, at most (1 - discount) / 4.
        Larger weights learn faster but carry no guarantee. For a batch with elapsed times below one unit it must be given.
    reward_range : float, optional
        R, the largest reward minus the smallest; if episodes can end, 0 counts as a reward. By default the range of the model
        or of the rewards in the batch; for a simulator alone it must be given. Not needed with a constant ``step_size``.
    min_weight : float in [0, 1]
        Members of the mixture with a smaller weight are dropped; by default none are.
    patience : int
        Stop after this many consecutive rounds without a step. More than one may help if each round draws new states.
    initial_policy : Policy, optional
        By default action 0 everywhere.
    random_state : int, Generator or None
        The same int gives the same policy.
    keep : "last", "best", or function of an `Iteration`
        Which policy to keep, as in `CAPI`; "best" needs a batch or an evaluator with a model.

    Notes
    -----
    ``policy_`` is a `capi.policies.Mixture`. In a finite model a policy that equals a member in all states adds to that member's
    weight; otherwise each step adds a member, and a mixture of k policies evaluates all k of them. The advantage is estimated
    on the states that were used to choose the new policy, so it is optimistic if there are few of them; [1]_ draws new states.

    References
    ----------
    .. [1] S. Kakade, J. Langford, "Approximately optimal approximate reinforcement learning", ICML 2002.

    Examples
    --------
    >>> from capi.domains import ChainWalk
    >>> from capi.evaluators import Exact
    >>> from capi.policy_spaces import Thresholds
    >>> mdp = ChainWalk(variant=2, discount=0.9).mdp
    >>> learner = CPI(Exact(mdp), Thresholds(), discount=0.9, n_iterations=50, step_size=0.2).fit()
    >>> learner.predict([[3.0], [100.0]])
    array(['right', 'left'], dtype='<U5')
    >>> mdp.performance_loss(learner.policy_) < 1e-3
    True
    """

    _constraints: ClassVar[Constraints] = {"n_states": at_least(1)}  # Loop and _SmallSteps check the others

    def __init__(
        self,
        evaluator: PolicyEvaluator,
        space: PolicySpace,
        discount: float,
        n_iterations: int = 100,
        *,
        domain: FiniteMDP | Domain | None = None,
        n_states: int = 1000,
        epsilon: float = 0.0,
        step_size: float | None = None,
        reward_range: float | None = None,
        min_weight: float = 0.0,
        patience: int = 1,
        initial_policy: Policy | None = None,
        random_state: RandomState = None,
        keep: Keep = "last",
    ) -> None:
        self.evaluator = evaluator
        self.space = space
        self.discount = discount
        self.n_iterations = n_iterations
        self.keep = keep
        self.domain = domain
        self.n_states = n_states
        self.epsilon = epsilon
        self.step_size = step_size
        self.reward_range = reward_range
        self.min_weight = min_weight
        self.patience = patience
        self.initial_policy = initial_policy
        self.random_state = random_state

    def loop(self) -> Loop:
        """Return the settings of the loop, with a space that takes only small steps."""
        check_parameters(self)
        careful = _SmallSteps(
            self.space,
            as_discount(self.discount),
            self.epsilon,
            self.step_size,
            self.reward_range,
            self.min_weight,
            self._model(),
        )
        return Loop(
            self.evaluator,
            careful,
            self.discount,
            self.n_iterations,
            initial_policy=self.initial_policy,
            random_state=self.random_state,
            patience=self.patience,
            keep=self.keep,
            sample_of=_own_shares,
        )

    def iterate(
        self, transitions: Any = None, *, states: Any = None, starts: Any = None, after: Iteration | None = None
    ) -> Iterator[Iteration]:
        """Yield each round; by default ``states`` are those that its policy visits."""
        if self.step_size is None and isinstance(transitions, Transitions):
            _check_long_steps(transitions, as_discount(self.discount))
        run = copy(self)  # with the reward range filled in
        run.reward_range = self._range_of(transitions)
        sample = self._visited() if states is None else _as_shares(states)
        return Learner.iterate(run, transitions, states=sample, starts=starts, after=after)

    def _model(self) -> Any:
        """Return the model or simulator in which the policy visits states, or None if there is none."""
        own = getattr(self.evaluator, "mdp", getattr(self.evaluator, "domain", None))
        model = own if self.domain is None else self.domain
        if model is not None:
            check_domain(model)
        return model

    def _visited(self) -> Any:
        """Return a function (k, policy, rng) that samples the policy's discounted occupancy, or None without a model."""
        model = self._model()
        if not isinstance(model, FiniteMDP):
            return None if model is None else partial(_stopped, model, self.n_states, as_discount(self.discount))
        if model.discount != self.discount:
            raise InvalidInputError(f"discount must be that of the model, {model.discount:g}; got {self.discount!r}.")
        return partial(_occupied, model)

    def _range_of(self, transitions: Any) -> float | None:
        """Return R as given, or of the model, or of the batch; None if a constant step makes it unnecessary."""
        if self.reward_range is not None or self.step_size is not None:
            return self.reward_range
        model = self._model()
        if isinstance(model, FiniteMDP):
            return float(np.ptp(model.rewards))
        if isinstance(transitions, Transitions):
            end = [0.0] if transitions.terminated.any() else []
            return float(np.ptp(np.append(transitions.rewards, end)))
        raise InvalidInputError(
            "reward_range must be given: there is neither a finite model nor a fixed batch to take it from. "
            "Pass the largest reward minus the smallest, or a constant step_size."
        )


@dataclass(frozen=True, eq=False)
class _SmallSteps(ImprovementSolver[Policy]):
    """A policy space whose improvement is only a small step from the old policy towards the best member.

    It is a space and not an `Update`, because the size of the step depends on the weights and masks of the sample. The
    weights are fractions of the policy's time: if they sum to less than one, the rest counts as time without advantage.
    """

    space: PolicySpace
    discount: float
    epsilon: float
    step_size: float | None
    reward_range: float | None
    min_weight: float = 0.0
    model: Any = None

    starts_from_previous: ClassVar[bool] = True  # so the policy is not that of one improvement
    _constraints: ClassVar[Constraints] = {
        "space": satisfying(
            lambda space: isinstance(space, PolicySpace) and not isinstance(space, type), "have the method improve"
        ),
        "epsilon": as_not_negative,
        "step_size": optional(all_of(as_positive, as_share)),
        "reward_range": optional(as_not_negative),
        "min_weight": as_share,
    }

    def __post_init__(self) -> None:
        check_parameters(self)

    def solve(
        self,
        problem: ImprovementProblem,
        *,
        q: QFunction | None = None,
        previous: Policy | None = None,
        rng: np.random.Generator | None = None,
    ) -> Policy:
        """Return the old policy mixed with the best new one, or unchanged if that one's advantage is too small."""
        if previous is None:
            raise InvalidInputError("previous must be given: it is the policy that the step starts from.")
        last = previous.policies[-1] if isinstance(previous, Mixture) else previous  # the space's own last policy
        new = improved(self.space, problem, q=q, previous=last, rng=rng)
        sample = problem.states, problem.allowed
        towards = new.probabilities(*sample) - previous.probabilities(*sample)  # (n, A)
        gains = row_sum(towards, problem.values)
        advantage = gains.mean() if problem.weights is None else problem.weights @ gains
        step = self.step((1 - self.discount) * float(advantage))
        if step == 0:
            return previous
        return new if step == 1 else self._mixed(previous, new, step)

    def step(self, advantage: float) -> float:
        """Return alpha for the estimated advantage of a new policy; 0 means no step."""
        if advantage <= 0 or advantage < 2 * self.epsilon / 3:
            return 0.0
        if self.step_size is not None:
            return self.step_size
        if not self.reward_range:  # all rewards are equal, so the advantage is a rounding error
            return 0.0
        return min((1 - self.discount) * (advantage - self.epsilon / 3) / (4 * self.reward_range), 1.0)

    def _mixed(self, old: Policy, new: Policy, step: float) -> Mixture:
        """Return the old policy mixed with the new one, whose weight goes to an equal member if there is one."""
        mixture = Mixture([old, new], np.array([1 - step, step]))
        members, weights = list(mixture.policies), mixture.weights.copy()
        if isinstance(self.model, FiniteMDP):
            decisions = [policy.probabilities(self.model.states) for policy in members]
            same = [np.array_equal(table, decisions[-1]) for table in decisions].index(True)
            if same < len(members) - 1:
                weights[same] += weights[-1]
                members, weights = members[:-1], weights[:-1]
        return Mixture(members, weights, min_weight=self.min_weight)


def _occupied(mdp: FiniteMDP, k: int, policy: Policy, rng: np.random.Generator) -> StateSample:  # noqa: ARG001
    """Return all states, weighted by the policy's discounted occupancy."""
    return StateSample(mdp.states, mdp.discounted_occupancy(policy))


def _stopped(
    domain: Domain,
    n: int,
    discount: float,
    k: int,  # noqa: ARG001
    policy: Policy,
    rng: np.random.Generator,
) -> StateSample:
    """Return a sample of the occupancy: the last states of ``n`` episodes that stop with probability 1 - discount per step."""
    x, found = drawn_starts(domain, n, rng), []
    while len(x):
        stops = rng.random(len(x)) >= discount
        found.append(x[stops])
        if stops.all():
            break
        (step,) = steps(policy, domain, x[~stops], 1, rng)
        x = step.next_states[~step.terminated]
    states = np.concatenate(found)
    if not len(states):
        raise InvalidInputError(
            f"n_states must be larger: all {n} episodes terminated before a state could be drawn from them."
        )
    return StateSample(states, np.full(len(states), 1 / n), masks_of(domain, states))


def _as_shares(states: Any) -> Any:
    """Return the sample, or the function that draws it, with weights normalised to sum to one."""
    if callable(states):
        return lambda k, policy, rng: _as_shares(states(k, policy, rng))
    if not isinstance(states, tuple) or len(states) < 2 or states[1] is None:
        return states
    weights = as_weights(states[1], "weights", np.size(states[1]))
    return (states[0], weights if weights is None else weights / weights.sum(), *states[2:])


def _check_long_steps(batch: Transitions, discount: float) -> None:
    """Refuse steps that are discounted less than the proof of the safe weight assumes."""
    if batch.elapsed is not None and largest_discount(batch, discount) > discount:
        raise InvalidInputError(
            "step_size must be given: the safe weight holds for steps of at least one unit of time, and this batch has shorter ones "
            f"(down to {batch.elapsed.min():.3g}). Pass step_size, or a smaller discount_per with a larger discount."
        )


def _own_shares(batch: Transitions) -> StateSample:
    return StateSample(*_as_shares(own_states(batch)))
