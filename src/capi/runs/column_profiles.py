"""What the name, the type and the values of a column say about its role."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from capi._utils.late import pyarrow as pa
from capi._utils.validation import Bools, Floats, Ints
from capi.data.columns import MOST_VALUES
from capi.data.readers.arrow import CsvFile, Table, parquet_table
from capi.data.readers.encode import nan_as_null, numbers
from capi.data.readers.foreign import decoded
from capi.data.table_files import format_of

FIRST = 1000  # distinct values that are looked at one by one
FEW_ROWS = 20  # in which text may differ from row to row and still be a category
CLEAR, VAGUE = 2.0, 1.0  # how much a word in a name says
WORDS: dict[str, dict[float, str]] = {
    "reward": {
        CLEAR: "reward rewards return payoff utility belohnung récompense recompensa",
        VAGUE: "r y outcome response gain profit benefit revenue margin score target qaly qalys qol clicked click converted wellbeing improvement "
        "ergebnis nutzen gewinn ertrag résultat bénéfice resultado beneficio ganancia",
    },
    "cost": {CLEAR: "cost costs", VAGUE: "loss penalty expense expenses kosten coût costo coste"},
    "action": {
        CLEAR: "action actions act decision aktion entscheidung décision decisión acción",
        VAGUE: "a treatment treatments treated treat trt arm arms drug drugs dose dosage therapy intervention regimen medication med prescription prescribed "
        "given choice offer assigned assignment allocation exposure command move campaign variant maintenance repair "
        "behandlung therapie maßnahme traitement tratamiento",
    },
    "episode": {
        CLEAR: "episode episodes trajectory traj",
        VAGUE: "patient patients pid ptid patientid subject subjid usubjid subjectid participant person individual user userid "
        "customer customerid client account member case machine unit device engine asset vehicle session stay icustayid icustay "
        "hadm admission student animal run rollout household id patientin patientennummer patientennr patientenid kunde kundin kundennummer maschine fall fallnummer cliente paciente máquina",
    },
    "time": {
        CLEAR: "time t step timestep timestamp datetime date",
        VAGUE: "day week month quarter year hour minute second stage visit period round cycle epoch bloc seq sequence order tick charttime "
        "zeit zeitpunkt tag woche monat jahr datum besuchsdatum besuch stunde schritt jour semaine mois année heure día semana mes año fecha",
    },
    "terminated": {
        CLEAR: "terminated terminal done",
        VAGUE: "end ended died dead death mortality final last failed failure absorbed finished",
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
        "after",
        "total",
        "row",  # as in last_row
        "in",  # as in Patient:in
    )
)
LATER = {"next", "future", "new", "following"}
PROBABILITY, OF_ACTIONS = {"prob", "probability"}, {"action", "behaviour", "behavior", "logging", "logged", "treatment"}
OF_ROWS = {"sample", "sampling", "survey", "row", "case", "design"}
ROW_NUMBERS = {"unnamed", "index", "row", "rownames", "rowid"}
NAMELESS = re.compile(r"\s*(Unnamed: \d+)?\s*")  # as pandas writes and reads an index
SLASHED_DATE = re.compile(r"\d{1,4}[/.]\d{1,2}[/.]\d{2,4}([ T].*)?")
GROUPED = re.compile(r"[+-]?\d{1,3}([., '\u2019\u00a0]\d{3})+([.,]\d+)?")
PERCENT = re.compile(r"[+-]?\d+([.,]\d+)?\s*%")
PLAIN = re.compile(r"[+-]?(\d+([.,]\d*)?|[.,]\d+)([eE][+-]?\d+)?")
NO_NUMBER = re.compile(r"[<>≤≥].*|\D*")  # below what can be measured, or words such as unknown; V57 is a code
MOST_OTHERS = 0.1  # distinct values of numbers that may be something else
NUMERIC = re.compile(r"[+-]?[\d., '\u2019\u00a0]+")


@dataclass(frozen=True, eq=False)
class Profile:
    """What a column's name, type and distinct values are."""

    name: str
    kind: str  # boolean, integer, real, date, text, empty or other
    codes: Ints  # (n,) its distinct values, numbered; -1 where it is missing
    n_distinct: int
    values: tuple[Any, ...]  # the first distinct values
    numbers: Floats | None  # (n,)

    @property
    def n_rows(self) -> int:
        """Rows of the table."""
        return len(self.codes)

    @cached_property
    def complete(self) -> bool:
        """Whether no value is missing."""
        return bool((self.codes >= 0).all())

    @cached_property
    def words(self) -> list[str]:
        """The words of the name without a unit in brackets, such as patient and id in PatientID."""
        plain = re.sub(r"\([^)]*\)|\[[^]]*\]", "", self.name)
        found = re.findall(r"[A-ZÀ-Þ]+(?![a-zß-ÿ])|[A-ZÀ-Þ]?[a-zß-ÿ]+|\d+|[^\W\d_]", plain)
        return [word.lower() for word in found]

    @property
    def is_flag(self) -> bool:
        """Whether it is true or false, or 1 or 0."""
        return self.kind == "boolean" or (self.is_number and self.n_distinct <= 2 and set(self.values) <= {0, 1})

    @property
    def is_number(self) -> bool:
        """Whether its type is a number or a boolean."""
        return self.kind in ("boolean", "integer", "real")

    @property
    def is_row_number(self) -> bool:
        """Whether it counts the rows of the table, or counted them before they were sorted, filtered or followed by empty ones."""
        if NAMELESS.fullmatch(self.name) and self.kind == "integer" and self.n_rows > 1:
            return self.n_distinct == int((self.codes >= 0).sum())
        one_by_one = self.kind == "integer" and self.numbers is not None and bool((np.diff(self.numbers) == 1).all())
        return self.n_rows > 1 and one_by_one and (self.n_rows > FEW_ROWS or bool(ROW_NUMBERS & set(self.words)))

    def mentions(self, *roles: str) -> bool:
        """Return whether some word of the name says one of the roles, as in died_in_hospital."""
        listed = {word for role in roles for words in WORDS[role].values() for word in words.split()}
        return bool(listed & set(self.words))

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


def sounds_like_a_cost(name: str) -> bool:
    """Return whether the name of a column says that smaller values are better."""
    nothing = Profile(name, "empty", np.zeros(0, dtype=np.int64), 0, (), None)
    return nothing.says("cost") >= VAGUE > nothing.says("reward")


def profiles_of(path: str | Path, names: Sequence[str]) -> list[Profile]:
    """Return what is to be known about the named columns of a CSV or Parquet file."""
    table = CsvFile.opened(path).table(names) if format_of(path) == "csv" else parquet_table(path, names)
    return [_profile(name, table) for name in names]


def _profile(name: str, table: Table) -> Profile:
    array = table.column(name)
    if pa.types.is_dictionary(array.type):
        array = decoded(array)
    kind = _kind(array.type)
    if kind in ("other", "empty"):
        n_values = table.n_rows if kind == "other" else 0
        codes = np.arange(table.n_rows) if n_values else np.full(table.n_rows, -1)
        return Profile(name, kind, codes, n_values, (), None)
    array = nan_as_null(array)
    amounts: Floats | None = None
    if kind in ("boolean", "integer", "real"):
        amounts = numbers(name, table)
    elif kind == "date":
        amounts = array.cast(pa.timestamp("us"), safe=False).cast(pa.int64()).fill_null(0).to_numpy().astype(float)
    encoded = array.combine_chunks().dictionary_encode()
    codes = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    return Profile(name, kind, codes, len(encoded.dictionary), tuple(encoded.dictionary[:FIRST].to_pylist()), amounts)


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


def distinct_pairs(first: Profile, second: Profile) -> bool:
    """Return whether no two rows agree in both columns."""
    pairs = first.codes * (second.n_distinct + 1) + second.codes
    return len(np.unique(pairs)) == len(pairs)


def increases(unit: Profile, column: Profile) -> bool:
    """Return whether the rows of each unit follow each other, several on average, and the column increases from each to the next."""
    within = unit.codes[1:] == unit.codes[:-1]
    follow = bool(len(within)) and int((~within).sum()) + 1 == unit.n_distinct and 2 * unit.n_distinct <= unit.n_rows
    return follow and column.numbers is not None and bool((np.diff(column.numbers)[within] > 0).all())


def same_order(unit: Profile, one: Profile, other: Profile) -> bool:
    """Return whether two complete columns order the rows of each unit in the same way."""
    if one.numbers is None or other.numbers is None:
        return False
    return np.array_equal(np.lexsort((one.numbers, unit.codes)), np.lexsort((other.numbers, unit.codes)))


def is_amount(column: Profile) -> bool:
    """Return whether a column can be a reward."""
    return column.is_number and column.n_distinct > 1


def is_clock(column: Profile) -> bool:
    """Return whether a complete column never decreases from row to row, and mostly increases."""
    steps = np.zeros(0) if column.numbers is None or not column.complete else np.diff(column.numbers)
    return len(steps) > 0 and bool((steps >= 0).all()) and bool((steps > 0).mean() > 0.5)


def unread_form(column: Profile) -> str | None:
    """Return why text that looks like dates or numbers was not read as such, if so."""
    texts = [str(value).strip() for value in column.values]
    if texts and all(map(SLASHED_DATE.fullmatch, texts)):
        return "its dates are text: write them as 2024-12-31"
    if texts and any(map(GROUPED.fullmatch, texts)) and all(map(NUMERIC.fullmatch, texts)):
        return "its numbers are text: write them without separators of thousands"
    if texts and all(map(PERCENT.fullmatch, texts)):
        return "its numbers are text: write them without the percent sign"
    others = [text for text in texts if not PLAIN.fullmatch(text)]
    few = 0 < len(others) <= MOST_OTHERS * len(texts)
    if (
        few and len(texts) > MOST_VALUES and all(map(NO_NUMBER.fullmatch, others))
    ):  # fewer are categories without an order
        shown = f"{others[0][:40]!r} (row {int((column.codes == texts.index(others[0])).argmax()) + 1})"
        return f"its numbers are text because of entries such as {shown}: write a number there, or nothing"
    return None


def same(one: Profile, other: Profile) -> bool:
    """Return whether the values of two columns name each other; values that hardly ever repeat always do."""
    if 2 * one.n_distinct > one.n_rows:
        return False
    pairs = (one.codes + 1) * (other.n_distinct + 2) + other.codes + 1
    n_pairs = len(np.unique(pairs))
    return n_pairs == len(np.unique(one.codes)) == len(np.unique(other.codes))


def last_rows(episode: Profile, time: Profile | None) -> Bools:
    """Return (n,) which rows are the last of their episode, all of those that have the last time."""
    when = np.arange(episode.n_rows) if time is None or time.numbers is None else time.numbers
    order = np.lexsort((when, episode.codes))
    last = np.zeros(episode.n_rows, dtype=bool)
    ends = order[np.append(np.diff(episode.codes[order]) != 0, True)]
    last[ends] = True
    at_end = np.zeros(episode.n_distinct + 1)  # the first place is that of rows without an id
    at_end[episode.codes[ends] + 1] = when[ends]
    same_time: Bools = when == at_end[episode.codes + 1]
    return last | same_time


def probable(column: Profile) -> Bools:
    """Return (n,) which values are above 0 and at most 1."""
    if column.kind not in ("integer", "real") or column.numbers is None:
        return np.zeros(column.n_rows, dtype=bool)
    return (column.numbers > 0) & (column.numbers <= 1)


def is_probability(column: Profile) -> bool:
    """Return whether all values are above 0 and at most 1."""
    return bool(probable(column).all())
