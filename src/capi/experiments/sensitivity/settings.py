"""Settings of the sensitivity analysis: a base case per problem, and one choice changed at a time.

All methods of a seed learn from one batch, and every case is measured in the same way: HIV by the return of the base case (discount 0.98,
reward of the state before the step) over 5000 days, Mountain-Car and the pole by steps. The problems are smaller than in the paper's
figures, so that a seed takes minutes: HIV has ten rounds of 20 patients instead of 30, collected by Tree-FQI with 60 iterations per
round, and 60 iterations of learning; Mountain-Car has 1,000 samples, the pole 3,000.
"""

from typing import Any

from capi.experiments.setting import Setting, Size

SEEDS = {"quick": 1, "full": 5}
BASE: dict[str, dict[str, Any]] = {
    "hiv": {
        "discount": 0.98,
        "eta_v": 50,
        "observe": "log10",
        "reward_on": "state",
        "n_iterations": 60,
        "ties": "first",
        "n_trees": 30,
        "eta_pi": 20,
        "refresh_every": 10,
        "n_patients": 20,
        "n_steps": 200,
        "n_rounds": 10,
        "exploration": 0.15,
        "collecting_iterations": 60,
    },
    "mountain-car": {
        "discount": 0.98,
        "ridge": 0.01,
        "n_iterations": 100,
        "ties": "first",
        "goal_reward": -1,
        "scale": "box",
        "n_samples": 1_000,
        "kappa": 75,
        "bandwidth": 0.1,
        "threshold": 1e-3,
    },
    "pole": {
        "discount": 0.99,
        "eta_v": 20,
        "n_iterations": 300,
        "ties": "first",
        "track_limit": None,
        "angle_limit": 36.0,
        "reward": "failure",
        "starts": "near",
        "n_samples": 3_000,
        "n_trees": 30,
        "eta_pi": 20,
        "refresh_every": 10,
    },
}
CHANGES: dict[str, dict[str, tuple[Any, ...]]] = {
    "hiv": {
        "discount": (0.95, 0.99),
        "eta_v": (5, 20),
        "observe": ("counts",),
        "reward_on": ("next_state",),
        "n_iterations": (30, 120),
        "ties": ("last",),
    },
    "mountain-car": {
        "discount": (0.95, 0.99),
        "ridge": (1e-5, 1e-3, 0.1),  # the smallest is the other reading of lambda
        "n_iterations": (50, 200),
        "ties": ("last",),
        "goal_reward": (0,),
        "scale": (None,),
    },
    "pole": {
        "discount": (0.95, 0.999),
        "eta_v": (5, 50),
        "n_iterations": (100, 600),
        "ties": ("last",),
        "track_limit": (2.4,),
        "angle_limit": (12.0,),
        "reward": ("survival",),
        "starts": ("wide",),
    },
}
METHODS = {"hiv": ("Tree-FQI", "Tree-CAPI"), "mountain-car": ("RFQI", "KNN-CAPI"), "pole": ("Tree-FQI", "Tree-CAPI")}


def settings(size: Size) -> list[Setting]:
    """Return the base case and all changes, with both methods; the quick size has Mountain-Car alone."""
    return [
        _setting(problem, method, factor, level)
        for problem in (BASE if size == "full" else ("mountain-car",))
        for factor, level in cases(problem)
        for method in METHODS[problem]
    ]


def cases(problem: str) -> list[tuple[str, Any]]:
    """Return the base case, named "base", and every choice with its other values."""
    return [("base", None)] + [(factor, level) for factor, levels in CHANGES[problem].items() for level in levels]


def _setting(problem: str, method: str, factor: str, level: Any) -> Setting:
    values = BASE[problem] | ({} if factor == "base" else {factor: level})
    name = "base" if factor == "base" else f"{factor}-{'none' if level is None else level}"
    case = {"problem": problem, "factor": factor, "level": level, "method": method}
    return Setting(f"{problem}/{name}/{method.lower()}", {**case, **values})
