"""What was computed for an array that nobody can change need not be computed again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from numpy.typing import NDArray

from capi._utils.validation import is_fixed

Result = TypeVar("Result")

MOST = 4  # arrays: the states and the next states of a batch, and a few more


class Remembered(Generic[Result]):
    """Results by the identity of fixed arrays, the last few of them; copies and files start with none."""

    def __init__(self) -> None:
        self._entries: dict[
            int, tuple[NDArray[Any], Result]
        ] = {}  # holds the array, so that its identity stays its own

    def __contains__(self, array: NDArray[Any]) -> bool:
        entry = self._entries.get(id(array))
        return entry is not None and entry[0] is array and is_fixed(array)

    def __len__(self) -> int:
        return len(self._entries)

    def of(self, array: NDArray[Any], compute: Callable[[], Result]) -> Result:
        """Return what is remembered of ``array``, or compute it and remember it if the array is fixed."""
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
