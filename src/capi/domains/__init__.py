"""Simulators: problems to learn on and to measure policies in."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from capi.domains.chain import ChainWalk
from capi.domains.hiv import HIV
from capi.domains.mountain_car import MountainCar

if TYPE_CHECKING:
    from capi.domains.cart_pole import CartPole

__all__ = ["HIV", "CartPole", "ChainWalk", "MountainCar"]


def __getattr__(name: str) -> Any:
    """Import what needs the compiler (numba) when it is first used."""
    if name == "CartPole":
        return import_module("capi.domains.cart_pole").CartPole
    raise AttributeError(f"module 'capi.domains' has no attribute {name!r}")
