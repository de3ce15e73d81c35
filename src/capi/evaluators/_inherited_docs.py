"""Inherited parameter documentation: a parameter is documented where it is declared, and subclasses show it, too."""

from __future__ import annotations

import re
from inspect import cleandoc
from typing import Any, TypeVar

Kind = TypeVar("Kind", bound=type[Any])

HEADING = "Parameters\n----------\n"
ENTRY = re.compile(r"^(?=\w+ : )", re.MULTILINE)  # the start of a parameter's entry
SECTION = re.compile(r"^\w+\n-+$", re.MULTILINE)


def with_inherited_parameters(kind: Kind) -> Kind:
    """Add to the docstring of a class the parameters that only its bases document."""
    if kind.__doc__ is None:  # python -OO
        return kind
    explained: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        explained |= _explanations(base.__doc__)
    before, _, after = _apart(kind.__doc__)
    kind.__doc__ = f"{before}{HEADING}{''.join(explained.values())}\n{after}"
    return kind


def _explanations(doc: str | None) -> dict[str, str]:
    """Return the entries of the parameter section by parameter name."""
    entries = ENTRY.split(_apart(doc)[1]) if doc else []
    return {entry.split(" : ")[0]: entry.rstrip() + "\n" for entry in entries if " : " in entry}


def _apart(doc: str) -> tuple[str, str, str]:
    """Split a docstring into the text before the parameters, the parameters, and the sections after them."""
    text = cleandoc(doc) + "\n"
    start = text.find(HEADING)
    if start >= 0:
        before, rest = text[:start], text[start + len(HEADING) :]
        following = SECTION.search(rest)
        end = following.start() if following else len(rest)
        return before, rest[:end], rest[end:]
    first = SECTION.search(text)
    end = first.start() if first else len(text)
    return text[:end] if first else text + "\n", "", text[end:]
