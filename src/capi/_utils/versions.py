"""Versions: of capi itself, and of the libraries that results depend on."""

from __future__ import annotations

import os
import platform
from functools import cache
from typing import TYPE_CHECKING

from capi._utils.late import late

if TYPE_CHECKING:
    from importlib import metadata
else:
    metadata = late("importlib.metadata")

__version__ = "0.2.0"

REPORTED = ("llvmlite", "pandas", "pyarrow", "typer")  # they matter for bugs, but not for results
SWITCHES = (
    "CAPI_SIMD",
    "NUMBA_DISABLE_JIT",
    "NUMBA_CPU_NAME",
    "NUMBA_CACHE_DIR",
    "OPENBLAS_NUM_THREADS",
    "OMP_NUM_THREADS",
)
LIBRARIES = ("numpy", "scipy", "scikit-learn", "numba")


def versions() -> dict[str, str]:
    """Return the versions that results depend on, by library, capi first.

    Examples
    --------
    >>> list(versions())
    ['capi', 'numpy', 'scipy', 'scikit-learn', 'numba']
    """
    return dict(_found())


def environment() -> dict[str, str]:
    """Return what a bug report should say: versions of capi, Python and libraries, the machine, and switches that are set.

    Examples
    --------
    >>> list(environment())[:3]
    ['capi', 'python', 'platform']
    """
    others = {name: _version_or_none(name) for name in REPORTED}
    switches = {name: os.environ[name] for name in SWITCHES if name in os.environ}
    machine = {
        "python": platform.python_version(),
        "platform": f"{platform.platform()}, {platform.machine()}, {os.cpu_count()} threads",
    }
    return {"capi": __version__, **machine, **versions(), **others, **switches}


def _version_or_none(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "not installed"


@cache  # the lookup reads files, which would dominate a round of a quick loop
def _found() -> dict[str, str]:
    return {"capi": __version__, **{name: metadata.version(name) for name in LIBRARIES}}
