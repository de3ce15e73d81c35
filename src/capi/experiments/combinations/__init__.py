"""Every evaluator under one policy space, and every policy space under one evaluator, on Mountain-Car."""

from capi.experiments.combinations.figure import COLUMNS, claims, figures, summary, table
from capi.experiments.combinations.run import run
from capi.experiments.combinations.settings import SEEDS, settings

__all__ = ["COLUMNS", "SEEDS", "claims", "figures", "run", "settings", "summary", "table"]
