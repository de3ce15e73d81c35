"""Choices between learners, and what limits one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from capi._utils.late import lazy_exports

if TYPE_CHECKING:
    from capi.selection.candidates import Candidate as Candidate
    from capi.selection.candidates import default_candidates as default_candidates
    from capi.selection.diagnosis import Diagnosis as Diagnosis
    from capi.selection.diagnosis import diagnose as diagnose
    from capi.selection.result import Gate as Gate
    from capi.selection.result import Selection as Selection
    from capi.selection.result import Tried as Tried
    from capi.selection.scores import bellman_error as bellman_error
    from capi.selection.scores import doubly_robust as doubly_robust
    from capi.selection.scores import held_out_loss as held_out_loss
    from capi.selection.selecting import choose as choose
else:
    __all__, __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "Candidate": "candidates",
            "Diagnosis": "diagnosis",
            "Gate": "result",
            "Selection": "result",
            "Tried": "result",
            "bellman_error": "scores",
            "choose": "selecting",
            "default_candidates": "candidates",
            "diagnose": "diagnosis",
            "doubly_robust": "scores",
            "held_out_loss": "scores",
        },
    )
