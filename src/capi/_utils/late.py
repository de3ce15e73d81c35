"""Lazy imports, all in one place, so that ``import capi`` and the command line start quickly.

Packages list their exports and import each one on first access (`lazy_exports`). Libraries that are slow to import, or
that may not be installed, are imported from here: ``from capi._utils.late import pandas as pd`` imports pandas when an
attribute of ``pd`` is first accessed. `late` does the same for our own modules that need the compiler.

Everything imported lazily is also imported under ``TYPE_CHECKING``, where type checkers and the import linter see it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import TYPE_CHECKING, Any

__all__ = [
    "gymnasium",
    "jinja2",
    "joblib",
    "late",
    "lazy_exports",
    "markupsafe",
    "matplotlib",
    "minari",
    "onnx",
    "pandas",
    "pyarrow",
    "pyarrow_compute",
    "rich",
    "sklearn",
    "threadpoolctl",
]


EXTRAS = {"gymnasium": ("Gymnasium environments and Minari data sets", "gymnasium"), "matplotlib": ("figures", "plot")}


class LateModule(ModuleType):
    """A placeholder for a module that is imported when one of its attributes is first accessed."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # doctest, inspect and others probe every module; that must not import it
            raise AttributeError(f"{self.__name__!r} is imported lazily and does not expose {name!r}")
        try:
            module = import_module(self.__name__)
        except ModuleNotFoundError as error:
            raise _missing(error) from error
        try:
            return getattr(module, name)
        except AttributeError:
            if not hasattr(module, "__path__") or find_spec(f"{self.__name__}.{name}") is None:
                raise
            return import_module(f"{self.__name__}.{name}")


def _missing(error: ModuleNotFoundError) -> Exception:
    """Return an error that names the extra of a package that is not installed; other errors as they are."""
    package = (error.name or "").partition(".")[0]
    if package not in EXTRAS:
        return error
    what, extra = EXTRAS[package]
    kind: type[Exception] = import_module("capi.errors").MissingPackageError  # which imports this module
    return kind(f"{what} need the package {package}, which is not installed. Run pip install 'capi[{extra}]'.")


def late(name: str) -> Any:
    """Return a placeholder for the module ``name``, which is imported when an attribute or submodule is first accessed.

    Examples
    --------
    >>> shapes = late("xml.dom.minidom")
    >>> shapes.parseString("<a/>").documentElement.tagName
    'a'
    """
    return LateModule(name)


def lazy_exports(
    package: str, homes: dict[str, str], parts: Iterable[str] = ()
) -> tuple[list[str], Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__all__``, ``__getattr__`` and ``__dir__`` of a package that imports its exports on first use.

    Parameters
    ----------
    package : str
        The ``__name__`` of the package.
    homes : dict
        Maps each exported name to the module of the package that defines it; no module may have the name of an export.
    parts : iterable of str
        Submodules and subpackages that are attributes in their own right.
    """
    known = {*homes, *parts}

    def found(name: str) -> Any:
        if name in homes:
            return getattr(import_module(f"{package}.{homes[name]}"), name)
        if name in known:
            return import_module(f"{package}.{name}")
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    def listed() -> list[str]:
        own = [name for name in vars(sys.modules[package]) if name.startswith("__")]
        return sorted({*own, *known})

    return sorted(homes), found, listed


if TYPE_CHECKING:
    import gymnasium.envs.registration
    import gymnasium.spaces.utils
    import jinja2
    import joblib
    import markupsafe
    import matplotlib.colors
    import matplotlib.figure
    import matplotlib.ticker
    import minari
    import onnx
    import pandas
    import pyarrow.compute as pyarrow_compute
    import pyarrow.csv
    import pyarrow.parquet
    import rich.console
    import rich.markup
    import rich.progress
    import rich.table
    import sklearn.ensemble
    import sklearn.exceptions
    import sklearn.tree
    import sklearn.utils
    import threadpoolctl
else:
    gymnasium = late("gymnasium")
    jinja2 = late("jinja2")
    joblib = late("joblib")
    markupsafe = late("markupsafe")
    matplotlib = late("matplotlib")
    minari = late("minari")  # an extra
    onnx = late("onnx")  # an extra
    pandas = late("pandas")
    pyarrow = late("pyarrow")
    pyarrow_compute = late("pyarrow.compute")
    rich = late("rich")
    sklearn = late("sklearn")
    threadpoolctl = late("threadpoolctl")
