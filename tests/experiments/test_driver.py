"""What every experiment gets: the same files, all or none, from whatever is finished."""

import csv
import json

import pytest

import toy_experiment as toy
from capi.errors import CapiError, InvalidInputError
from capi.experiments.driver import recompute, reproduce
from capi.experiments.records import FILE, FOLDER, Records, without_timings

pytestmark = pytest.mark.usefixtures("toy_folder")


@pytest.fixture
def out(tmp_path):
    return tmp_path / "out"


def squares(folder):
    with (folder / "table.csv").open() as file:
        return [(int(row["x"]), int(row["seed"]), int(row["square"])) for row in csv.DictReader(file)]


def test_files_of_an_experiment(out):
    result = reproduce(toy, out)
    assert (result.title, result.lines) == ("squares", [["1"], ["2"], ["3"]])
    assert (result.n_finished, result.n_other_code, result.failed) == (3, 0, [])
    assert sorted(path.name for path in out.iterdir()) == ["claims.json", "records", "table.csv"]
    assert squares(out) == [(1, 0, 1), (2, 0, 4), (3, 0, 9)]
    claim = json.loads((out / "claims.json").read_text())["grows"]
    assert claim["holds"] is None
    assert claim["numbers"] == {"n": 3, "se": None, "list": [None, 1.0]}, "JSON has no number for these"


def test_more_seeds_and_the_other_size_add_to_what_is_finished(out):
    reproduce(toy, out)
    reproduce(toy, out, runs=2)
    assert len(toy.calls()) == 6
    assert reproduce(toy, out, "full").n_finished == 9
    assert len(toy.calls()) == 9
    assert reproduce(toy, out, runs=1).n_finished == 3, "the table has the seeds that were requested"


def test_without_runs_the_files_come_from_all_that_is_finished(out):
    reproduce(toy, out, runs=2)
    (out / "table.csv").unlink()
    result = reproduce(toy, out, runs=0)
    assert result.n_finished == 6
    assert squares(out) == [(x, seed, x * x) for seed in (0, 1) for x in toy.NUMBERS]
    assert len(toy.calls()) == 6


def test_without_runs_and_records_there_is_nothing_to_show(out):
    with pytest.raises(CapiError, match="no run is finished"):
        reproduce(toy, out, runs=0)


def test_a_failed_run_is_left_out_of_the_table(out):
    (toy.folder / "fail-2").touch()
    result = reproduce(toy, out)
    assert squares(out) == [(1, 0, 1), (3, 0, 9)]
    assert [record["setting"] for record in result.failed] == ["numbers/2"]


def test_if_all_fail_the_first_traceback_is_shown(out):
    for x in toy.NUMBERS:
        (toy.folder / f"fail-{x}").touch()
    with pytest.raises(CapiError, match=r"(?s)all 3 runs failed, the first with:.*cannot square 1"):
        reproduce(toy, out)
    assert not (out / "table.csv").exists()


def test_records_of_other_code_are_kept_and_counted(out):
    reproduce(toy, out)
    records = Records(out / FOLDER)
    [old, *_] = records
    records.add({**old, "run": {**old["run"], "code": "another"}})
    result = reproduce(toy, out)
    assert (result.n_finished, result.n_other_code) == (3, 1)
    assert len(toy.calls()) == 3


def test_where_nothing_is_random_one_seed_is_enough(out, monkeypatch):
    monkeypatch.setattr(toy, "SEEDS", {"quick": 1, "full": 1})
    assert reproduce(toy, out, runs=5).n_finished == 3


def test_one_record_alone_equals_the_one_in_the_list(out):
    reproduce(toy, out, runs=2)
    records = Records(out / FOLDER)
    listed = records.find(toy.settings("quick")[2], 1)
    found = recompute(toy, out, "numbers/3", 1)
    assert toy.calls()[-1] == (3, 1)
    assert len(toy.calls()) == 7
    assert found.former == listed
    assert found.differences == []
    assert without_timings(found.record) == without_timings(listed)
    assert records.find(toy.settings("quick")[2], 1) == found.record, "it takes the place of the former one"


def test_one_record_alone_says_where_it_differs(out):
    reproduce(toy, out)
    (toy.folder / "shifted").touch()
    assert recompute(toy, out, "numbers/3", 0).differences == ["square"]


def test_one_record_alone_needs_no_list(out):
    found = recompute(toy, out, "numbers/1", 7)
    assert (found.former, found.record["results"]["square"]) == (None, 1)
    assert reproduce(toy, out, runs=0).n_finished == 1


def test_a_failure_does_not_take_the_place_of_a_finished_record(out):
    reproduce(toy, out)
    (toy.folder / "fail-1").touch()
    found = recompute(toy, out, "numbers/1", 0)
    assert "cannot square 1" in found.record["error"]
    assert reproduce(toy, out, runs=0).n_finished == 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("numbers/4", 0), "has 3 settings, but none called 'numbers/4'. Close to it: numbers/"),
        (("", 0), "none called ''. Close to it: numbers/1"),
        (("numbers/1", -1), "the seed must be an integer, at least 0; got -1"),
    ],
)
def test_an_unknown_record_is_refused(out, arguments, message):
    with pytest.raises(InvalidInputError, match=message):
        recompute(toy, out, *arguments)
    assert toy.calls() == []


@pytest.mark.parametrize(
    ("options", "message"),
    [({"size": "huge"}, "size"), ({"runs": -1}, "runs must be an integer, at least 0"), ({"jobs": 0}, "jobs")],
)
def test_bad_options_are_refused(out, options, message):
    with pytest.raises(InvalidInputError, match=message):
        reproduce(toy, out, **options)
    assert toy.calls() == []


def test_a_damaged_file_of_records_is_named_and_kept(out):
    reproduce(toy, out)
    path = out / FOLDER / FILE.format(seed=0)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(InvalidInputError, match=r"seed-000.jsonl.gz must contain one record per line"):
        reproduce(toy, out)
    assert len(toy.calls()) == 3
