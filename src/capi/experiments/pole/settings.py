"""Settings of pole balancing.

The paper does not state the reward, the discount, the limits, the starts, the number of iterations or the states from which
rollouts start. The whole figure depends on whether leaving the track is a failure: the main runs have no track limit, others
have one of 2.4 m. Trees for values are kept for ten sweeps; the group with new trees in every sweep compares costs.
"""

from capi.experiments.setting import Setting, Size

METHODS = (  # each with the smallest node of a policy tree that may split
    ("Tree-FQI", None),
    ("Tree-CAPI", 20),
    ("Tree-CAPI", 500),
    ("Tree-DPI", 20),
    ("Tree-DPI", 100),
    ("Tree-DPI", 500),
)
GROUPS = {  # the track limit in metres
    "no-track-limit": None,
    "track-limit": 2.4,
}
SAMPLES = (500, 1_000, 3_000, 10_000, 15_000, 30_000)
ROLLOUT_SAMPLES = (100_000, 1_000_000, 10_000_000, 30_000_000)  # in addition for rollouts, which need more
COST_SAMPLES = (1_000, 10_000, 30_000)
SEEDS = {"quick": 1, "full": 50}
LEARNING = {"n_trees": 30, "eta_v": 20, "n_iterations": 300, "refresh_every": 10}
ROLLOUTS = {"horizon": 50, "rollout_iterations": 5}
MAX_STEPS = 3000  # one minute
TESTS = 50  # test episodes


def settings(size: Size) -> list[Setting]:
    """Return one setting per kind of track, method and number of samples, and those that compare costs."""
    samples = (1_000, 3_000, 10_000) if size == "quick" else SAMPLES
    further = ROLLOUT_SAMPLES[:2] if size == "quick" else ROLLOUT_SAMPLES
    found = [
        _setting(group, method, eta, n)
        for group in GROUPS
        for method, eta in METHODS
        for n in (*samples, *(further if method == "Tree-DPI" else ()))
    ]
    if size == "full":
        found += [
            _setting("new-trees", method, eta, n, refresh_every=1)
            for method, eta in METHODS
            if method != "Tree-DPI"  # grows new trees anyway
            for n in COST_SAMPLES
        ]
    return found


def _setting(group: str, method: str, eta_pi: int | None, n_samples: int, **changes: int) -> Setting:
    name = method.lower() if eta_pi is None else f"{method.lower()}-{eta_pi}"
    case = {"method": method, "eta_pi": eta_pi, "n_samples": n_samples, "track_limit": GROUPS.get(group)}
    return Setting(f"{group}/{name}/{n_samples}", {"group": group, **case, **LEARNING, **ROLLOUTS, **changes})
