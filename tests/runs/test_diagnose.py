"""A finished run is diagnosed, and the numbers are kept in its folder."""

import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from capi.cli import app
from capi.errors import InvalidInputError
from capi.files.policy_file import save_policy
from capi.policies import Constant, described
from capi.runs import diagnose_run, fit_run
from capi.runs.diagnose import DIAGNOSIS
from small_runs import settings_for


@pytest.fixture(scope="module")
def run(table, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    own = folder / "table.csv"
    shutil.copy(table, own)
    return fit_run(settings_for(str(own), n_iterations=2), folder / "run")


def test_the_numbers_are_kept_with_the_digest_of_the_policy(run):
    seen = []
    found = diagnose_run(run.folder, n_refits=2, shown=lambda items: seen.append(len(items)) or items)
    assert seen == [4]
    record = json.loads((run.folder / DIAGNOSIS).read_text())
    assert {name: record[name] for name in found.to_dict()} == found.to_dict()
    assert (record["format"], record["version"], len(record["policy"])) == ("capi diagnosis", 1, 64)


def test_the_command_prints_the_table_or_json(run):
    arguments = ["diagnose", str(run.folder), "--n-refits=2"]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    assert "leaving the log" in done.output
    assert f"diagnosis  {run.folder / DIAGNOSIS}" in done.output.replace("\n", "")
    done = CliRunner().invoke(app, [*arguments, "--json"])
    assert json.loads(done.stdout)["n_refits"] == 2


def test_runs_that_cannot_be_repeated_are_refused(run, tmp_path):
    copy = tmp_path / "run"
    shutil.copytree(run.folder, copy)
    other = described(Constant(2, 3), run.policy.schema, run.policy.training)
    save_policy(other, copy / "policy.capi")
    with pytest.raises(InvalidInputError, match="must give its policy again"):
        diagnose_run(copy, n_refits=1)
    table = Path(run.settings.table)
    text = table.read_text()
    try:
        table.write_text(text.replace("none", "nothing"))
        with pytest.raises(InvalidInputError, match="has changed since the policy was learned"):
            diagnose_run(run.folder)
        table.unlink()
        with pytest.raises(InvalidInputError, match="does not exist"):
            diagnose_run(run.folder)
    finally:
        table.write_text(text)
