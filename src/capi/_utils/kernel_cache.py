"""Where machine code is kept, and when it is out of date.

numba compares the machine code on disk with the file that the function is in. A kernel also contains the kernels that it calls and
the constants that it reads, which may be in other files: if one of those changed, numba would run the old code. Here the stamp of
a kernel is a digest of its file and of all files of the package that this one imports, directly or not. Folders are those
that numba chooses: ``NUMBA_CACHE_DIR``, beside the source, or, if that cannot be written to, the user's cache.
"""

from __future__ import annotations

import os
import re
import sys
from functools import cache
from hashlib import sha256
from typing import Any

import llvmlite
import numpy as np
from numba import types

try:
    from numba.core.caching import CompileResultCacheImpl, FunctionCache, IndexDataCacheFile
except ImportError:  # a later numba has them elsewhere: its own cache must do, and a test fails
    FunctionCache = None

PACKAGE = __name__.partition(".")[0]
IMPORTS = re.compile(
    rf"^[ \t]*(?:from[ \t]+({PACKAGE}[\w.]*)[ \t]+import[ \t]*(\([^)]*\)|[^\n]*)|import[ \t]+({PACKAGE}[\w.]*))".encode(),
    re.MULTILINE,
)


def keep_on_disk(dispatcher: Any, variant: str) -> None:
    """Let a dispatcher of numba keep its machine code; code of another ``variant`` is kept beside it."""
    if FunctionCache is None:
        dispatcher.enable_caching()
    else:
        dispatcher._cache = _cache_class(variant)(dispatcher.py_func)


@cache
def _cache_class(variant: str) -> Any:
    """Return numba's cache with file names and stamps of our own."""

    class Implementation(CompileResultCacheImpl):  # type: ignore[misc]  # numba has no types
        def get_filename_base(self, fullname: str, abiflags: str) -> str:
            name: str = super().get_filename_base(fullname, abiflags)
            return f"{name}.{variant}" if variant else name

    class Index(IndexDataCacheFile):  # type: ignore[misc]
        def _load_index(self) -> dict[Any, str]:
            try:
                return super()._load_index()
            except Exception:  # an older version wrote it, with classes that are gone
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
            """Return numba's key and the names of fields: numba knows a field of a named tuple by its place alone."""
            return (*super()._index_key(signature, codegen), _fields_of(signature))

    return KernelCache


def _fields_of(kinds: Any) -> tuple[Any, ...]:
    """Return the names of the fields of all named tuples among types of numba."""
    return tuple(
        (getattr(kind, "fields", ()), _fields_of(kind.types)) for kind in kinds if isinstance(kind, types.BaseTuple)
    )


@cache
def stamp_of(module: str) -> str:
    """Return a digest of all that the machine code of a module's kernels is made from; numba adds its version and the processor."""
    files = [f"{name} {_digest_of(name)}" for name in sorted(sources_of(module))]
    return sha256(f"llvmlite {llvmlite.__version__} numpy {np.__version__} {files}".encode()).hexdigest()


@cache
def _digest_of(module: str) -> str:
    return sha256(_read(module)).hexdigest()


def sources_of(module: str) -> set[str]:
    """Return the modules of the package that a module's code comes from: itself, and what it imports, directly or not."""
    found: set[str] = set()
    waiting = [module]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += _imported_by(name)
    return found


@cache
def _imported_by(module: str) -> list[str]:
    """Return the modules of the package that a module names in import statements."""
    found = []
    for package, names, alone in IMPORTS.findall(_read(module)):
        parent = (package or alone).decode()
        found.append(parent)
        if _file_of(parent).endswith("__init__.py"):
            parts = [f"{parent}.{name}" for name in re.findall(r"\w+", names.decode())]
            inside = [part for part in parts if _file_of(part)]
            found += inside
            if inside and len(inside) == len(parts):  # nothing comes from the package itself
                found.remove(parent)
    return found


@cache
def _file_of(module: str) -> str:
    """Return the file of a module, nothing if there is none."""
    place = os.path.join(sys.modules[PACKAGE].__path__[0], *module.split(".")[1:])
    for path in (f"{place}.py", os.path.join(place, "__init__.py")):
        try:
            _data_of(path)
        except OSError:
            continue
        return path
    return ""


def _read(module: str) -> bytes:
    """Return the source of a module, nothing if there is none."""
    return _data_of(_file_of(module)) if _file_of(module) else b""


@cache
def _data_of(path: str) -> bytes:
    """Return what is in a file; the package's loader also reads from zip files."""
    return sys.modules[PACKAGE].__spec__.loader.get_data(path)  # type: ignore[union-attr]
