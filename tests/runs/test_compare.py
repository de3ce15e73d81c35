"""`capi compare`: policies of several runs on the same episodes."""

import json
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from capi.cli import app
from capi.errors import InvalidInputError
from capi.offline import compare
from capi.runs import compare_runs, fit_run, load_run
from small_runs import settings_for


@pytest.fixture(scope="module")
def runs(table, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    settings = settings_for(table, hold_out=0.4, n_iterations=2)
    smaller = replace(settings, roles={**settings.roles, "state": ["age"]})
    fit_run(settings, folder / "both")
    fit_run(smaller, folder / "age")
    fit_run(replace(settings, random_state=1), folder / "other")
    fit_run(replace(settings, hold_out=0.0), folder / "whole")
    return folder


@pytest.mark.filterwarnings("ignore::capi.errors.EvidenceWarning")
def test_two_runs_are_compared_on_the_episodes_that_both_held_out(runs):
    found = compare_runs([runs / "both", runs / "age"], n_resamples=20)
    [share] = found.same_decisions.values()
    assert 0 < share <= 1
    run = load_run(runs / "both")
    expected = compare({"both": run.policy}, run.settings.held_out(run.policy.schema), discount=0.8, n_resamples=20)
    name = str(runs / "both")
    assert found.values[name].estimate == pytest.approx(expected["both"].estimate)
    assert not any("learned from" in str(caveat) for caveat in found.values[name].warnings)
    assert " decide alike in " in str(found)


def test_other_episodes_are_a_table_and_known_ones_are_recognised(runs, table):
    done = CliRunner().invoke(
        app, ["compare", str(runs / "both"), str(runs / "whole"), "--table", table, "--n-resamples", "20", "--json"]
    )
    record = json.loads(done.stdout)
    caveats = record["policies"][str(runs / "whole")]["warnings"]
    assert any("learned" in json.dumps(caveat) for caveat in caveats)
    assert record["same_decisions"][0]["runs"] == [str(runs / "both"), str(runs / "whole")]


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["both"], "at least two different folders"),
        (["both", "both"], "at least two different folders"),
        (["both", "whole"], "held out none. Give --table"),
        (["both", "other"], "held out other episodes than"),
    ],
)
def test_runs_that_cannot_be_compared_are_refused(runs, names, message):
    with pytest.raises(InvalidInputError, match=message):
        compare_runs([runs / name for name in names])
