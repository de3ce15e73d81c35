"""The learning loop: evaluate the policy, improve it, repeat."""

from __future__ import annotations

from typing import TYPE_CHECKING

from capi._utils.late import lazy_exports

if TYPE_CHECKING:
    from capi.learning.capi import CAPI as CAPI
    from capi.learning.iteration import Iteration as Iteration
    from capi.learning.learner import Learner as Learner
    from capi.learning.state_choice import ImportantStates as ImportantStates
    from capi.learning.state_choice import UncertainStates as UncertainStates
    from capi.learning.support import FittedSupport as FittedSupport
    from capi.learning.support import Support as Support
    from capi.learning.updates import NearLog as NearLog
else:
    __all__, __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "CAPI": "capi",
            "FittedSupport": "support",
            "ImportantStates": "state_choice",
            "Iteration": "iteration",
            "Learner": "learner",
            "Support": "support",
            "NearLog": "updates",
            "UncertainStates": "state_choice",
        },
    )
