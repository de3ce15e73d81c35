"""The page shows the certificate of its own policy, behind a link."""

import json

import pytest

from capi.errors import InvalidInputError
from capi.report import report_record, write_report
from capi.runs import certify_run
from capi.runs.certify import CERTIFICATE


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    from report.tables import fitted
    from report.test_robust import ROLES, table

    folder = fitted(tmp_path_factory.mktemp("certified"), table(), ROLES, "thresholds")
    certify_run(folder)
    return folder


@pytest.fixture
def changed(run):
    """A function that changes the certificate, which is restored afterwards."""
    text = (run / CERTIFICATE).read_text()
    yield lambda **changes: (run / CERTIFICATE).write_text(json.dumps({**json.loads(text), **changes}))
    (run / CERTIFICATE).write_text(text)


def test_the_page_shows_the_verdict_and_the_numbers(run):
    record, found = json.loads((run / CERTIFICATE).read_text()), report_record(run)["certificate"]
    assert [row["value"] for row in found["rows"]][:2] == [record["held_out_loss"], record["loss_bound"]]
    page = write_report(run).read_text()
    assert '<a href="#certificate">How sure it is</a>' in page
    assert found["verdict"] == record["verdict"]
    assert "The bound on the excess comes from 100 draws of random signs." in page
    assert "hold with probability 95.0 %" in page or "hold with probability 95 %" in page


def test_a_certificate_of_another_policy_is_left_out(run, changed):
    changed(policy="0" * 64)
    assert report_record(run)["certificate"] is None
    assert "How sure it is" not in write_report(run).read_text()


@pytest.mark.parametrize("value", [None, "x", [], True, 1e400, {}, 10**400])
def test_strange_values_are_left_out(run, changed, value):
    changed(loss_bound=value, delta=value, per_episode=value, n_draws=value, verdict="<b>&")
    assert write_report(run).read_text().count("&lt;b&gt;&amp;") == 1
    json.dumps(report_record(run)["certificate"], allow_nan=False)


def test_files_that_are_no_certificate_are_refused(run, changed):
    changed()
    (run / CERTIFICATE).write_text("{}")
    with pytest.raises(InvalidInputError, match=r"certificate\.json must be a file written by capi certify"):
        report_record(run)
