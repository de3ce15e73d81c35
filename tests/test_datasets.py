import numpy as np
import pandas as pd
import pytest

from capi.datasets import hiv_table, load_hiv_batch
from capi.domains import HIV
from capi.errors import InvalidInputError


def test_the_table_is_small_and_uses_the_names_of_the_domain():
    assert hiv_table().stat().st_size < 2_000_000
    table = pd.read_parquet(hiv_table())
    assert list(table.columns) == [
        "patient",
        "day",
        "T1",
        "T2",
        "T1*",
        "T2*",
        "V",
        "E",
        "drugs",
        "reward",
        "propensity",
    ]
    assert table.groupby("patient").size().tolist() == [201] * 150
    assert table.groupby("patient")["day"].max().tolist() == [1000] * 150
    last = table["day"] == 1000
    assert table.loc[last, ["drugs", "reward", "propensity"]].isna().all(axis=None)
    assert not table.loc[~last].isna().any(axis=None)


def test_the_batch_is_what_the_simulator_does():
    """A simulator step from a stored state leads to the stored next state, up to single precision."""
    batch, hiv = load_hiv_batch(), HIV()
    rows = np.random.default_rng(0).integers(len(batch), size=500)
    following, rewards, _ = hiv.step(batch.states[rows], batch.actions[rows], np.random.default_rng(0))
    np.testing.assert_allclose(following, batch.next_states[rows], atol=2e-3)
    np.testing.assert_allclose(rewards, batch.rewards[rows], rtol=1e-5, atol=1.0)
    assert (batch.propensities > 0).all()
    assert np.bincount(batch.actions).min() > 1000


def test_counts_and_logarithms():
    np.testing.assert_allclose(np.log10(load_hiv_batch("counts").states), load_hiv_batch().states)
    with pytest.raises(InvalidInputError, match="observe"):
        load_hiv_batch("log")
