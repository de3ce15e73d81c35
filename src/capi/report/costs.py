"""Rewards that are negative costs, shown as costs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

TURNED = {"low": "high", "high": "low", "low_asymptotic": "high_asymptotic", "high_asymptotic": "low_asymptotic"}
TURNED |= {"low_interval": "high_interval", "high_interval": "low_interval"}
NEGATED = ("estimate", "mean", *TURNED)


def negative(value: Any) -> Any:
    """Return a number with its sign changed, and anything else as it is."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return value
    return -value if value else 0.0  # not -0


def negated(record: Any) -> Any:
    """Return a record with its estimates and means negated, and the ends of its ranges negated and exchanged."""
    if not isinstance(record, Mapping):
        return record
    from_other = {name: other for name, other in TURNED.items() if name in record or other in record}
    return {
        **record,
        **{name: negative(record[name]) for name in NEGATED if name in record and name not in from_other},
        **{name: negative(record.get(other)) for name, other in from_other.items()},
    }


def evaluation_of_costs(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of ``evaluation.json``, which has rewards, with costs."""
    best, sensitive, ends = found.get("best_action"), found.get("sensitivity"), found.get("interval")
    result = negated(found)
    for name in ("behaviour", "difference"):
        result |= {name: negated(found[name])} if name in found else {}
    if isinstance(best, Mapping):
        result["best_action"] = {**negated(best), "difference": negated(best.get("difference"))}
    if isinstance(sensitive, Mapping) and isinstance(sensitive.get("bounds"), list):
        result["sensitivity"] = {**sensitive, "bounds": [negated(row) for row in sensitive["bounds"]]}
    if isinstance(ends, list):
        result["interval"] = [negative(end) for end in reversed(ends)]
    if isinstance(found.get("estimates"), list):
        result["estimates"] = [negated(row) for row in found["estimates"]]
    return dict(result)
