"""Policies in simulators: episodes, samples of transitions, and performance."""

from capi.simulation.engine import outcome, steps
from capi.simulation.returns import Performance, performance
from capi.simulation.sampling import sample_episodes, sample_steps

__all__ = ["Performance", "outcome", "performance", "sample_episodes", "sample_steps", "steps"]
