"""Small trees for finite problems: our loop, imitation, greedy trees, and the proved optimum."""

from capi.experiments.small_trees.figure import COLUMNS, claims, figures, summary, table
from capi.experiments.small_trees.run import run
from capi.experiments.small_trees.settings import SEEDS, settings

__all__ = ["COLUMNS", "SEEDS", "claims", "figures", "run", "settings", "summary", "table"]
