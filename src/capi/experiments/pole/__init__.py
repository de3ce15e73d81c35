"""Figure "Pole balancing: performance against the number of samples" (appendix)."""

from capi.experiments.pole.figure import COLUMNS, claims, figures, notes, summary, table
from capi.experiments.pole.run import run
from capi.experiments.pole.settings import SEEDS, settings

__all__ = ["COLUMNS", "SEEDS", "claims", "figures", "notes", "run", "settings", "summary", "table"]
