"""How the kernels that grow trees are compiled.

Nobody counts references (`_nrt`). Counting takes an atomic addition for every slice and call, which waits for all memory: it was
a quarter of the time. So kernels allocate nothing and return no slices; `capi.trees._kernels.records` lends them what they need.

- `entry`: is called from Python.
- `kernel`: is called for every node. Passing tables on takes time, so that it becomes part of its caller when that is translated.
- `inlined`: is called in one place, by a kernel that is large itself. It becomes part of it before anything is translated,
  because every kernel is translated once for itself and once more in each of its callers. It may return slices.
- `apart`: is called seldom, or takes long anyway.
"""

from numba import njit

_ALL = {"cache": True, "error_model": "numpy", "_nrt": False}
_INNER = {**_ALL, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}

entry = njit(nogil=True, **_ALL)
kernel = njit(forceinline=True, **_INNER)
inlined = njit(inline="always")
apart = njit(**_INNER)
