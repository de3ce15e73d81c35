"""The tree engine: grows both value forests and policy forests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from capi._utils.late import lazy_exports

if TYPE_CHECKING:
    from capi.trees.regressor import ExtraTreesRegressor as ExtraTreesRegressor
else:
    __all__, __getattr__, __dir__ = lazy_exports(__name__, {"ExtraTreesRegressor": "regressor"})
