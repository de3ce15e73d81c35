"""Settings of readable policies: a forest, and single trees of depth 1 to 6, learned from the same batch.

The loop is `CAPI()` with the defaults of the library, not the paper's Algorithm 1; the value "learner" names these defaults. A tree takes the place of the forest either in every round ("in the loop"), or only once, after the last round: then it minimises the
gap-weighted loss of the forest's last action values ("afterwards"). The batches and the evaluation are those of the base cases of the
sensitivity analysis.
"""

from typing import Any

from capi.experiments.sensitivity.settings import BASE
from capi.experiments.setting import DEFAULTS, Setting, Size

SEEDS = {"quick": 1, "full": 5}
DEPTHS = (1, 2, 3, 4, 5, 6)
PROBLEMS = ("pole", "hiv")


def settings(size: Size) -> list[Setting]:
    """Return the forest, whose record has the trees afterwards, and the trees in the loop; the quick size has the pole alone."""
    return [
        _setting(problem, depth)
        for problem in (PROBLEMS if size == "full" else PROBLEMS[:1])
        for depth in (None, *DEPTHS)
    ]


def _setting(problem: str, depth: int | None) -> Setting:
    values: dict[str, Any] = {"problem": problem, "depth": depth, "depths": list(DEPTHS) if depth is None else []}
    values |= {"learner": DEFAULTS, **BASE[problem]}
    return Setting(f"{problem}/{'forest' if depth is None else f'tree-{depth}'}", values)
