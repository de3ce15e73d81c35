"""Settings of the chain walk. The paper does not state the success probability, the start or how ties are broken.

The figures use the settings of `FIGURES`; the others show the effect of those choices.
"""

from capi.experiments.setting import Setting, Size

SEEDS = {"quick": 1, "full": 1}  # nothing is random
N_ITERATIONS = 100
VARIANTS = (1, 2)
SUCCESSES = (0.9, 0.7)  # Lagoudakis and Parr's value, and one for which the claims about the first figure hold

FIGURES = {"start": "all-left", "ties": "first", "reward_on": "state"}

OTHERS = {
    "all-right": {"start": "all-right", "ties": "first", "reward_on": "state"},
    "last-ties": {"start": "all-left", "ties": "last", "reward_on": "state"},
    "next-reward": {"start": "all-left", "ties": "first", "reward_on": "next_state"},
}

SETTINGS = [
    Setting(
        f"variant-{variant}-{name}/success-{success:g}/{method}",
        {"variant": variant, "success": success, "method": method, "n_iterations": N_ITERATIONS, **choice},
    )
    for name, choice in {"figures": FIGURES, **OTHERS}.items()
    for variant in VARIANTS
    for success in SUCCESSES
    for method in ("capi", "vi", "pi", "zero-one")
    if choice["start"] == "all-left" or method in ("capi", "pi")  # the others do not depend on the start
]


def settings(size: Size) -> list[Setting]:  # noqa: ARG001  the full size is quick
    """Return all settings, whatever the size."""
    return SETTINGS
