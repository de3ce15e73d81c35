"""Settings of the number of patients.

The log of a seed has 200 patients: ten rounds of 20, the first treated at random, as in the base case of the sensitivity analysis. A learner
sees a random part of them. Policies are learned by `CAPI()` with the defaults of the library, not by the paper's Algorithm 1; the value "learner" names
these defaults. "Selection" chooses between a tree of depth 3, one of depth 6 and the forest on held-out patients
(`capi.selection.choose`), and returns its choice whatever the test says; the choice may also be what was done.
"""

from capi.experiments.sensitivity.settings import BASE
from capi.experiments.setting import DEFAULTS, Setting, Size

SEEDS = {"quick": 1, "full": 5}
PATIENTS = (10, 20, 40, 80, 200)
METHODS = ("Tree-FQI", "Tree-CAPI", "selection")
DEPTHS = (3, 6)  # of the trees among which selection chooses
SELECTION_TREES = 10  # per forest during selection, which learns every candidate several times


def settings(size: Size) -> list[Setting]:
    """Return one setting per number of patients and method; the quick size has few patients and no selection."""
    patients, methods = (PATIENTS, METHODS) if size == "full" else (PATIENTS[:2], METHODS[:2])
    return [_setting(method, n) for n in patients for method in methods]


def _setting(method: str, n_logged: int) -> Setting:
    more = {"depths": list(DEPTHS), "selection_trees": SELECTION_TREES} if method == "selection" else {}
    return Setting(
        f"{n_logged}/{method.lower()}",
        {"method": method, "n_logged": n_logged, "learner": DEFAULTS, **BASE["hiv"], **more},
    )
