"""Odd tables, spoiled files and hostile numbers: the report is sane or says what is wrong."""

import json
import shutil

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from capi.data import Column
from capi.data.columns import DAY
from capi.errors import InvalidInputError
from capi.files.archive import read_archive, write_archive
from capi.loss import negligible_gap, second_best_gap
from capi.policies import Constant
from capi.policy_spaces.thresholds import Thresholds
from capi.report import panel as panels
from capi.report import report_record, write_report
from capi.report.charts import interval_picture, line_picture
from capi.report.columns import histogram, listed_values, scale_of
from capi.report.drawings import map_picture
from capi.report.evaluation import evaluation_record
from capi.report.maps import _backed, influences
from capi.report.page import script_json
from capi.report.panel import _cut_lists, _first_at_least, _last_at_most
from capi.report.record import MOST_RULE_LETTERS
from capi.report.sources import read_sources
from capi.report.svg import ticks
from capi.report.wording import label_texts, numbered, percent_text
from capi.runs import RunSettings, fit_run
from capi.runs.fit import digest
from report.tables import fitted, visits, with_policy
from report.test_record import EVALUATION

ROLES = {"state": ["age"], "action": "do", "reward": "gain"}


def table(n=60):
    ages = np.arange(float(n))
    treated = ages.astype(int) % 2 == 0
    return pd.DataFrame({"age": ages, "do": np.where(treated, "treat", "wait"), "gain": treated * (ages - n / 2)})


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    return fitted(tmp_path_factory.mktemp("plain"), table(), ROLES, "thresholds")


@pytest.fixture
def run(plain, tmp_path):
    """A copy of a run, with a table of its own."""
    shutil.copytree(plain.parent, tmp_path / "copy")
    folder = tmp_path / "copy" / "run"
    text = (folder / "settings.toml").read_text().replace(str(plain.parent), str(tmp_path / "copy"))
    (folder / "settings.toml").write_text(text)
    return folder


# where the page may go


def test_files_of_the_run_and_its_table_are_never_overwritten(run, tmp_path, monkeypatch):
    monkeypatch.setattr("capi.report.page.report_record", lambda *_: pytest.fail("refuse before anything is computed"))
    parquet = run.parent / "visits.parquet"
    (tmp_path / "link").symlink_to(parquet)
    (tmp_path / "hard").hardlink_to(parquet)
    ours = [run / name for name in ("settings.toml", "policy.capi", "history.csv", "values.zip", "evaluation.json")]
    ours += [run / "diagnosis.json"]
    ours += [run / "checkpoint.zip", run / ".lock", parquet, tmp_path / "link", tmp_path / "hard"]
    ours += [run / ".." / "visits.parquet", tmp_path / "copy" / "run" / ".." / "run" / "policy.capi"]
    before = parquet.read_bytes()
    for out in ours:
        with pytest.raises(InvalidInputError, match="which the report is built from"):
            write_report(run, out)
    assert parquet.read_bytes() == before


@pytest.mark.parametrize("name", ["x" * 300, "a\0b.html", "", ".", "..", "d", "y" * 300 + "/r.html", "\udfff" * 300])
def test_names_that_no_file_can_have_are_refused(run, tmp_path, name):
    (tmp_path / "d").mkdir()
    with pytest.raises(InvalidInputError, match=r"out must be"):
        write_report(run, tmp_path / name if name else "")


# tables and evaluations that are not the run's


def test_a_table_that_changed_in_one_number_is_refused(run):
    parquet = run.parent / "visits.parquet"
    frame = pd.read_parquet(parquet)
    frame.loc[3, "age"] = 3.5
    frame.to_parquet(parquet)
    with pytest.raises(InvalidInputError, match=r"has changed since the policy was learned\. Restore it, or fit again"):
        report_record(run)
    header, arrays = read_archive(run / "values.zip")
    write_archive(run / "values.zip", {key: value for key, value in header.items() if key != "table"}, arrays)
    with pytest.raises(InvalidInputError, match="has changed since the policy was learned"):  # by its episodes
        report_record(run)
    (run / "values.zip").unlink()
    with pytest.raises(InvalidInputError, match="has changed since the policy was learned"):
        report_record(run)


def test_the_evaluation_of_another_policy_is_left_out(run):
    own = {**EVALUATION, "policy": digest(run / "policy.capi")}
    (run / "evaluation.json").write_text(json.dumps(own))
    assert report_record(run)["head"]["estimate"] == 1.25
    (run / "evaluation.json").write_text(json.dumps({**own, "policy": "0" * 64}))
    record = report_record(run)
    assert record["evaluation"] is None
    assert record["head"]["estimate"] is None
    assert "belongs to another policy" in write_report(run).read_text()


# hostile numbers


@pytest.mark.parametrize(
    "column",
    [
        1e15 + np.arange(60) % 3, 1.7e18 + 256 * np.arange(60.0), 1e9 + np.arange(60) * 1e-6,
        np.where(np.arange(60) % 2, 1e308, -1e308), np.where(np.arange(60) % 2, 5e-324, 1.7e308),
        np.full(60, 1e308), np.full(60, 5e-324), np.arange(60) * 5e-324, np.zeros(60), -np.geomspace(1e-9, 1e9, 60),
        np.where(np.arange(60) % 2, 1.7e308, -5e-324),
    ],
)  # fmt: skip
def test_columns_of_extreme_numbers(run, tmp_path, column):
    frame = table().assign(age=column)
    frame.to_parquet(run.parent / "visits.parquet")
    (run / "values.zip").unlink()
    (run / "secret.json").unlink()
    batch = RunSettings.from_toml(run / "settings.toml").batch()
    middle = 0.5 * np.min(column) + 0.5 * np.max(column)
    if middle in (np.min(column), np.max(column)):
        middle = np.min(column)
    values = np.stack([np.where(column > middle, 1.0, -1.0), np.zeros(60)], axis=1)
    folder = with_policy(run, tmp_path / "odd", Thresholds().improve(batch.states, values), batch)
    record = report_record(folder, include_cases=True)
    json.dumps(record, allow_nan=False)
    for shown in record["panel"]["columns"]:
        assert shown["low"] < shown["high"]
        assert np.isfinite(shown["high"] - shown["low"])
        assert shown["log"] or shown["step"] > 0
    text = write_report(folder).read_text(encoding="utf-8")
    assert 'width="nan"' not in text
    assert 'x="inf"' not in text


def test_scales_of_large_and_close_numbers():
    close = scale_of(1e15 + np.arange(60) % 3)
    assert (close["low"], close["high"], close["step"]) == (1e15, 1e15 + 2, 1.0)
    whole = np.concatenate([np.arange(60_000.0), [0.5] * 6000])
    assert scale_of(whole % 40)["step"] < 1  # the first thousand rows are whole numbers, the others are not


def test_whole_numbers_have_whole_bins():
    edges = histogram(Column("x"), np.repeat(np.arange(100.0), 3)[:, None])["edges"]
    assert all((edge - 0.5).is_integer() for edge in edges)


def test_values_that_are_no_numbers_are_refused(run):
    header, arrays = read_archive(run / "values.zip")
    values = arrays["values"].copy()
    for spoil in (np.nan, np.inf):
        values[3, 0] = spoil
        write_archive(run / "values.zip", header, {"values": values})
        with pytest.raises(InvalidInputError, match=r"values\.zip must hold finite"):
            report_record(run)


def test_histories_of_extreme_numbers(run):
    rows = [
        "k,loss,changed,value",
        "0,1e308,0.5,-1e308",
        "1,5e-324,5e-324,1e308",
        "2,-1e308,0,5e-324",
        "3,nan,inf,1",
        "1e308,1,1,1",
    ]
    (run / "history.csv").write_text("\n".join(rows) + "\n")
    text = write_report(run).read_text()
    assert "nan" not in text.split('id="converged"')[1].split("</section>")[0]


def test_a_range_that_is_only_rounding_is_drawn_as_constant():
    flat = line_picture([0, 1, 2], [1.0, 1.0 + 1e-13, 1.0], "Loss")
    points = flat.split('d="M')[1].split('"')[0].split("L")
    assert len({point.split()[1] for point in points}) == 1
    assert line_picture([0, 1], [1.0, 1.0 + 1e-6], "Loss").count("circle") == 4


def test_ticks_stay_inside():
    for low, high in ((1e17, 1e17 + 64), (0.0, 5e-324), (-1e308, 1e308), (1e15, 1e15 + 2), (0.0, 1.0)):
        assert all(low <= tick <= high for tick in ticks(low, high))


# evaluation.json


@pytest.mark.parametrize(
    "change",
    [
        {"estimates": 5}, {"interval": 5}, {"warnings": 5}, {"interval": [1]}, {"estimates": [5]}, {"behaviour": 3},
        {"overlap": []}, {"warnings": "text"}, {"warnings": [{"text": "no kind"}]},
        {"warnings": [{"kind": "few-episodes", "text": "3", "severity": "severe", "count": "3"}]},
    ],
)  # fmt: skip
def test_evaluations_of_wrong_types_are_refused(run, change):
    (run / "evaluation.json").write_text(json.dumps({**EVALUATION, **change}))
    with pytest.raises(InvalidInputError, match=r"evaluation\.json"):
        write_report(run)


def test_evaluations_that_are_too_deep_or_no_text_are_refused(run):
    for content in (b"[" * 100_000, b'{"a":' * 100_000, b"\xff\xfe", b"9" * 10_000):
        (run / "evaluation.json").write_bytes(content)
        with pytest.raises(InvalidInputError, match=r"evaluation\.json"):
            write_report(run)


@pytest.mark.parametrize("x", [1e308, -1e308, 5e-324, int("9" * 400), True, "1", None])
def test_evaluations_of_extreme_numbers_are_told(run, x):
    row = {"policy": "\ud800", "method": "m", "estimate": x, "standard_error": x, "low": x, "high": 1.0}
    changes = {
        "estimate": x,
        "interval": [x, x],
        "level": x,
        "n_rows": x,
        "discount": x,
        "extrapolated_share": x,
        "difference": row,
    }
    found = {
        **EVALUATION,
        **changes,
        "estimates": [row, {**row, "estimate": 2.0}],
        "verdict": "\udfff",
        "warnings": ["\ud800", x],
    }
    (run / "evaluation.json").write_text(json.dumps(found))
    text = write_report(run).read_text(encoding="utf-8")
    worth = text.split('id="worth"')[1].split("</section>")[0]
    assert "nan" not in worth.lower()
    assert "inf" not in worth.replace("information", "")


def json_values():
    leaves = st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=5) | st.just(10**400)
    return st.recursive(
        leaves,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
        max_leaves=6,
    )


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.dictionaries(st.sampled_from(sorted(EVALUATION)), json_values(), max_size=8),
    st.dictionaries(st.sampled_from(["estimate", "low", "high", "standard_error", "policy", "method"]), json_values()),
)
def test_any_evaluation_is_told_or_refused(changes, row):
    from capi.report.evaluation import checked_evaluation

    found = {**EVALUATION, "estimates": [row], "difference": row, **changes, "format": "capi evaluation"}
    try:
        checked = checked_evaluation(json.loads(json.dumps(found)))
    except InvalidInputError:
        return
    record = evaluation_record(checked)
    json.dumps(record, allow_nan=False, ensure_ascii=False).encode("utf-8")
    picture = interval_picture(record["rows"]) + interval_picture([record["gain"]] if record["gain"] else [], zero=True)
    assert "nan" not in picture.split(">", 1)[-1] or "nan" in json.dumps(found).lower()


def test_asymptotic_ends_stand_in_for_those_that_are_not_there():
    row = {"policy": "p", "method": "m", "estimate": 1.0, "low_asymptotic": 0.5, "high_asymptotic": 1.5}
    found = evaluation_record({**EVALUATION, "estimates": [row]})["rows"][0]
    assert (found["low"], found["high"]) == (0.5, 1.5)


# what is kept, what matters, what sways


def test_the_kept_iteration_is_told(tmp_path):
    frame = table()
    frame.to_parquet(tmp_path / "t.parquet")
    asked = RunSettings(
        str(tmp_path / "t.parquet"), ROLES, discount=0.5, n_iterations=12, space="thresholds", keep="best",
        evaluator_options={"n_trees": 3, "n_sweeps": 1},
    )  # fmt: skip
    result = fit_run(asked, tmp_path / "run")
    kept = result.policy.training.n_iterations
    record = report_record(result.folder)
    assert record["convergence"]["kept"] == kept
    assert record["making"]["kept"] == kept
    assert record["making"]["n_iterations"] == 12
    assert record["convergence"]["score"][:2] == [None, None]
    text = write_report(result.folder).read_text()
    assert f"Iteration {kept} of 12 was kept: the best of 6 by their value in a model of the table" in text
    assert "had not converged" not in text
    assert f"iteration {kept} was kept" in text
    assert f"12 (number {kept} was kept)" in text
    assert "value in a model of the table" in text


def test_a_score_in_simulated_episodes_is_called_so(tmp_path):
    frame = table().assign(patient=np.repeat(np.arange(6), 10), day=np.tile(np.arange(10), 6))
    frame.to_parquet(tmp_path / "t.parquet")
    asked = RunSettings(
        str(tmp_path / "t.parquet"), {**ROLES, "episode": "patient", "time": "day"}, discount=0.5, n_iterations=3,
        space="thresholds", keep="best", evaluator_options={"n_trees": 3},
    )  # fmt: skip
    result = fit_run(asked, tmp_path / "run")
    assert all({"score", "careful_score"} <= set(row) for row in result.history)
    text = write_report(result.folder).read_text()
    kept = result.policy.training.n_iterations
    assert f"Iteration {kept} of 3 was kept: the best of 3 in simulated episodes" in text
    assert "value in a model of the table" not in text


def test_what_hardly_matters_has_one_definition(run):
    header, _ = read_archive(run / "values.zip")
    values = np.zeros((60, 2))
    values[:, 0] = np.repeat([0.0, 1.0, 2.0, 100.0, 1e6], [20, 10, 20, 8, 2])  # the last two do not count
    write_archive(run / "values.zip", header, {"values": values})
    limit, gaps = negligible_gap(values), second_best_gap(values)
    assert limit == pytest.approx(1.0)
    stakes = report_record(run)["stakes"]
    assert stakes["limit"] == pytest.approx(limit)
    assert stakes["share_hardly"] == pytest.approx(np.mean(gaps <= limit))
    assert stakes["share_hardly"] == 0.5  # gaps of exactly the limit are in it


def test_influence_is_that_of_dealing_anew(tmp_path):
    frame = table(200).assign(age=np.where(np.arange(200) % 10, 6.0, 5.0))  # one in ten
    run = fitted(tmp_path, frame, ROLES, "thresholds")
    batch = RunSettings.from_toml(run / "settings.toml").batch()
    values = np.stack([batch.states[:, 0] - 5.5, np.zeros(200)], axis=1)
    run = with_policy(run, tmp_path / "known", Thresholds().improve(batch.states, values), batch)
    [(number, share)] = influences(read_sources(run), [0])
    assert number == 0
    assert 0.1 < share < 0.26  # 2 * 0.9 * 0.1
    constant = with_policy(
        run,
        tmp_path / "shifted",
        Thresholds().improve(batch.states, np.stack([np.ones(200), np.zeros(200)], axis=1)),
        batch,
    )
    assert influences(read_sources(constant), [0])[0][1] == 0


def test_map_cells_without_rows_are_pale():
    cell = np.concatenate([np.zeros(50), np.full(4, 59)]).astype(np.int64)
    axis = {"cell_of": cell}
    backed = _backed([axis], (1, 60))
    assert backed[0, 0]
    assert not backed[0, 59]
    assert not backed[0, 30]
    spread = np.tile(np.arange(60), 1)  # sixty rows, one in each cell: a grid as fine as for thousands would be empty
    assert _backed([{"cell_of": spread}], (1, 60)).all()


@pytest.mark.parametrize("sign", [1, -1])
def test_more_and_less_are_told_apart(run, sign):
    header, _ = read_archive(run / "values.zip")
    record = report_record(run)
    sources = read_sources(run)
    values = np.zeros((60, 2))
    values[np.arange(60), sources.decisions] = sign * 3.0
    differs = int((sources.decisions != sources.batch.actions).sum())
    assert 5 <= differs <= 55
    write_archive(run / "values.zip", header, {"values": values})
    text = write_report(run).read_text()
    assert f" {'more' if sign > 0 else 'less'} than the logged ones" in text
    assert record["differences"]["agreement"] == pytest.approx(1 - differs / 60)


# names, budgets and small words


def test_words_that_cannot_be_told_apart_get_numbers():
    assert numbered(["a", "b", "a", "a (2)", "a"]) == ["a", "b", "a (3)", "a (2)", "a (4)"]
    long = "x" * 299
    listed = listed_values(Column("c", "one-hot", ("", " ", long + "aa", long + "bb", 3, 2**60)))
    assert listed[0] == [0, "", "''"]
    assert listed[1] == [1, " ", "' '"]
    assert listed[2][1] != listed[3][1]
    assert [entry[1] for entry in listed[4:]] == [3, str(2**60)]
    assert len(set(label_texts([long + "aa", long + "bb", ""]))) == 3


def test_lists_of_categories_have_a_budget(monkeypatch):
    monkeypatch.setattr(panels, "MOST_LISTED_LETTERS", 1000)
    columns = [{"values": [[i, "w" * 20] for i in range(200)]}, {"values": [[0, "a"], [1, "b"]]}, {"name": "number"}]
    _cut_lists(columns)
    assert columns[1]["values"] == [[0, "a"], [1, "b"]]
    assert len(json.dumps(columns[0]["values"], separators=(",", ":"))) < 1000
    assert columns[0]["n_not_listed"] == 200 - len(columns[0]["values"]) < 200
    hostile = [{"values": [[i, "<" * 20] for i in range(200)]}]
    _cut_lists(hostile)
    assert len(script_json(hostile[0]["values"])) <= 1000


def test_all_parts_of_a_page_have_room_on_it():
    parts = [panels.MOST_LETTERS, panels.MOST_CASE_LETTERS, panels.MOST_WORD_LETTERS, 2 * panels.MOST_LISTED_LETTERS]
    assert sum(parts) + MOST_RULE_LETTERS < 5_000_000


def test_long_words_do_not_make_long_pages(tmp_path):
    rng = np.random.default_rng(0)
    words = [f"{i:03d}" + "w" * 20_000 for i in range(30)]
    frame = pd.DataFrame(
        {"word": rng.choice(words, 600), "kind": rng.choice(words[:9], 600), "do": rng.choice(words[:3], 600)}
    )
    frame["gain"] = (frame["word"] > words[15]) * (frame["do"] == words[0]) + (frame["kind"] == words[3]) * 1.0
    run = fitted(tmp_path, frame, {"state": ["word", "kind"], "action": "do", "reward": "gain"}, max_depth=4)
    assert write_report(run).stat().st_size < 1_000_000


def test_dates_are_compared_as_the_policy_does():
    rng = np.random.default_rng(0)
    for origin in ("1931-07-23", "2021-03-04T00:00:00"):
        column = Column("d", "date", origin=origin)
        for days in [0.0, 1.0, -3.25, *rng.uniform(-20_000, 60_000, 40), *(rng.integers(0, 10**15, 40) / DAY)]:
            since = int(np.floor(days)) * DAY + int((days - np.floor(days)) * DAY)
            for us in range(since - 3, since + 4):
                whole, rest = divmod(us, DAY)
                x, on_page = whole + rest / DAY, us + column.origin_microseconds
                assert (x <= days) == (on_page <= _last_at_most(column, float(days)))
                assert (x >= days) == (on_page >= _first_at_least(column, float(days)))


def test_one_action_and_no_future(tmp_path):
    with pytest.raises(InvalidInputError, match="at least two actions"):
        fitted(tmp_path / "one", table().assign(do="wait"), ROLES, "thresholds")
    frame = table()
    frame.to_parquet(tmp_path / "t.parquet")
    asked = RunSettings(str(tmp_path / "t.parquet"), ROLES, discount=0.0, n_iterations=1, space="thresholds")
    text = write_report(fit_run(asked, tmp_path / "run").folder).read_text()
    assert "over time" not in text
    assert "in each decision separately" in text


def test_more_actions_than_colours_are_numbered():
    axis = {"name": "x", "low": 0.0, "high": 1.0, "log": False, "ends": None}
    record = {"axes": [axis], "shape": [1, 10], "runs": [[0, 0, 5, 1, 1], [0, 5, 5, 9, 1]]}
    assert ">10</text>" in map_picture(record, [f"a{i}" for i in range(10)])
    assert ">2</text>" in map_picture(record, [f"a{i}" for i in range(10)])
    assert 'class="number"' not in map_picture({**record, "runs": [[0, 0, 10, 1, 1]]}, ["a", "b"])


def test_an_imitating_tree_says_so_in_its_drawing(run_of):
    text = write_report(run_of("neighbors")[0]).read_text()
    assert "not the policy itself, but a tree that imitates it</text>" in text
    assert "not the policy itself" not in write_report(run_of("tree")[0]).read_text()


def test_minus_signs_are_minus_signs():
    assert percent_text(-0.25) == "\N{MINUS SIGN}25.0 %"
    assert percent_text(-1e-9) == "0.0 %"
    assert percent_text(1e300) == "1·10³⁰² %"


def test_rules_have_a_budget_of_letters(run_of, monkeypatch):
    monkeypatch.setattr("capi.report.record.MOST_RULE_LETTERS", 200)
    rules = report_record(run_of("large tree")[0])["learned"]["rules"]
    assert len(rules["text"]) <= 200
    assert rules["n_left_out"] > 0


def test_a_constant_policy_of_a_run_with_masks_is_reported(run, tmp_path):
    batch = RunSettings.from_toml(run / "settings.toml").batch()
    folder = with_policy(run, tmp_path / "constant", Constant(0, 2), batch)
    assert report_record(folder)["differences"]["decided"] == [1.0, 0.0]


def test_visits_have_no_small_numbers(base):
    actions = report_record(base[True])["data"]["actions"]
    counts = visits(missing=True)["drug"].value_counts()
    assert {a["action"]: a["rows"] for a in actions} == counts.to_dict()


def test_a_cost_is_minimised(tmp_path):
    frame = table().assign(gain=lambda frame: -frame["gain"])
    run = fitted(tmp_path, frame, {"state": ["age"], "action": "do", "cost": "gain"}, "thresholds")
    head = report_record(run)["head"]
    assert (head["reward_column"], head["is_cost"]) == ("gain", True)
    page = write_report(run, tmp_path / "page.html").read_text(encoding="utf-8")
    assert "to minimise " in page
    assert "Mean cost" in page
