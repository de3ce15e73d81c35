"""Table, figure and verdicts of the number of patients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from capi.experiments.comparison import claim_of, mean_text, paired
from capi.experiments.drawing import line_figure
from capi.experiments.experiment import Claim, Record, Row
from capi.experiments.patients.settings import METHODS, PATIENTS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLUMNS = ("n_logged", "method", "seed", "return", "chosen", "learning_cpu_seconds")
SHARE = 0.9  # of the return with all patients: enough
Returns: TypeAlias = dict[tuple[str, int], dict[int, float]]  # by method, number of patients and seed


def table(records: Sequence[Record]) -> list[Row]:
    """Return one row per run."""
    return [{name: r[name] for name in COLUMNS} for r in records]


def summary(rows: Sequence[Row]) -> tuple[str, list[str], list[list[str]]]:
    """Return one line per method with the mean return by the number of patients, and what selection chose."""
    returns = _returns(rows)
    lines = [
        [method, *(mean_text(returns.get((method, n), {}).values()) for n in PATIENTS)]
        for method in METHODS
        if any(key[0] == method for key in returns)
    ]
    chosen = [[row["chosen"] for row in rows if row["n_logged"] == n and row["chosen"]] for n in PATIENTS]
    if any(chosen):
        lines.append(["selection chose", *(", ".join(sorted(set(names))) for names in chosen)])
    return "HIV: return over 5000 days, mean (s.e.)", ["method", *(f"{n} patients" for n in PATIENTS)], lines


def figures(rows: Sequence[Row]) -> dict[str, Figure]:
    """Return the figure: return against the number of patients."""
    returns = _returns(rows)
    lines = {
        method: {n: np.array(list(found.values())) for (m, n), found in returns.items() if m == method}
        for method in METHODS
        if any(key[0] == method for key in returns)
    }
    title = "HIV treatment learned from few patients"
    return {
        "patients.png": line_figure(
            title, "patients in the log (200 decisions each)", "discounted return", lines, logarithmic=True
        )
    }


def claims(records: Sequence[Record]) -> dict[str, Claim]:
    """Return which numbers of patients are enough for each method, and where selection is better than always a forest."""
    returns, found = _returns(table(records)), {}
    most = PATIENTS[-1]
    for method in METHODS:
        enough = {seed: SHARE * value for seed, value in returns.get((method, most), {}).items()}
        for n in PATIENTS[:-1]:
            few = returns.get((method, n), {})
            found[f"enough/{method.lower()}/{n}"] = claim_of(
                f"{n} patients are enough for {method}: the return is at least {100 * SHARE:g} % of that with {most}.",
                "beyond the paper",
                {f"{n} patients - {SHARE:g} of {most}": paired(few, enough)},
                numbers={"return": float(np.mean(list(few.values()))) if few else None},
            )
    for n in PATIENTS:
        found[f"selection/{n}"] = claim_of(
            f"With {n} patients, selection has a higher return than always learning a forest.",
            "beyond the paper",
            {"selection - Tree-CAPI": paired(returns.get(("selection", n), {}), returns.get(("Tree-CAPI", n), {}))},
        )
    return found


def _returns(rows: Sequence[Row]) -> Returns:
    found: Returns = {}
    for row in rows:
        found.setdefault((row["method"], row["n_logged"]), {})[row["seed"]] = row["return"]
    return found
