"""Settings of the chain walk. The paper does not state the success probability, the start or how ties are broken.

The figures use the settings of `FIGURES`; the others show the effect of those choices.
"""

from typing import Any

N_ITERATIONS = 100
VARIANTS = (1, 2)
SUCCESSES = (0.9, 0.7)  # Lagoudakis and Parr's value, and one for which the claims about the first figure hold

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
    if choice["start"] == "all-left" or method in ("capi", "pi")  # the others do not depend on the start
]


def settings(size: str) -> list[dict[str, Any]]:  # noqa: ARG001  the full size is quick
    """Return all settings, whatever the size."""
    return SETTINGS
