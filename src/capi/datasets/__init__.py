"""Example tables shipped with the package."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Literal

import numpy as np

from capi._utils.late import pandas as pd
from capi._utils.validation import check_choice
from capi.data.transitions import Transitions
from capi.domains.hiv import HIV

COUNTS = ("T1", "T2", "T1*", "T2*", "V", "E")


def clinic_table() -> Path:
    """Return the path of a small CSV table of simulated clinic visits.

    600 patients come four times, four weeks apart; a coin decides whether they are treated. Each row is a visit: ``patient``, ``week``,
    ``age``, ``sex``, ``severity`` and ``liver`` before the decision, ``treatment`` (treat or wait), ``wellbeing`` four weeks later, and
    the ``propensity`` of the treatment. Treatment helps, but harms the liver. ``scripts/make_clinic_table.py`` generates the table.

    Examples
    --------
    >>> import pandas as pd
    >>> pd.read_csv(clinic_table()).shape
    (2400, 9)
    """
    return Path(str(files("capi.datasets").joinpath("clinic.csv")))


def hiv_table() -> Path:
    """Return the path of a Parquet table of simulated HIV patients.

    150 patients are treated for 1000 days in five rounds of 30 patients: in the first round at random, later by the policy
    that Tree-FQI learned from the previous rounds, with 15 % exploration. Each row is a decision: ``patient``, ``day``, the
    counts `T1`, `T2`, `T1*`, `T2*`, `V`, `E` before it, ``drugs`` for the next five days, their ``reward`` and the
    ``propensity`` with which they were chosen. The next state is that of the following row; each patient's last row has no
    decision. ``scripts/make_hiv_table.py`` generates the table.

    Examples
    --------
    >>> import pandas as pd
    >>> pd.read_parquet(hiv_table()).shape
    (30150, 11)
    """
    return Path(str(files("capi.datasets").joinpath("hiv.parquet")))


def load_hiv_batch(observe: Literal["log10", "counts"] = "log10") -> Transitions:
    """Return the 30,000 transitions of `hiv_table`; states are the counts or, by default, their log10.

    Examples
    --------
    >>> batch = load_hiv_batch()
    >>> len(batch), batch.n_episodes, batch.schema.action_labels
    (30000, 150, ('none', 'RTI', 'PI', 'RTI+PI'))
    """
    check_choice(observe, "observe", ("log10", "counts"))
    table = pd.read_parquet(hiv_table())
    domain = HIV(observe=observe)
    states = domain.observed(table[list(COUNTS)].to_numpy(dtype=np.float64))
    patient = table["patient"].to_numpy()
    last = np.append(patient[1:] != patient[:-1], True)  # serves only as next state
    actions = table["drugs"].map({label: a for a, label in enumerate(domain.action_labels)})
    return Transitions(
        states[~last],
        actions[~last].to_numpy(dtype=np.int64),
        table["reward"].to_numpy()[~last],
        states[np.flatnonzero(~last) + 1],
        np.zeros(int((~last).sum()), dtype=bool),
        episodes=patient[~last],
        propensities=table["propensity"].to_numpy()[~last],
        feature_names=domain.feature_names,
        action_labels=domain.action_labels,
    )
