"""Conversion of policies and action values to JSON and arrays, and back.

An object is packed as its kind, its settings (JSON), its arrays, and the objects that it contains (parts). Unpacking trusts nothing: each
kind requests what it needs from its `Contents` and states the allowed values, and anything that is not requested is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from capi._utils.validation import Bools, Floats, Ints, is_real
from capi.errors import InvalidInputError

MOST_ACTIONS = 2**16
MOST_FEATURES = 2**15 - 1
DEEPEST = 32  # levels of nested objects


@dataclass(eq=False)
class Packed:
    """An object as its kind, its settings (JSON), its arrays, and its parts."""

    kind: str
    settings: dict[str, Any] = field(default_factory=dict)
    arrays: dict[str, NDArray[Any]] = field(default_factory=dict)
    parts: dict[str, Packed] = field(default_factory=dict)
    holds_states: bool = False  # whether its arrays hold states, or values of a few states, of the learning data

    def with_parts(self) -> Iterator[Packed]:
        """Yield this object and all objects that it contains."""
        yield self
        for part in self.parts.values():
            yield from part.with_parts()

    def flat(self, prefix: str = "") -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return everything except the arrays as JSON, and the arrays of all parts by their full names."""
        shown: dict[str, Any] = {"kind": self.kind, "settings": self.settings, "arrays": sorted(self.arrays)}
        arrays = {f"{prefix}{name}": array for name, array in self.arrays.items()}
        if self.parts:
            shown["parts"] = {}
        for name, part in self.parts.items():
            shown["parts"][name], below = part.flat(f"{prefix}{name}.")
            arrays |= below
        return shown, arrays

    @classmethod
    def from_flat(cls, shown: Any, arrays: dict[str, NDArray[Any]], prefix: str = "", depth: int = 0) -> Packed:
        """Return the object that `flat` split up; arrays that are used are removed from ``arrays``."""
        if depth > DEEPEST:
            raise InvalidInputError(f"its policies are nested more than {DEEPEST} levels deep.")
        known = {"kind", "settings", "arrays", "parts"}
        if not isinstance(shown, dict) or not {"kind", "settings", "arrays"} <= set(shown) <= known:
            raise InvalidInputError("its header does not describe the parts of the policy.")
        kind, settings, names, parts = (shown.get(key, {}) for key in ("kind", "settings", "arrays", "parts"))
        if not isinstance(kind, str) or not isinstance(settings, dict) or not isinstance(parts, dict):
            raise InvalidInputError("its header does not describe the parts of the policy.")
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise InvalidInputError("its header does not list the arrays of the policy.")
        missing = [name for name in names if f"{prefix}{name}" not in arrays]
        if missing:
            raise InvalidInputError(f"the array {prefix}{missing[0]} is missing, or used more than once.")
        own = {name: arrays.pop(f"{prefix}{name}") for name in dict.fromkeys(names)}
        below = {name: cls.from_flat(part, arrays, f"{prefix}{name}.", depth + 1) for name, part in parts.items()}
        return cls(kind, settings, own, below)


@dataclass(frozen=True)
class Kind:
    """How objects of one kind are packed and unpacked."""

    pack: Callable[[Any], Packed]
    unpack: Callable[[Contents], Any]
    decides: bool = True  # whether it is a policy; otherwise it is a part of one
    withhold: Callable[[Packed], None] | None = None  # takes out what files that travel do not give


class Contents:
    """A packed object during unpacking: every returned value is checked, and `close` refuses anything that was not requested."""

    def __init__(self, packed: Packed, unpack: Callable[[Packed, bool], Any]) -> None:
        self.kind = packed.kind
        self._settings, self._arrays, self._parts = dict(packed.settings), dict(packed.arrays), dict(packed.parts)
        self._unpack = unpack

    def refuse(self, reason: str) -> InvalidInputError:
        """Return an error with the given reason."""
        return InvalidInputError(f"{self.kind}: {reason}.")

    def value(self, name: str) -> Any:
        """Return a setting unchecked."""
        if name not in self._settings:
            raise self.refuse(f"{name} is missing")
        return self._settings.pop(name)

    def integer(self, name: str, low: int, high: int) -> int:
        """Return a setting that is an integer in ``low .. high``."""
        value = self.value(name)
        if type(value) is not int or not low <= value <= high:
            raise self.refuse(f"{name} must be an integer from {low} to {high}; it is {_short(value)}")
        return value

    def n_actions(self) -> int:
        """Return the number of actions."""
        return self.integer("n_actions", 1, MOST_ACTIONS)

    def n_features(self) -> int:
        """Return the number of columns of a state."""
        return self.integer("n_features", 1, MOST_FEATURES)

    def integer_or_none(self, name: str, low: int, high: int) -> int | None:
        """Return a setting that is an integer in ``low .. high`` or None."""
        return self.integer(name, low, high) if self._settings.get(name) is not None else self.value(name)

    def number(self, name: str, low: float = -np.inf, high: float = np.inf, *, infinite: bool = False) -> float:
        """Return a setting that is a number in ``[low, high]``, finite unless ``infinite``."""
        value = from_json_number(self.value(name))
        if value is None or not (infinite or np.isfinite(value)) or not low <= value <= high:
            raise self.refuse(f"{name} must be a number from {low:g} to {high:g}; it is {_short(value)}")
        return value

    def number_or_none(self, name: str) -> float | None:
        """Return a setting that is a finite number or None."""
        return self.number(name) if self._settings.get(name) is not None else self.value(name)

    def flag(self, name: str) -> bool:
        """Return a setting that is true or false."""
        return bool(self.choice(name, (True, False)))

    def choice(self, name: str, choices: Collection[Any]) -> Any:
        """Return a setting that is one of ``choices``."""
        value = self.value(name)
        if not any(type(value) is type(choice) and value == choice for choice in choices):
            raise self.refuse(f"{name} must be one of {', '.join(map(repr, choices))}; it is {_short(value)}")
        return value

    def floats(self, name: str, shape: tuple[int | None, ...], *, infinite: bool = False) -> Floats:
        """Return an array of finite numbers of that shape (None: any positive size); if ``infinite``, only NaN is refused."""
        array = self._array(name, np.dtype("<f8"), shape)
        if not (~np.isnan(array) if infinite else np.isfinite(array)).all():
            raise self.refuse(f"{name} must {'not contain NaN' if infinite else 'be finite'}")
        return array

    def positive(self, name: str, shape: tuple[int | None, ...], *, or_zero: bool = False) -> Floats:
        """Return an array of finite positive numbers, or non-negative ones if ``or_zero``."""
        array = self.floats(name, shape)
        if not (array >= 0 if or_zero else array > 0).all():
            raise self.refuse(f"{name} must be {'at least' if or_zero else 'above'} zero")
        return array

    def integers(self, name: str, shape: tuple[int | None, ...], low: int, high: int, dtype: str = "<i8") -> Ints:
        """Return an array of integers in ``low .. high``."""
        array = self._array(name, np.dtype(dtype), shape)
        if array.size and not (low <= int(array.min()) and int(array.max()) <= high):
            raise self.refuse(f"{name} must lie in {low}..{high}")
        return array

    def flags(self, name: str, shape: tuple[int | None, ...]) -> Bools:
        """Return an array of booleans."""
        return self._array(name, np.dtype("|b1"), shape)

    def dimensions(self) -> dict[str, int]:
        """Return the number of dimensions of each array that was not requested yet."""
        return {name: array.ndim for name, array in self._arrays.items()}

    def has_setting(self, name: str) -> bool:
        """Return whether there is a setting of this name."""
        return name in self._settings

    def has_array(self, name: str) -> bool:
        """Return whether there is an array of this name."""
        return name in self._arrays

    def names(self) -> list[str]:
        """Return the names of the parts that were not requested yet."""
        return list(self._parts)

    def part(self, name: str, *, decides: bool = False) -> Any:
        """Return a part: a policy if it ``decides``, otherwise action values."""
        if name not in self._parts:
            raise self.refuse(f"{name} is missing")
        return self._unpack(self._parts.pop(name), decides)

    def close(self) -> None:
        """Refuse anything that was not requested."""
        left = [*self._settings, *self._arrays, *self._parts]
        if left:
            raise self.refuse(f"{_short(left[0])} is unknown")

    def _array(self, name: str, dtype: np.dtype[Any], shape: tuple[int | None, ...]) -> NDArray[Any]:
        if name not in self._arrays:
            raise self.refuse(f"the array {name} is missing")
        array = self._arrays.pop(name)
        fits = array.ndim == len(shape) and all(
            n > 0 if wanted is None else n == wanted for n, wanted in zip(array.shape, shape, strict=True)
        )
        if array.dtype != dtype or not fits:
            wanted = "x".join("n" if n is None else str(n) for n in shape)
            raise self.refuse(f"{name} must be {dtype} of shape {wanted}; it is {array.dtype} of shape {array.shape}")
        return array


def json_number(value: float) -> float | str:
    """Return a number as a JSON value; infinities become text."""
    return float(value) if np.isfinite(value) else str(float(value))


def from_json_number(value: Any) -> float | None:
    """Return the number that `json_number` wrote, or None if the value is not a number."""
    if is_real(value):
        return float(value) if abs(value) <= np.finfo(float).max else None
    return float(value) if isinstance(value, str) and value in ("inf", "-inf") else None


def json_value(value: Any, what: str) -> Any:
    """Return ``value`` if JSON preserves it; otherwise refuse it."""
    value = value.item() if isinstance(value, np.generic) else value
    if value is None or type(value) in (bool, int, str) or (type(value) is float and np.isfinite(value)):
        return value
    if type(value) in (list, tuple):
        return [json_value(item, what) for item in value]
    if isinstance(value, Mapping) and all(type(key) is str for key in value):
        return {key: json_value(item, what) for key, item in value.items()}
    raise InvalidInputError(
        f"{what} must be text, numbers, booleans or None to be saved in a file; got {value!r}, a {type(value).__name__}."
    )


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
