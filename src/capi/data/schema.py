"""The schema: names of a state's columns, labels of the actions, and how the columns were encoded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from capi._utils.suggestions import did_you_mean
from capi._utils.validation import Floats, Ints, as_names, as_states
from capi.data.columns import Column, is_table
from capi.data.readers.arrow import table_of
from capi.data.readers.encode import encode
from capi.data.rows import as_columns, is_rows, warn_of_unseen
from capi.errors import InvalidInputError


@dataclass(frozen=True, slots=True)
class Schema:
    """Names of the state's features and labels of the actions, in the order of their codes.

    Parameters
    ----------
    feature_names : tuple of str, d of them
    action_labels : tuple, A of them
        Any distinct values: ``("none", "RTI")``, ``(0.0, 2.5)``. Action ``a`` of the
        library is ``action_labels[a]`` of the user.
    columns : tuple of Column
        The columns of the user's table that the features encode, and their encodings. By default each feature is a numeric
        column.

    Examples
    --------
    >>> from capi.data import Column
    >>> columns = (Column("age"), Column("sex", "one-hot", ("female", "male")))
    >>> schema = Schema(("age", "sex=female", "sex=male"), ("wait", "treat"), columns)
    >>> schema.encode({"age": [30.5, 41.0], "sex": ["male", None]})
    array([[30.5,  0. ,  1. ],
           [41. ,  nan,  nan]])
    >>> schema.condition("sex=male", 0.5)
    'sex is not male'
    >>> Schema.from_dict(schema.to_dict()) == schema
    True
    """

    feature_names: tuple[str, ...]
    action_labels: tuple[Any, ...]
    columns: tuple[Column, ...] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        if not self.columns:
            object.__setattr__(self, "columns", tuple(Column(name) for name in self.feature_names))
        names = tuple(name for column in self.columns for name in column.feature_names)
        if names != tuple(self.feature_names):
            raise InvalidInputError(
                f"feature_names must be those of the columns, {names!r}; got {self.feature_names!r}."
            )

    @classmethod
    def of(
        cls,
        n_features: int,
        n_actions: int,
        feature_names: Sequence[str] | None = None,
        action_labels: Sequence[Any] | None = None,
    ) -> Schema:
        """Return a checked schema; by default features are x0, x1, ... and actions 0, 1, ..."""
        features = tuple(f"x{j}" for j in range(n_features)) if feature_names is None else feature_names
        labels = tuple(range(n_actions)) if action_labels is None else action_labels
        names = as_names(features, "feature_names", n_features)
        for j, name in enumerate(names):
            if not isinstance(name, str):
                raise InvalidInputError(f"feature_names must be strings; feature_names[{j}] = {name!r}.")
        return cls(names, as_names(labels, "action_labels", n_actions))

    @classmethod
    def of_columns(cls, columns: Sequence[Column], action_labels: Sequence[Any]) -> Schema:
        """Return the checked schema of encoded ``columns``."""
        names = [name for column in columns for name in column.feature_names]
        labels = as_names(action_labels, "action_labels", len(action_labels))
        return cls(as_names(names, "names of features", len(names)), labels, tuple(columns))

    def labels_of(self, actions: Ints) -> NDArray[Any]:
        """Return the user's labels of ``actions`` (n,)."""
        if all(type(label) is type(self.action_labels[0]) for label in self.action_labels):
            labels = np.array(self.action_labels)
            if labels.ndim == 1:
                return labels[actions]
        labels = np.empty(len(self.action_labels), dtype=object)
        labels[:] = self.action_labels
        return labels[actions]

    def encode(self, table: Any) -> Floats:
        """Return the states (n, d) of a table's rows.

        Parameters
        ----------
        table : pandas, polars or Arrow table, or mapping from names to columns
            With the original columns, in any order; other columns are ignored. Missing values, and categories that did not occur
            when the encodings were learned, are NaN in all features of their column.
        """
        return encode(self.columns, table_of(table))

    def states_of(self, rows: Any) -> Floats:
        """Return checked states (n, d) to decide for; categories that are new give an `UnseenCategoryWarning`.

        Parameters
        ----------
        rows : table, mapping, list of mappings, or array of shape (n, d)
            A table as in `encode`, one row as a mapping from column names to values, or a list of such rows. An array is
            taken as it is.
        """
        if is_rows(rows):
            rows = as_columns(rows, [column.name for column in self.columns])
        elif not is_table(rows):
            return as_states(rows, n_features=len(self.feature_names))
        table = table_of(rows)
        states = encode(self.columns, table)
        warn_of_unseen(self.columns, table)
        return states

    def decode(self, states: ArrayLike) -> dict[str, NDArray[Any]]:
        """Return the original columns (n,) of ``states`` (n, d) by name; the inverse of `encode`."""
        x = as_states(states, n_features=len(self.feature_names))
        decoded, start = {}, 0
        for column in self.columns:
            stop = start + len(column.feature_names)
            decoded[column.name] = column.decode(x[:, start:stop])
            start = stop
        return decoded

    def condition(self, feature: str | int, at_most: float | None, missing_too: bool = False) -> str:
        """Return the condition that a feature is at most a number, as text with the names and labels of the table.

        Parameters
        ----------
        feature : str or int
            Its name or index.
        at_most : float, optional
            None means that the feature is known.
        missing_too : bool
            Whether missing values meet the condition, too.
        """
        j = self.feature_names.index(feature) if feature in self.feature_names else feature
        if isinstance(j, str) or not 0 <= j < len(self.feature_names):
            known = ", ".join(self.feature_names)
            guess = did_you_mean(feature, self.feature_names)
            raise InvalidInputError(f"unknown feature {feature!r}; the features are {known}.{guess}")
        for column in self.columns:
            if j < len(column.feature_names):
                break
            j -= len(column.feature_names)
        return column.condition(j, at_most, missing_too)

    def to_dict(self) -> dict[str, Any]:
        """Return columns and labels as plain JSON values; labels that JSON cannot represent are refused."""
        return {
            "columns": [column.to_dict() for column in self.columns],
            "action_labels": [_packed(label) for label in self.action_labels],
        }

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Schema:
        """Return the schema of a record from `to_dict`, checked."""
        if not isinstance(record, Mapping) or set(record) != {"columns", "action_labels"}:
            raise InvalidInputError(f"a schema must be a record of columns and action_labels; got {record!r}.")
        columns, labels = record["columns"], record["action_labels"]
        if not all(isinstance(part, list) and part for part in (columns, labels)):
            raise InvalidInputError("columns and action_labels of a schema must be non-empty lists.")
        return cls.of_columns([Column.from_dict(column) for column in columns], [_unpacked(label) for label in labels])


def _packed(label: Any) -> Any:
    """Return an action label as a JSON value."""
    plain = label.item() if isinstance(label, np.generic) else label
    if isinstance(plain, datetime):
        return {"time": plain.isoformat()}
    if isinstance(plain, date):
        return {"date": plain.isoformat()}
    if isinstance(plain, tuple):
        return {"tuple": [_packed(item) for item in plain]}
    if plain is None or isinstance(plain, str | bool) or (isinstance(plain, int | float) and abs(plain) < np.inf):
        return plain
    raise InvalidInputError(
        f"action labels must be strings, numbers, dates or tuples of them to be stored; got {label!r}."
    )


def _unpacked(label: Any) -> Any:
    if label is None or isinstance(label, str | bool | int | float):
        return label
    kind, text = next(iter(label.items())) if isinstance(label, dict) and len(label) == 1 else ("", "")
    try:
        if kind == "tuple" and isinstance(text, list):
            return tuple(_unpacked(item) for item in text)
        if kind == "date":
            return date.fromisoformat(text)
        if kind == "time":
            return datetime.fromisoformat(text)
    except (TypeError, ValueError) as error:
        raise InvalidInputError(f"an action label must be a {kind}; got {text!r}.") from error
    raise InvalidInputError(f"an action label must be a string, a number, a date or a tuple; got {label!r}.")
