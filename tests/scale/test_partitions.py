"""`PartitionedTransitions`: whole episodes, one schema, and samples that do not depend on the partitioning."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capi import PartitionedTransitions, Transitions
from capi.errors import InvalidInputError
from scale.conftest import log

ROLES = {"episode": "unit", "time": "day", "state": ["x", "kind"], "action": "drug", "reward": "gain"}


def table(n_units=40, length=5, seed=0):
    rng = np.random.default_rng(seed)
    n = n_units * length
    return pd.DataFrame(
        {
            "unit": np.repeat(np.arange(n_units), length),
            "day": np.tile(np.arange(length), n_units),
            "x": rng.normal(size=n),
            "kind": rng.choice(["a", "b", "c"], size=n),
            "drug": rng.choice(["none", "full"], size=n),
            "gain": rng.normal(size=n),
        }
    )


def written(frame, folder, borders, **options):
    for i, (a, b) in enumerate(zip([0, *borders], [*borders, len(frame)], strict=True)):
        frame.iloc[a:b].to_parquet(folder / f"{i:03d}.parquet", index=False, **options)
    return folder


def rows_of(partitions):
    return Transitions.concat([partitions.load(i) for i in range(partitions.n_partitions)], renumber_episodes=True)


@pytest.mark.parametrize(("borders", "size"), [([], 10**6), ([7, 8, 111], 30), ([60, 140], 13), ([55], 200)])
def test_files_in_any_pieces_hold_the_decisions_of_the_whole_table(tmp_path, borders, size):
    frame = table()
    whole = Transitions.from_frame(frame, **ROLES)
    found = PartitionedTransitions.from_parquet(
        written(frame, tmp_path, borders, row_group_size=17), rows_per_partition=size, **ROLES
    )
    assert found.schema == whole.schema
    assert rows_of(found) == Transitions.concat([whole], renumber_episodes=True)
    assert found.sample(60, random_state=3) == PartitionedTransitions.of(whole, 11).sample(60, random_state=3)


def test_a_shuffled_table_is_put_together_and_says_what_that_costs(tmp_path):
    frame = table(10)
    mixed = pd.concat([frame.iloc[::2], frame.iloc[1::2]])
    found = PartitionedTransitions.from_parquet(written(mixed, tmp_path, [25]), rows_per_partition=25, **ROLES)
    assert found.n_partitions == 1
    assert "put together from up to 2" in repr(found)
    assert rows_of(found) == Transitions.concat([Transitions.from_frame(frame, **ROLES)], renumber_episodes=True)


def test_a_table_whose_episodes_are_everywhere_is_refused(tmp_path):
    mixed = table(20).sample(frac=1, random_state=0)
    with pytest.raises(InvalidInputError, match="Sort the table by episode"):
        PartitionedTransitions.from_parquet(written(mixed, tmp_path, []), rows_per_partition=5, **ROLES)


def test_patterns_folders_and_lists_are_the_same(tmp_path):
    folder = written(table(), tmp_path, [50, 100])
    files = sorted(folder.iterdir())
    reprs = {repr(PartitionedTransitions.from_parquet(p, **ROLES)) for p in (folder, str(folder / "*.parquet"), files)}
    assert len(reprs) == 1


def test_categories_of_a_later_file_are_known(tmp_path):
    frame = table()
    frame.loc[150:, "kind"] = "late"
    frame.loc[180:, "drug"] = "extra"
    found = PartitionedTransitions.from_parquet(written(frame, tmp_path, [100]), rows_per_partition=40, **ROLES)
    assert found.schema == Transitions.from_frame(frame, **ROLES).schema
    assert "extra" in found.schema.action_labels


@pytest.mark.parametrize("kind", ["dates", "ordered", "booleans", "text ids", "missing"])
def test_encodings_are_those_of_the_whole_table(tmp_path, kind):
    frame = table()
    if kind == "dates":
        frame["x"] = pd.Timestamp("2020-03-01") + pd.to_timedelta(np.arange(len(frame)), unit="h")
    elif kind == "ordered":
        frame["kind"] = pd.Categorical(frame["kind"], categories=["c", "a", "b"], ordered=True)
    elif kind == "booleans":
        frame["x"] = frame["x"] > 0
    elif kind == "text ids":
        frame["unit"] = "unit " + frame["unit"].astype(str).str.zfill(3)
    else:
        frame.loc[::7, ["x", "kind"]] = None
    found = PartitionedTransitions.from_parquet(written(frame, tmp_path, [55]), rows_per_partition=33, **ROLES)
    whole = Transitions.from_frame(frame, **ROLES)
    assert found.schema == whole.schema
    assert rows_of(found) == Transitions.concat([whole], renumber_episodes=True)


def test_a_column_of_another_kind_is_named_with_its_file(tmp_path):
    frame = table()
    frame.iloc[:100].to_parquet(tmp_path / "a.parquet")
    frame.iloc[100:].assign(x="many").to_parquet(tmp_path / "b.parquet")
    with pytest.raises(InvalidInputError, match=r"b\.parquet, column 'x': must be of the same kind everywhere"):
        PartitionedTransitions.from_parquet(tmp_path, **ROLES)
    frame.iloc[100:].drop(columns="gain").to_parquet(tmp_path / "b.parquet")
    with pytest.raises(InvalidInputError, match=r"b\.parquet: column 'gain' does not exist"):
        PartitionedTransitions.from_parquet(tmp_path, **ROLES)


def test_bad_values_are_named_with_file_and_row(tmp_path):
    frame = table()
    frame.loc[120, "gain"] = np.inf
    with pytest.raises(InvalidInputError, match=r"001\.parquet, column 'gain', row 21 .*finite"):
        PartitionedTransitions.from_parquet(written(frame, tmp_path, [100]), rows_per_partition=100, **ROLES).survey()
    frame["unit"] = frame["unit"].where(frame["unit"] != 30)
    with pytest.raises(InvalidInputError, match=r"001\.parquet, column 'unit', row 51 .*must not be missing"):
        PartitionedTransitions.from_parquet(written(frame, tmp_path, [100]), **ROLES)


def test_other_bad_input_has_clear_errors(tmp_path):
    for path, said in (
        (tmp_path / "no", "no such file"),
        (tmp_path / "*.parquet", "matches"),
        (tmp_path, "no .parquet"),
    ):
        with pytest.raises(InvalidInputError, match=said):
            PartitionedTransitions.from_parquet(path, **ROLES)
    (tmp_path / "x.parquet").write_bytes(b"not parquet")
    with pytest.raises(InvalidInputError, match="cannot be read as Parquet"):
        PartitionedTransitions.from_parquet(tmp_path, **ROLES)
    one = log(4)
    for parts, said in (
        ([], "at least one"),
        (one, "sequence"),
        ([one, 3], r"parts\[1\]"),
        ([one, one], "episode 0 is in"),
    ):
        with pytest.raises(InvalidInputError, match=said):
            PartitionedTransitions(parts)
    with pytest.raises(InvalidInputError, match="executor"):
        PartitionedTransitions([one], executor="loky")
    with pytest.raises(InvalidInputError, match="Dask DataFrame"):
        PartitionedTransitions.from_dask([1, 2], **ROLES)


@settings(max_examples=15)
@given(sizes=st.lists(st.integers(1, 9), min_size=1, max_size=6), seed=st.integers(0, 5))
def test_samples_do_not_depend_on_the_partitioning(sizes, seed):
    whole = log(30, 4)
    cuts = np.unique(np.minimum(np.cumsum(sizes) * 4, len(whole)))
    parts = [whole.subset(np.arange(a, b)) for a, b in zip([0, *cuts], [*cuts, len(whole)], strict=True) if b > a]
    one, many = PartitionedTransitions([whole]), PartitionedTransitions(parts[::-1])
    assert one.sample(40, random_state=seed) == many.sample(40, random_state=seed)
    for a, b in zip(one.split(0.5, random_state=seed), many.split(0.5, random_state=seed), strict=True):
        assert a.sample(10**6, random_state=0) == b.sample(10**6, random_state=0)


@pytest.mark.parametrize("kind", ["rows", "numbers", "texts"])
def test_equal_episodes_are_drawn_one_by_one(tmp_path, kind):
    """A table of one-step decisions with four kinds of rows: each kind is drawn as often as the others."""
    n = 2000
    frame = pd.DataFrame({"x": np.arange(n) % 2, "drug": np.arange(n) // 2 % 2, "gain": 1.0, "unit": np.arange(n)})
    roles = {"state": ["x"], "action": "drug", "reward": "gain", "discount": 0}
    if kind != "rows":
        roles["episode"] = "unit"
    if kind == "texts":
        frame["unit"] = "unit " + frame["unit"].astype(str)
    folder = written(frame, tmp_path, [501, 900])
    samples = [
        PartitionedTransitions.from_parquet(folder, rows_per_partition=size, **roles).sample(400, random_state=0)
        for size in (10**6, 800, 77)
    ]
    assert samples[0] == samples[1] == samples[2]
    counts = np.unique(np.column_stack([samples[0].states, samples[0].actions]), axis=0, return_counts=True)[1]
    assert len(counts) == 4
    assert counts.min() > 60  # of about 100
    here = PartitionedTransitions.of(Transitions.from_frame(frame, **roles), 333).sample(400, random_state=0)
    assert here == samples[0]
    first, second = PartitionedTransitions.from_parquet(folder, **roles).split(0.5, random_state=0)
    assert abs(len(first) - 1000) < 120
    assert len(first) + len(second) == n


def test_an_episode_keeps_its_number_in_files_of_other_types(tmp_path):
    """Whole numbers in one file, the same as floats in the next: the episode that crosses over stays whole."""
    frame = table(10)
    frame.iloc[:23].to_parquet(tmp_path / "a.parquet")
    frame.iloc[23:].astype({"unit": float}).to_parquet(tmp_path / "b.parquet")
    found = PartitionedTransitions.from_parquet(tmp_path, rows_per_partition=23, **ROLES)
    assert rows_of(found) == Transitions.concat([Transitions.from_frame(frame, **ROLES)], renumber_episodes=True)


def test_parts_that_were_read_apart_are_compared_by_their_ids():
    frame = table(4).assign(unit=lambda t: "unit " + t["unit"].astype(str))
    first = Transitions.from_frame(frame.iloc[:10], **ROLES)
    second = Transitions.from_frame(frame.iloc[10:], schema=first.schema, **ROLES)
    both = PartitionedTransitions([first, second])
    assert both.sample(random_state=0) == PartitionedTransitions([second, first]).sample(random_state=0)
    with pytest.raises(InvalidInputError, match=r"episode 'unit 0' is in parts\[0\] and parts\[2\]"):
        PartitionedTransitions([first, second, first])


def test_a_split_shares_no_episode_and_loses_none():
    whole = PartitionedTransitions.of(log(), 700)
    first, second = whole.split(0.6, random_state=1)
    assert len(first) + len(second) == len(whole)
    assert abs(len(first) / len(whole) - 0.6) < 0.1
    rows = [set(map(bytes, part.survey(10**6).sample.states)) for part in (first, second)]
    assert not rows[0] & rows[1]


def test_few_distinct_states_are_merged_with_their_numbers_of_rows():
    whole = log(50)
    coarse = Transitions(
        whole.states.round(0), whole.actions, whole.rewards, whole.next_states.round(0), whole.terminated
    )
    states, counts = PartitionedTransitions.of(coarse, 37).survey().merged
    expected, n = np.unique(coarse.states + 0.0, axis=0, return_counts=True)
    order = np.lexsort(states.T[::-1])
    np.testing.assert_array_equal(states[order], expected)
    np.testing.assert_array_equal(counts[order], n)


# -- hostile tables ----------------------------------------------------------------------------------


def test_dictionaries_in_one_file_and_plain_values_in_the_next_are_the_same(tmp_path):
    frame = table()
    frame.iloc[:103].astype({"kind": "category", "drug": "category", "unit": "category"}).to_parquet(
        tmp_path / "a.parquet"
    )
    frame.iloc[103:103].to_parquet(tmp_path / "aa.parquet")  # and a file without rows
    frame.iloc[103:].astype({"x": np.float32}).astype({"x": float}).to_parquet(tmp_path / "b.parquet")
    frame.loc[103:, "x"] = frame.loc[103:, "x"].astype(np.float32)
    found = PartitionedTransitions.from_parquet(tmp_path, rows_per_partition=47, **ROLES)
    assert found.schema == Transitions.from_frame(frame, **ROLES).schema
    assert rows_of(found) == Transitions.concat([Transitions.from_frame(frame, **ROLES)], renumber_episodes=True)


def test_pieces_whose_episodes_are_all_cut_off_are_read_with_others(tmp_path):
    frame = table(20).assign(cut=False)
    more = table(6, 1).assign(cut=True)
    more["unit"] += 100
    frame = pd.concat([more.iloc[:2], frame, more.iloc[2:]])
    roles = {**ROLES, "truncated": "cut"}
    folder = written(frame, tmp_path, [2, 60])
    found = PartitionedTransitions.from_parquet(folder, rows_per_partition=2, **roles)
    assert len(rows_of(found)) == 100
    whole = PartitionedTransitions.from_parquet(folder, **roles)
    assert found.sample(50, random_state=0) == whole.sample(50, random_state=0)


def test_weights_may_be_zero_in_whole_parts_but_not_everywhere(tmp_path):
    frame = table().assign(w=1.0)
    frame.loc[:149, "w"] = 0.0
    roles = {**ROLES, "weight": "w"}
    found = PartitionedTransitions.from_parquet(written(frame, tmp_path, [77]), rows_per_partition=33, **roles)
    assert found.sample(10, random_state=0).weights.any()
    assert rows_of(found).weights.sum() == 50
    frame["w"] = 0.0
    with pytest.raises(InvalidInputError, match="weight must be positive in some rows"):
        PartitionedTransitions.from_parquet(written(frame, tmp_path, [77]), **roles).survey()


def test_errors_name_the_file_and_its_row_if_a_part_spans_several(tmp_path):
    frame = table()
    frame.loc[160, "gain"] = np.nan
    whole = PartitionedTransitions.from_parquet(written(frame, tmp_path, [77, 130]), **ROLES)
    with pytest.raises(InvalidInputError, match=r"002\.parquet, column 'gain', row 31 \(the first is 1\)"):
        whole.survey()
    twice = pd.concat([table(), table().iloc[[51]]])
    whole = PartitionedTransitions.from_parquet(written(twice, tmp_path, [77, 150]), rows_per_partition=60, **ROLES)
    with pytest.raises(
        InvalidInputError, match=r"row 52 of .*000\.parquet and row 51 of .*002\.parquet .*'unit' and 'day'"
    ):
        whole.survey()


def test_with_several_bad_parts_the_first_one_is_named(tmp_path):
    frame = table()
    frame.loc[60:, "gain"] = np.inf
    part = PartitionedTransitions.from_parquet(written(frame, tmp_path, []), rows_per_partition=20, n_jobs=4, **ROLES)
    with pytest.raises(InvalidInputError, match="column 'gain', row 61"):
        part.survey()


def test_a_file_that_changes_while_it_is_used_is_refused(tmp_path):
    frame = table()
    found = PartitionedTransitions.from_parquet(written(frame, tmp_path, [77]), rows_per_partition=60, **ROLES)
    frame.iloc[77:100].to_parquet(tmp_path / "001.parquet")
    with pytest.raises(
        InvalidInputError, match=r"001\.parquet: must not change while it is used; it had 123 rows and has 23"
    ):
        found.survey()


@pytest.mark.parametrize("size", [10**6, 50])
def test_ordered_categories_must_be_the_same_in_all_files(tmp_path, size):
    frame = table()
    for name, some, order in (("a", frame.iloc[:100], "abc"), ("b", frame.iloc[100:], "cba")):
        some.assign(kind=pd.Categorical(some["kind"], list(order), ordered=True)).to_parquet(
            tmp_path / f"{name}.parquet"
        )
    with pytest.raises(InvalidInputError, match="column 'kind': must have the same ordered categories everywhere"):
        PartitionedTransitions.from_parquet(tmp_path, rows_per_partition=size, **ROLES)
    found = PartitionedTransitions.from_parquet(
        tmp_path, rows_per_partition=size, ordered={"kind": ["b", "a", "c"]}, **ROLES
    )
    assert found.schema.feature_names == ("x", "kind")


@pytest.mark.parametrize(
    ("column", "values", "said"),
    [
        ("x", True, "booleans, but numbers"),
        ("x", pd.Timestamp("2020-01-01"), "dates, but numbers"),
        ("unit", "one", "texts, but numbers"),
    ],
)
def test_other_kinds_in_a_later_file_are_refused(tmp_path, column, values, said):
    frame = table()
    frame.iloc[:100].to_parquet(tmp_path / "a.parquet")
    frame.iloc[100:].assign(**{column: values}).to_parquet(tmp_path / "b.parquet")
    with pytest.raises(InvalidInputError, match=rf"b\.parquet, column '{column}': .*{said}"):
        PartitionedTransitions.from_parquet(tmp_path, **ROLES)


def test_columns_that_no_one_can_encode_are_named(tmp_path):
    for column, values in (("unit", [{"a": 1}] * 200), ("x", [[1, 2]] * 200)):
        table().assign(**{column: values}).to_parquet(tmp_path / "a.parquet")
        with pytest.raises(InvalidInputError, match=rf"a\.parquet, column '{column}': cannot be read"):
            PartitionedTransitions.from_parquet(tmp_path, **ROLES)
    for paths in (None, [], 3):
        with pytest.raises(InvalidInputError, match="paths must be a file, a folder"):
            PartitionedTransitions.from_parquet(paths, **ROLES)


def test_frames_of_dask_with_odd_partitions():
    dask = pytest.importorskip("dask")
    import dask.dataframe as dd

    frame = table()

    def partitioned(*parts):
        delayed = [dask.delayed(part) for part in parts]
        return PartitionedTransitions.from_dask(
            dd.from_delayed(delayed, meta=frame.iloc[:0], verify_meta=False), **ROLES
        )

    whole = Transitions.concat([Transitions.from_frame(frame, **ROLES)], renumber_episodes=True)
    found = partitioned(frame.iloc[:0], frame.iloc[:103].astype({"kind": "category"}), frame.iloc[:0], frame.iloc[103:])
    assert found.n_partitions == 2
    assert rows_of(found) == whole
    with pytest.raises(InvalidInputError, match=r"partition 1 of the Dask DataFrame, column 'x': .*texts, but numbers"):
        partitioned(frame.iloc[:100], frame.iloc[100:].assign(x="many"))
    frame.loc[150, "gain"] = np.inf
    with pytest.raises(InvalidInputError, match=r"partition 1 of the Dask DataFrame, column 'gain', row 47 "):
        partitioned(frame.iloc[:103], frame.iloc[103:]).survey()


@pytest.mark.parametrize("length", [5, 10, 70])
def test_borders_between_partitions_of_a_frame_move(length):
    dd = pytest.importorskip("dask.dataframe")
    frame = table(200 // length, length)
    whole = Transitions.from_frame(frame, **ROLES)
    found = PartitionedTransitions.from_dask(dd.from_pandas(frame, npartitions=19), **ROLES)
    assert not found.notes
    assert rows_of(found) == Transitions.concat([whole], renumber_episodes=True)
    frame.loc[130, "gain"] = np.inf
    with pytest.raises(InvalidInputError, match=r"partition \d+ of the Dask DataFrame, column 'gain', row"):
        PartitionedTransitions.from_dask(dd.from_pandas(frame, npartitions=19), **ROLES).sample()
