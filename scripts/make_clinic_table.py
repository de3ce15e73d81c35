"""Create the small table of simulated clinic visits that is shipped with the package.

    python scripts/make_clinic_table.py src/capi/datasets/clinic.csv

600 patients come four times, four weeks apart. A coin decides whether they are treated. Treatment lowers the severity of the disease
and raises a liver value, which hurts above 3; both go on after the visit, so that a visit's best decision depends on the next ones.
"""

import sys

import numpy as np
import pandas as pd

SEED, PATIENTS, VISITS, WEEKS = 0, 600, 4, 4


def table():
    """Return one row per visit."""
    rng = np.random.default_rng(SEED)
    age, sex = rng.integers(25, 80, PATIENTS), rng.choice(["female", "male"], PATIENTS)
    severity, liver = rng.uniform(1, 9, PATIENTS), rng.uniform(0.5, 4, PATIENTS)
    visits = []
    for visit in range(VISITS):
        treated = rng.random(PATIENTS) < 0.5
        now = {"patient": np.arange(1, PATIENTS + 1), "week": visit * WEEKS, "age": age, "sex": sex}
        now |= {"severity": severity.round(1), "liver": liver.round(1), "treatment": np.where(treated, "treat", "wait")}
        severity = np.clip(severity + 0.6 - 2.2 * treated + rng.normal(0, 0.5, PATIENTS), 0, 10)
        liver = np.clip(0.8 * liver + 0.25 + 1.1 * treated + rng.normal(0, 0.2, PATIENTS), 0.2, 8)
        wellbeing = 10 - severity - 2.5 * np.maximum(liver - 3, 0)
        visits.append(pd.DataFrame({**now, "wellbeing": wellbeing.round(2), "propensity": 0.5}))
    return pd.concat(visits).sort_values(["patient", "week"], kind="stable")


if __name__ == "__main__":
    table().to_csv(sys.argv[1], index=False, lineterminator="\n")
