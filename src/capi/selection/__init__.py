"""Choices between learners, and what limits one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from capi._utils.late import lazy_exports

if TYPE_CHECKING:
    from capi.selection.diagnosis import Diagnosis as Diagnosis
    from capi.selection.diagnosis import diagnose as diagnose
else:
    __all__, __getattr__, __dir__ = lazy_exports(__name__, {"Diagnosis": "diagnosis", "diagnose": "diagnosis"})
