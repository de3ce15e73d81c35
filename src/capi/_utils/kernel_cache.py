"""The on-disk cache of machine code, and the rule for when it is out of date.

numba compares the machine code on disk with the file that defines the function. A kernel also contains the kernels that it
calls and the constants that it reads, which may be in other files: if one of those changed, numba would run the old code.
Here the stamp of a kernel is a digest of its file and of all files of the package that it imports, directly or indirectly.
numba chooses the folder: ``NUMBA_CACHE_DIR``, next to the source, or, if that is not writable, the user's cache.
"""

from __future__ import annotations

from functools import cache
from hashlib import sha256
from typing import Any

import llvmlite
import numpy as np
from numba import types

from capi._utils.sources import digest_of

try:
    from numba.core.caching import CompileResultCacheImpl, FunctionCache, IndexDataCacheFile
except ImportError:  # a later numba moved them: use its own cache; a test then fails
    FunctionCache = None


def keep_on_disk(dispatcher: Any, variant: str) -> None:
    """Make a numba dispatcher store its machine code, separately for each ``variant``."""
    if FunctionCache is None:
        dispatcher.enable_caching()
    else:
        dispatcher._cache = _cache_class(variant)(dispatcher.py_func)


@cache
def _cache_class(variant: str) -> Any:
    """Return numba's cache class with our own file names and stamps."""

    class Implementation(CompileResultCacheImpl):  # type: ignore[misc]  # numba has no types
        def get_filename_base(self, fullname: str, abiflags: str) -> str:
            name: str = super().get_filename_base(fullname, abiflags)
            return f"{name}.{variant}" if variant else name

    class Index(IndexDataCacheFile):  # type: ignore[misc]
        def _load_index(self) -> dict[Any, str]:
            try:
                return super()._load_index()
            except Exception:  # written by an older version, with classes that no longer exist
                return {}

    class KernelCache(FunctionCache):  # type: ignore[misc]
        _impl_class = Implementation

        def __init__(self, function: Any) -> None:
            super().__init__(function)
            self._cache_file = Index(
                cache_path=self._cache_path,
                filename_base=self._impl.filename_base,
                source_stamp=stamp_of(function.__module__),
            )

        def _index_key(self, signature: Any, codegen: Any) -> Any:
            """Return numba's key plus the field names: numba identifies a field of a named tuple by its position alone."""
            return (*super()._index_key(signature, codegen), _fields_of(signature))

    return KernelCache


def _fields_of(kinds: Any) -> tuple[Any, ...]:
    """Return the field names of all named tuples among numba types."""
    return tuple(
        (getattr(kind, "fields", ()), _fields_of(kind.types)) for kind in kinds if isinstance(kind, types.BaseTuple)
    )


@cache
def stamp_of(module: str) -> str:
    """Return a digest of all sources of a module's kernels; numba adds its own version and the processor."""
    sources = digest_of(module)
    return sha256(f"llvmlite {llvmlite.__version__} numpy {np.__version__} {sources}".encode()).hexdigest()
