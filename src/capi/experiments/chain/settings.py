"""What is run for the chain walk. The paper prints neither the success probability nor the start nor ties.

The figures use the settings of `FIGURES`; the others show what those choices change.
"""

from typing import Any

N_ITERATIONS = 100
VARIANTS = (1, 2)
SUCCESSES = (0.9, 0.7)  # Lagoudakis and Parr's own, and one with which the first figure's story holds

FIGURES = {"start": "all-left", "ties": "first", "reward_on": "state"}

OTHERS = (
    {"start": "all-right", "ties": "first", "reward_on": "state"},
    {"start": "all-left", "ties": "last", "reward_on": "state"},
    {"start": "all-left", "ties": "first", "reward_on": "next_state"},
)

SETTINGS: list[dict[str, Any]] = [
    {"variant": variant, "success": success, "method": method, "n_iterations": N_ITERATIONS, **choice}
    for choice in (FIGURES, *OTHERS)
    for variant in VARIANTS
    for success in SUCCESSES
    for method in ("capi", "vi", "pi", "zero-one")
    if choice["start"] == "all-left" or method in ("capi", "pi")  # the others have no start
]


def settings(size: str) -> list[dict[str, Any]]:  # noqa: ARG001  it is quick at full size
    """Return all settings, whatever the size."""
    return SETTINGS
