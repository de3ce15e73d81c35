"""Export of a policy as a Python function that needs nothing but Python.

Names, labels and categories of the table enter the code only as literals, so no name can become code.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import numpy as np

from capi.errors import InvalidInputError
from capi.files.exports.flat_tree import FlatTree
from capi.files.exports.program import Program
from capi.policy_spaces.rules import Forbidden

DEEPEST = 40  # splits written as nested ifs; Python allows a hundred
HEAD = '''"""A policy: ``decide`` returns the action for one row. It needs nothing but Python."""

COLUMNS = {columns}
ACTIONS = {actions}


def decide(row=None, /, **columns):
    """Return the action for one row, given as a mapping or as keywords; None and NaN mean missing."""
    row = {{**(row or {{}}), **columns}}
'''
HELPERS = {
    "_number": """
def _number(value):
    value = None if value is None else float(value)
    return None if value != value else value
""",
    "_place": """
def _place(value, places):
    return None if value is None or value != value else places.get(value, places.get(...))
""",
    "_is": """
def _is(value, places, place):
    found = None if value is None or value != value else places.get(value, places.get(...))
    return None if found is None else float(found == place)
""",
    "_combined": """
def _combined(*terms):
    if any(x is None for _, x in terms):
        return None
    total = terms[0][0] * terms[0][1]
    for weight, x in terms[1:]:
        total += weight * x
    return None if total != total else min(max(total, -1.7976931348623157e308), 1.7976931348623157e308)
""",
    "_days": """
def _days(value, origin):
    if value is None or value != value:
        return None
    if isinstance(value, str):
        value = datetime.fromisoformat(value)
    if not isinstance(value, datetime):
        value = datetime(value.year, value.month, value.day)
    if value.tzinfo is not None:
        value = value.astimezone(timezone.utc).replace(tzinfo=None)
    days, rest = divmod((value - datetime.fromisoformat(origin)) // timedelta(microseconds=1), 86400000000)
    return days + rest / 86400000000
""",
    "_first": """
def _first(actions, barred):
    for action in actions:
        if action not in barred:
            return action
    raise ValueError("the rules allow no action in this state")
""",
    "_vote": """
def _vote(nodes, x):
    node = nodes[0]
    while len(node) == 4:
        feature, at_most, missing_left, left = node
        goes_left = missing_left if x[feature] is None else x[feature] <= at_most
        node = nodes[left if goes_left else left + 1]
    return node[0]
""",
}


def python_code(program: Program, note: str = "") -> str:
    """Return the source of a module with the function ``decide``."""
    columns = tuple(dict.fromkeys(program.features[j].column.name for j in program.used))
    head = HEAD.format(columns=literal(columns), actions=literal(tuple(program.schema.action_labels)))
    lines = [f"    x{j} = {_feature(program, j)}" for j in program.used]
    lines += [f"    x{j} = _combined({_terms(program, j)})" for j in program.combined]
    if program.needed:
        known = ", ".join(f"x{j}" for j in program.needed)
        lines += [
            f"    if None in ({known},):",
            '        raise ValueError("a column that the policy needs is missing")',
        ]
    lines += _barred(program)
    tables: list[str] = []
    if program.scores is not None:
        lines += _scored(program)
    elif len(program.trees) == 1 and program.depth <= DEEPEST:
        lines += _nested(program, program.trees[0], 0, "    ")
    else:
        tables = ["", "", "_TREES = (", *(f"    {_table(program, tree)}," for tree in program.trees), ")"]
        lines += _voted(program)
    body = "\n".join(lines)
    helpers = [code for name, code in HELPERS.items() if f"{name}(" in body]
    imports = "\nfrom datetime import datetime, timedelta, timezone\n" if "_days(" in body else ""
    remark = "".join(f"# {line}\n" for line in note.splitlines())
    opening, rest = head.split("\n", 1)
    return "\n".join(
        [f"{remark}{opening}\n{imports}{rest}{body}", *tables, *(f"\n{code.rstrip()}" for code in helpers), ""]
    )


def literal(value: Any) -> str:
    """Return a label or a category as a Python literal."""
    plain = value is None or type(value) in (bool, int, str) or (type(value) is float and np.isfinite(value))
    if plain:
        return ascii(value)
    if type(value) is tuple:
        return _tuple([literal(item) for item in value])
    raise InvalidInputError(f"labels must be text, numbers, booleans or None to be written as code; got {value!r}.")


def _tuple(items: list[str]) -> str:
    return f"({', '.join(items)}{',' if len(items) == 1 else ''})"


def _feature(program: Program, j: int) -> str:
    """Return the expression of a feature, which is None where it is missing."""
    column, position = program.features[j].column, program.features[j].position
    value = f"row[{column.name!a}]"
    if column.kind == "date":
        return f"_days({value}, {datetime.fromisoformat(str(column.origin)).isoformat()!a})"
    if not column.values:
        return f"_number({value})"
    items = [f"{literal(v)}: {i}" for i, v in enumerate(column.listed)]
    items += [f"...: {len(items)}"] if column.rest else []  # all others
    places = "{" + ", ".join(items) + "}"
    if column.kind == "codes":
        return f"_place({value}, {places})"
    return f"_is({value}, {places}, {position})"


def _terms(program: Program, j: int) -> str:
    return ", ".join(f"({_number(c)}, x{i})" for i, c in program.terms(j))


def _number(value: float) -> str:
    return repr(float(value)) if np.isfinite(value) else f"float('{float(value)}')"


def _barred(program: Program) -> Iterator[str]:
    """Yield the lines that compute which actions the rules forbid."""
    if program.forbidden:
        yield "    barred = set()"
    for rule in program.forbidden:
        yield f"    if {_holds(rule)}:"
        yield f"        barred.update({rule.actions!r})"


def _holds(rule: Forbidden) -> str:
    parts = []
    for sign, bounds in ((">=", rule.box.low), ("<=", rule.box.high)):
        for j, bound in sorted(bounds.items()):
            compared = f"x{j} {sign} {_number(bound)}"
            missing = f"x{j} is None or " if rule.rule.if_missing else f"x{j} is not None and "
            parts.append(f"({missing}{compared})")
    return " and ".join(parts) or "True"


def _nested(program: Program, tree: FlatTree, node: int, indent: str) -> Iterator[str]:
    """Yield a tree, from a node on, as nested ifs."""
    left = tree.left[node]
    if left < 0:
        yield f"{indent}return {_decision(program, tree.actions[node])}"
        return
    x = f"x{tree.feature[node]}"
    missing = f"{x} is None or" if tree.missing_left[node] else f"{x} is not None and"
    yield f"{indent}if {missing} {x} <= {_number(tree.at_most[node])}:"
    yield from _nested(program, tree, left, indent + "    ")
    yield f"{indent}else:"
    yield from _nested(program, tree, left + 1, indent + "    ")


def _decision(program: Program, actions: tuple[int, ...]) -> str:
    if actions[0] not in program.barred:
        return literal(program.schema.action_labels[actions[0]])
    return f"ACTIONS[_first({actions!r}, barred)]"


def _table(program: Program, tree: FlatTree) -> str:
    """Return a tree as a tuple of nodes: (feature, at_most, missing_left, left child) or (actions,); without rules (action,)."""
    rows, inputs = [""] * len(tree), [*program.used, *program.combined]
    for node, number, left in tree.renumbered():
        actions = tree.actions[node]
        if not actions:
            feature = inputs.index(tree.feature[node])
            rows[number] = f"({feature}, {_number(tree.at_most[node])}, {tree.missing_left[node]}, {left})"
        else:
            rows[number] = f"({actions!r},)" if program.forbidden else f"({actions[0]},)"
    return _tuple(rows)


def _voted(program: Program) -> Iterator[str]:
    yield f"    x = {_tuple([f'x{j}' for j in (*program.used, *program.combined)])}"
    yield f"    votes = [0] * {program.n_actions}"
    yield "    for tree in _TREES:"
    vote = "_first(_vote(tree, x), barred)" if program.forbidden else "_vote(tree, x)"
    yield f"        votes[{vote}] += 1"
    yield "    return ACTIONS[votes.index(max(votes))]"


def _scored(program: Program) -> Iterator[str]:
    scores = program.scores
    if scores is None:
        return
    for j, (origin, unit) in enumerate(zip(scores.origin, scores.unit, strict=True)):
        yield f"    z{j} = (x{j} - {_number(origin)}) / {_number(unit)}"
    yield "    scores = ("
    for row in scores.weights:
        terms = [*(f"z{j} * {_number(w)}" for j, w in enumerate(row[:-1])), _number(row[-1])]
        yield f"        {' + '.join(terms)},"
    yield "    )"
    if program.forbidden:
        yield "    order = sorted(range(len(scores)), key=lambda a: -scores[a])"
        yield "    return ACTIONS[_first(order, barred)]"
    else:
        yield "    return ACTIONS[scores.index(max(scores))]"
