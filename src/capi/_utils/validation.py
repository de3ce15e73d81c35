"""Input validation: arguments are checked and converted here, once.

Every error says what must hold, what was found (with the first culprit) and what to do.
Functions ``as_*`` convert and return; functions ``check_*`` only check.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence
from numbers import Integral, Real
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from capi._utils.suggestions import did_you_mean
from capi.errors import InvalidInputError

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]
Bools: TypeAlias = NDArray[np.bool_]

LARGEST_INTEGER = 2.0**53  # above it float64 cannot represent every integer
ROW_SUM_TOLERANCE = 1e-8  # probabilities read from text files rarely sum to one more exactly


def as_floats(value: ArrayLike, name: str, *, ndim: int, allow_nan: bool = False) -> Floats:
    """Return ``value`` as a float64 array of ``ndim`` dimensions without infinities (or NaN)."""
    array = _numeric(value, name)
    if array.ndim != ndim:
        raise InvalidInputError(
            f"{name} must have {_dimensions(ndim)}; got shape {array.shape}.{_reshape_advice(name, ndim, array)}"
        )
    bad = np.isinf(array) if allow_nan else ~np.isfinite(array)
    if bad.any():
        where = np.unravel_index(int(np.argmax(bad)), array.shape)
        rule = "must not be infinite (NaN marks a missing value)" if allow_nan else "must be finite"
        found, culprits = ("are", "infinite") if allow_nan else ("are not", "non-finite")
        raise InvalidInputError(
            f"{name} {rule}; {int(bad.sum())} of {array.size} values {found}, "
            f"first {_entry(name, where)} = {array[where]}. Remove or replace the {culprits} values."
        )
    return array


def as_states(
    value: ArrayLike, name: str = "states", *, n_features: int | None = None, allow_nan: bool = True
) -> Floats:
    """Return ``value`` as states (n, d), n >= 1; NaN marks a missing value and is valid by default."""
    states = as_floats(value, name, ndim=2, allow_nan=allow_nan)
    if states.shape[0] == 0:
        raise InvalidInputError(
            f"{name} must have at least one row; got shape {states.shape}. Check how the rows were filtered."
        )
    if states.shape[1] == 0:
        raise InvalidInputError(f"{name} must have at least one column; got shape {states.shape}.")
    if n_features is not None and states.shape[1] != n_features:
        raise InvalidInputError(
            f"{name} must have {n_features} columns, one per feature; got {states.shape[1]} (shape {states.shape}). "
            "Pass the same features in the same order everywhere."
        )
    return states


def as_domain_step(states: ArrayLike, actions: ArrayLike, *, n_features: int, n_actions: int) -> tuple[Floats, Ints]:
    """Return complete states (n, d) and the actions taken in them (n,)."""
    x = as_states(states, n_features=n_features, allow_nan=False)
    a = as_integers(actions, "actions")
    check_shape(a, "actions", (len(x),), "states")
    check_actions(a, n_actions)
    return x, a


def as_finite_step(states: ArrayLike, actions: ArrayLike, n_states: int, n_actions: int) -> tuple[Ints, Ints]:
    """Return finite states (n, 1) and the actions taken in them (n,) as indices."""
    x = as_state_index(states, n_states)
    a = as_integers(actions, "actions")
    check_shape(a, "actions", x.shape, "states")
    check_actions(a, n_actions)
    return x, a


def as_state_index(states: ArrayLike, n_states: int) -> Ints:
    """Return the finite states (n, 1) as indices (n,) in ``0 .. n_states - 1``."""
    column = as_states(states, n_features=1, allow_nan=False)[:, 0]
    known = (column >= 0) & (column < n_states) & (column == np.floor(column))
    advice = " States are counted from 0."
    check_rows(known, column, "states", f"must be state indices in 0..{n_states - 1}", advice)
    return column.astype(np.int64)


def as_integers(value: ArrayLike, name: str) -> Ints:
    """Return ``value`` (n,) as int64; floats are accepted when they are whole numbers."""
    array = as_array(value, name)
    if array.ndim == 1 and array.dtype.kind == "i":
        return array.astype(np.int64, copy=False)
    numbers = as_floats(array, name, ndim=1)
    whole = (numbers == np.floor(numbers)) & (np.abs(numbers) < LARGEST_INTEGER)
    check_rows(whole, numbers, name, "must be whole numbers")
    return numbers.astype(np.int64)


def as_flags(value: ArrayLike, name: str, *, shape: tuple[int, ...], rows_of: str = "") -> Bools:
    """Return ``value`` as booleans of ``shape``; 0 and 1 are accepted."""
    array = as_array(value, name)
    if array.dtype != np.bool_:
        array = _numeric(array, name)
        bad = (array != 0) & (array != 1)
        if bad.any():
            where = np.unravel_index(int(np.argmax(bad)), array.shape)
            raise InvalidInputError(
                f"{name} must be booleans (or 0 and 1); first culprit {_entry(name, where)} = {array[where]}."
            )
        array = array.astype(np.bool_)
    check_shape(array, name, shape, rows_of)
    return array


def as_int(value: Any, name: str, *, minimum: int) -> int:
    """Return ``value`` as an int that is at least ``minimum``."""
    if not isinstance(value, Integral) or isinstance(value, bool) or value < minimum:
        raise InvalidInputError(f"{name} must be an integer, at least {minimum}; got {value!r}.")
    return int(value)


def as_positive(value: Any, name: str) -> float:
    """Return ``value`` as a positive, finite number."""
    if not is_real(value) or not 0 < value < np.inf:
        raise InvalidInputError(f"{name} must be a positive number; got {value!r}.")
    return float(value)


def as_not_negative(value: Any, name: str) -> float:
    """Return ``value`` as a finite number that is at least zero."""
    if not is_real(value) or not 0 <= value < np.inf:
        raise InvalidInputError(f"{name} must be a number, at least 0; got {value!r}.")
    return float(value)


def as_discount(value: Any, name: str = "discount") -> float:
    """Return ``value`` as a discount in [0, 1)."""
    if not is_real(value) or not 0 <= value < 1:
        raise InvalidInputError(
            f"{name} must lie in [0, 1); got {value!r}. For an undiscounted problem with long episodes use 0.99 or more."
        )
    return float(value)


def as_share(value: Any, name: str) -> float:
    """Return ``value`` as a number in [0, 1]."""
    if not is_real(value) or not 0 <= value <= 1:
        raise InvalidInputError(f"{name} must be a number in [0, 1]; got {value!r}.")
    return float(value)


def as_weights(value: ArrayLike | None, name: str, n_rows: int, rows_of: str = "") -> Floats | None:
    """Return ``value`` (n,) as non-negative weights with a positive sum; None stays None."""
    if value is None:
        return None
    weights = as_floats(value, name, ndim=1)
    check_shape(weights, name, (n_rows,), rows_of)
    check_rows(weights >= 0, weights, name, "must not be negative", " Give rows that should not count the weight 0.")
    with np.errstate(over="ignore"):
        total = weights.sum()
    if not 0 < total < np.inf:
        found = f"all {n_rows} are zero" if total == 0 else f"the sum is {total:g}"
        raise InvalidInputError(f"{name} must have a positive, finite sum; {found}.")
    return weights


def as_allowed(value: ArrayLike | None, name: str, shape: tuple[int, ...], rows_of: str = "") -> Bools | None:
    """Return ``value`` (n, A) as a mask that allows an action in every row; None stays None."""
    if value is None:
        return None
    allowed = as_flags(value, name, shape=shape, rows_of=rows_of)
    advice = " Allow the default action where nothing else is possible."
    check_rows(allowed.any(axis=1), allowed, name, "must allow at least one action in each row", advice)
    return allowed


def as_q_values(value: ArrayLike, *, n_rows: int | None = None, name: str = "q_values") -> Floats:
    """Return ``value`` as action values (n, A) with A >= 1, all finite."""
    q_values = as_floats(value, name, ndim=2)
    if 0 in q_values.shape:
        raise InvalidInputError(f"{name} must have at least one row and one action; got shape {q_values.shape}.")
    if n_rows is not None and len(q_values) != n_rows:
        raise InvalidInputError(f"{name} must have one row per state: {n_rows} rows; got shape {q_values.shape}.")
    return q_values


def as_distribution(value: ArrayLike, name: str, n: int) -> Floats:
    """Return ``value`` (n,) as probabilities that sum to one."""
    p = as_floats(value, name, ndim=1)
    check_shape(p, name, (n,))
    check_rows(p >= 0, p, name, "must not be negative")
    if abs(p.sum() - 1) > ROW_SUM_TOLERANCE:
        raise InvalidInputError(f"{name} must sum to one; it sums to {p.sum():.10g}. Divide it by its sum.")
    return p


def is_fixed(array: NDArray[Any]) -> bool:
    """Whether the array cannot be written to: it is read-only and not a view of another array."""
    return not array.flags.writeable and array.base is None


def check_actions(actions: Ints, n_actions: int, name: str = "actions") -> None:
    """Refuse actions outside ``0 .. n_actions - 1``."""
    bad = np.flatnonzero((actions < 0) | (actions >= n_actions))
    if bad.size:
        i = int(bad[0])
        advice = f" If they are coded 1..{n_actions}, subtract 1." if actions.min() >= 1 else ""
        raise InvalidInputError(
            f"{name} must lie in 0..{n_actions - 1} (n_actions={n_actions}); {bad.size} of {len(actions)} do not, "
            f"first {name}[{i}] = {actions[i]}.{advice}"
        )


def check_shape(array: NDArray[Any], name: str, shape: tuple[int, ...], rows_of: str = "") -> None:
    """Refuse an array of another shape; ``rows_of`` names the argument that sets the number of rows."""
    if array.shape != shape:
        reason = f" to match the rows of {rows_of}" if rows_of else ""
        raise InvalidInputError(f"{name} must have shape {shape}{reason}; got {array.shape}.")


def check_rows(good: Any, values: NDArray[Any], name: str, rule: str, advice: str = "") -> None:
    """Refuse ``values`` unless every row is ``good`` (n,), naming the first that is not."""
    bad = np.flatnonzero(~good)
    if bad.size:
        i = int(bad[0])
        raise InvalidInputError(
            f"{name} {rule}; {bad.size} of {len(good)} rows break this, first {name}[{i}] = {values[i]}.{advice}"
        )


def check_choice(value: Any, name: str, choices: Collection[Any]) -> None:
    """Refuse a value that is not one of ``choices``, in type and value."""
    if not any(type(value) is type(choice) and value == choice for choice in choices):
        shown = ", ".join(map(repr, choices))
        raise InvalidInputError(f"{name} must be one of {shown}; got {value!r}.{did_you_mean(value, choices)}")


def as_names(value: Sequence[Any], name: str, count: int) -> tuple[Any, ...]:
    """Return ``value`` as a tuple of ``count`` distinct names."""
    names = sequence_of_names(value, name)
    if len(names) != count:
        raise InvalidInputError(f"{name} must have {count} entries; got {len(names)}: {_shortened(names)}.")
    seen: set[Any] = set()
    for i, item in enumerate(names):
        if not isinstance(item, Hashable):
            raise InvalidInputError(f"{name} must be plain values; {name}[{i}] = {item!r} is a {type(item).__name__}.")
        if item in seen:
            raise InvalidInputError(f"{name} must be distinct; {name}[{i}] = {item!r} appears more than once.")
        seen.add(item)
    return names


def sequence_of_names(value: Any, name: str) -> tuple[Any, ...]:
    """Return ``value`` as a tuple; a single string is refused."""
    if isinstance(value, str) or not isinstance(value, Sequence | np.ndarray):
        raise InvalidInputError(f"{name} must be a sequence of names; got {value!r}.")
    return tuple(_plain(item) for item in value)


def is_real(value: Any) -> bool:
    """Whether ``value`` is a single real number."""
    return isinstance(value, Real) and not isinstance(value, bool)


def as_array(value: ArrayLike, name: str) -> NDArray[Any]:
    """Return ``value`` as an array of any type; ragged and masked arrays are refused."""
    if isinstance(value, np.ma.MaskedArray) and np.ma.is_masked(value):
        raise InvalidInputError(
            f"{name} must not have masked entries. Write a missing value as NaN: {name}.filled(np.nan)."
        )
    try:
        return np.asarray(value)
    except (ValueError, TypeError) as error:
        raise InvalidInputError(f"{name} must be a regular array of numbers; its rows have unequal lengths.") from error
    except Exception as error:  # whatever the library that made the value raises
        raise InvalidInputError(f"{name} must be an array; NumPy cannot read it: {first_line(error)}.") from error


def first_line(error: BaseException) -> str:
    """Return the first line of an error of another library without its full stop, or its type if it has no text."""
    lines = str(error).strip().splitlines()
    return lines[0].strip().removesuffix(".") if lines else type(error).__name__


def _numeric(value: ArrayLike, name: str) -> Floats:
    """Return ``value`` as float64; the error names the first element that is not a number."""
    array = as_array(value, name)
    if array.dtype.kind in "fiub":
        return array.astype(np.float64, copy=False)
    if array.dtype.kind not in "OUS":
        raise InvalidInputError(f"{name} must be real numbers; got an array of type {array.dtype}.")
    numbers = np.empty(array.shape)
    for where, item in np.ndenumerate(array):
        try:
            numbers[where] = float(item)
        except (TypeError, ValueError, OverflowError) as error:
            raise InvalidInputError(
                f"{name} must be numbers; first culprit {_entry(name, where)} = {_plain(item)!r}. "
                "Code categories as numbers; write a missing value as NaN."
            ) from error
    return numbers


def _plain(item: Any) -> Any:
    return item.item() if isinstance(item, np.generic) else item


def _reshape_advice(name: str, ndim: int, array: NDArray[Any]) -> str:
    if ndim == 2 and array.ndim == 1 and name.endswith("states"):
        return f" For one feature pass {name}.reshape(-1, 1), for one state {name}.reshape(1, -1)."
    return ""


def _dimensions(ndim: int) -> str:
    return {1: "one dimension, (n,)", 2: "two dimensions, (rows, columns)"}[ndim]


def _entry(name: str, where: Sequence[Any]) -> str:
    """Return the expression that selects the entry."""
    return f"{name}[{', '.join(str(int(i)) for i in where)}]" if len(where) else name


def _shortened(items: Sequence[Any], most: int = 6) -> str:
    shown = ", ".join(repr(item) for item in items[:most])
    return shown + (", ..." if len(items) > most else "")
