"""Tables of all libraries give the same batch, byte for byte."""

import datetime as dt

import duckdb
import narwhals
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from capi import CAPI, Transitions
from capi.policy_spaces import OptimalTrees

ROLES = {
    "episode": "unit",
    "time": "day",
    "state": ["load", "site", "checked", "since"],
    "action": "do",
    "reward": "gain",
}
N = 60


class Capsule:
    """A table that has nothing but Arrow's PyCapsule interface."""

    def __init__(self, table):
        self.table = table

    def __arrow_c_stream__(self, requested_schema=None):
        return self.table.__arrow_c_stream__(requested_schema)


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    load = [None if i % 7 == 3 else float(x) for i, x in enumerate(rng.normal(size=N))]
    return pa.table(
        {
            "unit": [f"u{i // 4}" for i in rng.permutation(N)],
            "day": rng.permutation(N),
            "load": load,
            "site": pa.array(rng.choice(["north", "south", "west"], N)).dictionary_encode(),
            "checked": rng.random(N) < 0.5,
            "since": [dt.date(2020, 1, 1) + dt.timedelta(days=int(d)) for d in rng.integers(0, 400, N)],
            "do": rng.choice(["run", "stop"], N),
            "gain": rng.normal(size=N),
            "unused": [object.__name__] * N,
        }
    )


def relation(table):
    return duckdb.connect().from_arrow(table)


FRAMES = {
    "mapping": lambda t: {name: t.column(name).to_pylist() for name in t.column_names},
    "pandas": lambda t: t.to_pandas(),
    "pandas with Arrow types": lambda t: t.to_pandas(types_mapper=pd.ArrowDtype),
    "polars": pl.from_arrow,
    "Arrow record batch": lambda t: t.combine_chunks().to_batches()[0],
    "Arrow reader": lambda t: t.to_reader(),
    "DuckDB": relation,
    "narwhals": lambda t: narwhals.from_native(pl.from_arrow(t)),
    "PyCapsule": Capsule,
}


@pytest.mark.parametrize("frame", FRAMES.values(), ids=FRAMES)
def test_the_same_batch_from_every_library(frame, table):
    expected, found = (Transitions.from_frame(f, **ROLES) for f in (table, frame(table)))
    for name in ("states", "next_states", "actions", "rewards", "terminated", "episodes"):
        assert getattr(found, name).tobytes() == getattr(expected, name).tobytes(), name
    assert found.schema == expected.schema


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_the_same_batch_from_files(form, table, tmp_path):
    path = tmp_path / f"table.{form}"
    if form == "csv":
        table.to_pandas().to_csv(path, index=False)
    else:
        pq.write_table(table, path)
    found, expected = getattr(Transitions, f"from_{form}")(path, **ROLES), Transitions.from_frame(table, **ROLES)
    assert found.states.tobytes() == expected.states.tobytes()
    assert found.schema == expected.schema


@pytest.mark.parametrize("frame", [pl.from_arrow, relation, Capsule], ids=["polars", "DuckDB", "PyCapsule"])
def test_policies_decide_for_every_library(frame, table):
    batch = Transitions.from_frame(table, **ROLES)
    learner = CAPI(space=OptimalTrees(max_depth=1), discount=0.5, n_iterations=1, random_state=0).fit(batch)
    np.testing.assert_array_equal(learner.predict(frame(table)), learner.predict(table))
