"""Learn from a folder of Parquet files on a Dask cluster: here two worker processes of this machine, later hundreds of others.

The same rows give the same policy, byte for byte, in threads of one process and on the cluster.
"""

import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
from dask.distributed import Client, LocalCluster

from capi import CAPI, PartitionedTransitions
from capi.evaluators import FittedQ
from capi.policy_spaces import OptimalTrees

ROLES = {"episode": "device", "time": "hour", "state": ["load", "age"], "action": "setting", "reward": "gain"}


def log(first, n_devices=100, hours=24):
    """Return a day of some devices: slow is better for old ones under load."""
    rng = np.random.default_rng(first)
    n = n_devices * hours
    load, age = rng.uniform(size=n), np.repeat(rng.uniform(0, 10, size=n_devices), hours)
    setting = rng.choice(["slow", "fast"], size=n)
    strained = (load > 0.6) & (age > 5)
    gain = np.where(setting == "fast", np.where(strained, -1.0, 1.0), 0.2) + 0.1 * rng.normal(size=n)
    device, hour = np.repeat(first + np.arange(n_devices), hours), np.tile(np.arange(hours), n_devices)
    return pd.DataFrame({"device": device, "hour": hour, "load": load, "age": age, "setting": setting, "gain": gain})


def main():
    """Learn twice."""
    learner = CAPI(
        FittedQ(n_trees=10, n_sweeps=2), OptimalTrees(max_depth=2), 0.5, 3, random_state=0, state_weights="batch"
    )
    with tempfile.TemporaryDirectory() as place:
        for first in (0, 100, 200):
            log(first).to_parquet(Path(place) / f"{first:03d}.parquet")
        here = PartitionedTransitions.from_parquet(place, sample_rows=2000, **ROLES)
        rules = learner.fit(here).policy_.rules()
        print(rules)
        with (
            LocalCluster(
                n_workers=2, threads_per_worker=1, host="127.0.0.1", dashboard_address="127.0.0.1:0"
            ) as cluster,
            Client(cluster) as client,
        ):
            there = PartitionedTransitions.from_parquet(place, sample_rows=2000, executor=client, **ROLES)
            print("the same on the cluster:", learner.fit(there).policy_.rules() == rules)


if __name__ == "__main__":  # workers import this file
    main()
