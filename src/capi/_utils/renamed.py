"""Renamed keywords and attributes: using an old name raises an error that states the new one.

Each class or function stores its table of old and new names in ``_renamed``, which also translates older files.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, TypeVar

from capi.errors import InvalidInputError

Named = TypeVar("Named", bound=Callable[..., Any])


def renamed(**new_names: str) -> Callable[[Named], Named]:
    """Decorate a class or function whose parameters were renamed: ``renamed(old="new")``.

    Old attributes of a class raise an AttributeError that names the new one.

    Examples
    --------
    >>> @renamed(sweeps="n_sweeps")
    ... def evaluate(n_sweeps=1):
    ...     return n_sweeps
    >>> evaluate(sweeps=3)
    Traceback (most recent call last):
    capi.errors.InvalidInputError: sweeps is now called n_sweeps; write evaluate(n_sweeps=3).
    """

    def decorate(thing: Named) -> Named:
        original: Any = thing.__init__ if isinstance(thing, type) else thing  # type: ignore[misc]

        def name(*arguments: Any) -> str:
            return type(arguments[0]).__name__ if isinstance(thing, type) else str(thing.__name__)

        @wraps(original)
        def checked(*arguments: Any, **keywords: Any) -> Any:
            for old in new_names.keys() & keywords.keys():
                raise InvalidInputError(_advice(name(*arguments), old, new_names[old], keywords[old]))
            return original(*arguments, **keywords)

        if not isinstance(thing, type):
            return checked  # type: ignore[return-value]
        earlier = getattr(thing, "__getattr__", object.__getattribute__)  # repeats the error of a property

        def missing(self: Any, attribute: str) -> Any:
            if attribute in new_names:
                kind = type(self).__name__
                raise AttributeError(f"{kind}.{attribute} is now called {kind}.{new_names[attribute]}.")
            return earlier(self, attribute)

        thing.__init__ = checked  # type: ignore[misc]
        thing.__getattr__ = missing  # type: ignore[attr-defined]
        thing._renamed = {**getattr(thing, "_renamed", {}), **new_names}  # type: ignore[attr-defined]
        return thing

    return decorate


def refuse_old_names(kind: Any, options: Mapping[str, Any]) -> None:
    """Refuse ``options`` of ``kind`` that use an old name."""
    for old, new in getattr(kind, "_renamed", {}).items():
        if old in options:
            raise InvalidInputError(_advice(kind.__name__, old, new, options[old]))


def translated(kind: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``options`` of ``kind`` with old names replaced by new ones, for reading older files."""
    names = getattr(kind, "_renamed", {})
    for old, new in names.items():
        if old in options and new in options:
            raise InvalidInputError(f"{old} is now called {new}, and both are given; remove {old}.")
    return {names.get(name, name): value for name, value in options.items()}


def _advice(owner: str, old: str, new: str, value: Any) -> str:
    return f"{old} is now called {new}; write {owner}({new}={_shown(value)})."


def _shown(value: Any) -> str:
    return repr(value) if isinstance(value, bool | int | float | str | None) else "..."
