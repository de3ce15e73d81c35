"""The on-disk cache of machine code, the rule for when it is out of date, and what happens if it cannot be used.

numba compares the machine code on disk with the file that defines the function. A kernel also contains the kernels that it
calls and the constants that it reads, which may be in other files: if one of those changed, numba would run the old code.
Here the stamp of a kernel is a digest of its file and of all files of the package that it imports, directly or indirectly.

The folder is the first of these that is writable: ``NUMBA_CACHE_DIR``, ``__pycache__`` next to the source, the user's cache.
Folders before it in this list cannot be written, but may hold machine code, as in the image of a container: they are read.

A cache can save time and must not do anything else. Each file starts with a digest of its contents: a truncated or damaged
file would otherwise run as machine code. Whatever cannot be read is discarded and compiled again, whatever cannot be written
is compiled in each process, and a `KernelCacheWarning` says so, once per process.
"""

from __future__ import annotations

import io
import os
import pickle
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from hashlib import sha256
from typing import Any

import llvmlite
import numpy as np
from numba import config, types

from capi._utils import compiling
from capi._utils.sources import digest_of
from capi.errors import KernelCacheWarning

try:
    from numba.core.caching import (
        CompileResultCacheImpl,
        FunctionCache,
        IndexDataCacheFile,
        InTreeCacheLocator,
        UserProvidedCacheLocator,
        UserWideCacheLocator,
        ZipCacheLocator,
    )
except ImportError:  # a later numba moved them: use its own cache; a test then fails
    FunctionCache = None

CHECKED = "checked"  # part of the names of files that start with their digest; earlier versions wrote others
DIGEST_SIZE = 32  # bytes

_warned = False


def keep_on_disk(dispatcher: Any, variant: str) -> None:
    """Make a numba dispatcher store its machine code, separately for each ``variant``."""
    try:
        if FunctionCache is None:
            dispatcher.enable_caching()
        else:
            dispatcher._cache = _cache_class(variant)(dispatcher.py_func)
    except (OSError, RuntimeError) as error:  # no folder at all, or no source file
        _warn(
            f"machine code cannot be stored ({_reason(error)}). It is compiled again in each process, which takes about a "
            "minute. Set NUMBA_CACHE_DIR to a writable folder."
        )


@cache
def _cache_class(variant: str) -> Any:
    """Return numba's cache class with our own folders, file names, stamps and checks."""

    class UserCache(UserWideCacheLocator):  # type: ignore[misc]  # numba has no types
        @classmethod
        def from_function(cls, py_func: Any, py_file: str) -> Any:
            """Refuse a user without a home: numba would create a folder named ``~``."""
            return super().from_function(py_func, py_file) if os.path.isabs(_path_in(cls, py_func, py_file)) else None

    class LastResort(InTreeCacheLocator):  # type: ignore[misc]
        @classmethod
        def from_function(cls, py_func: Any, py_file: str) -> Any:
            """Accept a folder that is not writable: loading from it may succeed, saving warns."""
            return cls(py_func, py_file)

    class Implementation(CompileResultCacheImpl):  # type: ignore[misc]
        _locator_classes = (
            UserProvidedCacheLocator,
            InTreeCacheLocator,
            UserCache,
            ZipCacheLocator,
            LastResort,
        )

        def get_filename_base(self, fullname: str, abiflags: str) -> str:
            name: str = super().get_filename_base(fullname, abiflags)
            return ".".join([name, *([variant] if variant else []), CHECKED])

        def read_only_folders(self, function: Any) -> list[str]:
            """Return the folders that come before the chosen one, which are not writable."""
            before = []
            for kind in self._locator_classes:
                if type(self.locator) is kind:
                    break
                if kind is not ZipCacheLocator and (kind is not UserProvidedCacheLocator or config.CACHE_DIR):
                    before.append(_path_in(kind, function, function.__code__.co_filename))
            return before

    class KernelCache(FunctionCache):  # type: ignore[misc]
        _impl_class = Implementation

        def __init__(self, function: Any) -> None:
            super().__init__(function)
            self._cache_file = self._file_in(self._cache_path)

        def _file_in(self, folder: str) -> CheckedFiles:
            return CheckedFiles(folder, self._impl.filename_base, stamp_of(self._py_func.__module__))

        def load_overload(self, signature: Any, context: Any) -> Any:
            """Return the machine code for a signature, None if there is none that can be used."""
            context.refresh()
            for file in (*map(self._file_in, self._impl.read_only_folders(self._py_func)), self._cache_file):
                try:
                    data = file.load(self._index_key(signature, context.codegen()))
                    if data is not None:
                        return self._impl.rebuild(context, data)
                except Exception as error:
                    file.discard()
                    _warn(
                        f"the cache of machine code in {file.folder} has a file that cannot be read ({_reason(error)}). It is "
                        "discarded and compiled again. If this happens again, set NUMBA_CACHE_DIR to another folder."
                    )
            compiling.started(kept=not isinstance(self._impl.locator, LastResort))
            return None

        def save_overload(self, signature: Any, data: Any) -> None:
            """Save machine code if possible."""
            if config.CACHE_DIR and not isinstance(self._impl.locator, UserProvidedCacheLocator):
                _warn(
                    f"NUMBA_CACHE_DIR is set to {config.CACHE_DIR}, which is not a writable folder. Machine code is not stored "
                    "there, and may be compiled again in each process. Set it to a writable folder."
                )
            try:
                super()._save_overload(signature, data)
            except Exception as error:
                _warn(
                    f"machine code cannot be stored in {self._cache_path} ({_reason(error)}). It is compiled again in each "
                    "process, which takes about a minute. Set NUMBA_CACHE_DIR to a writable folder."
                )

        def _index_key(self, signature: Any, codegen: Any) -> Any:
            """Return numba's key plus the field names: numba identifies a field of a named tuple by its position alone."""
            return (*super()._index_key(signature, codegen), _fields_of(signature))

    return KernelCache


def _path_in(locator: Any, function: Any, file: str) -> str:
    return str(locator(function, file).get_cache_path())


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or f"{type(error).__name__}: {error}".removesuffix(": ").removesuffix(".")


def _warn(sentence: str) -> None:
    """Issue a warning, once per process: every kernel has the same problem."""
    global _warned
    if not _warned:
        _warned = True
        warnings.warn(sentence, KernelCacheWarning, stacklevel=2)


class CheckedFiles(IndexDataCacheFile if FunctionCache else object):  # type: ignore[misc]
    """numba's index and data files of a function, each preceded by a digest of its contents."""

    @property
    def folder(self) -> str:
        """The folder of the files."""
        return str(self._cache_path)

    def discard(self) -> None:
        """Remove the index, if possible, so that all data files are written again."""
        with suppress(OSError):
            os.unlink(self._index_path)

    def save(self, key: Any, data: Any) -> None:
        """Save ``data`` with its key, because two processes may write different data under the same name."""
        super().save(key, (key, data))

    def load(self, key: Any) -> Any:
        """Return the data of a key, None if there is none."""
        found = super().load(key)
        return found[1] if found is not None and found[0] == key else None

    def _load_index(self) -> dict[Any, str]:
        """Return the names of the data files; the index is not unpickled further if it is of another version."""
        try:
            contents = io.BytesIO(_read_checked(self._index_path))
        except (FileNotFoundError, NotADirectoryError):
            return {}
        if pickle.load(contents) != (self._version, self._source_stamp):
            return {}
        found: dict[Any, str] = pickle.load(contents)
        return found

    def _save_index(self, overloads: dict[Any, str]) -> None:
        self._write_checked(self._index_path, self._dump((self._version, self._source_stamp)) + self._dump(overloads))

    def _load_data(self, name: str) -> Any:
        return pickle.loads(_read_checked(self._data_path(name)))

    def _save_data(self, name: str, data: Any) -> None:
        self._write_checked(self._data_path(name), self._dump(data))

    def _write_checked(self, path: str, contents: bytes) -> None:
        with self._open_for_write(path) as file:
            file.write(sha256(contents).digest() + contents)

    @contextmanager
    def _open_for_write(self, filepath: str) -> Iterator[Any]:
        """Open a file under a temporary name and rename it; numba leaves the temporary file behind after Ctrl-C."""
        temporary = f"{filepath}.tmp.{os.urandom(8).hex()}"
        try:
            with open(temporary, "wb") as file:
                yield file
            os.replace(temporary, filepath)
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary)
            raise


def _read_checked(path: str) -> bytes:
    """Return the contents of a file after its digest; refuse a file whose contents do not have that digest."""
    with open(path, "rb") as file:
        digest, contents = file.read(DIGEST_SIZE), file.read()
    if sha256(contents).digest() != digest:
        raise ValueError("truncated or damaged")
    return contents


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
