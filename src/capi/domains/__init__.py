"""Simulators: problems to learn on and to measure policies in."""

from capi.domains.cart_pole import CartPole
from capi.domains.chain import ChainWalk
from capi.domains.hiv import HIV

__all__ = ["HIV", "CartPole", "ChainWalk"]
