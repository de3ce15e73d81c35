"""A cache for results computed from read-only arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from numpy.typing import NDArray

from capi._utils.validation import is_fixed

Result = TypeVar("Result")

MOST = 4  # arrays: the states and the next states of a batch, and a few more


class Remembered(Generic[Result]):
    """A cache keyed by the identity of the last few fixed arrays; copies and pickles start empty."""

    def __init__(self) -> None:
        # Each entry holds its array, so that the array's id cannot be reused.
        self._entries: dict[int, tuple[NDArray[Any], Result]] = {}

    def __contains__(self, array: NDArray[Any]) -> bool:
        entry = self._entries.get(id(array))
        return entry is not None and entry[0] is array and is_fixed(array)

    def __len__(self) -> int:
        return len(self._entries)

    def items(self) -> list[tuple[NDArray[Any], Result]]:
        """Return the arrays and their results."""
        return list(self._entries.values())

    def of(self, array: NDArray[Any], compute: Callable[[], Result]) -> Result:
        """Return the cached result for ``array``, or compute it and cache it if the array is fixed."""
        if array in self:
            return self._entries[id(array)][1]
        result = compute()
        if is_fixed(array):
            while len(self._entries) >= MOST:
                self._entries.pop(next(iter(self._entries)), None)
            self._entries[id(array)] = array, result
        return result

    def __reduce__(self) -> tuple[type[Remembered[Any]], tuple[()]]:
        return Remembered, ()


class Forgetful(Remembered[Result]):
    """A cache that keeps nothing, for arrays that are seen only once."""

    def of(self, array: NDArray[Any], compute: Callable[[], Result]) -> Result:  # noqa: ARG002
        """Compute the result."""
        return compute()

    def __reduce__(self) -> tuple[type[Remembered[Any]], tuple[()]]:
        return Forgetful, ()
