"""Warnings are records: their fields, their way through JSON, and their kinds, which are an interface."""

import ast
import json
import re
from pathlib import Path

import pytest

from capi.errors import Caveat, InvalidInputError

ROOT = Path(__file__).parents[2]
SEVERITIES = ("note", "warning", "severe")
FULL = Caveat("some-kind", "3 rows are odd", "severe", "age", 3, 0.25, "some rows are odd")


def test_a_caveat_reads_like_its_text_and_survives_json():
    assert str(FULL) == f"{FULL}" == "3 rows are odd"
    for caveat in (FULL, Caveat("some-kind", "words", "note")):
        assert Caveat.from_dict(json.loads(json.dumps(caveat.to_dict()))) == caveat
    assert set(FULL.to_dict()) == {"kind", "text", "severity", "column", "count", "share", "text_without_counts"}


def test_strings_of_earlier_versions_have_no_fields():
    assert Caveat.from_dict("only 3 episodes") == Caveat("unknown", "only 3 episodes", "warning")


def test_fields_of_later_versions_are_ignored():
    assert Caveat.from_dict({**FULL.to_dict(), "later": 1}) == FULL
    assert Caveat.from_dict({"kind": "a", "text": "b", "severity": "note"}) == Caveat("a", "b", "note")


@pytest.mark.parametrize(
    "change",
    [
        {"kind": 5}, {"text": None}, {"severity": "loud"}, {"severity": ["severe"]}, {"column": 5}, {"text_without_counts": 5},
        {"count": "3"}, {"count": True}, {"count": -1}, {"count": float("nan")}, {"count": 10**400}, {"share": float("inf")},
    ],
)  # fmt: skip
def test_what_is_not_a_caveat_is_refused(change):
    with pytest.raises(InvalidInputError, match=f"the '{next(iter(change))}' of a caveat must be"):
        Caveat.from_dict({**FULL.to_dict(), **change})
    with pytest.raises(InvalidInputError, match="a caveat must be a record or a string"):
        Caveat.from_dict(5)


def produced():
    """Return module, kind and severities of each caveat that the sources make."""
    found = []
    for path in sorted((ROOT / "src" / "capi").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Caveat":
                kind, _, severity = node.args[:3]
                words = [n.value for n in ast.walk(severity) if isinstance(n, ast.Constant) and n.value in SEVERITIES]
                assert isinstance(kind, ast.Constant), f"{path.name}: the kind is an interface, and must be written out"
                found.append((path.stem, kind.value, set(words)))
    return found


def documented():
    text = (
        (ROOT / "docs" / "evidence.md").read_text(encoding="utf-8").split("### Kinds of warnings")[1].split("\n## ")[0]
    )
    rows = re.findall(r"^\| `([^`]+)` \| ([^|]+) \| [^|]+ \|$", text, re.MULTILINE)
    return {kind: set(re.findall(r"[a-z]+", re.sub(r"\(.*?\)", "", severities))) - {"or"} for kind, severities in rows}


def test_kinds_are_slugs_and_each_is_made_in_one_place():
    kinds = [kind for _, kind, _ in produced()]
    assert len(kinds) == len(set(kinds)) >= 20
    assert all(re.fullmatch(r"[a-z]+(-[a-z]+)*", kind) for kind in kinds)
    assert {module for module, _, _ in produced()} == {
        "warnings",
        "leaks",
        "cuts",
        "times",
        "orders",
        "caveats",
        "log_checks",
        "evaluate",
    }


def test_kinds_and_severities_are_those_of_the_documentation():
    assert {kind: severities for _, kind, severities in produced()} == {
        kind: severities for kind, severities in documented().items() if kind != "unknown"
    }
    assert documented()["unknown"] == {"warning"}


def test_an_old_name_of_an_error_says_the_new_one():
    with pytest.raises(ImportError, match=r"capi\.errors\.InvalidInput is now called capi\.errors\.InvalidInputError"):
        from capi.errors import InvalidInput  # noqa: F401
    with pytest.raises(ImportError, match="cannot import name 'Nothing'"):
        from capi.errors import Nothing  # noqa: F401
