"""Ordered categories: declared by the table or the user, recognised otherwise, and written in their order."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from capi import CAPI, Transitions
from capi.data.summary.orders import likely_order
from capi.errors import InvalidInputError
from capi.evaluators import FittedQ
from capi.policy_spaces import OptimalTrees, Trees
from capi.runs import RunSettings, fit_run, read_decisions

BANDS = ["<18", "18-44", "45-64", "65+"]
N = 400
ROLES = {"state": "age", "action": "arm", "reward": "gain"}


def trial(n=N):
    """Those from 45 on gain by the drug."""
    rng = np.random.default_rng(0)
    age, arm = rng.integers(4, size=n), rng.integers(2, size=n)
    gain = np.where((age >= 2) == (arm == 1), 1.0, 0.0) + 0.1 * rng.normal(size=n)
    return pd.DataFrame({"age": np.array(BANDS)[age], "arm": arm, "gain": gain}), age


def batch_of(frame, **roles):
    return Transitions.from_frame(frame, **{**ROLES, "discount": 0, **roles})


@pytest.mark.parametrize("space", [Trees(max_depth=1), OptimalTrees(max_depth=1)], ids=["greedy", "optimal"])
def test_a_declared_order_gives_codes_and_rules_in_its_words(space):
    frame, age = trial()
    batch = batch_of(frame, ordered={"age": BANDS})
    np.testing.assert_array_equal(batch.states[:, 0], age)
    (column,) = batch.schema.columns
    assert (column.kind, column.values, column.is_ordered) == ("codes", tuple(BANDS), True)
    assert [column.read_as for column in batch.describe().columns] == ["ordered category"]
    assert "age" in str(batch.describe())
    learner = CAPI(FittedQ(n_trees=5), space, discount=0.0, n_iterations=1, random_state=0).fit(batch)
    assert learner.policy_.rules().splitlines()[0].startswith("if age in <18, 18-44")
    assert learner.predict(pd.DataFrame({"age": ["65+", "<18"]})).tolist() == [1, 0]
    np.testing.assert_array_equal(batch.schema.decode(batch.states)["age"], frame["age"])


@pytest.mark.parametrize("kind", ["pandas", "arrow"])
def test_ordered_categories_of_tables_need_no_declaration(kind):
    frame, age = trial()
    values = [*BANDS, "unseen"]
    frame["age"] = pd.Categorical(frame["age"], values, ordered=True)
    table = frame if kind == "pandas" else pa.Table.from_pandas(frame)
    batch = batch_of(table)
    np.testing.assert_array_equal(batch.states[:, 0], age)
    assert batch.schema.columns[0].values == tuple(values), "declared values say nothing about single rows"
    assert batch.schema.columns[0].is_ordered
    frame["age"] = pd.Categorical(frame["age"], values, ordered=False)
    assert batch_of(frame).schema.columns[0].kind == "one-hot", "categories without an order stay without one"


def test_missing_values_and_next_states_of_ordered_columns():
    frame, _ = trial()
    frame.loc[::7, "age"] = None
    frame["then"] = "18-44"
    batch = batch_of(frame, ordered={"age": BANDS}, next_state="then", discount=0)
    assert np.isnan(batch.states[::7]).all()
    assert (batch.next_states == 1).all()
    frame.loc[3, "then"] = "120+"
    with pytest.raises(
        InvalidInputError, match=r"column 'then', row 3 .*must be one of the values that ordered lists.*'120\+'"
    ):
        batch_of(frame, ordered={"age": BANDS}, next_state="then")


@pytest.mark.parametrize(
    ("ordered", "words"),
    [
        (["age"], "ordered must map columns to their values"),
        ({"agee": BANDS}, "names 'agee', and the state columns are age"),
        ({"age": BANDS[:1]}, "at least two distinct values"),
        ({"age": "<18"}, "at least two distinct values"),
        ({"age": ["a", "a"]}, "at least two distinct values"),
        ({"age": [1, 2]}, "Numbers are ordered already"),
        ({"age": BANDS[:3]}, r"column 'age', row \d+ .*must be one of the values that ordered lists.* got '65\+'"),
    ],
)
def test_orders_that_do_not_fit_are_refused(ordered, words):
    with pytest.raises(InvalidInputError, match=words):
        batch_of(trial()[0], ordered=ordered)


def test_numbers_have_an_order_and_a_schema_knows_it():
    frame, age = trial()
    with pytest.raises(InvalidInputError, match="must hold text to be an ordered category; it holds int64"):
        batch_of(frame.assign(age=age), ordered={"age": ["0", "1"]})
    batch = batch_of(frame, ordered={"age": BANDS})
    with pytest.raises(InvalidInputError, match="ordered must not be given with schema"):
        batch_of(frame, ordered={"age": BANDS}, schema=batch.schema)
    assert batch_of(frame[:9], schema=batch.schema).schema == batch.schema


@pytest.mark.parametrize(
    ("values", "order"),
    [
        (["45-64", "18-44", "65+", "<18"], BANDS),
        (["[18, 45)", "[45, 65)", "[0, 18)"], ["[0, 18)", "[18, 45)", "[45, 65)"]),
        (["10 mg", "5 mg", "20 mg"], ["5 mg", "10 mg", "20 mg"]),
        (["18 to 30", "over 30", "under 18"], ["under 18", "18 to 30", "over 30"]),
        (["severe", "Mild", "moderate"], ["Mild", "moderate", "severe"]),
        (["III", "I", "II"], ["I", "II", "III"]),
        (["stage 3", "stage 1", "stage 2"], ["stage 1", "stage 2", "stage 3"]),
        (["ward 1", "ward 2", "ward 3"], None),
        (["red", "high", "low"], None),
        (["2020-01", "2020-02", "2020-03"], None),
        ([1, 2, 3], None),
    ],
)
def test_what_looks_ordered(values, order):
    assert likely_order(values) == order


def test_describe_says_how_to_declare_an_order():
    frame, _ = trial()
    notes = [caveat for caveat in batch_of(frame).describe().warnings if caveat.kind == "looks-ordered"]
    (note,) = notes
    assert (note.severity, note.column) == ("note", "age")
    assert '--ordered "age=<18,18-44,45-64,65+"' in note.text
    for quiet in (
        batch_of(frame, ordered={"age": BANDS}),
        batch_of(frame.replace({"age": {"45-64": "18-44", "<18": "65+"}})),
    ):
        assert not [caveat for caveat in quiet.describe().warnings if caveat.kind == "looks-ordered"]


def test_a_run_keeps_the_order_in_its_settings(tmp_path):
    frame, _ = trial()
    frame.to_csv(tmp_path / "t.csv", index=False)
    settings = RunSettings(
        str(tmp_path / "t.csv"), {**ROLES, "state": ["age"], "ordered": {"age": BANDS}}, 0.0, 1, space="trees",
        space_options={"max_depth": 1},
    )  # fmt: skip
    run = fit_run(settings, tmp_path / "run")
    assert run.rules().startswith("if age in <18, 18-44")
    again = RunSettings.from_toml(tmp_path / "run" / "settings.toml")
    assert again.roles["ordered"] == {"age": BANDS}
    assert again.batch().schema == settings.batch().schema
    assert read_decisions(settings.table, settings.roles, 0.0, run.policy.schema).schema.columns[0].is_ordered
