"""Finite Markov decision processes with a known model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from capi._utils.late import lazy_exports

if TYPE_CHECKING:
    from capi.finite.mdp import FiniteMDP as FiniteMDP
    from capi.finite.mdp import TabularQ as TabularQ
else:
    __all__, __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "FiniteMDP": "mdp",
            "TabularQ": "mdp",
        },
    )
