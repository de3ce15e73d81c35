"""A finished run is certified, and the bounds are kept in its folder."""

import json

import pytest
from typer.testing import CliRunner

from capi.cli import app
from capi.runs import certify_run, fit_run
from capi.runs.certify import CERTIFICATE
from small_runs import settings_for


@pytest.fixture(scope="module")
def run(table, tmp_path_factory):
    return fit_run(settings_for(table, n_iterations=2), tmp_path_factory.mktemp("runs") / "run")


def test_the_bounds_are_kept_with_the_digest_of_the_policy(run):
    found = certify_run(run.folder, delta=0.1)
    record = json.loads((run.folder / CERTIFICATE).read_text())
    assert {name: record[name] for name in found.to_dict()} == found.to_dict()
    assert (record["format"], record["version"], len(record["policy"])) == ("capi certificate", 1, 64)


def test_the_command_prints_the_table_or_json(run):
    done = CliRunner().invoke(app, ["certify", str(run.folder)])
    assert done.exit_code == 0, done.output
    assert "held-out loss" in done.output
    assert f"certificate  {run.folder / CERTIFICATE}" in done.output.replace("\n", "")
    done = CliRunner().invoke(app, ["certify", str(run.folder), "--units", "rows", "--json"])
    assert json.loads(done.stdout)["units"] == "rows"
