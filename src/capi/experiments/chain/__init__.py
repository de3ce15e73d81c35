"""Figures "1D Chain Walk with / without Policy Approximation Error" (Section 5.1)."""

from capi.experiments.chain.figure import COLUMNS, claims, figures, summary, table
from capi.experiments.chain.run import run
from capi.experiments.chain.settings import SEEDS, SETTINGS, settings

__all__ = ["COLUMNS", "SEEDS", "SETTINGS", "claims", "figures", "run", "settings", "summary", "table"]
