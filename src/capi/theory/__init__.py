"""The paper's analysis as numbers: its quantities, its bounds with every constant, and what they say about a batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from capi._utils.late import lazy_exports

if TYPE_CHECKING:
    from capi.theory.approximation import GreedyError as GreedyError
    from capi.theory.approximation import greedy_error as greedy_error
    from capi.theory.bounds import Constants as Constants
    from capi.theory.bounds import ImprovementBound as ImprovementBound
    from capi.theory.bounds import PerformanceBound as PerformanceBound
    from capi.theory.bounds import improvement_bound as improvement_bound
    from capi.theory.bounds import performance_bound as performance_bound
    from capi.theory.calibration import Calibration as Calibration
    from capi.theory.calibration import best_half_space_loss as best_half_space_loss
    from capi.theory.calibration import excess_over_half_spaces as excess_over_half_spaces
    from capi.theory.calibration import measured_calibration as measured_calibration
    from capi.theory.calibration import psi_transform as psi_transform
    from capi.theory.certifying import Certificate as Certificate
    from capi.theory.certifying import certificate as certificate
    from capi.theory.complexity import FixedPoint as FixedPoint
    from capi.theory.complexity import Rademacher as Rademacher
    from capi.theory.complexity import fixed_point as fixed_point
    from capi.theory.complexity import rademacher as rademacher
    from capi.theory.distortion import distortion_by_disagreement as distortion_by_disagreement
    from capi.theory.distortion import distortion_by_gaps as distortion_by_gaps
    from capi.theory.distortion import distortion_in_norm as distortion_in_norm
    from capi.theory.futures import Concentrability as Concentrability
    from capi.theory.futures import concentrability as concentrability
    from capi.theory.futures import discounted_concentrability as discounted_concentrability
    from capi.theory.gaps import GapRegularity as GapRegularity
    from capi.theory.gaps import gap_regularity as gap_regularity
    from capi.theory.growth import log_growth as log_growth
    from capi.theory.growth import vc_radius as vc_radius
    from capi.theory.policy_sets import half_spaces as half_spaces
    from capi.theory.propagating import Propagation as Propagation
    from capi.theory.propagating import propagation as propagation
else:
    __all__, __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "Calibration": "calibration",
            "Certificate": "certifying",
            "Concentrability": "futures",
            "Constants": "bounds",
            "FixedPoint": "complexity",
            "GapRegularity": "gaps",
            "GreedyError": "approximation",
            "ImprovementBound": "bounds",
            "PerformanceBound": "bounds",
            "Propagation": "propagating",
            "Rademacher": "complexity",
            "best_half_space_loss": "calibration",
            "certificate": "certifying",
            "concentrability": "futures",
            "discounted_concentrability": "futures",
            "distortion_by_disagreement": "distortion",
            "distortion_by_gaps": "distortion",
            "distortion_in_norm": "distortion",
            "excess_over_half_spaces": "calibration",
            "fixed_point": "complexity",
            "gap_regularity": "gaps",
            "greedy_error": "approximation",
            "half_spaces": "policy_sets",
            "improvement_bound": "bounds",
            "log_growth": "growth",
            "measured_calibration": "calibration",
            "performance_bound": "bounds",
            "propagation": "propagating",
            "psi_transform": "calibration",
            "rademacher": "complexity",
            "vc_radius": "growth",
        },
    )
