"""What every experiment gets: the same files, all or none, and no finished run is done twice."""

import json
import sys
from types import ModuleType

import pytest

from capi.errors import InvalidInput
from capi.experiments import NAMES, driver
from capi.experiments.driver import JOURNAL, Claim, reproduce


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
    assert sorted(path.name for path in tmp_path.iterdir()) == [JOURNAL]
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
    text = (tmp_path / JOURNAL).read_text()
    (tmp_path / JOURNAL).write_text(text[: len(text) - 9])  # the machine went down while the second was written
    experiment.broken, experiment.calls = set(), []
    assert reproduce("toy", tmp_path).lines == [["1"], ["2"], ["3"]]
    assert experiment.calls == [2, 3]


def test_a_larger_size_goes_on_behind_the_smaller_one(experiment, tmp_path):
    experiment.broken = {3}
    with pytest.raises(KeyboardInterrupt):
        reproduce("toy", tmp_path)
    experiment.broken, experiment.calls = set(), []
    reproduce("toy", tmp_path, "full")
    assert experiment.calls == [3, 4]


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
    with pytest.raises(InvalidInput, match="size"):
        reproduce("toy", tmp_path, "huge")
    assert experiment.calls == []
