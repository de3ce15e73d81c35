"""Logs in parts, and a real Dask cluster on this machine."""

import logging

import numpy as np
import pytest

from capi import Transitions


def log(n_episodes=300, length=10, seed=0, **columns):
    """Return a log in which the sign of the first column says which of two actions is good."""
    rng = np.random.default_rng(seed)
    n = n_episodes * length
    x = rng.normal(size=(n, 3)).round(3)
    actions = rng.integers(3, size=n)
    rewards = np.where(x[:, 0] > 0, actions == 1, actions == 2) + 0.1 * rng.normal(size=n)
    ends = np.zeros(n, dtype=bool)
    ends[length - 1 :: length] = True
    following = (x + 0.3 * rng.normal(size=x.shape)).round(3)
    return Transitions(
        x, actions, rewards, following, ends, episodes=np.repeat(np.arange(n_episodes), length), **columns
    )


@pytest.fixture(scope="session")
def batch():
    return log()


@pytest.fixture(scope="session")
def client():
    """A scheduler with two worker processes on the loopback interface."""
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",
            memory_limit="1GiB",
            silence_logs=logging.CRITICAL,
        ) as cluster,
        distributed.Client(cluster) as made,
    ):
        yield made
