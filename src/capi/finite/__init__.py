"""Finite Markov decision processes whose model is known."""

from capi.finite.mdp import FiniteMDP, TabularQ

__all__ = ["FiniteMDP", "TabularQ"]
