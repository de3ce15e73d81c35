"""Simulated problems, to learn on and to measure policies."""

from __future__ import annotations

from typing import TYPE_CHECKING

from capi._utils.late import lazy_exports

if TYPE_CHECKING:
    from capi.domains.blackjack import Blackjack as Blackjack
    from capi.domains.cart_pole import CartPole as CartPole
    from capi.domains.chain import ChainWalk as ChainWalk
    from capi.domains.frozen_lake import FrozenLake as FrozenLake
    from capi.domains.hiv import HIV as HIV
    from capi.domains.inventory import InventoryManagement as InventoryManagement
    from capi.domains.machine import MachineMaintenance as MachineMaintenance
    from capi.domains.mountain_car import MountainCar as MountainCar
    from capi.domains.navigation import Navigation as Navigation
    from capi.domains.system_administrator import SystemAdministrator as SystemAdministrator
    from capi.domains.tic_tac_toe import TicTacToe as TicTacToe
    from capi.domains.tiger_antelope import TigerAndAntelope as TigerAndAntelope
    from capi.domains.traffic import TrafficIntersection as TrafficIntersection
else:
    __all__, __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "HIV": "hiv",
            "Blackjack": "blackjack",
            "CartPole": "cart_pole",
            "ChainWalk": "chain",
            "FrozenLake": "frozen_lake",
            "InventoryManagement": "inventory",
            "MachineMaintenance": "machine",
            "MountainCar": "mountain_car",
            "Navigation": "navigation",
            "SystemAdministrator": "system_administrator",
            "TicTacToe": "tic_tac_toe",
            "TigerAndAntelope": "tiger_antelope",
            "TrafficIntersection": "traffic",
        },
    )
