"""Create the table of simulated HIV patients that is shipped with the package: five rounds of the paper's protocol.

    python scripts/make_hiv_table.py src/capi/datasets/hiv.parquet

This takes a few minutes. The same versions of all libraries on the same kind of processor give the same table.
"""

import sys
from pathlib import Path

import numpy as np
import pandas as pd

from capi.domains import HIV
from capi.experiments.hiv.run import learner, rounds
from capi.experiments.hiv.settings import LAST, LEARNING, PROTOCOL

SEED = 0
VALUES = {**PROTOCOL, **LEARNING, **LAST, "n_rounds": 5, "eta_pi": None}
DAYS = 5


def table_of(batch):
    """Return one row per decision, and one more for each patient's last state."""
    hiv = HIV()
    ends = np.append(batch.episodes[1:] != batch.episodes[:-1], True)
    rows = np.sort(np.concatenate([np.arange(len(batch)), np.flatnonzero(ends) + 0.5]))
    is_extra = rows != np.floor(rows)
    rows = rows.astype(int)
    states = np.where(is_extra[:, None], batch.next_states[rows], batch.states[rows])
    counts = pd.DataFrame(hiv.counts(states), columns=["T1", "T2", "T1*", "T2*", "V", "E"]).astype(np.float32)
    patient = pd.Series(batch.episodes[rows], name="patient").astype(np.int16)
    labels = np.array(hiv.action_labels, dtype=object)[batch.actions[rows]]
    return pd.DataFrame(
        {
            "patient": patient,
            "day": (patient.groupby(patient).cumcount() * DAYS).astype(np.int16),
            **counts,
            "drugs": pd.Categorical(np.where(is_extra, None, labels), categories=hiv.action_labels),
            "reward": np.where(is_extra, np.nan, batch.rewards[rows]),
            "propensity": np.where(is_extra, np.nan, batch.propensities[rows]),
        }
    )


def main():
    batch, found = rounds(HIV(n_jobs=-1), learner(VALUES, SEED, n_jobs=-1), VALUES, SEED)
    print("return of Tree-FQI after each round:", *(f"{one.last_returns[-1]:.3g}" for one in found))
    table = table_of(batch)
    out = Path(sys.argv[1])
    table.to_parquet(out, compression="zstd", index=False)
    print(f"{len(table)} rows, {out.stat().st_size / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
