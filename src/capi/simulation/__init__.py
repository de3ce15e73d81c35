"""Simulation of policies: episodes, sampled transitions, and performance."""

from __future__ import annotations

from typing import TYPE_CHECKING

from capi._utils.late import lazy_exports

if TYPE_CHECKING:
    from capi.simulation.engine import outcome as outcome
    from capi.simulation.engine import steps as steps
    from capi.simulation.returns import Performance as Performance
    from capi.simulation.returns import performance as performance
    from capi.simulation.sampling import sample_episodes as sample_episodes
    from capi.simulation.sampling import sample_steps as sample_steps
else:
    __all__, __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "Performance": "returns",
            "outcome": "engine",
            "performance": "returns",
            "sample_episodes": "sampling",
            "sample_steps": "sampling",
            "steps": "engine",
        },
    )
