"""How few patients are enough: return on HIV against the number of episodes in the log, with and without selection."""

from capi.experiments.patients.figure import COLUMNS, claims, figures, summary, table
from capi.experiments.patients.run import run
from capi.experiments.patients.settings import SEEDS, settings

__all__ = ["COLUMNS", "SEEDS", "claims", "figures", "run", "settings", "summary", "table"]
