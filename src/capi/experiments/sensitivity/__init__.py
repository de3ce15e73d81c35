"""How the comparisons depend on what the paper does not state: one choice is changed at a time."""

from capi.experiments.sensitivity.figure import COLUMNS, claims, figures, summary, table
from capi.experiments.sensitivity.run import run
from capi.experiments.sensitivity.settings import SEEDS, settings

__all__ = ["COLUMNS", "SEEDS", "claims", "figures", "run", "settings", "summary", "table"]
