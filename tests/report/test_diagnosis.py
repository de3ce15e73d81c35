"""The page shows the diagnosis of its own policy, with no number that stands for a few rows."""

import json

import pytest

from capi.errors import InvalidInputError
from capi.report import report_record, write_report
from capi.runs import diagnose_run
from capi.runs.diagnose import DIAGNOSIS


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    from report.tables import fitted
    from report.test_robust import ROLES, table

    folder = fitted(tmp_path_factory.mktemp("diagnosed"), table(), ROLES, "thresholds")
    diagnose_run(folder, n_refits=2)
    return folder


@pytest.fixture
def changed(run):
    """A function that changes the diagnosis, which is restored afterwards."""
    text = (run / DIAGNOSIS).read_text()
    yield lambda **changes: (run / DIAGNOSIS).write_text(json.dumps({**json.loads(text), **changes}))
    (run / DIAGNOSIS).write_text(text)


def test_the_page_shows_the_parts_and_the_advice(run):
    record = json.loads((run / DIAGNOSIS).read_text())
    found = report_record(run)["diagnosis"]
    assert [row["value"] for row in found["rows"]] == [record[name] for name in ("evaluator", "space", "sample", "log")]
    page = write_report(run).read_text()
    assert "What limits it" in page
    assert found["advice"] == record["advice"]
    assert "Refitted on resampled episodes (2 times)" in page


def test_a_diagnosis_of_another_policy_is_left_out(run, changed):
    changed(policy="0" * 64)
    assert report_record(run)["diagnosis"] is None
    assert "What limits it" not in write_report(run).read_text()


def test_shares_of_few_rows_are_hidden(run, changed):
    changed(left_by_rows=2 / 60)
    assert report_record(run)["diagnosis"]["left"] is None
    changed(left_by_rows=20 / 60)
    assert report_record(run)["diagnosis"]["left"] == "33.3 %"


@pytest.mark.parametrize("value", [None, "x", [], True, 1e400, -1, {}, 10**400])
def test_strange_values_are_left_out(run, changed, value):
    changed(space=value, same_root=value, n_refits=value, n_rows=value, left_by_rows=value, advice="<b>&")
    assert write_report(run).read_text().count("&lt;b&gt;&amp;") == 1
    json.dumps(report_record(run)["diagnosis"], allow_nan=False)


@pytest.mark.parametrize("text", ["", "[]", "{}", "[" * 100_000, "\udcff"])
def test_files_that_are_no_diagnosis_are_refused(run, changed, text):
    changed()
    (run / DIAGNOSIS).write_text(text, errors="surrogateescape")
    with pytest.raises(
        InvalidInputError, match=r"diagnosis\.json (cannot be read|must be a file written by capi diagnose)"
    ):
        report_record(run)
