"""The modules of the package that a module depends on, and a digest of their sources.

Machine code on disk is out of date, and a record of an experiment comes from other code, when this digest has changed.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from functools import cache
from hashlib import sha256

PACKAGE = __name__.partition(".")[0]
IMPORTS = re.compile(
    rf"^[ \t]*(?:from[ \t]+({PACKAGE}[\w.]*)[ \t]+import[ \t]*(\([^)]*\)|[^\n]*)|import[ \t]+({PACKAGE}[\w.]*))".encode(),
    re.MULTILINE,
)
NAMES = re.compile(r"(\w+)(?:[ \t]+as[ \t]+\w+)?")  # without the new name of "old as new"
COMMENTS = re.compile(r"#[^\n]*")


@cache
def digest_of(module: str) -> str:
    """Return a digest of the sources of a module and of all modules of the package that it depends on."""
    files = [f"{name} {_digest_of_file(name)}" for name in sorted(sources_of(module))]
    return sha256("\n".join(files).encode()).hexdigest()


def sources_of(module: str) -> set[str]:
    """Return the modules of the package that a module depends on: itself and its direct and indirect imports.

    A name imported from a package leads to the module that defines it, not to everything that the package exports.
    """
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
    """Return the modules of the package that a module imports directly."""
    found = []
    for parent, names in _imports(module):
        found += [_home_of(parent, name) for name in names] or [parent]
    return found


def _imports(module: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the modules of the package that a module imports, each with the names imported from it."""
    for package, names, alone in IMPORTS.findall(_read(module)):
        yield (package or alone).decode(), NAMES.findall(COMMENTS.sub("", names.decode()))


def _home_of(parent: str, name: str) -> str:
    """Return the module that ``from parent import name`` needs: a submodule, the module that defines the name, or ``parent``."""
    if not file_of(parent).endswith("__init__.py"):
        return parent
    return f"{parent}.{name}" if file_of(f"{parent}.{name}") else _exports_of(parent).get(name, parent)


@cache
def _exports_of(package: str) -> dict[str, str]:
    """Return the module of each name that a package imports from elsewhere in order to export it."""
    return {name: module for module, names in _imports(package) for name in names}


@cache
def _digest_of_file(module: str) -> str:
    return sha256(_read(module)).hexdigest()


@cache
def file_of(module: str) -> str:
    """Return the file of a module, an empty string if there is none."""
    place = os.path.join(sys.modules[PACKAGE].__path__[0], *module.split(".")[1:])
    for path in (f"{place}.py", os.path.join(place, "__init__.py")):
        try:
            _data_of(path)
        except OSError:
            continue
        return path
    return ""


def _read(module: str) -> bytes:
    """Return the source of a module, empty if there is none."""
    return _data_of(file_of(module)) if file_of(module) else b""


@cache
def _data_of(path: str) -> bytes:
    """Return the contents of a file, through the package's loader, which also reads from zip files."""
    return sys.modules[PACKAGE].__spec__.loader.get_data(path)  # type: ignore[union-attr]
