"""`predict` of saved policies: rows in every form, answers in the labels of the table, and a warning of new categories."""

import warnings

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from capi import CAPI, Transitions, load_policy
from capi.errors import InvalidInputError, UnseenCategoryWarning
from capi.evaluators import FittedQ
from capi.policies import Constant, Mixture
from capi.policy_spaces import Forests, Trees


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"age": rng.integers(20, 80, 300), "sex": rng.choice(["f", "m"], 300)})
    frame["since"] = pd.date_range("2024-01-01", periods=300)
    frame["dose"] = rng.choice([0.0, 2.5], 300)
    frame["gain"] = np.where((frame["sex"] == "f") == (frame["dose"] == 2.5), 1.0, 0.0)
    return frame


@pytest.fixture(scope="module")
def learner(table):
    batch = Transitions.from_frame(table, state=["age", "sex", "since"], action="dose", reward="gain", discount=0)
    return CAPI(FittedQ(n_trees=5), Trees(max_depth=2), discount=0.0, n_iterations=1, random_state=0).fit(batch)


@pytest.fixture(scope="module")
def policy(learner, tmp_path_factory):
    file = tmp_path_factory.mktemp("policies") / "policy.capi"
    learner.policy_.save(file)
    return load_policy(file)


def test_every_form_of_the_same_rows_gets_the_same_labels(policy, learner, table):
    expected = np.where(table["sex"] == "f", 2.5, 0.0)
    states = learner.schema_.encode(table)
    rows = table.to_dict("records")
    forms = [
        table,
        pl.from_pandas(table),
        pa.Table.from_pandas(table),
        table.to_dict("list"),
        rows,
        tuple(rows),
        states,
    ]
    for form in forms:
        found = policy.predict(form)
        assert found.dtype == np.float64
        np.testing.assert_array_equal(found, expected)
        np.testing.assert_array_equal(learner.predict(form), expected)


def test_one_row_gets_one_label(policy):
    assert policy.predict({"age": 40, "sex": "f", "since": "2024-02-01", "name": "ignored"}).tolist() == [2.5]
    assert policy.predict({"age": None, "sex": "m", "since": None}).tolist() == [0.0]


def test_no_rows_get_no_labels(policy, table):
    assert policy.predict([]).tolist() == []
    assert policy.predict(table.head(0)).tolist() == []


def test_known_categories_and_missing_ones_give_no_warning(policy):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        policy.predict([{"age": 40, "sex": None, "since": None}, {"age": np.nan, "sex": "m", "since": None}])


def test_one_warning_names_column_value_and_row(policy):
    known = {"age": 40, "sex": "f", "since": None}
    rows = [known, known | {"sex": "x"}, known | {"sex": None}, known | {"sex": "x"}]
    with pytest.warns(UnseenCategoryWarning) as found:
        decisions = policy.predict(rows)
    text = "column 'sex' has 'x' (2 of 4 rows, first in row 1 counted from 0)"
    assert [text in str(warning.message) for warning in found] == [True]
    assert decisions[1] == decisions[2]  # as a missing value
    many = [known | {"sex": f"value {i}"} for i in range(10)]
    with pytest.warns(UnseenCategoryWarning, match="'value 0', 'value 1', 'value 2' and 7 more \\(10 of 10 rows"):
        policy.predict(many)


@pytest.mark.parametrize("kind", [lambda v: pd.Categorical(v), lambda v: pd.array(v, dtype="string"), list])
def test_unseen_values_are_found_in_columns_of_every_kind(policy, kind):
    frame = {"age": [1, 2, 3], "sex": kind(["x", "f", None]), "since": [None] * 3}
    with pytest.warns(UnseenCategoryWarning, match="column 'sex' has 'x' \\(1 of 3 rows, first in row 0"):
        policy.predict(pd.DataFrame(frame))


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"age": 1, "sex": "f", "since": None}, {"age": 1}], "row 1 \\(the first is 0\\) has no 'sex'. Use None"),
        ({"age": 1, "sex": "f"}, "row 0 \\(the first is 0\\) has no 'since'"),
        ([{"age": "old", "sex": "f", "since": None}], "column 'age', row 0 .* must be numbers; got 'old'"),
        ([{"age": [1], "sex": "f", "since": None}], "one value per column; row 0 .* has \\[1\\] in 'age'"),
        ([{"age": 1, "sex": "f", "since": None}, 5], "row 1 \\(the first is 0\\) is of type int"),
        ({}, "column 'age' does not exist"),
        (pd.DataFrame({"age": [1]}), "column 'sex' does not exist"),
    ],
)
def test_bad_rows_are_refused(policy, rows, message):
    with pytest.raises(InvalidInputError, match=message):
        policy.predict(rows)


def test_a_policy_without_a_table_answers_in_numbers():
    assert Constant(1, 3).predict([[0.5], [1.0]]).tolist() == [1, 1]
    with pytest.raises(InvalidInputError, match="learned without a table and has no column names"):
        Constant(1, 3).predict({"x0": 1.0})


def test_masks_restrict_the_decision(table):
    states = table[["age"]].to_numpy(dtype=float)
    allowed = np.zeros((300, 2), dtype=bool)
    allowed[:, 1] = True
    policy = Forests(n_trees=3).improve(states, np.eye(2)[np.zeros(300, dtype=int)], allowed=np.ones((300, 2), bool))
    assert policy.predict(states, allowed).tolist() == [1] * 300
    with pytest.raises(InvalidInputError, match="allowed"):
        policy.predict(states, allowed[:5])


def test_mixtures_predict_their_most_probable_action():
    mixture = Mixture([Constant(0, 2), Constant(1, 2)], [0.2, 0.8])
    assert mixture.predict([[0.0]]).tolist() == [1]
