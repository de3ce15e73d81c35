"""(policy, data) -> Q: the ways to estimate the action values of a policy."""

from capi.evaluators.exact import Exact

__all__ = ["Exact"]
