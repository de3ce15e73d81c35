"""Table, figures and verdicts of the sensitivity analysis: how far each choice changes the lead of CAPI."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from capi._utils.validation import Floats
from capi.experiments.comparison import changed, claim_of, mean_text, paired
from capi.experiments.drawing import interval_figure
from capi.experiments.experiment import Claim, Record, Row
from capi.experiments.sensitivity.settings import BASE, METHODS, cases

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLUMNS = ("problem", "factor", "level", "method", "seed", "score", "learning_cpu_seconds")
NAMES = {"hiv": "HIV", "mountain-car": "Mountain-Car", "pole": "Pole"}
UNITS = {"hiv": "discounted return", "mountain-car": "steps to the goal", "pole": "steps balanced"}
SIGN = {"hiv": 1.0, "mountain-car": -1.0, "pole": 1.0}  # whether a larger score is better
WORDS = {
    "base": "base case",
    "observe": "states",
    "reward_on": "reward of",
    "n_iterations": "iterations",
    "goal_reward": "reward of the last step",
    "scale": "units of states",
    "track_limit": "track limit",
    "angle_limit": "angle limit",
    "starts": "starts of the log",
}
LEVELS = {
    ("ties", "first"): "to the first action",
    ("ties", "last"): "to the last action",
    ("scale", None): "raw",
    ("scale", "box"): "unit square",
    ("track_limit", None): "none",
    ("track_limit", 2.4): "2.4 m",
    ("angle_limit", 12.0): "12 degrees",
    ("angle_limit", 36.0): "36 degrees",
    ("reward_on", "next_state"): "the state after the step",
    ("reward_on", "state"): "the state before the step",
}
Case: TypeAlias = tuple[str, str, Any]  # problem, factor, level
Scores: TypeAlias = dict[Case, dict[str, dict[int, float]]]  # by method and seed


def table(records: Sequence[Record]) -> list[Row]:
    """Return one row per run."""
    return [{name: "" if r[name] is None else r[name] for name in COLUMNS} for r in records]


def summary(rows: Sequence[Row]) -> tuple[str, list[str], list[list[str]]]:
    """Return one line per case: the scores of both methods, the lead of CAPI and how far the choice changes it."""
    headings = ["problem", "choice", "value-based", "CAPI", "lead of CAPI", "change of the lead", "seeds"]
    lines = []
    scores = _scores(rows)
    for case in _ordered(scores):
        first, second = (scores[case].get(method, {}) for method in METHODS[case[0]])
        lead, change = _lead(scores, case), _change(scores, case)
        cells = [mean_text(each) for each in (first.values(), second.values(), lead, change)]
        lines.append([case[0], name_of(case), *cells, str(len(lead))])
    return "One choice changed at a time: mean (s.e.)", headings, lines


def figures(rows: Sequence[Row]) -> dict[str, Figure]:
    """Return one figure per problem: the lead of CAPI in each case, with bootstrap intervals."""
    scores = _scores(rows)
    found = {}
    for problem in (problem for problem in BASE if any(case[0] == problem for case in scores)):
        chosen = [case for case in _ordered(scores) if case[0] == problem and len(_lead(scores, case))]
        if not chosen:
            continue
        leads = {name_of(case): _lead(scores, case) for case in chosen}
        label = f"lead of CAPI in {UNITS[problem]}"
        found[f"sensitivity-{problem}.png"] = interval_figure(problem, label, leads, reference=WORDS["base"])
    return found


def claims(records: Sequence[Record]) -> dict[str, Claim]:
    """Return, for each choice, whether it changes the lead of CAPI; five seeds can show a change, but not that there is none."""
    scores = _scores([{**r} for r in records])
    found = {}
    for case in ((problem, factor, level) for problem in BASE for factor, level in cases(problem)):
        problem, factor, level = case
        if factor == "base":
            continue
        change, lead = _change(scores, case), _lead(scores, case)
        name = f"{problem}/{factor}-{'none' if level is None else level}"
        found[name] = claim_of(
            f"{NAMES[problem]}: with {name_of(case)} instead of {level_of(factor, BASE[problem][factor])}, the lead of CAPI changes.",
            "not stated in the paper",
            {"change of the lead": change},
            changed,
            numbers={"lead": float(np.mean(lead)) if len(lead) else None},
        )
    return found


def name_of(case: Case) -> str:
    """Return the choice in words."""
    _, factor, level = case
    return WORDS["base"] if factor == "base" else f"{WORDS.get(factor, factor)} {level_of(factor, level)}"


def level_of(factor: str, level: Any) -> str:
    """Return the value of a choice in words."""
    return LEVELS.get((factor, level), f"{level:g}" if isinstance(level, float) else str(level))


def _scores(rows: Sequence[Row]) -> Scores:
    found: Scores = {}
    for row in rows:
        level = None if row["level"] == "" else row["level"]
        case = found.setdefault((row["problem"], row["factor"], level), {})
        case.setdefault(row["method"], {})[row["seed"]] = row["score"]
    return found


def _ordered(scores: Scores) -> list[Case]:
    return [(p, factor, level) for p in BASE for factor, level in cases(p) if (p, factor, level) in scores]


def _leads(scores: Scores, case: Case) -> dict[int, float]:
    """Return by how much CAPI is better, by seed."""
    first, second = (scores.get(case, {}).get(method, {}) for method in METHODS[case[0]])
    return {seed: SIGN[case[0]] * (second[seed] - first[seed]) for seed in sorted(first.keys() & second.keys())}


def _lead(scores: Scores, case: Case) -> Floats:
    return np.array(list(_leads(scores, case).values()), dtype=float)


def _change(scores: Scores, case: Case) -> Floats:
    base = (case[0], "base", None)
    return np.empty(0) if case == base else paired(_leads(scores, case), _leads(scores, base))
