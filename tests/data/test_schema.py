import datetime as dt
import json

import numpy as np
import pytest

from capi.data import Column
from capi.data.schema import Schema
from capi.errors import InvalidInputError


@pytest.mark.parametrize(
    "labels", [("no", "yes"), (0.5, 2.0), (3, 7), (False, True), ("a", 1), ((0, 0), (0, 1)), (None, "x")], ids=repr
)
def test_labels_come_back_as_they_were_given(labels):
    found = Schema.of(1, 2, None, labels).labels_of(np.array([1, 0, 1]))
    assert found.shape == (3,)
    assert found.tolist() == [labels[1], labels[0], labels[1]]


def test_defaults_are_numbered():
    assert Schema.of(2, 3) == Schema(("x0", "x1"), (0, 1, 2))


@pytest.mark.parametrize("bad", ["ab", 5, None.__class__])
def test_names_must_be_a_sequence(bad):
    with pytest.raises(InvalidInputError, match="feature_names must be a sequence"):
        Schema.of(2, 2, bad)


COLUMNS = (
    Column("age"),
    Column("smoker", "boolean"),
    Column("admitted", "date", origin="2021-01-01"),
    Column("seen", "date", origin="2021-01-01T00:00:00"),
    Column("sex", "one-hot", ("female", "male")),
    Column("ward", "codes", tuple("abcdefghijklmnopqrstuv")),
)
ENCODED = Schema.of_columns(COLUMNS, ("wait", "treat"))


def test_features_are_called_after_their_columns():
    assert ENCODED.feature_names == ("age", "smoker", "admitted", "seen", "sex=female", "sex=male", "ward")


def test_a_plain_schema_has_columns_of_numbers():
    assert Schema(("a", "b"), (0, 1)).columns == (Column("a"), Column("b"))
    assert Schema(("a", "b"), (0, 1)) == Schema.of_columns([Column("a"), Column("b")], (0, 1))


@pytest.mark.parametrize(
    ("feature", "at_most", "words"),
    [
        ("age", 54.5, "age <= 54.5"),
        ("age", None, "age is known"),
        (0, np.inf, "age is known"),
        ("smoker", 0.5, "smoker is false"),
        ("admitted", 62.5, "admitted on or before 2021-03-04"),
        ("admitted", -0.5, "admitted on or before 2020-12-31"),
        ("seen", 1.5, "seen at or before 2021-01-02 12:00:00"),
        ("sex=male", 0.5, "sex is not male"),
        (4, 0.25, "sex is not female"),
        ("ward", 2.5, "ward in a, b, c"),
        ("ward", 2.0, "ward in a, b, c"),
        ("ward", 18.5, "ward not in t, u, v"),
        ("ward", 10.5, "ward from a to k"),
        ("ward", 21.0, "ward <= 21.0"),
        ("sex=male", 1.0, "sex=male <= 1.0"),
    ],
)
def test_splits_are_said_in_the_words_of_the_table(feature, at_most, words):
    assert ENCODED.condition(feature, at_most) == words
    if at_most is not None and np.isfinite(at_most):
        assert ENCODED.condition(feature, at_most, missing_too=True) == f"{words} or is missing"


@pytest.mark.parametrize("feature", ["sex", 7, -1])
def test_unknown_features_are_refused(feature):
    with pytest.raises(InvalidInputError, match="unknown feature"):
        ENCODED.condition(feature, 0.5)


def test_a_split_says_exactly_where_the_feature_is_at_most_the_number():
    """Whoever reads "on or before" and "in a, b" draws the line where the tree does."""
    days = np.array([0.0, 1.0, 62.0, 63.0])
    dates = Column("admitted", "date", origin="2021-01-01").decode(days[:, None])
    limit = np.datetime64(ENCODED.condition("admitted", 62.0).split()[-1])
    np.testing.assert_array_equal(dates <= limit, days <= 62.0)


TABLE = {
    "age": [30.0, None, 1e-300],
    "smoker": [True, False, None],
    "admitted": np.array(["2021-01-01", "2020-12-01", "NaT"], dtype="datetime64[D]"),
    "seen": np.array(["2021-01-02T12", "NaT", "2021-01-01"], dtype="datetime64[us]"),
    "sex": ["male", "other", None],
    "ward": ["c", "z", "a"],
    "unused": [object(), None, 1],
}


def test_missing_and_unknown_values_are_nan_in_all_their_features():
    nan = np.nan
    states = ENCODED.encode(TABLE)
    np.testing.assert_array_equal(
        states, [[30, 1, 0, 1.5, 0, 1, 2], [nan, 0, -31, nan, nan, nan, nan], [1e-300, nan, nan, 0, nan, nan, 0]]
    )
    np.testing.assert_array_equal(ENCODED.encode(ENCODED.decode(states)), states)


def test_values_of_another_type_are_translated_or_refused():
    schema = Schema.of_columns([Column("b", "boolean"), Column("d", "date", origin="2021-01-01"), Column("x")], (0, 1))
    found = schema.encode({"b": [0, 1], "d": ["2021-01-03", None], "x": ["1.5", "2"]})
    np.testing.assert_array_equal(found, [[0, 2, 1.5], [1, np.nan, 2]])
    with pytest.raises(InvalidInputError, match=r"column 'b', row 1 .*booleans \(or 0 and 1\); got 2"):
        schema.encode({"b": [0, 2], "d": [None, None], "x": [1, 2]})
    with pytest.raises(InvalidInputError, match="column 'd': must be dates"):
        schema.encode({"b": [0, 1], "d": ["soon", "later"], "x": [1, 2]})
    with pytest.raises(InvalidInputError, match=r"column 'x', row 1 .*must be numbers; got 'two'"):
        schema.encode({"b": [0, 1], "d": [None, None], "x": ["1", "two"]})
    with pytest.raises(InvalidInputError, match="column 'x' does not exist; the columns are b, d"):
        schema.encode({"b": [0, 1], "d": [None, None]})
    numbers = Schema.of_columns([Column("n", "one-hot", (1, 2))], (0, 1))
    np.testing.assert_array_equal(numbers.encode({"n": ["x", "y"]}), np.full((2, 2), np.nan))


@pytest.mark.parametrize(
    "labels",
    [("no", "yes"), (0.5, 2), (False, "x"), ((0, "a"), (1, None)), (dt.date(2021, 1, 2), dt.datetime(2021, 1, 2, 3))],
    ids=repr,
)
def test_a_schema_survives_json(labels):
    schema = Schema.of_columns(COLUMNS, labels)
    again = Schema.from_dict(json.loads(json.dumps(schema.to_dict())))
    assert again == schema
    assert again.action_labels == labels
    assert list(map(type, again.action_labels)) == list(map(type, labels))


@pytest.mark.parametrize("label", [b"bytes", float("nan"), float("inf"), frozenset()], ids=repr)
def test_labels_that_json_cannot_hold_are_refused(label):
    with pytest.raises(InvalidInputError, match="to be stored"):
        Schema(("x",), (label, 1)).to_dict()


PLAIN = {"columns": [{"name": "x", "kind": "number"}], "action_labels": [0, 1]}


@pytest.mark.parametrize(
    "changes",
    [
        {"columns": []},
        {"columns": [{"name": "x"}]},
        {"columns": [{"name": 3, "kind": "number"}]},
        {"columns": [{"name": "x", "kind": "colour"}]},
        {"columns": [{"name": "x", "kind": "number", "values": [1]}]},
        {"columns": [{"name": "x", "kind": "one-hot"}]},
        {"columns": [{"name": "x", "kind": "one-hot", "values": [[1]]}]},
        {"columns": [{"name": "x", "kind": "one-hot", "values": "ab"}]},
        {"columns": [{"name": "x", "kind": "one-hot", "values": ["a", "a"]}]},
        {"columns": [{"name": "x", "kind": "date"}]},
        {"columns": [{"name": "x", "kind": "date", "origin": "soon"}]},
        {"columns": [{"name": "x", "kind": "date", "origin": 5}]},
        {"columns": [{"name": "x", "kind": "date", "origin": "2021-01"}]},
        {"columns": [{"name": "x", "kind": "number", "origin": "2021-01-01"}]},
        {"columns": [{"name": "x", "kind": "number", "code": "boom"}]},
        {"columns": [{"name": "x", "kind": "number"}] * 2},
        {"columns": [5]},
        {"action_labels": []},
        {"action_labels": "ab"},
        {"action_labels": [{"date": "soon"}]},
        {"action_labels": [{"date": 5}]},
        {"action_labels": [{"tuple": 5}]},
        {"action_labels": [{"tuple": [[]]}]},
        {"action_labels": [[1]]},
        {"action_labels": [1, 1]},
        {"more": 1},
    ],
    ids=str,
)
def test_damaged_records_are_refused(changes):
    with pytest.raises(InvalidInputError):
        Schema.from_dict({**PLAIN, **changes})
    with pytest.raises(InvalidInputError):
        Schema.from_dict(changes)
    assert Schema.from_dict(PLAIN) == Schema(("x",), (0, 1))


def test_names_and_columns_must_agree():
    with pytest.raises(InvalidInputError, match="feature_names must be those of the columns"):
        Schema(("a",), (0, 1), (Column("b"),))
    with pytest.raises(InvalidInputError, match="names of features must be distinct"):
        Schema.of_columns([Column("s", "one-hot", ("a",)), Column("s=a")], (0, 1))
