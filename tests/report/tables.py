"""A small table with columns of every kind, and runs on it."""

import shutil

import numpy as np
import pandas as pd

from capi.files.policy_file import save_policy
from capi.policies import Training, described
from capi.runs import RunSettings, fit_run

COLUMNS = ["age", "dose", "sex", "ward", "smoker", "since", "seen"]
ROLES = {"episode": "id", "state": COLUMNS, "action": "drug", "reward": "gain", "terminated": "dead"}
WARDS = [f"ward {i:02d}" for i in range(25)]


def states(n, seed, missing):
    """Return the columns of a state: numbers, categories, codes, booleans, dates and points in time."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({
        "age": rng.normal(50, 12, n),
        "dose": np.exp(rng.normal(0, 3, n)),
        "sex": rng.choice(["female", "male", "other"], n),
        "ward": rng.choice(WARDS, n),
        "smoker": rng.random(n) < 0.4,
        "since": pd.Timestamp("2020-02-28") + pd.to_timedelta(rng.integers(0, 900, n), "D"),
        "seen": pd.Timestamp("2021-03-04 05:06:07") + pd.to_timedelta(rng.integers(0, 40_000_000, n), "s"),
    })  # fmt: skip
    frame["since"] = frame["since"].dt.date
    if missing:
        for name in COLUMNS:
            gaps = rng.random(n) < 0.12
            frame[name] = frame[name].astype(object).where(~gaps, None)
        frame["age"] = frame["age"].astype(float)
        frame["dose"] = frame["dose"].astype(float)
    return frame


def visits(missing, n=1200):
    """Return a table of logged decisions in which every column matters somewhere."""
    frame = states(n, 1, missing)
    rng = np.random.default_rng(2)
    frame["drug"] = rng.choice(["none", "low", "high"], n)
    known = frame[COLUMNS].notna().all(axis=1)
    drift = (frame["age"].fillna(50) - 50) / 12 + (frame["sex"] == "male") - (frame["smoker"] == True)  # noqa: E712
    frame["gain"] = drift * (frame["drug"] == "high") + known * (frame["drug"] == "low") + rng.normal(size=n) / 4
    frame["id"] = np.arange(n) // 4
    frame["dead"] = frame["id"] != frame["id"].shift(-1)
    return frame


def fitted(folder, frame, roles=ROLES, space="trees", **options):
    """Return the folder of a short run on a table."""
    folder.mkdir(parents=True, exist_ok=True)
    table = folder / "visits.parquet"
    frame.to_parquet(table)
    settings = RunSettings(
        str(table), roles, discount=0.5, n_iterations=3, space=space, space_options=options,
        evaluator_options={"n_trees": 3, "n_sweeps": 1},
    )  # fmt: skip
    return fit_run(settings, folder / "run").folder


def with_policy(run, folder, policy, batch):
    """Return a copy of a run that has another policy."""
    shutil.copytree(run, folder)
    training = Training(0.5, 3, len(batch), {"capi": "0.1.0"})
    save_policy(described(policy, batch.schema, training), folder / "policy.capi", with_states=True)
    return folder
