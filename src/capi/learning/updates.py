"""Ready-made functions for ``CAPI(update=...)``, which combine the old and the new policy of a round."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from capi._utils.parameters import Constraints, check_parameters, instance_of, optional
from capi._utils.validation import Floats, is_real
from capi.errors import InvalidInputError
from capi.policies import Mixture
from capi.types import Policy, QFunction


def _below_one(value: Any, name: str) -> None:
    if not is_real(value) or not 0 <= value < 1:
        raise InvalidInputError(f"{name} must lie in [0, 1), because with 1 nothing would be learned; got {value!r}.")


@dataclass(frozen=True, eq=False)
class NearLog:
    r"""Keep every policy near the one that made the log: :math:`(1 - s)\,\pi_{\text{new}} + s\,b`, with b the behaviour policy and s the share.

    The loop evaluates this mixture, so a policy is chosen for what it is worth if a share of the decisions stays as it was. In every
    state the total variation between the mixture and b is at most :math:`1 - s`, and the Kullback-Leibler divergence of the mixture
    from b, :math:`KL(b \| \pi)`, at most :math:`-\log s`. The aim is that of behaviour regularisation [1]_, which penalises a divergence; here the
    distance is bounded by construction, and nothing needs tuning but the share.

    Parameters
    ----------
    behaviour : Policy, optional
        The policy to stay near, over the actions of the batch; by default `capi.policies.cloned` of the batch that is learned from.
    share : float in [0, 1)
        The share of decisions that the behaviour policy makes; 0 gives the new policy itself.

    Notes
    -----
    ``policy_`` is a `capi.policies.Mixture`: draw decisions from its ``probabilities``. ``predict`` returns its most probable action, which for
    a share below one half is mostly that of the new policy. The first round evaluates the initial policy, which is not mixed.

    References
    ----------
    .. [1] Y. Wu, G. Tucker, O. Nachum, "Behavior regularized offline reinforcement learning", arXiv:1911.11361, 2019.

    Examples
    --------
    >>> from capi import CAPI
    >>> from capi.evaluators import FittedQ
    >>> from capi.policies import one_hot
    >>> from capi.policy_spaces import Trees
    >>> from capi.testing import random_batch
    >>> batch = random_batch()
    >>> clone = Trees(max_depth=2).improve(batch.states, one_hot(batch.actions, batch.n_actions))
    >>> learner = CAPI(FittedQ(n_trees=5), Trees(), 0.9, 3, update=NearLog(clone, 0.25), random_state=0).fit(batch)
    >>> learner.policy_.weights
    array([0.75, 0.25])
    """

    behaviour: Policy | None
    share: float

    _constraints: ClassVar[Constraints] = {
        "behaviour": optional(instance_of(Policy, "a Policy (act, probabilities, n_actions)")),
        "share": _below_one,
    }

    def __post_init__(self) -> None:
        check_parameters(self)

    def __call__(
        self,
        old: Policy,  # noqa: ARG002  the arguments of an update
        new: Policy,
        *,
        q: QFunction,  # noqa: ARG002
        states: Floats,  # noqa: ARG002
        k: int,  # noqa: ARG002
    ) -> Policy:
        """Return the mixture of the new and the behaviour policy."""
        if self.share == 0:
            return new
        if self.behaviour is None:
            raise InvalidInputError(
                "NearLog without behaviour must be the update of a CAPI, which learns what was done from its batch."
            )
        return Mixture([new, self.behaviour], np.array([1 - self.share, self.share]))
