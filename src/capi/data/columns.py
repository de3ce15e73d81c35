"""How a column of a table is encoded as features: the record, the decoding, and the text of a split's condition.

    number    one feature, as it is
    boolean   one feature, 0 or 1
    date      one feature, the days since the origin, with fractions where there is a time of day
    one-hot   categories: one feature per value, 0 or 1
    codes     ordered categories, or more than `MOST_VALUES` of them: one feature, the position among the values, from 0

A missing value is NaN in all features of its column.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from capi._utils.validation import Floats, as_names, check_choice
from capi.errors import InvalidInputError

Kind: TypeAlias = Literal["number", "boolean", "date", "one-hot", "codes"]

MOST_VALUES = 20  # columns with more categories get codes
MOST_LISTED = 6  # values that a condition lists; longer lists become ranges
DAY = 86_400_000_000  # microseconds


@dataclass(frozen=True, slots=True)
class Column:
    """A state column of the user's table and how it is encoded.

    Parameters
    ----------
    name : str
        Its name in the table.
    kind : "number", "boolean", "date", "one-hot" or "codes"
    values : tuple
        The categories of a one-hot or coded column, in order: strings, numbers or booleans.
    rest : bool
        Whether the last of the values, such as "other", stands for all values that are not listed: those too rare to be listed when
        the encoding was learned, and those that did not occur.
    origin : str, optional
        The ISO date from which a date column counts its days. With a time of day (``"2021-03-04T00:00:00"``) the column holds
        points in time, otherwise whole days. Times with a zone are converted to UTC.

    Examples
    --------
    >>> sex = Column("sex", "one-hot", ("female", "male"))
    >>> sex.feature_names
    ('sex=female', 'sex=male')
    >>> sex.decode(np.array([[0.0, 1.0], [np.nan, np.nan]]))
    array(['male', None], dtype=object)
    >>> sex.condition(1, 0.5)
    'sex is not male'
    """

    name: str
    kind: Kind = "number"
    values: tuple[Any, ...] = ()
    origin: str | None = None
    rest: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.name, str):
            raise InvalidInputError(f"column names must be strings; got {self.name!r}.")
        check_choice(self.kind, f"the kind of column {self.name!r}", get_args(Kind))
        object.__setattr__(self, "values", as_names(self.values, f"values of column {self.name!r}", len(self.values)))
        if bool(self.values) != (self.kind in ("one-hot", "codes")):
            raise InvalidInputError(
                f"column {self.name!r} of kind {self.kind!r} has the values {self.values!r}; "
                "one-hot and coded columns must have values, and others must not."
            )
        if not isinstance(self.rest, bool) or (self.rest and not self.values):
            raise InvalidInputError(
                f"rest of column {self.name!r} must be True or False, and True only with values; got {self.rest!r}."
            )
        if (self.origin is not None) != (self.kind == "date"):
            raise InvalidInputError(
                f"column {self.name!r} of kind {self.kind!r} has the origin {self.origin!r}; "
                "date columns must have an origin, and others must not."
            )
        if self.kind == "date":
            self._origin()

    @property
    def listed(self) -> tuple[Any, ...]:
        """The values that stand for themselves."""
        return self.values[:-1] if self.rest else self.values

    @property
    def is_ordered(self) -> bool:
        """Whether the table or the user declared an order of the categories; many categories in sorted order count as unordered."""
        in_order = sorted(
            self.listed, key=lambda value: (isinstance(value, str), value)
        )  # files may mix strings and numbers
        return self.kind == "codes" and (len(self.values) <= MOST_VALUES or self.listed != tuple(in_order))

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of its features."""
        return tuple(f"{self.name}={value}" for value in self.values) if self.kind == "one-hot" else (self.name,)

    def decode(self, features: Floats) -> NDArray[Any]:
        """Return the column (n,) that its features (n, width) encode: None, NaN or NaT where it is missing."""
        missing = np.isnan(features[:, 0])
        if self.kind == "number":
            return features[:, 0].copy()
        if self.kind == "date":
            return self._dates(np.where(missing, 0.0, features[:, 0]), missing)
        choices: Sequence[Any] = self.values or (False, True)
        position = (
            features.argmax(axis=1) if self.kind == "one-hot" else np.where(missing, 0, features[:, 0]).astype(int)
        )
        if self.kind == "one-hot":
            missing |= features.max(axis=1) == 0  # a state that `encode` did not produce
        known = ~missing & (position >= 0) & (position < len(choices))
        decoded = np.full(len(features), None, dtype=object)
        decoded[known] = np.fromiter(choices, dtype=object)[position[known]]
        return decoded.astype(bool) if self.kind == "boolean" and known.all() else decoded

    def condition(self, feature: int, at_most: float | None, missing_too: bool = False) -> str:
        """Return the condition that ``feature``, counted within the column, is at most a number, as text.

        Parameters
        ----------
        feature : int
            Index of the feature in the column; 0 unless it is one-hot.
        at_most : float, optional
            None means that the column is known.
        missing_too : bool
            Whether missing values meet the condition, too.
        """
        if at_most is None or np.isinf(at_most):
            return f"{self.name} is known"
        if self.kind == "number":
            text = f"{self.name} <= {at_most!r}"
        elif self.kind == "date":
            text = f"{self.name} {self._until(at_most)}"
        elif not 0 <= at_most < (len(self.values) - 1 if self.kind == "codes" else 1):
            text = f"{self.feature_names[feature]} <= {at_most!r}"  # true of all known values, or of none
        elif self.kind == "codes":
            text = f"{self.name} {_among(self.values, int(at_most) + 1)}"
        else:
            text = f"{self.name} is false" if self.kind == "boolean" else f"{self.name} is not {self.values[feature]}"
        return text + (" or is missing" if missing_too else "")

    def to_dict(self) -> dict[str, Any]:
        """Return the record as plain JSON values."""
        plain: dict[str, Any] = {"name": self.name, "kind": self.kind}
        if self.values:
            plain["values"] = list(self.values)
        if self.rest:
            plain["rest"] = True
        return plain if self.origin is None else {**plain, "origin": self.origin}

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Column:
        """Return the column of a record from `to_dict`, checked."""
        if not isinstance(record, Mapping) or not {"name", "kind"} <= set(record) <= {
            "name",
            "kind",
            "values",
            "origin",
            "rest",
        }:
            raise InvalidInputError(
                f"a column must be a record of name, kind, values, origin and rest; got {record!r}."
            )
        values = record.get("values", ())
        if not isinstance(values, list | tuple) or not all(isinstance(v, str | int | float | bool) for v in values):
            raise InvalidInputError(
                f"values of column {record['name']!r} must be a list of strings or numbers; got {values!r}."
            )
        return cls(record["name"], record["kind"], tuple(values), record.get("origin"), record.get("rest", False))

    @property
    def origin_microseconds(self) -> int:
        """Microseconds from 1970 to the origin of a date column."""
        return int(self._origin().astype("datetime64[us]").astype(np.int64))

    def _origin(self) -> np.datetime64:
        """Return the origin: in days if the column holds whole days, otherwise in a finer unit."""
        try:
            origin = np.datetime64(self.origin)
        except (ValueError, TypeError) as error:
            raise InvalidInputError(
                f"the origin of column {self.name!r} must be an ISO date; got {self.origin!r}."
            ) from error
        if np.isnat(origin) or np.datetime_data(origin)[0] in ("Y", "M", "W"):
            raise InvalidInputError(f"the origin of column {self.name!r} must be an ISO date; got {self.origin!r}.")
        return origin

    def _dates(self, days: Floats, missing: NDArray[np.bool_]) -> NDArray[Any]:
        # Whole days and the rest are converted separately: their product with DAY would lose microseconds.
        whole = np.floor(days)
        rest = np.rint((days - whole) * DAY)
        dates = (self.origin_microseconds + whole.astype(np.int64) * DAY + rest.astype(np.int64)).view("datetime64[us]")
        dates[missing] = np.datetime64("NaT", "us")
        in_days = np.datetime_data(self._origin())[0] == "D" and bool((rest == 0).all())
        return dates.astype("datetime64[D]") if in_days else dates

    def _until(self, at_most: float) -> str:
        origin = self._origin()
        if np.datetime_data(origin)[0] == "D":
            return f"on or before {origin + np.timedelta64(int(np.floor(at_most)), 'D')}"
        point = origin.astype("datetime64[us]") + np.timedelta64(int(np.floor(at_most * DAY)), "us")
        text = str(point).replace("T", " ")
        return f"at or before {text.rstrip('0').rstrip('.') if text.endswith('0') and '.' in text else text}"


def is_table(value: Any) -> bool:
    """Whether ``value`` has named columns."""
    if isinstance(value, type):
        return False
    return isinstance(value, Mapping) or hasattr(type(value), "columns") or hasattr(value, "__arrow_c_stream__")


def _among(values: Sequence[Any], n_first: int) -> str:
    """Return text for the first ``n_first`` values: the shorter of both lists, or a range if both are long."""
    first, others = values[:n_first], values[n_first:]
    if len(first) <= MOST_LISTED:
        return f"in {', '.join(map(str, first))}"
    if len(others) <= MOST_LISTED:
        return f"not in {', '.join(map(str, others))}"
    return f"from {first[0]} to {first[-1]}"
