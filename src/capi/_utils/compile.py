"""The decorators that declare all kernels; numba's flags are set nowhere else.

Kernels that grow trees are performance-critical. With ``_nrt=False`` numba does not count references to their arrays, which
would take an atomic addition for every slice and every call: this saves 36 % of a fit with 6,000 rows and 35 % with 60,000
(``benchmarks/reference_counting.py``, medians of five runs). In return, these kernels must not allocate memory or return
arrays; `capi.trees._kernels.records` provides their buffers.

- `entry`: is called from Python.
- `kernel`: is called for every node. Passing its tables takes time, so LLVM inlines it into its caller.
- `apart`: is called rarely, or takes long anyway, and remains a separate function.
- `inlined`: is called in one place, by a large kernel, and is inlined before compilation starts, because every kernel is
  compiled once for itself and once more in each of its callers. It may return slices.

All other kernels count references, and may allocate and return arrays:

- `compiled`: the usual kernel, called from Python and from other kernels.
- `compiled_any_order`: like `compiled`, but the compiler may add the terms of a sum in any order.
- `compiled_unchecked`: like `compiled`, but a division by zero gives infinity or NaN. Loops without the check vectorise.
- `inner`: is called by kernels only and has no wrapper for Python, so it compiles in half the time.
- `inner_minima`: like `inner`, but the compiler may assume that no number is NaN or -0.

Two environment variables select the code that runs; the results are the same:

- ``NUMBA_DISABLE_JIT=1``: nothing is compiled. Python runs the kernels, slowly, for debuggers and coverage.
- ``CAPI_SIMD=0``: loops written in LLVM's vector types are replaced by plain ones, which numba compiles as usual.

`capi._utils.kernel_cache` stores machine code on disk.
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

COUNTS_REFERENCES = False  # benchmarks/reference_counting.py measures the cost


def _is_on(variable: str) -> bool:
    """Return whether an environment variable is unset or 1."""
    value = os.environ.get(variable, "1")
    if value not in ("0", "1"):
        raise InvalidInputError(
            f"The environment variable {variable} must be 0 or 1; got {value!r}. Correct it or unset it."
        )
    return value == "1"


JIT: bool = not config.DISABLE_JIT
SIMD: bool = JIT and _is_on("CAPI_SIMD")
VARIANT = "" if SIMD else "plain"  # of the machine code: both variants are stored side by side


def _without_warnings(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function without numpy warnings about overflow and division by zero, as in compiled code."""

    @wraps(function)
    def silent(*arguments: Any) -> Any:
        with np.errstate(all="ignore"):
            return function(*arguments)

    return silent


def _decorator(*, called_from_python: bool = True, cached: bool = True, **flags: Any) -> Decorator:
    """Return a decorator that compiles kernels with these numba flags."""

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
