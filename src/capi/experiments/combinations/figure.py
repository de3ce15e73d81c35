"""Table, figures and verdicts of the combinations: steps of each one, and against the fixed pair."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from capi._utils.statistics import standard_error
from capi._utils.validation import Floats
from capi.experiments.combinations.settings import EVALUATOR, EVALUATORS, SPACE, SPACES
from capi.experiments.comparison import claim_of, paired
from capi.experiments.drawing import interval_figure
from capi.experiments.experiment import Claim, Record, Row

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLUMNS = ("evaluator", "space", "seed", "steps", "learning_cpu_seconds")
Steps: TypeAlias = dict[tuple[str, str], dict[int, float]]  # by evaluator, space and seed
KINDS = {
    "evaluators": (f"Evaluators with {SPACE}", [(evaluator, SPACE) for evaluator in EVALUATORS]),
    "spaces": (f"Policy spaces with {EVALUATOR}", [(EVALUATOR, space) for space in SPACES]),
}


def table(records: Sequence[Record]) -> list[Row]:
    """Return one row per run."""
    return [{name: r[name] for name in COLUMNS} for r in records]


def summary(rows: Sequence[Row]) -> tuple[str, list[str], list[list[str]]]:
    """Return one line per combination: mean and worst steps, and CPU seconds of learning."""
    steps, seconds = _by_seed(rows, "steps"), _by_seed(rows, "learning_cpu_seconds")
    lines = []
    for case in (case for case in dict.fromkeys(KINDS["evaluators"][1] + KINDS["spaces"][1]) if case in steps):
        values: Floats = np.array(list(steps[case].values()))
        error = standard_error(values)
        mean = f"{values.mean():.1f}" + ("" if np.isnan(error) else f" ({error:.1f})")
        cost = float(np.median(list(seconds[case].values())))
        lines.append([*case, mean, f"{values.max():.1f}", f"{cost:.2g}", str(len(values))])
    headings = ["evaluator", "space", "mean steps (s.e.)", "worst seed", "CPU seconds", "seeds"]
    return "Mountain-Car, 1,000 samples: steps to the goal", headings, lines


def figures(rows: Sequence[Row]) -> dict[str, Figure]:
    """Return one figure for the evaluators and one for the spaces."""
    steps, found = _by_seed(rows, "steps"), {}
    for kind, (title, cases) in KINDS.items():
        place = 0 if kind == "evaluators" else 1
        drawn = {case[place]: np.array(list(steps[case].values())) for case in cases if case in steps}
        if drawn:
            reference = (EVALUATOR, SPACE)[place]
            found[f"combinations-{kind}.png"] = interval_figure(title, "steps to the goal", drawn, reference=reference)
    return found


def claims(records: Sequence[Record]) -> dict[str, Claim]:
    """Return, for each other part, whether the fixed pair takes fewer steps."""
    steps, found = _by_seed(table(records), "steps"), {}
    fixed = steps.get((EVALUATOR, SPACE), {})
    for kind, (_, cases) in KINDS.items():
        for case in cases:
            if case == (EVALUATOR, SPACE):
                continue
            name, other = (case[0], EVALUATOR) if kind == "evaluators" else (case[1], SPACE)
            own = steps.get(case, {})
            found[f"{kind}/{name}"] = claim_of(
                f"With {name} instead of {other} the policy takes more steps.",
                "beyond the paper",
                {f"{name} - {other}": paired(own, fixed)},
                numbers={"steps": float(np.mean(list(own.values()))) if own else None},
            )
    return found


def _by_seed(rows: Sequence[Row], quantity: str) -> Steps:
    found: Steps = {}
    for row in rows:
        found.setdefault((row["evaluator"], row["space"]), {})[row["seed"]] = row[quantity]
    return found
