"""Features of states and kernels between them: what linear and kernel methods are linear in."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from capi.features.bases import RKHS, Fourier, OneHot, Polynomial, RadialCentres, RadialGrid, Tiles
    from capi.features.dictionary import KernelDictionary

__all__ = [
    "RKHS",
    "Fourier",
    "KernelDictionary",
    "OneHot",
    "Polynomial",
    "RadialCentres",
    "RadialGrid",
    "Tiles",
]


def __getattr__(name: str) -> Any:
    """Import what needs scikit-learn when it is first used."""
    if name in __all__:
        home = "dictionary" if name == "KernelDictionary" else "bases"
        return getattr(import_module(f"capi.features.{home}"), name)
    raise AttributeError(f"module 'capi.features' has no attribute {name!r}")
