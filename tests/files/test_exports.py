"""Exports decide as the policy does, on every row, whatever columns and actions are called."""

import json
import re
import sqlite3
from contextlib import closing
from dataclasses import replace
from datetime import date, datetime, timedelta

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from capi import Transitions
from capi.data.columns import Column
from capi.data.schema import Schema
from capi.errors import InvalidInputError
from capi.files.exports import export_policy
from capi.files.exports.sql import number
from capi.policies import Constant, Training, Uniform, described
from capi.policy_spaces import Constrained, Forests, Linear, OptimalTrees, Thresholds, Trees
from capi.policy_spaces.rules import Never, Only
from files.all_kinds import policies, questions, sample

TRAINING = Training(0.9, 1, 60, {})
EXACT = ["constant", "threshold", "threshold-constant", "tree", "optimal-tree", "forest", "forest-combined", "linear"]
EXACT += [
    "constrained-tree",
    "constrained-forest",
    "constrained-combined",
    "constrained-linear",
    "constrained-threshold",
    "monotone",
    "monotone-tree",
]
MASKED = ["tree-masked", "forest-masked", "threshold-masked", "linear-masked"]
OTHERS = ["neighbors", "local-averages", "fitted-values", "kernel", "linear-polynomial"]
HOSTILE = [
    'a"b',
    "it's",
    "x; DROP TABLE t; --",
    "line\nbreak",
    "\\",
    "{x}",
    "class",
    "row",
    "naïve Ω",
    " ",
    "'''",
    '"""',
    "%s",
    "n -> n",
]


def rows_of(names, states):
    """Return the states as rows with None for what is missing."""
    return [dict(zip(names, (None if np.isnan(x) else float(x) for x in state), strict=True)) for state in states]


def names_of(policy, states):
    schema = getattr(policy, "schema", None)
    return schema.feature_names if schema else [f"x{j}" for j in range(states.shape[1])]


def labels_of(policy, actions):
    schema = getattr(policy, "schema", None)
    labels = schema.action_labels if schema else range(policy.n_actions)
    return [labels[a] for a in actions]


def decide_of(code):
    namespace = {"__name__": "policy"}
    exec(compile(code, "policy.py", "exec"), namespace)
    return namespace["decide"]


def by_sqlite(expression, names, rows, types=None):
    """Return the values of the expression in SQLite."""
    plain = [{name: str(value) if isinstance(value, date) else value for name, value in row.items()} for row in rows]
    return _asked(sqlite3.connect(":memory:"), expression, names, plain, types)


def by_duckdb(expression, names, rows, types=None):
    return _asked(pytest.importorskip("duckdb").connect(), expression, names, rows, types)


def _asked(database, expression, names, rows, types):
    quoted = ['"' + name.replace('"', '""') + '"' for name in names]
    types = types or ["DOUBLE"] * len(names)
    columns = ", ".join(f"{name} {kind}" for name, kind in zip(quoted, types, strict=True))
    database.execute(f'CREATE TABLE t ("_ order" INTEGER, {columns})')
    places = ", ".join("?" * (len(names) + 1))
    for i, row in enumerate(rows):
        database.execute(f"INSERT INTO t VALUES ({places})", [i, *row.values()])
    found = database.execute(f'SELECT {expression} FROM t ORDER BY "_ order"').fetchall()
    database.close()
    return [value for (value,) in found]


def as_text_if_mixed(policy, expected):
    """SQL has one type in a column: labels of several types are text there."""
    schema = getattr(policy, "schema", None)
    labels = schema.action_labels if schema else range(policy.n_actions)
    alike = len({float if type(x) in (int, float) else type(x) for x in labels if x is not None}) <= 1
    return expected if alike else [None if x is None else str(x) for x in expected]


@pytest.mark.parametrize("name", EXACT)
def test_python_decides_as_the_policy_does(name):
    policy, states = policies()[name]
    decide = decide_of(export_policy(policy, "python"))
    found = [decide(row) for row in rows_of(names_of(policy, states), states)]
    assert found == labels_of(policy, policy.act(states))


@pytest.mark.parametrize("engine", [by_sqlite, by_duckdb])
@pytest.mark.parametrize("name", EXACT)
def test_sql_decides_as_the_policy_does(name, engine):
    policy, states = policies()[name]
    expected = as_text_if_mixed(policy, labels_of(policy, policy.act(states)))
    names = names_of(policy, states)
    assert engine(export_policy(policy, "sql"), names, rows_of(names, states)) == expected
    assert engine(export_policy(policy, "sql", table="t"), names, rows_of(names, states)) == expected


def test_python_takes_keywords_nan_and_more_columns():
    policy = policies()["tree"][0]
    decide = decide_of(export_policy(policy, "python"))
    row = dict.fromkeys(policy.schema.feature_names, float("nan"))
    missing = labels_of(policy, policy.act(np.full((1, 3), np.nan)))[0]
    assert decide(row) == decide(**row) == decide({**row, "more": 1}) == missing
    with pytest.raises(KeyError):
        decide({})


@pytest.mark.parametrize("name", ["threshold", "linear"])
def test_what_the_policy_refuses_is_refused(name):
    """Single cuts and linear policies have no place for missing values: Python says so, SQL answers NULL."""
    policy = policies()[name][0]
    rows = rows_of(policy.schema.feature_names, np.full((1, 3), np.nan))
    with pytest.raises(ValueError, match="missing"):
        decide_of(export_policy(policy, "python"))(rows[0])
    for engine in (by_sqlite, by_duckdb):
        assert engine(export_policy(policy, "sql"), policy.schema.feature_names, rows) == [None]


def hostile_policies():
    states, values = sample(missing=True)
    wide = np.hstack([states, states[:, ::-1], states + 1, states * 2, states**2])[:, : len(HOSTILE)]
    labels = ["'; DROP TABLE t; --", '"""\nimport os', "ж\\"]
    schema = Schema.of(len(HOSTILE), 3, HOSTILE, labels)
    rules = [Never(labels[0], when=f"{HOSTILE[7]} > 0", if_missing=True)]
    for space in (
        Trees(max_depth=5),
        Forests(3, max_depth=4),
        OptimalTrees(max_depth=2),
        Linear(),
        Constrained(Trees(max_depth=3), rules, schema),
    ):
        x = np.nan_to_num(wide) if isinstance(space, Linear) else wide
        yield described(space.improve(x, values), schema, TRAINING), x


def test_names_never_become_code():
    for policy, states in hostile_policies():
        expected, rows = labels_of(policy, policy.act(states)), rows_of(HOSTILE, states)
        decide = decide_of(export_policy(policy, "python"))
        assert [decide(row) for row in rows] == expected
        for engine in (by_sqlite, by_duckdb):
            assert engine(export_policy(policy, "sql"), HOSTILE, rows) == expected
        json.loads(export_policy(policy, "json"))
        export_policy(policy, "text")
        check_dot(export_policy(policy, "dot"))


def check_dot(text):
    """Check that every line is a statement of the few kinds that are written, with its strings closed."""
    string = r'"(?:[^"\\]|\\.)*"'
    node, edge = rf"[a-z0-9]+ \[label={string}(?:, style=rounded)?\];", rf"[a-z0-9]+ -> [a-z0-9]+ \[label={string}\];"
    others = (
        rf'digraph policy \{{|subgraph cluster_\d+ \{{|\}}|label={string};|node \[shape=box, fontname="sans-serif"\];'
    )
    for line in text.split("\n"):
        assert re.fullmatch(rf"\s*(?:{node}|{edge}|{others})", line), line
    assert text.count("{\n") == len(re.findall(r"^\s*\}$", text, re.MULTILINE))


@pytest.mark.parametrize("name", [*EXACT, *MASKED])
def test_text_json_and_dot_show_all_of_it(name):
    policy = policies()[name][0]
    assert export_policy(policy, "text")
    assert json.loads(export_policy(policy, "json"))
    check_dot(export_policy(policy, "dot"))


def test_forests_are_shown_tree_by_tree():
    policy = policies()["forest"][0]
    assert export_policy(policy, "text").count("tree ") == 7
    assert len(json.loads(export_policy(policy, "json"))["trees"]) == 7
    assert export_policy(policy, "dot").count("subgraph") == 7


def test_text_and_json_of_a_tree_are_its_own():
    policy = policies()["tree"][0]
    assert export_policy(policy, "text") == policy.rules()
    assert json.loads(export_policy(policy, "json")) == policy.to_dict()


def test_rules_are_told():
    policy = policies()["constrained-tree"][0]
    assert export_policy(policy, "text") == policy.rules()
    assert json.loads(export_policy(policy, "json"))["rules"] == [str(rule) for rule in policy.kept_rules]
    assert "never 2.5 when age > 1" in export_policy(policy, "dot")


@pytest.mark.parametrize("name", MASKED)
@pytest.mark.parametrize("to", ["python", "sql"])
def test_masks_are_unknown_to_code(name, to):
    with pytest.raises(InvalidInputError, match="learned with masks"):
        export_policy(policies()[name][0], to)


@pytest.mark.parametrize("to", ["text", "json", "dot", "python", "sql"])
@pytest.mark.parametrize("name", OTHERS)
def test_others_offer_the_tree_that_decides_most_alike(name, to):
    policy, states = policies()[name]
    with pytest.raises(
        InvalidInputError, match=r"cannot be exported to .* makes the same decision in [\d.]+ % of 300 states"
    ):
        export_policy(policy, to, states=states)
    written = export_policy(policy, to, imitate=True, states=states)
    assert "makes the same decision in" in written
    if to == "python":
        decide = decide_of(written)
        decided = [decide(row) for row in rows_of(names_of(policy, states), states)]
        assert np.mean([a == b for a, b in zip(decided, labels_of(policy, policy.act(states)), strict=True)]) > 0.4


def test_policies_that_keep_their_states_need_none():
    with pytest.raises(InvalidInputError, match=r"makes the same decision in [\d.]+ % of 60 states. Pass imitate=True"):
        export_policy(policies()["neighbors"][0], "python")
    with pytest.raises(InvalidInputError, match="pass imitate=True and states"):
        export_policy(policies()["kernel"][0], "python")
    with pytest.raises(InvalidInputError, match="cannot be exported"):
        export_policy(Uniform(2), "sql")
    with pytest.raises(InvalidInputError, match="to must be one of 'text'"):
        export_policy(Constant(0, 2), "excel")


def by_onnx(policy, states):
    """Return the numbers of the actions of states with 32 bits."""
    runtime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx")
    session = runtime.InferenceSession(export_policy(policy, "onnx"), providers=["CPUExecutionProvider"])
    (found,) = session.run(["action"], {"states": states.astype(np.float32)})
    return found


@pytest.mark.parametrize("name", EXACT)
def test_onnx_decides_as_the_policy_does(name):
    policy, states = policies()[name]
    states = states.astype(np.float32).astype(np.float64)
    np.testing.assert_array_equal(by_onnx(policy, states), policy.act(states))


def test_onnx_answers_minus_one_where_the_policy_refuses():
    for name in ("threshold", "linear"):
        np.testing.assert_array_equal(by_onnx(policies()[name][0], np.full((2, 3), np.nan)), [-1, -1])
    states, values = sample()
    rules = [Never(0, when="x0 > 0", if_missing=True), Only(0, when="x0 <= 0", if_missing=True)]
    policy = Constrained(Trees(max_depth=2), rules).improve(states, values)
    np.testing.assert_array_equal(by_onnx(policy, np.full((1, 3), np.nan)), [-1])


def test_onnx_models_tell_their_words():
    onnx = pytest.importorskip("onnx")
    model = onnx.load_from_string(export_policy(policies()["tree"][0], "onnx"))
    words = {entry.key: entry.value for entry in model.metadata_props}
    assert json.loads(words["feature_names"]) == list(policies()["tree"][0].schema.feature_names)


# Encoded columns: code takes the original ones

COLUMNS = (
    Column("age"),
    Column("sex", "one-hot", ("female", "male", "other's")),
    Column("smokes", "boolean"),
    Column("ward", "codes", tuple(f"w{i}" for i in range(25))),
    Column("admitted", "date", origin="2020-02-28"),
    Column("seen", "date", origin="2021-03-04T00:00:00"),
)
WORDS = Schema.of_columns(COLUMNS, ("wait", "treat"))
SQL_TYPES = ["DOUBLE", "VARCHAR", "BOOLEAN", "VARCHAR", "DATE", "TIMESTAMP"]


def patients(n=250, seed=0):
    rng = np.random.default_rng(seed)

    def column(values):
        return [None if rng.random() < 0.15 else value for value in values]

    return {
        "age": column(rng.integers(20, 80, n).astype(float).tolist()),
        "sex": column(rng.choice(["female", "male", "other's"], n).tolist()),
        "smokes": column((rng.random(n) < 0.5).tolist()),
        "ward": column([f"w{i}" for i in rng.integers(0, 25, n)]),
        "admitted": column([date(2020, 2, 28) + timedelta(days=int(i)) for i in rng.integers(0, 500, n)]),
        "seen": column([datetime(2021, 3, 4) + timedelta(microseconds=int(i)) for i in rng.integers(0, 10**13, n)]),
    }


def test_combinations_are_named_by_their_formulas():
    schema = Schema.of(3, 3, ["angle", "speed", "load"])
    policy = replace(policies()["forest-combined"][0], schema=schema)
    names = policy.forest.projections.named(schema.feature_names)
    assert re.fullmatch(r"-?[\d.]+\*\w+( [-+] [\d.]+\*\w+){1,2}", names[0])
    assert f"if {names[0]} <= " in export_policy(policy, "text")
    assert f'"feature": "{names[0]}"' in export_policy(policy, "json")
    assert f'[label="{names[0]} <= ' in export_policy(policy, "dot")
    assert "5 trees with" in policy.summary()
    assert "cut 4 combinations of columns" in policy.summary()


def test_combinations_of_encoded_columns():
    """Dates count as days in Python and in the text; SQL has no common way to write that."""
    table = patients()
    states = WORDS.encode(table)
    values = np.column_stack(
        [np.nan_to_num(states[:, 0] - 10 * states[:, 2] - 45 - 0.02 * (states[:, 6] - 250)), np.zeros(len(states))]
    )
    policy = described(Forests(5, max_depth=5, projections=30).improve(states, values), WORDS, TRAINING)
    expected = labels_of(policy, policy.act(states))
    rows = [dict(zip(table, row, strict=True)) for row in zip(*table.values(), strict=True)]
    decide = decide_of(export_policy(policy, "python"))
    assert [decide(row) for row in rows] == expected
    assert "*days(admitted - 2020-02-28)" in export_policy(policy, "text")
    with pytest.raises(InvalidInputError, match="holds dates"):
        export_policy(policy, "sql")
    undated = described(
        Forests(5, max_depth=5, projections=30).improve(states[:, :6], values),
        Schema.of_columns(COLUMNS[:4], WORDS.action_labels),
        TRAINING,
    )
    expected = labels_of(undated, undated.act(states[:, :6]))
    assert len(set(expected)) == 2
    for engine in (by_sqlite, by_duckdb):
        assert engine(export_policy(undated, "sql"), list(table), rows, SQL_TYPES) == expected


def test_python_combines_huge_values_as_the_policy_does():
    rng = np.random.default_rng(0)
    states = rng.uniform(-1, 1, (200, 3)) * 1.7e308
    values = np.column_stack([np.sign(states[:, 0]) + np.sign(states[:, 1]), np.zeros(200)])
    policy = Forests(3, projections=6).improve(states / 1e290, values)
    decide = decide_of(export_policy(policy, "python"))
    assert [decide(row) for row in rows_of(["x0", "x1", "x2"], states)] == policy.act(states).tolist()


def encoded_policies():
    table = patients()
    states = WORDS.encode(table)
    values = np.random.default_rng(2).normal(size=(len(states), 2)) + np.column_stack(
        [np.nan_to_num(states[:, 1]), states[:, 0] > 1]
    )
    rules = [Only("wait", when="seen > 50.25"), Never("treat", when="admitted <= 100 and smokes >= 1", if_missing=True)]
    for space in (Trees(max_depth=6), Forests(5, max_depth=6), Constrained(Trees(max_depth=6), rules, WORDS)):
        yield described(space.improve(states, values), WORDS, TRAINING)


def test_code_takes_the_columns_of_the_table():
    table = patients(seed=1)
    states = WORDS.encode(table)
    rows = [dict(zip(table, row, strict=True)) for row in zip(*table.values(), strict=True)]
    for policy in encoded_policies():
        expected = labels_of(policy, policy.act(states))
        decide = decide_of(export_policy(policy, "python"))
        assert [decide(row) for row in rows] == expected
        code = export_policy(policy, "sql")
        assert by_duckdb(code, list(table), rows, SQL_TYPES) == expected
        texts = [{**row, "admitted": _text(row["admitted"]), "seen": _text(row["seen"])} for row in rows]
        assert by_sqlite(code, list(table), texts, SQL_TYPES) == expected
        assert [decide(row) for row in texts] == expected, "dates may be text"


def _text(moment):
    return None if moment is None else str(moment)


RARE = Schema.of_columns(
    (
        Column("sex", "one-hot", ("female", "male", "other"), rest=True),
        Column("ward", "codes", (*(f"w{i}" for i in range(25)), "other"), rest=True),
        Column("name", "one-hot", ("other",), rest=True),
    ),
    ("wait", "treat"),
)


@pytest.mark.parametrize("space", [Trees(), Forests(5), Linear()], ids=lambda space: type(space).__name__)
def test_code_puts_values_that_are_not_listed_into_the_rest(space):
    rng = np.random.default_rng(0)
    missing = [] if isinstance(space, Linear) else [None]
    table = {
        "sex": rng.choice(np.array(["female", "male", "x", "y", *missing], dtype=object), 300).tolist(),
        "ward": rng.choice(np.array(["w0", "w7", "w24", "elsewhere", *missing], dtype=object), 300).tolist(),
        "name": rng.choice(np.array(["ann", "bob", *missing], dtype=object), 300).tolist(),
    }
    states = RARE.encode(table)
    policy = described(space.improve(states, rng.normal(size=(300, 2))), RARE, TRAINING)
    expected = labels_of(policy, policy.act(states))
    assert len(set(expected)) == 2
    rows = [dict(zip(table, row, strict=True)) for row in zip(*table.values(), strict=True)]
    decide = decide_of(export_policy(policy, "python"))
    assert [decide(row) for row in rows] == expected
    code = export_policy(policy, "sql")
    for engine in (by_sqlite, by_duckdb):
        assert engine(code, list(table), rows, ["VARCHAR"] * 3) == expected


def test_unknown_categories_are_missing():
    policy = next(encoded_policies())
    strange = {"age": 50.0, "sex": "x", "smokes": None, "ward": "elsewhere", "admitted": None, "seen": None}
    missing = {**strange, "sex": None, "ward": None}
    decide = decide_of(export_policy(policy, "python"))
    assert decide(strange) == decide(missing)
    for engine in (by_sqlite, by_duckdb):
        first, second = engine(export_policy(policy, "sql"), list(strange), [strange, missing], SQL_TYPES)
        assert first == second == decide(missing)


def test_dates_in_scores_are_refused_in_sql_only():
    states = np.nan_to_num(WORDS.encode(patients()))
    policy = described(
        Linear(polish=False).improve(states, np.random.default_rng(0).normal(size=(250, 2))), WORDS, TRAINING
    )
    with pytest.raises(InvalidInputError, match="'admitted' holds dates"):
        export_policy(policy, "sql")
    decide = decide_of(export_policy(policy, "python"))
    table = {
        name: [v if v is not None else other for v in values for other in [next(x for x in values if x is not None)]]
        for name, values in patients(40).items()
    }
    rows = [dict(zip(table, row, strict=True)) for row in zip(*table.values(), strict=True)]
    assert [decide(row) for row in rows] == labels_of(policy, policy.act(WORDS.encode(table)))


def test_columns_that_sql_cannot_tell_apart_are_refused():
    states, values = sample()
    policy = described(Trees(max_depth=2).improve(states, values), Schema.of(3, 3, ["Age", "age", "x"]), TRAINING)
    with pytest.raises(InvalidInputError, match="'Age' and 'age' are the same in SQL"):
        export_policy(policy, "sql")


def test_labels_that_are_no_literals_are_refused():
    states, values = sample()
    policy = described(Thresholds().improve(states, values), Schema.of(3, 3, None, [date(2020, 1, 1), 1, 2]), TRAINING)
    for to in ("python", "sql"):
        with pytest.raises(InvalidInputError, match="labels must be text, numbers"):
            export_policy(policy, to)


def test_deep_trees_are_written_as_tables_and_refused_where_they_cannot_be():
    n = 260
    states = np.arange(n, dtype=float)[:, None]
    tree = chain(n)
    decide = decide_of(export_policy(tree, "python"))
    assert [decide(x0=float(x)) for x in range(n)] == tree.act(states).tolist()
    for to in ("sql", "dot", "json"):
        with pytest.raises(InvalidInputError, match=r"at most \d+ splits"):
            export_policy(tree, to)
    assert export_policy(tree, "text") == tree.rules(full=True), "rules() refers to it"


def chain(n):
    """Return a tree that splits off one state after the other."""
    from capi.policy_spaces.trees.greedy import TreePolicy
    from capi.trees._kernels.records import NODE
    from capi.trees.forest import Tree

    nodes = np.zeros(2 * n - 1, dtype=NODE)
    for i in range(n - 1):
        nodes[2 * i if i else 0]["left"] = 2 * i + 1
        nodes[2 * i if i else 0]["threshold"] = i + 0.5
        nodes[2 * i + 1]["left"] = -1 - i
    nodes[2 * n - 2]["left"] = -n
    sums = np.zeros((n, 2))
    sums[np.arange(n), np.arange(n) % 2] = 1.0
    tree = Tree(nodes, np.zeros(2 * n - 1), sums, np.ones(n), np.ones(n, dtype=np.int64), np.zeros(0, dtype=np.int32))
    return TreePolicy(tree, 2, 1, np.zeros(1, dtype=bool), np.zeros(n))


@settings(max_examples=300, derandomize=True, deadline=None)
@given(st.floats(allow_nan=False, allow_infinity=False))
@example(5e-324)
@example(1.7976931348623157e308)
@example(2.0**60 + 2.0**10)
@example(0.1 + 0.2)
@example(-0.0)
def test_numbers_arrive_in_sql_as_they_are(x):
    with closing(sqlite3.connect(":memory:")) as base:
        assert base.execute(f"SELECT {number(x)}").fetchone() == (x,)


def test_numbers_arrive_in_duckdb_as_they_are():
    database = pytest.importorskip("duckdb").connect()
    rng = np.random.default_rng(0)
    for x in (*(rng.normal(size=50) * 10.0 ** rng.integers(-300, 300, 50)), 36.65, 0.1, 5e-324):
        assert database.execute(f"SELECT {number(float(x))}").fetchone() == (float(x),)


def test_states_without_an_action_left_are_refused():
    states, values = sample(missing=True)
    rules = [Never(0, when="x0 > 0", if_missing=True), Only(0, when="x0 <= 0", if_missing=True)]
    policy = Constrained(Trees(max_depth=2), rules).improve(np.nan_to_num(states), values)
    row = {"x0": None, "x1": 0.0, "x2": 0.0}
    with pytest.raises(InvalidInputError, match="must have at least one allowed action"):
        policy.act(np.array([[np.nan, 0, 0]]))
    with pytest.raises(ValueError, match="allow no action"):
        decide_of(export_policy(policy, "python"))(row)
    forest = Constrained(Forests(3, max_depth=2), rules).improve(np.nan_to_num(states), values)
    for each in (policy, forest):
        assert by_sqlite(export_policy(each, "sql"), list(row), [row]) == [None]


def test_forests_of_random_states_agree_with_duckdb_and_sqlite():
    policy = policies()["forest"][0]
    states = questions(missing=True, n=500)
    expected = as_text_if_mixed(policy, labels_of(policy, policy.act(states)))
    rows = rows_of(policy.schema.feature_names, states)
    for engine in (by_sqlite, by_duckdb):
        assert engine(export_policy(policy, "sql"), policy.schema.feature_names, rows) == expected


def test_sql_is_what_sqlite_accepts_or_it_is_refused():
    rng = np.random.default_rng(0)
    states, values = rng.normal(size=(200, 3)), rng.normal(size=(200, 3))
    base = sqlite3.connect(":memory:")
    base.execute("create table t (x0, x1, x2)")
    base.executemany("insert into t values (?, ?, ?)", states.tolist())
    deep = Trees(max_depth=20, min_samples_leaf=1)
    forests = [Forests(max_depth=12, projections=k).improve(states, values) for k in (0, 8)]
    for policy in (*forests, deep.improve(states, values)):
        found = [row[0] for row in base.execute(f"select {export_policy(policy, 'sql')} from t")]
        assert found == policy.act(states).tolist()
    base.close()
    with pytest.raises(InvalidInputError, match="that SQLite accepts"):
        export_policy(Forests(min_samples_split=2).improve(np.linspace(0, 1, 200)[:, None] ** 9, values), "sql")


def test_moments_with_a_t_are_compared_as_those_with_a_space():
    frame = pd.DataFrame({"when": pd.date_range("2024-01-01", periods=300, freq="7h"), "a": ["x", "y"] * 150})
    frame["r"] = np.where((frame["when"] < "2024-02-01 10:00") == (frame["a"] == "x"), 1.0, 0.0)
    batch = Transitions.from_frame(frame, state="when", action="a", reward="r", discount=0)
    values = np.eye(2)[(frame["when"] >= "2024-02-01 10:00").astype(int)]
    policy = replace(Trees(max_depth=1).improve(batch.states, values), schema=batch.schema)
    wanted = [batch.schema.action_labels[a] for a in policy.act(batch.states)]
    for sep in ("T", " "):
        base = sqlite3.connect(":memory:")
        base.execute('create table t ("when" text)')
        base.executemany("insert into t values (?)", [(moment.isoformat(sep=sep),) for moment in frame["when"]])
        assert [row[0] for row in base.execute(f"select {export_policy(policy, 'sql')} from t")] == wanted
        base.close()
