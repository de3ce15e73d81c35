"""Programs as plain values, for the page's script."""

from __future__ import annotations

from typing import Any

import numpy as np

from capi.files.exports.flat_tree import FlatTree
from capi.files.exports.program import Program


def program_record(program: Program) -> dict[str, Any]:
    """Return a program as plain values that JSON can hold; leaves refer to one of ``rankings``, infinite numbers are text."""
    rankings: dict[tuple[int, ...], int] = {}
    trees = [_packed(tree, rankings) for tree in program.trees]
    record: dict[str, Any] = {
        "trees": trees,
        "rankings": [list(actions) for actions in rankings],
        "scores": None,
        "needed": list(program.needed),
        "forbidden": [
            {
                "text": str(f.rule),
                "actions": list(f.actions),
                "low": [[j, as_text_if_infinite(x)] for j, x in sorted(f.box.low.items())],
                "high": [[j, as_text_if_infinite(x)] for j, x in sorted(f.box.high.items())],
                "if_missing": bool(f.rule.if_missing),
            }
            for f in program.forbidden
        ],
    }
    if program.scores is not None:
        parts = {"origin": program.scores.origin, "unit": program.scores.unit, "weights": program.scores.weights}
        record["scores"] = {name: part.tolist() for name, part in parts.items()}
    return record


def as_text_if_infinite(x: float) -> float | str:
    """Return a number as a JSON value; infinity becomes the text that JavaScript reads."""
    return float(x) if np.isfinite(x) else ("Infinity" if x > 0 else "-Infinity")


def _packed(tree: FlatTree, rankings: dict[tuple[int, ...], int]) -> dict[str, Any]:
    """Return a tree with short keys, because there may be many nodes: ``f`` < 0 is a leaf, whose ``c`` is the index of its ranking."""
    child = [
        left if left >= 0 else rankings.setdefault(actions, len(rankings))
        for left, actions in zip(tree.left, tree.actions, strict=True)
    ]
    cuts = [0 if left < 0 else as_text_if_infinite(cut) for left, cut in zip(tree.left, tree.at_most, strict=True)]
    return {"f": list(tree.feature), "t": cuts, "m": [int(m) for m in tree.missing_left], "c": child}
