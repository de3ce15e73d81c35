"""The one way to import late, so that ``import capi`` and the command line are quick.

Packages name what they export, and import it when it is first asked for (`lazy_exports`). Libraries that take long to import,
or that may not be installed, are taken from here: ``from capi._utils.late import pandas as pd`` imports pandas when the first
attribute of ``pd`` is asked for. Our own modules that need the compiler are stood for by `late`.

What is imported late is also imported under ``TYPE_CHECKING``, where type checkers and the import linter see it.
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


class LateModule(ModuleType):
    """Stands for a module that is imported when one of its attributes is first asked for."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # doctest, inspect and others look at everything, which is no reason to import it
            raise AttributeError(f"{self.__name__!r} is imported late and shows no {name!r}")
        module = import_module(self.__name__)
        try:
            return getattr(module, name)
        except AttributeError:
            if not hasattr(module, "__path__") or find_spec(f"{self.__name__}.{name}") is None:
                raise
            return import_module(f"{self.__name__}.{name}")


def late(name: str) -> Any:
    """Return what stands for the module ``name`` until one of its attributes, or submodules, is first asked for.

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
    """Return ``__all__``, ``__getattr__`` and ``__dir__`` of a package that imports what it exports when it is first used.

    Parameters
    ----------
    package : str
        Its ``__name__``.
    homes : dict
        From each exported name to the module of the package that defines it; a module must not have the name of an export.
    parts : iterable of str
        Modules and packages in it that are attributes of their own.
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
    import sklearn.exceptions
    import sklearn.tree
    import sklearn.utils
    import threadpoolctl
else:
    gymnasium = late("gymnasium")
    jinja2 = late("jinja2")
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
