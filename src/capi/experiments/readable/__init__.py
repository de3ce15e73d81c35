"""What readability costs: one small tree instead of a forest, on HIV and the pole."""

from capi.experiments.readable.figure import COLUMNS, claims, figures, summary, table
from capi.experiments.readable.run import run
from capi.experiments.readable.settings import SEEDS, settings

__all__ = ["COLUMNS", "SEEDS", "claims", "figures", "run", "settings", "summary", "table"]
