"""Simulated problems, to learn on and to measure policies."""

from __future__ import annotations

from typing import TYPE_CHECKING

from capi._utils.late import lazy_exports

if TYPE_CHECKING:
    from capi.domains.cart_pole import CartPole as CartPole
    from capi.domains.chain import ChainWalk as ChainWalk
    from capi.domains.hiv import HIV as HIV
    from capi.domains.mountain_car import MountainCar as MountainCar
else:
    __all__, __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "HIV": "hiv",
            "CartPole": "cart_pole",
            "ChainWalk": "chain",
            "MountainCar": "mountain_car",
        },
    )
