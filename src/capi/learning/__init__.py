"""The loop: evaluate the policy, improve it, repeat."""

from capi.learning.iteration import Iteration
from capi.learning.learner import CAPI, Learner

__all__ = ["CAPI", "Iteration", "Learner"]
