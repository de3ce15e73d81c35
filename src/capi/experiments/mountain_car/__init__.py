"""Figures "Mountain-Car: steps and return against the number of samples" and "against kappa" (appendix)."""

from capi.experiments.mountain_car.figure import COLUMNS, claims, figures, summary, table
from capi.experiments.mountain_car.run import run
from capi.experiments.mountain_car.settings import SEEDS, settings

__all__ = ["COLUMNS", "SEEDS", "claims", "figures", "run", "settings", "summary", "table"]
