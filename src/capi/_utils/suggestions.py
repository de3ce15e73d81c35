"""Suggestions for misspelt names: "Did you mean 'age'?"."""

from __future__ import annotations

from collections.abc import Collection
from difflib import get_close_matches
from typing import Any

LEAST_SIMILAR = 0.6  # of 1; difflib's own default
MOST_COMPARED = 10_000  # names; comparing takes about 20 microseconds each


def did_you_mean(value: Any, choices: Collection[Any]) -> str:
    """Return a sentence that names the most similar of ``choices``, with a leading space; "" if none is similar.

    Examples
    --------
    >>> did_you_mean("optimal_tree", ["optimal-trees", "trees"])
    " Did you mean 'optimal-trees'?"
    >>> did_you_mean("weight", ["age"])
    ''
    """
    match = closest(value, choices)
    return "" if match is None else f" Did you mean {match!r}?"


def closest(value: Any, choices: Collection[Any]) -> str | None:
    """Return the most similar of those ``choices`` that are strings, ignoring case; None if none is similar or it is ``value`` itself."""
    if not isinstance(value, str) or len(choices) > MOST_COMPARED:
        return None
    by_spelling: dict[str, str] = {}
    for choice in choices:
        if isinstance(choice, str) and choice != value:
            by_spelling.setdefault(_spelling(choice), choice)
    found = get_close_matches(_spelling(value), by_spelling, n=1, cutoff=LEAST_SIMILAR)
    return by_spelling[found[0]] if found else None


def _spelling(name: str) -> str:
    return name.strip().lower().replace("_", "-").replace(" ", "-")
