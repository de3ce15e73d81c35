"""The engine: value forests and policy forests from one grower."""

from capi.trees.regressor import ExtraTreesRegressor

__all__ = ["ExtraTreesRegressor"]
