"""Simulators: problems to learn on and to measure policies in."""

from capi.domains.chain import ChainWalk

__all__ = ["ChainWalk"]
