"""A fuzz net for tables: any frame is read, or refused with an error of ours; no other exception and no warning gets through."""

import datetime as dt
import decimal
import fractions
import uuid
import warnings
from contextlib import suppress
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from capi import Transitions
from capi.data.schema import Schema
from capi.errors import CapiError

try:
    import polars as pl
except ImportError:
    pl = None

GOOD = {  # columns (n,) that suit many roles
    "floats": lambda n, rng: rng.normal(size=n),
    "integers": lambda n, rng: rng.integers(-3, 4, size=n),
    "small integers": lambda n, rng: rng.integers(0, 3, size=n).astype(rng.choice(["i1", "u2", "i8", "u8"])),
    "counts": lambda n, rng: np.arange(n),
    "shares": lambda n, rng: rng.uniform(0.1, 1.0, size=n),
    "booleans": lambda n, rng: rng.random(n) < 0.5,
    "strings": lambda n, rng: rng.choice(["a", "b", "c"], size=n).tolist(),
    "categories": lambda n, rng: pd.Series(pd.Categorical(rng.choice(["lo", "hi"], size=n))),
    "dates": lambda n, rng: pd.Series(pd.date_range("2020", periods=n, freq="36h")),
    "intervals": lambda n, rng: pd.cut(pd.Series(rng.uniform(0, 1, n)), [-1, 0.3, 0.6, 1]),
    "uuids": lambda n, rng: [uuid.UUID(int=int(i)) for i in rng.integers(0, 3, size=n)],
    "floats of 16 bits": lambda n, rng: rng.integers(0, 3, size=n).astype(np.float16),
}
ODD = {  # everything else that people, and other libraries, put into columns
    "missing": lambda n, rng: [None] * n,
    "NaN": lambda n, rng: np.full(n, np.nan),
    "gaps": lambda n, rng: [None if rng.random() < 0.5 else float(i) for i in range(n)],
    "infinite": lambda n, rng: np.where(rng.random(n) < 0.3, -np.inf, 1.0),
    "extreme": lambda n, rng: rng.choice([1e308, -1e308, 5e-324, 0.0], size=n),
    "nullable": lambda n, rng: pd.array([None if i % 2 else i for i in range(n)], dtype="Int64"),
    "NA": lambda n, rng: pd.Series([pd.NA if i % 2 else "a" for i in range(n)], dtype=object),
    "NaT": lambda n, rng: pd.Series([pd.NaT] * n),
    "zoned times": lambda n, rng: pd.Series(pd.date_range("2020", periods=n, tz="Europe/Paris")),
    "far dates": lambda n, rng: np.array(["20000-01-01"] * n, dtype="datetime64[D]"),
    "durations": lambda n, rng: pd.Series(pd.to_timedelta(np.arange(n), unit="h")),
    "times of day": lambda n, rng: [dt.time(i % 24) for i in range(n)],
    "periods": lambda n, rng: pd.Series(pd.period_range("2020", periods=n, freq="M")),
    "interval dtype": lambda n, rng: pd.arrays.IntervalArray.from_tuples([(i, i + 1) for i in range(n)]),
    "intervals of dates": lambda n, rng: list(pd.interval_range(pd.Timestamp("2020"), periods=n)),
    "mixed": lambda n, rng: [[1, "a", 2.5, None, (1,), b"x"][i % 6] for i in range(n)],
    "lists": lambda n, rng: [[1] * (i % 3) for i in range(n)],
    "records": lambda n, rng: [{"k": i} for i in range(n)],
    "sets": lambda n, rng: [{i} for i in range(n)],
    "tuples": lambda n, rng: [(i % 2, "x") for i in range(n)],
    "bytes": lambda n, rng: [b"a", b"\xff"] * (n // 2) + [b""] * (n % 2),
    "surrogates": lambda n, rng: ["\ud800"] * n,
    "separators": lambda n, rng: ["a,b", "a;c", "", "|"][:n] + ["b"] * max(0, n - 4),
    "large integers": lambda n, rng: [10**30 + i for i in range(n)],
    "unsigned": lambda n, rng: np.full(n, 2**64 - 1, dtype=np.uint64),
    "decimals": lambda n, rng: [decimal.Decimal(i) / 3 for i in range(n)],
    "fractions": lambda n, rng: [fractions.Fraction(i, 3) for i in range(n)],
    "complex": lambda n, rng: np.arange(n) * 1j,
    "long doubles": lambda n, rng: np.arange(n, dtype=np.longdouble),
    "two dimensions": lambda n, rng: np.zeros((n, 2)),
    "no dimension": lambda n, rng: np.array(1.0),
    "structured": lambda n, rng: np.zeros(n, dtype=[("a", "f8"), ("b", "i4")]),
    "void": lambda n, rng: np.zeros(n, dtype="V3"),
    "masked": lambda n, rng: np.ma.array(np.arange(n), mask=np.arange(n) % 2),
    "text": lambda n, rng: "x" * n,
    "number": lambda n, rng: 3.0,
    "nothing": lambda n, rng: None,
    "a set": lambda n, rng: set(range(n)),
    "a record": lambda n, rng: dict.fromkeys(range(n)),
    "too short": lambda n, rng: np.arange(max(0, n - 1)),
    "categories of tuples": lambda n, rng: pd.Series(pd.Categorical([(i % 2, 1) for i in range(n)])),
    "categories of dates": lambda n, rng: pd.Series(pd.Categorical(pd.date_range("2020", periods=n))),
    "sparse": lambda n, rng: pd.Series(pd.arrays.SparseArray(np.arange(n) % 2)),
    "series in cells": lambda n, rng: [pd.Series([1.0, 2.0])] * n,
    "objects": lambda n, rng: [object() for _ in range(n)],
    "Arrow structs": lambda n, rng: pa.array([{"a": 1}] * n, pa.struct([("a", pa.int64())])),
    "Arrow views": lambda n, rng: pa.array(["a"] * n, pa.string_view()),
    "Arrow runs": lambda n, rng: pc.run_end_encode(pa.array([1.0] * n)),
    "Arrow maps": lambda n, rng: pa.array([[("a", 1)]] * n, pa.map_(pa.string(), pa.int64())),
}  # fmt: skip
if pl is not None:
    ODD |= {
        "polars 128 bits": lambda n, rng: pl.Series(range(n), dtype=pl.Int128),
        "polars objects": lambda n, rng: pl.Series([uuid.UUID(int=i) for i in range(n)], dtype=pl.Object),
        "polars lists": lambda n, rng: pl.Series([[1]] * n, dtype=pl.List(pl.Int64)),
        "polars categories": lambda n, rng: pl.Series(["a"] * n, dtype=pl.Categorical),
        "polars durations": lambda n, rng: pl.Series([dt.timedelta(i) for i in range(n)], dtype=pl.Duration),
    }
MAKERS = {**GOOD, **ODD}
OPTIONAL = ("episode", "time", "terminated", "truncated", "propensity", "weight", "next_state", "allowed")
CONTAINERS = {
    "mapping": lambda columns, folder: columns,
    "pandas": lambda columns, folder: pd.DataFrame(columns),
    "Arrow": lambda columns, folder: pa.table(columns),
    "polars": lambda columns, folder: pl.DataFrame(columns),
    "CSV": lambda columns, folder: _written(pd.DataFrame(columns), folder, "csv"),
    "Parquet": lambda columns, folder: _written(pd.DataFrame(columns), folder, "parquet"),
}


def _written(frame, folder, kind):
    path = Path(folder) / f"table.{kind}"
    getattr(frame, f"to_{kind}")(path, index=False)
    return path


def damaged(path, data):
    """Change a few bytes of a file, or cut it off."""
    content = bytearray(path.read_bytes())
    if data.draw(st.booleans()):
        content = content[: data.draw(st.integers(0, len(content)))]
    for _ in range(data.draw(st.integers(0, 3)) if content else 0):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(content)


def drawn_columns(data, names):
    n, rng = data.draw(st.integers(0, 7)), np.random.default_rng(data.draw(st.integers(0, 9)))
    usual = st.sampled_from(sorted(GOOD))
    maker = st.one_of(usual, usual, st.sampled_from(sorted(MAKERS)))
    return {name: MAKERS[data.draw(maker)](n, rng) for name in names}


def check_frame(data, folder):
    """Draw a table and roles; reading it, and encoding another one by its schema, works or raises an error of ours."""
    chosen = data.draw(st.sets(st.sampled_from(OPTIONAL), max_size=3))
    roles = {"state": ["s", "u"], "action": "a", "reward": "r", **{role: f"the {role}" for role in chosen}}
    if "next_state" in chosen:
        roles["next_state"] = ["next s", "u"]
    names = dict.fromkeys(["s", "u", "a", "r", "next s", *(f"the {role}" for role in chosen)])
    kind = data.draw(st.sampled_from(sorted(set(CONTAINERS) - ({"polars"} if pl is None else set()))))
    columns, other_columns = drawn_columns(data, names), drawn_columns(data, names)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            table = CONTAINERS[kind](columns, folder)
            other = None if kind in ("CSV", "Parquet") else CONTAINERS[kind](other_columns, folder)
    except BaseException:  # the other library refuses the columns itself, polars even by a panic
        return
    if isinstance(table, Path) and data.draw(st.booleans()):
        damaged(table, data)
    if data.draw(st.integers(0, 9)) == 0:
        roles[data.draw(st.sampled_from(sorted(roles)))] = data.draw(
            st.sampled_from([[], "", "absent", 3, ["s", "s"], {"a": "s"}, None, [None]])
        )
    roles["discount"] = data.draw(st.sampled_from([None, 0, 0.9]))
    read = {"CSV": Transitions.from_csv, "Parquet": Transitions.from_parquet}.get(kind, Transitions.from_frame)
    try:
        batch = read(table, **roles)
    except CapiError as error:
        if not str(error) or "\n" in str(error):
            raise AssertionError("an error must be one line") from error
        return
    assert np.isfinite(batch.rewards).all()
    assert not np.isinf(batch.states).any()
    assert len(str(batch)) > 0
    with suppress(CapiError):  # labels that files cannot hold
        assert Schema.from_dict(batch.schema.to_dict()) == batch.schema
    if other is not None:
        try:
            states = batch.schema.encode(other)
        except CapiError:
            return
        assert states.shape[1] == batch.n_features


SAMPLE = settings(max_examples=100, derandomize=True, deadline=None, database=None)
FULL = settings(max_examples=20_000, deadline=None, suppress_health_check=list(HealthCheck), print_blob=True)


@SAMPLE
@given(st.data())
def test_some_frames_are_read_or_refused(tmp_path_factory, data):
    check_frame(data, tmp_path_factory.getbasetemp())


@pytest.mark.slow
@FULL
@given(st.data())
def test_20000_frames_are_read_or_refused(tmp_path_factory, data):
    check_frame(data, tmp_path_factory.getbasetemp())
