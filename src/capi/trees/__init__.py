"""The tree engine: grows both value forests and policy forests."""

from capi.trees.regressor import ExtraTreesRegressor

__all__ = ["ExtraTreesRegressor"]
