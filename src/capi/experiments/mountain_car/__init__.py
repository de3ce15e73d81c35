"""Figures "Mountain-Car: steps and return against the number of samples" and "against kappa" (appendix)."""

from capi.experiments.mountain_car.figure import COLUMNS, claims, figures, summary, table
from capi.experiments.mountain_car.run import run
from capi.experiments.mountain_car.settings import settings

__all__ = ["COLUMNS", "claims", "figures", "run", "settings", "summary", "table"]
