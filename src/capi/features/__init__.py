"""Features of states and kernels between states, for linear and kernel methods."""

from __future__ import annotations

from typing import TYPE_CHECKING

from capi._utils.late import lazy_exports

if TYPE_CHECKING:
    from capi.features.bases import RKHS as RKHS
    from capi.features.bases import Fourier as Fourier
    from capi.features.bases import OneHot as OneHot
    from capi.features.bases import Polynomial as Polynomial
    from capi.features.bases import RadialCentres as RadialCentres
    from capi.features.bases import RadialGrid as RadialGrid
    from capi.features.bases import Tiles as Tiles
    from capi.features.dictionary import KernelDictionary as KernelDictionary
    from capi.features.values import ValueFeatures as ValueFeatures
else:
    __all__, __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "Fourier": "bases",
            "KernelDictionary": "dictionary",
            "OneHot": "bases",
            "Polynomial": "bases",
            "RKHS": "bases",
            "RadialCentres": "bases",
            "RadialGrid": "bases",
            "Tiles": "bases",
            "ValueFeatures": "values",
        },
    )
