"""Versions: of capi itself, and of the libraries that results depend on."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from capi._utils.late import late

if TYPE_CHECKING:
    from importlib import metadata
else:
    metadata = late("importlib.metadata")

__version__ = "0.1.0"

LIBRARIES = ("numpy", "scipy", "scikit-learn", "numba")


def versions() -> dict[str, str]:
    """Return the versions that results depend on, by library, capi first.

    Examples
    --------
    >>> list(versions())
    ['capi', 'numpy', 'scipy', 'scikit-learn', 'numba']
    """
    return dict(_found())


@cache  # the lookup reads files, which would dominate a round of a quick loop
def _found() -> dict[str, str]:
    return {"capi": __version__, **{name: metadata.version(name) for name in LIBRARIES}}
