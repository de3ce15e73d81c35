"""Experiments on what the analysis claims (Section 4 and Section 6)."""

from capi.experiments.theory.figure import COLUMNS, claims, figures, summary, table
from capi.experiments.theory.run import run
from capi.experiments.theory.settings import SEEDS, settings

__all__ = ["COLUMNS", "SEEDS", "claims", "figures", "run", "settings", "summary", "table"]
