"""Settings of the experiments on the analysis. The paper has none of its own: problems and sizes are ours.

Every setting has a group (the claim that it is about), a problem and a case; its record has a loss, or for Mountain-Car a number of steps, for each level of effort or error.

later           the same budget of samples and sweeps spent early, evenly or late
damping         loss of greedy decisions against the error of the values, for gaps with P(g <= e) = e^zeta and on the chain
rates           loss against the number of samples: of rewards, for large and for vanishing gaps; of states, for a space that fits and for one that does not
methods         CAPI, CPI, DPI and classification-based modified policy iteration with equal numbers of transitions
regularities    smooth or tabular values, small or unrestricted policy space
losses          the gap-weighted loss and the 0/1 loss
informative     new transitions from all states alike, from important ones, or from those with small and uncertain gaps
"""

from capi.experiments.setting import Setting, Size

SEEDS = {"quick": 5, "full": 50}
SCHEDULES = ("early", "evenly", "late")
ZETAS = (0.5, 1.0, 2.0)
ERRORS = (0.05, 0.1, 0.2, 0.4)
REWARDS = (1, 4, 16, 64, 256)  # of each action in each state
STATES = (100, 400, 1_600, 6_400)
BUDGETS = (1_000, 5_000, 25_000)
BATCHES = (500, 2_000, 8_000)
CASES = ("smooth/thresholds", "smooth/all-policies", "tabular/thresholds", "tabular/all-policies")


def settings(size: Size) -> list[Setting]:  # noqa: ARG001  a seed takes seconds
    """Return all settings, whatever the size."""
    found: list[tuple[str, str, str, dict[str, object]]] = [
        ("later", problem, case, {}) for problem in ("chain", "mountain-car", "hiv") for case in SCHEDULES
    ]
    found += [("damping", f"zeta-{zeta:g}", "greedy", {"zeta": zeta, "levels": ERRORS}) for zeta in ZETAS]
    found += [("damping", "chain", "greedy", {"zeta": None, "levels": ERRORS})]
    laws = (("large-gaps", None), ("zeta-1", 1.0), ("zeta-0.5", 0.5))
    found += [("rates", "rewards", name, {"zeta": zeta, "levels": REWARDS}) for name, zeta in laws]
    found += [("rates", "states", case, {"levels": STATES}) for case in ("fits", "does-not-fit")]
    found += [("methods", "chain", case, {"levels": BUDGETS}) for case in ("capi", "cpi", "cpi-0.1", "dpi", "cbmpi")]
    found += [("regularities", "chain", case, {"levels": BATCHES}) for case in CASES]
    problems = ("chain-1-0.7", "chain-1-0.9", "chain-2-0.9", "mountain-car")
    found += [("losses", problem, case, {}) for problem in problems for case in ("gap-weighted", "zero-one")]
    found += [("informative", "mountain-car", case, {}) for case in ("uniform", "important", "uncertain")]
    return [_setting(*each) for each in found]


def _setting(group: str, problem: str, case: str, more: dict[str, object]) -> Setting:
    values = {"group": group, "problem": problem, "case": case, **more}
    levels = more.get("levels")
    if isinstance(levels, tuple):
        values["levels"] = list(levels)
    return Setting(f"{group}/{problem}/{case.replace('/', '-')}", values)
