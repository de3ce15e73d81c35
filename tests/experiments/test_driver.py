"""What every experiment gets: the same files, all or none, and no finished run is done twice."""

import json
import sys
from types import ModuleType

import pytest

from capi.errors import InvalidInputError
from capi.experiments import NAMES, driver
from capi.experiments.driver import JOURNAL, Claim, reproduce

QUICK = JOURNAL.format(size="quick")


@pytest.fixture
def experiment(monkeypatch):
    """Three settings; the second can be made to fail."""
    module = ModuleType("capi.experiments.toy")
    module.calls, module.broken = [], set()
    module.COLUMNS = ("x", "square")

    def run(setting):
        module.calls.append(setting["x"])
        if setting["x"] in module.broken:
            raise KeyboardInterrupt
        return {**setting, "square": setting["x"] ** 2}

    module.run = run
    module.settings = lambda size: [{"x": x} for x in ((1, 2, 3) if size == "quick" else (1, 2, 3, 4))]
    module.table = lambda records: [{"x": r["x"], "square": r["square"]} for r in records]
    module.summary = lambda rows: ("squares", ["x"], [[str(row["x"])] for row in rows])
    module.figures = lambda _: {}
    module.claims = lambda records: {"grows": Claim("They grow.", "nowhere", None, {"n": len(records)})}
    monkeypatch.setitem(NAMES, "toy", "squares")
    monkeypatch.setitem(sys.modules, "capi.experiments.toy", module)
    return module


def test_finished_runs_are_not_done_twice(experiment, tmp_path):
    experiment.broken = {3}
    with pytest.raises(KeyboardInterrupt):
        reproduce("toy", tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [QUICK]
    experiment.broken, experiment.calls = set(), []
    result = reproduce("toy", tmp_path)
    assert experiment.calls == [3]
    assert result.title == "squares"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["claims.json", "records.jsonl", "table.csv"]
    records = [json.loads(line) for line in (tmp_path / "records.jsonl").read_text().splitlines()]
    assert records == [{"x": x, "square": x * x} for x in (1, 2, 3)]
    assert json.loads((tmp_path / "claims.json").read_text())["grows"]["holds"] is None


def test_a_line_that_was_cut_off_is_run_again(experiment, tmp_path):
    experiment.broken = {3}
    with pytest.raises(KeyboardInterrupt):
        reproduce("toy", tmp_path)
    text = (tmp_path / QUICK).read_text()
    (tmp_path / QUICK).write_text(text[: len(text) - 9])  # the machine went down while the second was written
    experiment.broken, experiment.calls = set(), []
    assert reproduce("toy", tmp_path).lines == [["1"], ["2"], ["3"]]
    assert experiment.calls == [2, 3]


def test_a_quick_run_does_not_touch_what_a_full_one_has_finished(experiment, tmp_path):
    experiment.broken = {4}
    with pytest.raises(KeyboardInterrupt):
        reproduce("toy", tmp_path, "full")
    experiment.broken = set()
    reproduce("toy", tmp_path, "quick")
    experiment.calls = []
    reproduce("toy", tmp_path, "full")
    assert experiment.calls == [4]


def test_two_at_once_are_refused(experiment, tmp_path):
    run = experiment.run

    def second(setting):
        with pytest.raises(InvalidInputError, match="another process is at work"):
            reproduce("toy", tmp_path)
        return run(setting)

    experiment.run = second
    assert reproduce("toy", tmp_path).lines == [["1"], ["2"], ["3"]]


def test_a_folder_in_the_way_is_said(experiment, tmp_path):
    (tmp_path / QUICK).mkdir()
    with pytest.raises(InvalidInputError, match="cannot be written"):
        reproduce("toy", tmp_path)


def test_what_json_has_no_number_for_is_null(experiment, tmp_path):
    experiment.claims = lambda _: {"none": Claim("", "", None, {"se": float("nan"), "list": [float("inf"), 1.0]})}
    reproduce("toy", tmp_path)
    assert json.loads((tmp_path / "claims.json").read_text())["none"]["numbers"] == {"se": None, "list": [None, 1.0]}


def test_other_versions_do_not_share_runs(experiment, tmp_path, monkeypatch):
    experiment.broken = {3}
    with pytest.raises(KeyboardInterrupt):
        reproduce("toy", tmp_path)
    experiment.broken, experiment.calls = set(), []
    monkeypatch.setattr(driver, "versions", lambda: {"capi": "another"})
    reproduce("toy", tmp_path)
    assert experiment.calls == [1, 2, 3]


def test_after_all_is_done_it_is_done_anew(experiment, tmp_path):
    reproduce("toy", tmp_path)
    experiment.calls = []
    reproduce("toy", tmp_path)
    assert experiment.calls == [1, 2, 3]


def test_an_unknown_size_is_refused(experiment, tmp_path):
    with pytest.raises(InvalidInputError, match="size"):
        reproduce("toy", tmp_path, "huge")
    assert experiment.calls == []
