"""Table, figures and verdicts of readable policies: how much of the forest's score a tree reaches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from capi.experiments.comparison import claim_of, mean_text, paired
from capi.experiments.drawing import line_figure
from capi.experiments.experiment import Claim, Record, Row
from capi.experiments.readable.settings import DEPTHS, PROBLEMS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLUMNS = ("problem", "way", "depth", "seed", "score")
UNITS = {"hiv": "discounted return", "pole": "steps balanced"}
NAMES = {"hiv": "HIV", "pole": "Pole"}
WAYS = ("in the loop", "afterwards")
SHARE = 0.9  # of the forest's score: a small price
Scores: TypeAlias = dict[tuple[str, str, int], dict[int, float]]  # by problem, way, depth (0 is the forest) and seed


def table(records: Sequence[Record]) -> list[Row]:
    """Return one row per policy: the forest, trees in the loop, and trees that replace the forest afterwards."""
    rows = []
    for r in records:
        case = {"problem": r["problem"], "seed": r["seed"]}
        rows.append(
            {**case, "way": "forest" if r["depth"] is None else WAYS[0], "depth": r["depth"] or 0, "score": r["score"]}
        )
        rows += [
            {**case, "way": WAYS[1], "depth": depth, "score": score}
            for depth, score in zip(r["depths"], r["scores_afterwards"], strict=True)
        ]
    return rows


def summary(rows: Sequence[Row]) -> tuple[str, list[str], list[list[str]]]:
    """Return one line per problem and way with the mean score by depth."""
    scores = _scores(rows)
    lines = []
    for problem in (p for p in PROBLEMS if any(key[0] == p for key in scores)):
        lines.append(
            [problem, "forest", mean_text(scores.get((problem, "forest", 0), {}).values()), *[""] * len(DEPTHS)]
        )
        lines += [
            [problem, way, "", *(mean_text(scores.get((problem, way, d), {}).values()) for d in DEPTHS)] for way in WAYS
        ]
    return "Score of the policy: mean (s.e.)", ["problem", "tree", "forest", *(f"depth {d}" for d in DEPTHS)], lines


def figures(rows: Sequence[Row]) -> dict[str, Figure]:
    """Return one figure per problem: score against depth for both ways, and the forest's."""
    scores, found = _scores(rows), {}
    for problem in (p for p in PROBLEMS if any(key[0] == p for key in scores)):
        lines = {
            way: {d: np.array(list(scores[problem, way, d].values())) for d in DEPTHS if (problem, way, d) in scores}
            for way in WAYS
        }
        forest = np.array(list(scores.get((problem, "forest", 0), {}).values()))
        if len(forest):
            lines["forest"] = dict.fromkeys(DEPTHS, forest)
        drawn = {name: points for name, points in lines.items() if points}
        found[f"readable-{problem}.png"] = line_figure(
            f"One tree, {problem}", "depth of the tree", UNITS[problem], drawn
        )
    return found


def claims(records: Sequence[Record]) -> dict[str, Claim]:
    """Return, for each problem, way and depth, whether the tree reaches nearly the forest's score."""
    scores, found = _scores(table(records)), {}
    for problem in PROBLEMS:
        forest = scores.get((problem, "forest", 0), {})
        for way in WAYS:
            for depth in DEPTHS:
                tree = scores.get((problem, way, depth), {})
                found[f"{problem}/{way.replace(' ', '-')}/depth-{depth}"] = claim_of(
                    f"{NAMES[problem]}: one tree of depth {depth} {way} reaches {100 * SHARE:g} % of the forest's score.",
                    "beyond the paper",
                    {f"tree - {SHARE:g} forest": paired(tree, {seed: SHARE * score for seed, score in forest.items()})},
                    numbers={"tree": _mean(tree), "forest": _mean(forest)},
                )
    return found


def _mean(scores: Mapping[int, float]) -> float | None:
    return float(np.mean(list(scores.values()))) if scores else None


def _scores(rows: Sequence[Row]) -> Scores:
    found: Scores = {}
    for row in rows:
        found.setdefault((row["problem"], row["way"], row["depth"]), {})[row["seed"]] = row["score"]
    return found
