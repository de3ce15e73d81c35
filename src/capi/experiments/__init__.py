"""The paper's experiments, one folder per problem.

Each folder has three files: ``settings.py`` (data only), ``run.py`` (a setting and a seed -> results that JSON can hold)
and ``figure.py`` (records -> table, figures, claims; pure functions). `capi.experiments.driver` runs any of them and writes
the same files; `capi.experiments.runner` computes records in processes of their own, and `capi.experiments.records` keeps
them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from capi._utils.late import lazy_exports

if TYPE_CHECKING:
    from capi.experiments.driver import recompute as recompute
    from capi.experiments.driver import reproduce as reproduce
    from capi.experiments.poster import write_poster as write_poster
else:
    __all__, __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "recompute": "driver",
            "reproduce": "driver",
            "write_poster": "poster",
        },
    )

NAMES = {
    "chain": "1D chain walk, with and without policy approximation error",
    "hiv": "HIV treatment: Tree-CAPI and Tree-FQI",
    "mountain-car": "Mountain-Car: nearest-neighbour policies and regularized fitted Q-iteration",
    "pole": "pole balancing: value-based and rollout-based methods",
    "theory": "claims of the analysis: later rounds, gaps, rates, methods, regularities, losses",
    "readable": "beyond the paper: one small tree instead of a forest, on HIV and the pole",
    "combinations": "beyond the paper: every evaluator under one space, every space under one evaluator",
    "patients": "beyond the paper: return against the number of patients, with selection",
    "sensitivity": "what the comparisons depend on: one choice changed at a time",
    "small-trees": "small trees for finite problems: the loop, imitation, greedy trees, and proved optima",
}
