"""The chain walk: a line of states with rewards at two places.

What it is: 200 states in a row; "left" and "right" move by one state, and slip with some probability; a move
off the end leaves the state unchanged. What is hard about it: most states are far from any reward, so their
action gaps are tiny, and they mislead a loss that counts all states alike.

Source: Section 5.1 of the paper, after Section 9.1 of Lagoudakis and Parr, "Least-squares policy
iteration" (2003). The paper's state 1 is state 0 here. It gives neither the success probability nor
whether the reward is that of the state or of the next state: both are arguments.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np

from capi._utils.parameters import Constraints, check_parameters, one_of, optional, word_or
from capi._utils.validation import Bools, Floats, Ints, as_discount, as_finite_step, as_floats, as_int, as_share
from capi.errors import InvalidInputError
from capi.finite.mdp import FiniteMDP

LEFT, RIGHT = 0, 1
N_STATES = 200


def _check_rewards(rewards: Any, name: str) -> None:
    if len(as_floats(rewards, name, ndim=1)) < 2:
        raise InvalidInputError(f"{name} must have at least two states.")


@dataclass(frozen=True, eq=False)
class ChainWalk:
    """The paper's chain walk, as a `Domain` and, in ``mdp``, as a `FiniteMDP`.

    =============  ===================================================================
    state          its index, 0 .. 199
    actions        0 left, 1 right
    dynamics       the intended neighbour with probability ``success``, else a slip
    reward         +1 in states 9..14; variant 1 also +0.1 in states 179..189
    start          uniform
    end            never
    =============  ===================================================================

    Parameters
    ----------
    variant : 1 or 2
        1 has both rewards, 2 only the first.
    success : float in [0, 1]
        Probability of the intended move.
    slip : "opposite", "stay" or float in [0, 1]
        Where a slip leads; a number is the share of slips that go the opposite way, while the others stay.
    reward_on : "state" or "next_state"
        The state whose reward a step earns.
    discount : float in [0, 1)
    state_rewards : sequence of S floats, optional
        Rewards of each state of another chain, instead of the variant's.

    Examples
    --------
    >>> chain = ChainWalk(variant=1, success=0.7)
    >>> chain.mdp
    FiniteMDP: 200 states, 2 actions, discount 0.99, dense
    >>> bool((chain.mdp.optimal_policy.actions[:12] == 1).all())
    True
    """

    variant: Literal[1, 2] = 1
    success: float = 0.9
    slip: Literal["opposite", "stay"] | float = "opposite"
    reward_on: Literal["state", "next_state"] = "state"
    discount: float = 0.99
    state_rewards: Sequence[float] | None = None

    n_actions = 2
    feature_names = ("state",)
    action_labels = ("left", "right")

    _constraints: ClassVar[Constraints] = {
        "variant": one_of(1, 2),
        "reward_on": one_of("state", "next_state"),
        "success": as_share,
        "discount": as_discount,
        "slip": word_or(("opposite", "stay"), as_share),
        "state_rewards": optional(_check_rewards),
    }

    def __post_init__(self) -> None:
        check_parameters(self)

    @cached_property
    def rewards(self) -> Floats:
        """The reward of each state (S,)."""
        if self.state_rewards is not None:
            return np.array(self.state_rewards, dtype=np.float64)
        rewards = np.zeros(N_STATES)
        rewards[9:15] = 1.0
        if self.variant == 1:
            rewards[179:190] = 0.1
        return rewards

    @property
    def moves(self) -> tuple[float, float, float]:
        """Probabilities of moving the intended way, of staying, and of moving the opposite way."""
        opposite = {"opposite": 1.0, "stay": 0.0}[self.slip] if isinstance(self.slip, str) else self.slip
        return self.success, (1 - self.success) * (1 - opposite), (1 - self.success) * opposite

    @cached_property
    def mdp(self) -> FiniteMDP:
        """The chain as a finite MDP."""
        S = len(self.rewards)
        x = np.arange(S)
        P = np.zeros((self.n_actions, S, S))
        for action in (LEFT, RIGHT):
            direction = -1 if action == LEFT else 1
            for probability, step in zip(self.moves, (direction, 0, -direction), strict=True):
                np.add.at(P[action], (x, np.clip(x + step, 0, S - 1)), probability)
        R = np.stack(
            [self.rewards if self.reward_on == "state" else P[a] @ self.rewards for a in (LEFT, RIGHT)], axis=1
        )
        return FiniteMDP(P, R, self.discount, action_labels=self.action_labels)

    def initial(self, n: int, rng: np.random.Generator) -> Floats:
        """Draw ``n`` states uniformly (n, 1)."""
        return rng.integers(len(self.rewards), size=as_int(n, "n", minimum=0)).astype(np.float64)[:, None]

    def step(self, states: Floats, actions: Ints, rng: np.random.Generator) -> tuple[Floats, Floats, Bools]:
        """Move each state (n, 1) by its action (n,)."""
        S = len(self.rewards)
        x, a = as_finite_step(states, actions, S, self.n_actions)
        direction = np.where(a == LEFT, -1, 1)
        forward, stay, _ = self.moves
        u = rng.random(len(x))
        factor = np.where(u < forward, 1, np.where(u < forward + stay, 0, -1))
        y = np.clip(x + factor * direction, 0, S - 1)
        earned = self.rewards[x if self.reward_on == "state" else y]
        return y.astype(np.float64)[:, None], earned, np.zeros(len(x), dtype=bool)
