"""Functions that a lower layer calls and an upper layer provides.

``policy.save(path)`` is a method of the policies, but files know policies and not the other way round. So the lower layer
calls a `Slot`, and the upper layer fills it when it is imported:

    registry.save_policy(self, path)        # in the lower layer

    @registry.save_policy.fill              # in the upper layer
    def save_policy(policy, path): ...

A slot that is still empty imports the one module that fills it. The slots below are the complete list of such calls.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, Generic, ParamSpec, TypeVar

from capi.errors import CapiError

P = ParamSpec("P")
R = TypeVar("R")
Function = TypeVar("Function", bound=Callable[..., Any])


class Slot(Generic[P, R]):
    """A function that the module ``home`` provides.

    Examples
    --------
    >>> double: Slot[[int], int] = Slot("capi._utils.registry")
    >>> @double.fill
    ... def twice(number):
    ...     return 2 * number
    >>> double(3)
    6
    """

    def __init__(self, home: str) -> None:
        self.home = home
        self._function: Callable[P, R] | None = None

    def fill(self, function: Function) -> Function:
        """Provide the function; a decorator."""
        self._function = function
        return function

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function, whose module is imported if it has not been yet."""
        if self._function is None:
            import_module(self.home)
        if self._function is None:
            raise CapiError(f"{self.home} must fill the slot that names it as its home; it did not.")
        return self._function(*args, **kwargs)


save_policy: Slot[..., None] = Slot("capi.files.policy_file")  # (policy, path, **options)
score_policy: Slot[[Any, Any, float], float] = Slot("capi.offline.score")  # (policy, batch, discount)
learner_html: Slot[[Any], str] = Slot("capi.plotting.notebooks")
batch_html: Slot[[Any], str] = Slot("capi.plotting.notebooks")
policy_html: Slot[[Any], str] = Slot("capi.plotting.notebooks")
