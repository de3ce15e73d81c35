"""What a policy is worth, from logged data alone: estimates with intervals, beside what was done, and with what speaks against trusting them."""

from capi.offline.evaluation import compare, cross_evaluate, evaluate
from capi.offline.evidence import METHODS, Comparison, Estimate, Evidence
from capi.offline.score import fitted_value

__all__ = ["METHODS", "Comparison", "Estimate", "Evidence", "compare", "cross_evaluate", "evaluate", "fitted_value"]
