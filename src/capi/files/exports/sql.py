"""Export of a policy as one SQL expression for SQLite and DuckDB; NULL means missing.

Numbers must be read exactly. DuckDB reads a number without an exponent as a decimal, so all numbers have one. SQLite's parser of
decimals is off by one bit for a few numbers: where that could happen, a number is written as a quotient of integers, which is exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from fractions import Fraction
from math import ceil, floor
from typing import Any

import numpy as np

from capi.data.columns import DAY, Column
from capi.errors import InvalidInputError
from capi.files.exports.flat_tree import FlatTree
from capi.files.exports.program import Program
from capi.policy_spaces.rules import Forbidden

DEEPEST = 20  # splits on a path: SQLite's parser can take a few more, but not as many as its other limits allow
DEEPEST_OF_MANY = 12  # the votes of a forest need parser depth, too
WHOLE = 2**53  # up to here every integer is a double
POWER = 2**52
SAFE = Fraction(1, 2**60)  # least distance of a decimal from a rounding boundary, relative to its size


def sql_code(program: Program, note: str = "", table: str | None = None) -> str:
    """Return the expression; ``table`` qualifies the names of columns."""
    deepest = DEEPEST if len(program.trees) <= 1 else DEEPEST_OF_MANY
    if program.depth > deepest:
        raise InvalidInputError(
            f"trees must have at most {deepest} splits on a path to be written as SQL that SQLite accepts; got {program.depth}. "
            "Learn with a smaller max_depth, or export a tree that imitates the policy (imitate=True, --imitate)."
        )
    code = _Code(program, table).expression()
    return "".join(f"-- {line}\n" for line in note.splitlines()) + code


def name(text: str) -> str:
    """Return a quoted name."""
    if not text or "\0" in text:
        raise InvalidInputError(f"names in SQL must not be empty or contain the character NUL; got {text!r}.")
    return '"' + text.replace('"', '""') + '"'


def value(item: Any) -> str:
    """Return a label or a category as an SQL literal."""
    if item is None:
        return "NULL"
    if type(item) is bool:
        return "TRUE" if item else "FALSE"
    if type(item) is int and abs(item) < 2**63:
        return str(item)
    if type(item) is float and np.isfinite(item):
        return number(item)
    if type(item) is str and "\0" not in item:
        return "'" + item.replace("'", "''") + "'"
    raise InvalidInputError(f"labels must be text, numbers, booleans or None to be written as SQL; got {item!r}.")


def number(x: float) -> str:
    """Return an SQL expression for a finite number that is exact as a double."""
    text = repr(float(x))
    if _reads_well(x):
        return text if "e" in text else f"{text}e0"
    mantissa, exponent = float(x).as_integer_ratio()[0], Fraction(x).denominator.bit_length() - 1
    if exponent == 0:
        exponent = -((abs(mantissa) & -abs(mantissa)).bit_length() - 1)
        mantissa >>= -exponent
    sign, left = ("/", exponent) if exponent > 0 else ("*", -exponent)
    factors = [POWER] * (left // 52) + ([2 ** (left % 52)] if left % 52 else [])
    return f"({mantissa}e0{''.join(f' {sign} {factor}e0' for factor in factors)})"


def _reads_well(x: float) -> bool:
    """Return whether any parser slightly more precise than a double reads this decimal correctly: it is short and not near a rounding boundary."""
    digits, _, power = f"{float(x)!r}".partition("e")
    shown = Fraction(digits) * Fraction(10) ** int(power or 0)
    whole = digits.replace(".", "").replace("-", "").lstrip("0") or "0"
    places = len(digits.partition(".")[2])
    if int(whole) >= WHOLE or abs(int(power or 0) - places) > 22:
        return False
    gap = min(
        abs(shown - (Fraction(x) + Fraction(near)) / 2) for near in (np.nextafter(x, np.inf), np.nextafter(x, -np.inf))
    )
    return shown == 0 or gap > SAFE * abs(shown)


class _Code:
    """Writer of one program."""

    def __init__(self, program: Program, table: str | None) -> None:
        self.program, self.prefix = program, "" if table is None else f"{name(table)}."
        names = [column.name for column in program.schema.columns]
        lower: dict[str, str] = {}
        for each in names:
            other = lower.setdefault(each.lower(), each)
            if other != each:
                raise InvalidInputError(
                    f"columns {other!r} and {each!r} are the same in SQL, which ignores case. Rename one of them."
                )
        self.own = "capi_"  # prefix of generated names
        while any(each.startswith(self.own) for each in lower):
            self.own += "_"
        labels = program.schema.action_labels
        alike = len({float if type(x) in (int, float) else type(x) for x in labels if x is not None}) <= 1
        plain = [value(x) for x in labels]
        # All labels must have the same type, because they form one column.
        self.labels = plain if alike else ["NULL" if x is None else value(str(x)) for x in labels]

    def expression(self) -> str:
        program = self.program
        if program.scores is not None:
            code = self._scored()
        elif len(program.trees) == 1:
            code = self._tree(program.trees[0], 0, self.labels, "")
        else:
            code = self._voted()
        missing = [f"{self._known(j)} IS NULL" for j in program.needed]
        return f"CASE WHEN {' OR '.join(missing)} THEN NULL ELSE\n{code}\nEND" if missing else code

    def _tree(self, tree: FlatTree, node: int, words: Sequence[str], indent: str) -> str:
        """Return a tree, from a node on."""
        first = tree.left[node]
        if first < 0:
            return indent + self._decision(tree.actions[node], words)
        condition = self._compared(tree.feature[node], "<=", tree.at_most[node])
        if tree.missing_left[node]:
            condition = f"({self._known(tree.feature[node])} IS NULL OR {condition})"
        left, right = (self._tree(tree, child, words, indent + "  ") for child in (first, first + 1))
        return f"{indent}CASE WHEN {condition} THEN\n{left}\n{indent}ELSE\n{right}\n{indent}END"

    def _decision(self, actions: tuple[int, ...], words: Sequence[str]) -> str:
        code = "NULL"
        for action in reversed(actions):
            rules = [rule for rule in self.program.forbidden if action in rule.actions]
            barred = " OR ".join(self._holds(rule) for rule in rules)
            code = f"CASE WHEN {barred} THEN {code} ELSE {words[action]} END" if rules else words[action]
        return code

    def _holds(self, rule: Forbidden) -> str:
        parts = []
        for sign, bounds in ((">=", rule.box.low), ("<=", rule.box.high)):
            for j, bound in sorted(bounds.items()):
                compared = self._compared(j, sign, bound)
                parts.append(f"({self._known(j)} IS NULL OR {compared})" if rule.rule.if_missing else f"({compared})")
        return f"({' AND '.join(parts)})" if parts else "(1 = 1)"

    def _voted(self) -> str:
        """Return a query without a table: the innermost level has the votes of the trees, the next their counts, the outermost the largest count."""
        n = self.program.n_actions
        numbers = [str(a) for a in range(n)]
        votes = ",\n".join(
            f"{self._tree(tree, 0, numbers, '    ')} AS {self.own}t{i}" for i, tree in enumerate(self.program.trees)
        )
        counts = [
            _sum([f"CASE WHEN {self.own}t{i} = {a} THEN 1 ELSE 0 END" for i in range(len(self.program.trees))])
            for a in range(n)
        ]
        counted = ",\n".join(f"    {count} AS {self.own}s{a}" for a, count in enumerate(counts))
        no_votes = " + ".join(f"{self.own}s{a}" for a in range(n)) + " = 0"
        return (
            f"(SELECT {self._largest([], no_votes)}\n  FROM (SELECT\n{counted}\n  FROM (SELECT\n{votes}\n  ) AS {self.own}votes"
            f") AS {self.own}counts)"
        )

    def _scored(self) -> str:
        scores = self.program.scores
        if scores is None:
            return "NULL"
        columns = [
            f"({self._feature(j)} - {number(o)}) / {number(u)} AS {self.own}z{j}"
            for j, (o, u) in enumerate(zip(scores.origin, scores.unit, strict=True))
        ]
        barred = sorted(self.program.barred)
        for a in barred:
            rules = " OR ".join(self._holds(rule) for rule in self.program.forbidden if a in rule.actions)
            columns.append(f"CASE WHEN {rules} THEN 1 ELSE 0 END AS {self.own}b{a}")
        sums = []
        for a, row in enumerate(scores.weights):
            terms = [*(f"{self.own}z{j} * {number(w)}" for j, w in enumerate(row[:-1])), number(row[-1])]
            sums.append(f"{' + '.join(terms)} AS {self.own}s{a}")
        sums += [f"{self.own}b{a}" for a in barred]
        inner, outer = ",\n    ".join(columns), ",\n    ".join(sums)
        return (
            f"(SELECT {self._largest(barred, None)}\n  FROM (SELECT\n    {outer}\n  FROM (SELECT\n    {inner}\n  ) AS {self.own}scaled"
            f") AS {self.own}scores)"
        )

    def _largest(self, barred: Sequence[int], no_votes: str | None) -> str:
        """Return the label of the largest of the columns s, excluding barred ones; the first one wins ties."""
        n, parts = self.program.n_actions, [] if no_votes is None else [f"WHEN {no_votes} THEN NULL"]
        for a in range(n):
            conditions = [f"{self.own}b{a} = 0"] if a in barred else []
            for c in range(n):
                if c != a:
                    larger = f"{self.own}s{a} >= {self.own}s{c}"
                    conditions.append(f"({self.own}b{c} = 1 OR {larger})" if c in barred else larger)
            parts.append(f"WHEN {' AND '.join(conditions) or '1 = 1'} THEN {self.labels[a]}")
        return f"CASE {' '.join(parts)} END"

    def _column(self, column: Column) -> str:
        return self.prefix + name(column.name)

    def _known(self, j: int) -> str:
        """Return an expression that is NULL where the feature is missing."""
        if self.program.terms(j):
            return self._feature(j)
        column = self.program.features[j].column
        return self._feature(j) if column.values else self._column(column)

    def _feature(self, j: int) -> str:
        """Return the expression of a feature's number."""
        if terms := self.program.terms(j):
            return f"({' + '.join(f'{number(c)} * ({self._feature(i)})' for i, c in terms)})"
        column, position = self.program.features[j].column, self.program.features[j].position
        code = self._column(column)
        if column.kind == "date":
            raise InvalidInputError(
                f"column {column.name!r} holds dates, and SQLite and DuckDB write the difference of dates differently. "
                "Use a number of days instead, or export a tree."
            )
        if column.kind == "boolean":
            return f"CASE WHEN {code} THEN 1 WHEN NOT {code} THEN 0 END"
        if column.kind == "codes":
            whens = " ".join(f"WHEN {value(v)} THEN {i}" for i, v in enumerate(column.listed))
            known = f"CASE {code} {whens} END"
            return _or_rest(code, known if whens else "NULL", len(column.listed)) if column.rest else known
        if column.kind == "one-hot" and column.rest:
            listed = ", ".join(
                value(v) for v in (column.listed if position == len(column.listed) else [column.values[position]])
            )
            inside, outside = (0, 1) if position == len(column.listed) else (1, 0)
            return _or_rest(code, f"CASE WHEN {code} IN ({listed}) THEN {inside} END" if listed else "NULL", outside)
        if column.kind == "one-hot":
            others = [value(v) for i, v in enumerate(column.values) if i != position]
            no = f" WHEN {code} IN ({', '.join(others)}) THEN 0" if others else ""
            return f"CASE WHEN {code} = {value(column.values[position])} THEN 1{no} END"
        return code

    def _compared(self, j: int, sign: str, bound: float) -> str:
        """Return the condition that a feature is known and at most, or at least, a number."""
        if np.isinf(bound):
            return f"{self._known(j)} IS NOT NULL" if (bound > 0) == (sign == "<=") else "1 = 0"
        if self.program.terms(j):
            return f"{self._feature(j)} {sign} {number(bound)}"
        column = self.program.features[j].column
        if column.kind == "date":
            code = self._column(column)
            if "T" in str(column.origin):  # times may be written with a T or with a space, and are compared as text
                code = f"replace(CAST({code} AS TEXT), 'T', ' ')"
            return f"{code} {sign} {value(_moment(column, sign, bound))}"
        code = self._feature(j)
        return f"{code if column.kind == 'number' else f'({code})'} {sign} {number(bound)}"


def _or_rest(code: str, known: str, rest: int) -> str:
    """Return ``known``, or ``rest`` for a value that is not among the listed ones."""
    return f"coalesce({known}, CASE WHEN {code} IS NOT NULL THEN {rest} END)"


def _moment(column: Column, sign: str, bound: float) -> str:
    """Return the last time at most, or the first time at least, ``bound`` days after the origin."""
    origin = datetime.fromisoformat(str(column.origin))
    whole_days = "T" not in str(column.origin)
    exact = Fraction(bound) if whole_days else Fraction(bound) * DAY
    steps = floor(exact) if sign == "<=" else ceil(exact)
    moment = origin + (timedelta(days=steps) if whole_days else timedelta(microseconds=steps))
    return moment.date().isoformat() if whole_days else moment.isoformat(sep=" ", timespec="microseconds")


def _sum(terms: list[str]) -> str:
    """Return a sum as a balanced expression, to limit its depth."""
    if len(terms) == 1:
        return terms[0]
    half = len(terms) // 2
    return f"({_sum(terms[:half])} + {_sum(terms[half:])})"
