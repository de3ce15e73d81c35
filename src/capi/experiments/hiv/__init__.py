"""Figure "HIV: return against the size of policy trees" (Section 5.2)."""

from capi.experiments.hiv.figure import COLUMNS, claims, figures, summary, table
from capi.experiments.hiv.run import run
from capi.experiments.hiv.settings import SEEDS, settings

__all__ = ["COLUMNS", "SEEDS", "claims", "figures", "run", "settings", "summary", "table"]
