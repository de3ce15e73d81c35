"""The description of a batch in parts: numbers of all rows, whatever the parts, and problems from a sample that it names."""

import json

import numpy as np
import pytest

from capi import PartitionedTransitions
from capi.data.summary import tallies
from capi.data.summary.tallies import Counts, Moments
from capi.runs import table as tables
from scale.conftest import log
from scale.test_command import COLUMNS, SIZES, folder, run  # noqa: F401  a fixture

EXACT = ("n_rows", "n_only_next", "n_features", "n_episodes", "lengths", "n_terminated", "n_truncated", "missing", "columns", "elapsed")  # fmt: skip


def batch_with_everything():
    rng = np.random.default_rng(0)
    elapsed = rng.integers(1, 5, size=3000) / 2
    found = log(300, weights=np.repeat(rng.integers(0, 3, size=300), 10).astype(float), elapsed=elapsed)
    states = found.states.copy()
    states[rng.random(len(states)) < 0.1, 1] = np.nan
    return found._with({"states": states})


def test_counts_are_those_of_all_rows_and_the_same_for_every_partitioning():
    batch = batch_with_everything()
    whole = batch.describe()
    found = [PartitionedTransitions.of(batch, size, sample_rows=600).describe() for size in (10**6, 1500, 375)]
    for one in found:
        for name in EXACT:
            assert getattr(one, name) == getattr(whole, name), name
        assert {k: pytest.approx(v, rel=1e-12) for k, v in whole.rewards.items()} == one.rewards
        assert [(a.action, a.rows, a.share) for a in one.actions] == [
            (a.action, a.rows, a.share) for a in whole.actions
        ]
        assert 0 < one.sample_rows < 1200
        assert f"rest on a sample of {one.sample_rows:,} rows" in str(one)
        np.testing.assert_allclose([a.effective for a in one.actions], [a.effective for a in whole.actions], rtol=0.05)
        assert one.actions == found[0].actions
        assert one.warnings == found[0].warnings
        json.dumps(one.to_dict())
    assert whole.sample_rows is None
    assert "sample_rows" not in whole.to_dict()


def test_an_action_that_the_sample_misses_is_counted():
    batch = log(300)
    actions = np.where(batch.actions == 2, 1, batch.actions)
    sampled = PartitionedTransitions.of(batch, 500, sample_rows=300).surveyed.sample.states[:, 0]
    first = next(row for row in range(0, 3000, 10) if not np.isin(batch.states[row : row + 10, 0], sampled).all())
    actions = np.where(np.arange(3000) == first, 2, actions)
    found = PartitionedTransitions.of(batch._with({"actions": actions}), 500, sample_rows=300).describe()
    assert found.actions[2].rows == 1
    assert "never-taken" not in {caveat.kind for caveat in found.warnings}


def test_a_cluster_describes_the_same(client):
    batch = batch_with_everything()
    here, there = (
        PartitionedTransitions.of(batch, 700, sample_rows=600, executor=e).describe() for e in (None, client)
    )
    assert here == there


def test_many_distinct_numbers_are_rounded_whatever_the_parts(monkeypatch):
    monkeypatch.setattr(tallies, "MOST_VALUES", 100)
    values = np.random.default_rng(0).lognormal(size=1001)
    merged = []
    for n_parts in (1, 2, 8, 30):
        parts = [Counts.of(part) for part in np.array_split(values, n_parts)]
        merged.append(sum(parts[1:], parts[0]))
    for one in merged:
        np.testing.assert_array_equal(one.values, merged[0].values)
        np.testing.assert_array_equal(one.counts, merged[0].counts)
        spread = one.spread()
        assert spread["median"] == pytest.approx(np.median(values), rel=1e-5)
        assert (spread["least"], spread["greatest"]) == (values.min(), values.max())


def test_moments_of_parts_are_those_of_the_whole():
    values = 1e6 + np.random.default_rng(0).normal(size=999)
    parts = [Moments.of(part) for part in np.array_split(values, 7)]
    found = sum(parts[1:], parts[0]).spread()
    assert found["mean"] == pytest.approx(values.mean(), rel=1e-14)
    assert found["deviation"] == pytest.approx(values.std(), rel=1e-9)


def test_the_command_and_the_report_describe_all_rows(folder, tmp_path, monkeypatch, client):  # noqa: F811
    monkeypatch.setattr(tables, "MANY_ROWS", 300)
    monkeypatch.setattr(tables, "SAMPLE_ROWS", 150)
    said = run("describe", folder, *COLUMNS)
    assert said.startswith("log/*.parquet: 400 decisions")
    assert "those of all 400 rows" in said
    there = run("describe", folder, "--dask", client.scheduler.address, *COLUMNS, stream="stdout")
    assert there == said
    monkeypatch.setattr(tables, "MANY_ROWS", 400)
    here = run("describe", folder, *COLUMNS)
    assert (
        run("describe", *sorted(folder.iterdir()), "--dask", client.scheduler.address, *COLUMNS, stream="stdout")
        == here
    )
    run("fit", folder, "--out", tmp_path / "run", "--sample-rows", 150, *COLUMNS, *SIZES)
    run("report", tmp_path / "run")
    page = (tmp_path / "run" / "report.html").read_text()
    assert "learned from 400 logged decisions" in page
    assert "rest on a sample of" in page
