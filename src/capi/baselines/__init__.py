"""Baseline algorithms for comparison, written as settings of the CAPI loop.

Policy iteration by plain classification, which gives every state the same weight however much value is at stake, has no class
of its own: it is `CAPI` with the 0/1 loss. In the space of all policies the loss makes no difference, since one policy is best
in each state. In a restricted space it does. Here three states must share one action, and the two in which little is at stake
outvote the third:

>>> from capi import CAPI, FiniteMDP
>>> from capi.evaluators import Exact
>>> from capi.policy_spaces import Partition
>>> mdp = FiniteMDP(P=[[[1 / 3] * 3] * 3] * 2, R=[[1.0, 0.0], [1.0, 0.0], [0.0, 9.0]], discount=0.5)
>>> everywhere = Partition(lambda states: 0 * states[:, 0])
>>> for loss in ("gap", "zero-one"):
...     learner = CAPI(Exact(mdp), everywhere, discount=0.5, n_iterations=3, loss=loss).fit()
...     print(f"{loss}: loses {mdp.performance_loss(learner.policy_):.3f}")
gap: loses 1.333
zero-one: loses 6.000
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from capi._utils.late import lazy_exports

if TYPE_CHECKING:
    from capi.baselines.cpi import CPI as CPI
    from capi.baselines.dpi import DPI as DPI
    from capi.baselines.dpi import DPICritic as DPICritic
    from capi.baselines.dynamic_programming import ModifiedPolicyIteration as ModifiedPolicyIteration
    from capi.baselines.dynamic_programming import PolicyIteration as PolicyIteration
    from capi.baselines.dynamic_programming import ValueIteration as ValueIteration
    from capi.baselines.fitted_q_iteration import RFQI as RFQI
    from capi.baselines.fitted_q_iteration import FittedQIteration as FittedQIteration
    from capi.baselines.lspi import LSPI as LSPI
    from capi.baselines.online_rollout import OnlineRollout as OnlineRollout
    from capi.baselines.psdp import PSDP as PSDP
else:
    __all__, __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "CPI": "cpi",
            "DPI": "dpi",
            "LSPI": "lspi",
            "PSDP": "psdp",
            "RFQI": "fitted_q_iteration",
            "DPICritic": "dpi",
            "FittedQIteration": "fitted_q_iteration",
            "ModifiedPolicyIteration": "dynamic_programming",
            "OnlineRollout": "online_rollout",
            "PolicyIteration": "dynamic_programming",
            "ValueIteration": "dynamic_programming",
        },
    )
