"""HTML for learners, batches and policies in notebooks: small, without scripts, style sheets or anything to load.

All text comes from tables and settings, so all of it is escaped.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape
from typing import Any

from capi._utils import registry
from capi._utils.nested_parameters import parameters_of
from capi.errors import CapiError

MOST_CHARACTERS = 200  # of a value
MOST_LINES = 40  # of rules
DEEPEST = 4  # level of parts within parts


@registry.learner_html.fill
def learner_html(learner: Any) -> str:
    """Return the parameters of a learner as a table, with parts that can be unfolded, and the rules of its policy."""
    rounds = len(learner.history_) if learner.__sklearn_is_fitted__() else 0
    state = f"fitted, {rounds} round{'s' if rounds > 1 else ''}" if rounds else "not fitted"
    rules = policy_html(learner.policy_) if rounds else ""
    return _block(type(learner).__name__, state, _parameter_table(learner.get_params(deep=False)) + rules)


@registry.batch_html.fill
def batch_html(batch: Any) -> str:
    """Return the summary of a batch, as its repr has it."""
    title, *facts = repr(batch).splitlines()
    kind, _, size = title.partition(": ")
    return _block(kind, size, _table(fact.strip().partition(" ")[::2] for fact in facts))


@registry.policy_html.fill
def policy_html(policy: Any) -> str:
    """Return the rules of a policy, or what it is where it has none."""
    return _block(type(policy).__name__, "", f"<pre>{escape(_rules(policy))}</pre>")


def _rules(policy: Any) -> str:
    try:
        lines = policy.rules().splitlines() if hasattr(policy, "rules") else [_shortened(policy)]
    except CapiError:  # such as a policy that has to be told its states
        lines = [_shortened(policy)]
    hidden = len(lines) - MOST_LINES
    return "\n".join(lines[:MOST_LINES] + ([f"... {hidden} more lines: print(policy.rules())"] if hidden > 0 else []))


def _parameter_table(parameters: Mapping[str, Any], level: int = 1) -> str:
    return _table(((name, _value(value, level)) for name, value in parameters.items()), escaped=True)


def _value(value: Any, level: int) -> str:
    """Return a value, and its parameters to unfold if it is a part."""
    inner = {name: part for name, part in parameters_of(value).items() if "__" not in name}
    if not inner or level >= DEEPEST:
        return escape(_shortened(value))
    name = escape(type(value).__name__)
    return f"<details><summary>{name}</summary>{_parameter_table(inner, level + 1)}</details>"


def _shortened(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= MOST_CHARACTERS else f"{text[:MOST_CHARACTERS]}..."


def _table(rows: Iterable[tuple[str, str]], *, escaped: bool = False) -> str:
    """Return a table of names and values; ``escaped`` values are HTML already."""
    cell = '<td style="text-align: left; vertical-align: top">'
    lines = [
        f"<tr>{cell}{escape(name)}</td>{cell}{value if escaped else escape(value.strip())}</td></tr>"
        for name, value in rows
    ]
    return f"<table>{''.join(lines)}</table>"


def _block(title: str, note: str, body: str) -> str:
    return f"<div><b>{escape(title)}</b> {escape(note)}{body}</div>"
