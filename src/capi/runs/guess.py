"""Guess the roles of a table's columns, from their names, types and distinct values."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from capi._utils.late import pyarrow as pa
from capi._utils.validation import Bools, Floats, Ints
from capi.data.readers.arrow import CsvFile, Table, header_of, parquet_table
from capi.data.readers.encode import nan_as_null, numbers
from capi.data.readers.foreign import decoded
from capi.data.table_files import format_of
from capi.errors import InvalidInputError
from capi.runs.table import split_at_commas

FIRST = 1000  # distinct values that are looked at one by one
MOST_ACTIONS = 50  # a column with more values is not a choice among a few actions
FEW_ACTIONS = 12  # values of a column that may be the action although its name says nothing
MOST_STAGES = 20  # rows of episodes that end on schedule
FREE_TEXT = 0.5  # share of distinct values in the rows above which text is not a category
FEW_ROWS = 20  # in which text may differ from row to row and still be a category
OPTIONAL = ("episode", "time", "terminated", "truncated", "propensity", "weight")

CLEAR, VAGUE = 2.0, 1.0  # how much a word in a name says
WORDS: dict[str, dict[float, str]] = {
    "reward": {
        CLEAR: "reward rewards return payoff utility",
        VAGUE: "r y outcome response gain profit benefit revenue margin cost costs loss score target qaly qalys clicked click converted",
    },
    "action": {
        CLEAR: "action actions act decision",
        VAGUE: "a treatment treatments treated treat trt arm drug therapy intervention regimen medication med choice offer assigned "
        "assignment allocation exposure command move campaign variant",
    },
    "episode": {
        CLEAR: "episode episodes trajectory traj",
        VAGUE: "patient patients pid ptid patientid subject subjid usubjid subjectid participant person individual user userid "
        "customer customerid client account member case machine unit device engine asset vehicle session stay icustayid icustay "
        "hadm admission student animal run rollout household id",
    },
    "time": {
        CLEAR: "time t step timestep timestamp datetime date",
        VAGUE: "day week month quarter year hour minute second stage visit period round cycle epoch bloc seq sequence order tick charttime",
    },
    "terminated": {
        CLEAR: "terminated terminal done",
        VAGUE: "end ended died dead death final last failed failure absorbed finished",
    },
    "truncated": {CLEAR: "truncated timeout", VAGUE: "censored dropout lost"},
    "propensity": {CLEAR: "propensity propensities pscore", VAGUE: ""},
    "weight": {
        CLEAR: "",
        VAGUE: "",
    },  # a patient's weight is a state; only names such as sample_weight are weights of rows
}
TRAILING = frozenset(
    (
        "id",
        "ids",
        "code",
        "name",
        "type",
        "label",
        "group",
        "given",
        "taken",
        "value",
        "no",
        "num",
        "number",
        "idx",
        "index",
    )
)
LATER = {"next", "future", "new", "following"}
PROBABILITY, OF_ACTIONS = {"prob", "probability"}, {"action", "behaviour", "behavior", "logging", "logged", "treatment"}
OF_ROWS = {"sample", "sampling", "survey", "row", "case", "design"}
ROW_NUMBERS = {"unnamed", "index", "row", "rownames", "rowid"}


@dataclass(frozen=True)
class GuessedRoles:
    """The roles of a table's columns, as far as they can be guessed.

    Parameters
    ----------
    roles : mapping
        From roles to columns; ``state`` is a list.
    reasons : mapping
        From roles to what the column holds, in a few words.
    unsure : mapping
        From roles to the columns that they could be: the guess, if there is one, comes first.
    left_out : mapping
        From columns without a role to the reason.
    n_rows, n_episodes : int
    """

    roles: Mapping[str, Any]
    reasons: Mapping[str, str]
    unsure: Mapping[str, tuple[str, ...]]
    left_out: Mapping[str, str]
    n_rows: int
    n_episodes: int

    @property
    def one_step(self) -> bool:
        """Whether each episode is a single decision."""
        return self.n_episodes == self.n_rows


def guess_roles(table: str | Path, given: Mapping[str, Any] | None = None) -> GuessedRoles:
    """Guess which column of a CSV or Parquet file is the episode, the time, the action, the reward, and which are states.

    Parameters
    ----------
    table : str or Path
    given : mapping, optional
        Roles that are known, as in `RunSettings`; None as a column means that no column has this role.
    """
    known = dict(given or {})
    header = header_of(table)
    if state := known.get("state"):
        known["state"] = split_at_commas([state] if isinstance(state, str) else state, header.names)
    names = [
        name for role, column in known.items() if column for name in ([column] if isinstance(column, str) else column)
    ]
    header.check_names(names)
    columns = _profiles(table, header.names)
    if not columns or not columns[0].n_rows:
        raise InvalidInputError(f"{table}: the table must have at least one row and one column; it has none.")
    return _Guesser(columns, known).result()


@dataclass(frozen=True, eq=False)
class _Profile:
    """What a column's name, type and distinct values are."""

    name: str
    kind: str  # boolean, integer, real, date, text, empty or other
    codes: Ints  # (n,) its distinct values, numbered; -1 where it is missing
    n_distinct: int
    values: tuple[Any, ...]  # the first distinct values
    numbers: Floats | None  # (n,)

    @property
    def n_rows(self) -> int:
        return len(self.codes)

    @cached_property
    def complete(self) -> bool:
        return bool((self.codes >= 0).all())

    @cached_property
    def words(self) -> list[str]:
        return [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+|[^\W\d_a-zA-Z]+", self.name)]

    @property
    def is_flag(self) -> bool:
        return self.kind == "boolean" or (self.is_number and self.n_distinct <= 2 and set(self.values) <= {0, 1})

    @property
    def is_number(self) -> bool:
        return self.kind in ("boolean", "integer", "real")

    @property
    def is_row_number(self) -> bool:
        one_by_one = self.kind == "integer" and self.numbers is not None and bool((np.diff(self.numbers) == 1).all())
        return self.n_rows > 1 and one_by_one and (self.n_rows > FEW_ROWS or bool(ROW_NUMBERS & set(self.words)))

    def says(self, role: str) -> float:
        """How much the name says that the column has a role; the last word counts most, as in treatment_day."""
        words = [word for word in self.words if not word.isdigit()] or self.words
        while len(words) > 1 and words[-1] in TRAILING:
            words = words[:-1]
        if not words or words[0] in LATER:
            return 0.0
        said = set(self.words)
        if role == "propensity" and PROBABILITY & said and OF_ACTIONS & said:
            return CLEAR
        if role == "weight":
            return CLEAR if words[-1] in ("weight", "weights") and OF_ROWS & said else 0.0
        strength = {word: clear for clear, listed in WORDS[role].items() for word in listed.split()}
        last = strength.get(words[-1], 0.0)
        if not last and role == "reward":  # such as reward_total; patient_age is not a patient
            return max((strength.get(word, 0.0) for word in words), default=0.0) / 4
        return last + (0.5 if last and len(self.words) == 1 else 0.0)


def _profiles(path: str | Path, names: Sequence[str]) -> list[_Profile]:
    table = CsvFile.opened(path).table(names) if format_of(path) == "csv" else parquet_table(path, names)
    return [_profile(name, table) for name in names]


def _profile(name: str, table: Table) -> _Profile:
    array = table.column(name)
    if pa.types.is_dictionary(array.type):
        array = decoded(array)
    kind = _kind(array.type)
    if kind in ("other", "empty"):
        n_values = table.n_rows if kind == "other" else 0
        codes = np.arange(table.n_rows) if n_values else np.full(table.n_rows, -1)
        return _Profile(name, kind, codes, n_values, (), None)
    array = nan_as_null(array)
    amounts: Floats | None = None
    if kind in ("boolean", "integer", "real"):
        amounts = numbers(name, table)
    elif kind == "date":
        amounts = array.cast(pa.timestamp("us"), safe=False).cast(pa.int64()).fill_null(0).to_numpy().astype(float)
    encoded = array.combine_chunks().dictionary_encode()
    codes = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    return _Profile(name, kind, codes, len(encoded.dictionary), tuple(encoded.dictionary[:FIRST].to_pylist()), amounts)


def _kind(kind: Any) -> str:
    types = pa.types
    if types.is_null(kind):
        return "empty"
    if types.is_boolean(kind):
        return "boolean"
    if types.is_integer(kind):
        return "integer"
    if types.is_floating(kind) or types.is_decimal(kind):
        return "real"
    if types.is_date(kind) or types.is_timestamp(kind):
        return "date"
    return "text" if types.is_string(kind) or types.is_large_string(kind) else "other"


@dataclass
class _Guesser:
    """Assigns roles one by one; each takes a column that no other has."""

    columns: Sequence[_Profile]
    given: Mapping[str, Any]
    found: dict[str, _Profile] = field(default_factory=dict)
    unsure: dict[str, tuple[str, ...]] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)

    def result(self) -> GuessedRoles:
        by_name = {column.name: column for column in self.columns}
        for role, name in self.given.items():
            if isinstance(name, str) and role != "state":
                self.found[role] = by_name[name]
        self._guess("action", self._is_action)
        self._guess("reward", lambda column: column.is_number and column.n_distinct > 1)
        self._guess("episode", self._is_episode)
        self._guess("time", self._is_time)
        for flag in ("terminated", "truncated"):
            self._guess(flag, self._is_last)
        self._guess("propensity", _is_probability)
        self._guess("weight", lambda column: column.is_number)
        self._without_a_name()
        states = list(self.given.get("state") or self._states())
        roles = {role: column.name for role, column in self.found.items()}
        episode = self.found.get("episode")
        n_rows = self.columns[0].n_rows
        return GuessedRoles(
            {**{role: roles[role] for role in (*OPTIONAL, "action", "reward") if role in roles}, "state": states},
            {role: _shown(role, column, episode) for role, column in self.found.items()},
            self.unsure,
            self.left_out,
            n_rows,
            n_rows if episode is None else episode.n_distinct,
        )

    def _guess(self, role: str, fits: Callable[[_Profile], bool]) -> None:
        """Give a role to the column whose name says most, among those whose values fit."""
        if role in self.given:
            return
        said = [(column.says(role), column) for column in self._free() if not column.is_row_number]
        fitting = [(score, column) for score, column in said if score > 0 and fits(column)]
        if not fitting:
            return
        fitting.sort(key=lambda pair: -pair[0])
        best = fitting[0][0]
        self.found[role] = fitting[0][1]
        if [score for score, _ in fitting].count(best) > 1:
            self.unsure[role] = tuple(column.name for _, column in fitting)

    def _without_a_name(self) -> None:
        """Guess from types and values alone what no name says; all of it is unsure."""
        if "action" not in self.found and "action" not in self.given:
            few = [
                c for c in self._free() if 2 <= c.n_distinct <= FEW_ACTIONS and c.kind in ("text", "boolean", "integer")
            ]
            few.sort(key=lambda column: column.kind != "text")
            self._maybe("action", few)
        if "reward" not in self.found and "reward" not in self.given:
            self._maybe(
                "reward", [c for c in reversed(self._free()) if c.is_number and c.n_distinct > 1 and c.complete]
            )
        if "episode" not in self.found and "episode" not in self.given:
            times = [c for c in self._free() if c.says("time") and c.complete and c.numbers is not None]
            units = [
                c
                for c in self._free()
                if self._is_episode(c) and any(_distinct_pairs(c, t) for t in times if t is not c)
            ]
            self._maybe("episode", units)
            if "episode" in self.found:
                self._guess("time", self._is_time)

    def _maybe(self, role: str, columns: Sequence[_Profile]) -> None:
        if columns:
            self.found[role] = columns[0]
        if columns or role not in OPTIONAL:
            self.unsure[role] = tuple(column.name for column in columns)

    def _free(self) -> list[_Profile]:
        taken = {column.name for column in self.found.values()}
        taken |= set(self.given.get("state") or ())
        return [column for column in self.columns if column.name not in taken]

    def _is_action(self, column: _Profile) -> bool:
        return (
            column.kind != "date" and 2 <= column.n_distinct <= MOST_ACTIONS and 2 * column.n_distinct <= column.n_rows
        )

    def _is_episode(self, column: _Profile) -> bool:
        return column.complete and column.kind in ("integer", "text") and 2 <= column.n_distinct < column.n_rows

    def _is_time(self, column: _Profile) -> bool:
        episode = self.found.get("episode")
        return (
            episode is not None
            and column.kind in ("integer", "real", "date")
            and column.complete
            and _distinct_pairs(episode, column)
        )

    def _is_last(self, column: _Profile) -> bool:
        """Whether a flag is set only in the last rows of episodes."""
        episode = self.found.get("episode")
        if episode is None or not column.is_flag or column.numbers is None:
            return False
        set_in = np.nan_to_num(column.numbers) > 0
        return not bool((set_in & ~_last_rows(episode, self.found.get("time"))).any())

    def _states(self) -> list[str]:
        for column in self._free():
            if reason := self._reason_against(column):
                self.left_out[column.name] = reason
        states = [column.name for column in self._free() if column.name not in self.left_out]
        return [self.found["time"].name, *states] if self._ends_on_schedule() else states

    def _ends_on_schedule(self) -> bool:
        """Whether all episodes have the same few rows, so that the time says how many decisions are still to come."""
        episode, time = self.found.get("episode"), self.found.get("time")
        if episode is None or time is None or time.kind == "date" or "terminated" in self.found:
            return False
        lengths = np.bincount(episode.codes)
        return bool(2 <= lengths.min() == lengths.max() <= MOST_STAGES and time.n_distinct == lengths.max())

    def _reason_against(self, column: _Profile) -> str | None:
        """Return why a column should not be a state, if so."""
        if column.n_distinct < 2:
            return "it has one value" if column.n_distinct else "it is empty"
        if column.kind == "other":
            return "its type is not a number, a date or text"
        if column.is_row_number or (column.says("episode") and column.n_distinct == column.n_rows):
            return "it numbers the rows"
        if column.words and column.words[0] in LATER:
            return "it is known only after the decision"
        if column.kind == "date":
            return "it is a date: add an age or a duration instead"
        if column.kind == "text" and column.n_rows > FEW_ROWS and column.n_distinct > FREE_TEXT * column.n_rows:
            return "it is free text, different in most rows"
        if column.says("episode") >= CLEAR or (column.says("episode") and column.words[-1] == "id"):
            return "it is an identifier"
        if column.says("reward") >= VAGUE and column.is_number:
            return "it may be an outcome, known only after the decision"
        if any(column.says(flag) for flag in ("terminated", "truncated")) and column.is_flag:
            return "it may be known only after the decision"
        if column.says("propensity") or column.says("weight"):
            return "it describes how the data were collected"
        for role in ("action", "reward"):
            if role in self.found and _same(column, self.found[role]):
                return f"it says the same as the {role}"
        return None


def _distinct_pairs(first: _Profile, second: _Profile) -> bool:
    pairs = first.codes * (second.n_distinct + 1) + second.codes
    return len(np.unique(pairs)) == len(pairs)


def _same(one: _Profile, other: _Profile) -> bool:
    """Whether the values of two columns name each other; values that hardly ever repeat always do."""
    if 2 * one.n_distinct > one.n_rows:
        return False
    pairs = (one.codes + 1) * (other.n_distinct + 2) + other.codes + 1
    n_pairs = len(np.unique(pairs))
    return n_pairs == len(np.unique(one.codes)) == len(np.unique(other.codes))


def _last_rows(episode: _Profile, time: _Profile | None) -> Bools:
    """Return (n,) which rows are the last of their episode."""
    when = np.arange(episode.n_rows) if time is None or time.numbers is None else time.numbers
    order = np.lexsort((when, episode.codes))
    last = np.zeros(episode.n_rows, dtype=bool)
    last[order[np.append(np.diff(episode.codes[order]) != 0, True)]] = True
    return last


def _is_probability(column: _Profile) -> bool:
    return (
        column.kind in ("integer", "real")
        and column.numbers is not None
        and bool(((column.numbers > 0) & (column.numbers <= 1)).all())
    )


def _shown(role: str, column: _Profile, episode: _Profile | None) -> str:
    """Return what a column holds, in a few words."""
    if role == "episode":
        lengths = np.bincount(column.codes[column.codes >= 0])
        return f"{column.n_distinct} values, {lengths.min()} to {lengths.max()} rows each"
    if role == "action":
        counts = np.bincount(column.codes[column.codes >= 0], minlength=column.n_distinct)
        order = [i for i in np.argsort(-counts, kind="stable")[:6] if i < FIRST]
        listed = ", ".join(f"{column.values[i]} {counts[i]}" for i in order)
        return listed + (f", and {column.n_distinct - 6} more" if column.n_distinct > 6 else "")
    if role in ("terminated", "truncated") and column.numbers is not None and episode is not None:
        return f"set at the end of {int(np.nansum(column.numbers))} of {episode.n_distinct} episodes"
    if column.numbers is not None and column.kind != "date" and column.n_distinct:
        low, high = np.nanmin(column.numbers), np.nanmax(column.numbers)
        return f"{low:.4g} to {high:.4g}"
    return f"{column.n_distinct} values"
