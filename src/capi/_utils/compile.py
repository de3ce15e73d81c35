"""The one home of compiling: every kernel is declared with a decorator from here, and numba's flags are set nowhere else.

Kernels that grow trees are the hot ones. With ``_nrt=False`` numba counts no references to their arrays. Counting takes an
atomic addition for every slice and every call. In return they must not allocate memory and must not return arrays;
`capi.trees._kernels.records` lends them what they need.

- `entry`: is called from Python.
- `kernel`: is called for every node. Passing its tables takes time, so LLVM makes it part of its caller.
- `apart`: is called rarely, or takes long anyway, and stays a function of its own.
- `inlined`: is called in one place, by a kernel that is large itself. It becomes part of it before anything is translated,
  because every kernel is translated once for itself and once more in each of its callers. It may return slices.

All other kernels count references, and may allocate and return arrays:

- `compiled`: the usual kernel, called from Python and from other kernels.
- `compiled_any_order`: the same, and the compiler may add the terms of a sum in any order.
- `compiled_unchecked`: the same as `compiled`, and a division by zero gives infinity or NaN. Loops without a check vectorise.
- `inner`: is called by kernels only, and comes without what Python would need to call it: it compiles in half the time.
- `inner_minima`: the same, and the compiler may take for granted that no number is NaN or -0.

Two environment variables choose what runs; the results are the same:

- ``NUMBA_DISABLE_JIT=1``: nothing is compiled. Python runs the kernels, slowly: for debuggers and for coverage.
- ``CAPI_SIMD=0``: the loops that are written in LLVM's vector types are replaced by plain ones, which numba compiles as usual.

Machine code is kept on disk by `capi._utils.kernel_cache`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeAlias

import numpy as np
from numba import config, njit

from capi._utils.kernel_cache import keep_on_disk
from capi.errors import InvalidInputError

Decorator: TypeAlias = Callable[[Callable[..., Any]], Any]

COUNTS_REFERENCES = False  # benchmarks/reference_counting.py measures what it costs


def _is_on(variable: str) -> bool:
    """Return whether an environment variable is not 0."""
    value = os.environ.get(variable, "1")
    if value not in ("0", "1"):
        raise InvalidInputError(
            f"The environment variable {variable} must be 0 or 1; got {value!r}. Correct it or unset it."
        )
    return value == "1"


JIT: bool = not config.DISABLE_JIT
SIMD: bool = JIT and _is_on("CAPI_SIMD")
VARIANT = "" if SIMD else "plain"  # of the machine code: both variants are kept on disk side by side


def _without_warnings(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function in which numbers overflow and divide by zero in silence, as they do in compiled code."""

    @wraps(function)
    def silent(*arguments: Any) -> Any:
        with np.errstate(all="ignore"):
            return function(*arguments)

    return silent


def _decorator(*, called_from_python: bool = True, cached: bool = True, **flags: Any) -> Decorator:
    """Return what declares kernels that are compiled with these flags of numba."""

    def declare(function: Callable[..., Any]) -> Any:
        if not JIT:
            return _without_warnings(function) if called_from_python else function
        dispatcher = njit(**flags)(function)
        if cached:
            keep_on_disk(dispatcher, VARIANT)
        return dispatcher

    return declare


_INNER = {"called_from_python": False, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
_TREES: dict[str, Any] = {"error_model": "numpy"} | ({} if COUNTS_REFERENCES else {"_nrt": False})

entry = _decorator(nogil=True, **_TREES)
kernel = _decorator(forceinline=True, **_TREES, **_INNER)
apart = _decorator(**_TREES, **_INNER)
inlined = _decorator(called_from_python=False, cached=False, inline="always")

compiled = _decorator(nogil=True)
compiled_any_order = _decorator(nogil=True, fastmath={"reassoc"})
compiled_unchecked = _decorator(nogil=True, error_model="numpy")
inner = _decorator(nogil=True, **_INNER)
inner_minima = _decorator(nogil=True, fastmath={"nnan", "nsz"}, **_INNER)
