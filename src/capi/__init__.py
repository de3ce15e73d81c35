"""capi: decision policies from a fixed batch of logged decisions.

Classification-based approximate policy iteration: estimate the action values of the current policy with
any evaluator, choose in a policy space the policy that loses the least value, repeat.

Names are imported when they are first used, so ``import capi`` is quick.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from capi._utils.late import lazy_exports
from capi._utils.versions import __version__ as __version__

if TYPE_CHECKING:
    from capi import baselines as baselines
    from capi import data as data
    from capi import datasets as datasets
    from capi import domains as domains
    from capi import errors as errors
    from capi import evaluators as evaluators
    from capi import experiments as experiments
    from capi import features as features
    from capi import files as files
    from capi import finite as finite
    from capi import learning as learning
    from capi import loss as loss
    from capi import offline as offline
    from capi import plotting as plotting
    from capi import policies as policies
    from capi import policy_spaces as policy_spaces
    from capi import report as report
    from capi import runs as runs
    from capi import selection as selection
    from capi import simulation as simulation
    from capi import testing as testing
    from capi import theory as theory
    from capi import trees as trees
    from capi import types as types
    from capi.data.partitions import PartitionedTransitions as PartitionedTransitions
    from capi.data.splitting import EpisodeKFold as EpisodeKFold
    from capi.data.transitions import Transitions as Transitions
    from capi.files.policy_file import load_policy as load_policy
    from capi.files.policy_file import save_policy as save_policy
    from capi.finite.mdp import FiniteMDP as FiniteMDP
    from capi.learning.capi import CAPI as CAPI
    from capi.learning.support import Support as Support
else:
    __all__, __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "CAPI": "learning.capi",
            "EpisodeKFold": "data.splitting",
            "FiniteMDP": "finite.mdp",
            "PartitionedTransitions": "data.partitions",
            "Support": "learning.support",
            "Transitions": "data.transitions",
            "load_policy": "files.policy_file",
            "save_policy": "files.policy_file",
        },
        parts=(
            "baselines",
            "data",
            "datasets",
            "domains",
            "errors",
            "evaluators",
            "experiments",
            "features",
            "files",
            "finite",
            "learning",
            "loss",
            "offline",
            "plotting",
            "policies",
            "policy_spaces",
            "report",
            "runs",
            "selection",
            "simulation",
            "testing",
            "theory",
            "trees",
            "types",
        ),
    )
