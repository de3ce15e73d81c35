"""The numbers behind verdicts, in words, and the rules by which verdicts are reached: for the pages and the poster."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from capi.experiments.comparison import FEWEST_SEEDS, Difference, Verdict, number_text
from capi.experiments.experiment import VERDICTS_OF_PARTS, Claim
from capi.experiments.sentences import Judgement

RULES = (  # with the marks of Markdown for code and emphasis
    f"A claim compares methods by the differences of paired seeds. It *holds* if the 95 % t interval of the mean difference lies where the claim "
    f"needs it, *fails* if the whole interval lies elsewhere, and stays *open* otherwise, and with fewer than {FEWEST_SEEDS} seeds. "
    "The tables show this interval and what is needed, usually above 0; margins such as 10 steps or 5 % are ours and are part of the claim. "
    "The 95 % percentile bootstrap interval of the mean is shown beside it and decides nothing.",
    "Three kinds of claims have no interval. Nothing is random in the chain walk and in small trees from a model, so their numbers are compared "
    "directly. A claim about all runs is refuted by a single one. A claim without a run is *open*.",
    "A claim about several parts (values of eta_pi, numbers of samples) holds if all of them do, and fails if one fails and none holds. A sentence "
    "with several claims (readings of what the paper does not state) holds if all of them do, and fails if all fail. Both *hold in part* if some parts "
    "hold and others do not, with the number of parts in brackets, and are *open* otherwise. Many parts are tested without a correction, so up to one "
    "in twenty may be decided by chance, and a sentence that holds in one part of many has little support.",
    "Times are compared only between runs with the same seed on the same kind of processor.",
)


@dataclass(frozen=True)
class Line:
    """One row of the numbers behind a verdict; a claim without differences has one, and its numbers are in words."""

    number: str  # of the sentence
    claim: str
    part: str
    verdict: Verdict
    mean: str = ""
    interval: str = ""
    needed: str = ""
    bootstrap: str = ""
    seeds: str = ""


def evidence(judged: Sequence[Judgement]) -> Iterator[Line]:
    """Yield one line per difference, and one per claim without differences; each claim in full at its first sentence only."""
    shown: dict[str, str] = {}
    for place, judgement in enumerate(judged, 1):
        number = str(place)
        if not judgement.claims:
            yield Line(number, "", "not run", "open")
        for name, claim in judgement.claims.items():
            if name in shown:
                yield Line(number, name, f"see {shown[name]}", claim.verdict)
            else:
                shown[name] = number
                yield from _lines(number, name, claim)


def _lines(number: str, name: str, claim: Claim) -> Iterator[Line]:
    if not claim.differences and not claim.missing:
        yield Line(number, name, measured(claim.numbers) or "not run", claim.verdict)
    for part, found in claim.differences.items():
        yield Line(
            number,
            name,
            part,
            VERDICTS_OF_PARTS[found.supports],
            number_text(found.mean),
            interval_text(found),
            found.needed,
            "" if found.bootstrap is None else " to ".join(map(number_text, found.bootstrap)),
            str(found.n_seeds),
        )
    for part in claim.missing:
        yield Line(number, name, part, "open", seeds="0")


def interval_text(found: Difference) -> str:
    """Return the interval that decides; empty with a single seed."""
    return "" if found.low is None or found.high is None else f"{number_text(found.low)} to {number_text(found.high)}"


def measured(numbers: Mapping[str, Any]) -> str:
    """Return numbers in words, nested ones by their names; lists are left out.

    Examples
    --------
    >>> measured({"least_loss": 0.25, "first_iteration": {"capi": 4, "vi": None}})
    'least loss 0.25; first iteration: capi 4, vi never'
    """
    found = []
    for name, value in numbers.items():
        if isinstance(value, dict):
            inner = ", ".join(
                f"{_words(key)} {_value(item)}" for key, item in value.items() if not isinstance(item, dict | list)
            )
            found += [f"{_words(name)}: {inner}"] if inner else []
        elif not isinstance(value, list):
            found.append(f"{_words(name)} {_value(value)}")
    return "; ".join(found)


def tally_text(judgement: Judgement) -> str:
    """Return how many parts of a sentence have which verdict; empty for a single part, or if all agree."""
    parts = [part for claim in judgement.claims.values() for part in claim.parts]
    n_holding, n_failing = parts.count("holds"), parts.count("fails")
    if len(parts) < 2 or len(set(parts)) == 1:
        return ""
    return f"{n_holding} of {len(parts)} parts {'holds' if n_holding == 1 else 'hold'}, {n_failing} {'fails' if n_failing == 1 else 'fail'}"


def _words(name: str) -> str:
    return name.replace("_", " ")


def _value(value: Any) -> str:
    if value is None:
        return "never"
    return number_text(value) if isinstance(value, int | float) and not isinstance(value, bool) else str(value)
