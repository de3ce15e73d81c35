"""Every sentence of the paper's experiments is judged by claims that exist."""

from pathlib import Path

import pytest

from capi.experiments import NAMES
from capi.experiments.experiment import Claim, load_experiment
from capi.experiments.overview import overview
from capi.experiments.records import Records
from capi.experiments.sentences import SENTENCES, judgements

REPRODUCTION = Path(__file__).parents[2] / "docs" / "reproduction"


@pytest.mark.skipif(not REPRODUCTION.exists(), reason="the records come with the repository only")
@pytest.mark.parametrize("name", SENTENCES)
def test_every_pattern_finds_claims_and_every_claim_judges_a_sentence(name):
    found = overview(name, REPRODUCTION / name)
    for one in found.judgements:
        assert (one.verdict is None) == (not one.sentence.claims)
        assert bool(one.claims) == bool(one.sentence.claims), one.sentence.says
        assert one.sentence.claims or one.sentence.ours, "a sentence that is not judged says what was done"
    assert {key for one in found.judgements for key in one.claims} == set(found.claims)


def claim(holds):
    return Claim("A is better.", "Section 1", holds, {})


@pytest.mark.parametrize(
    ("holds", "verdict"),
    [((True, True), "holds"), ((True, False), "holds in part"), ((False, False), "fails"), ((None, False), "open")],
)
def test_the_readings_of_a_sentence_are_judged_together(holds, verdict):
    claims = dict(
        zip(
            ("mean-loss/capi-leads-most-with-few-samples", "sum-loss/capi-leads-most-with-few-samples"),
            map(claim, holds),
            strict=True,
        )
    )
    [found] = [one for one in judgements("mountain-car", claims) if one.claims]
    assert found.verdict == verdict
    assert {one.verdict for one in judgements("mountain-car", {}) if one.sentence.claims} == {"open"}


def test_without_sentences_each_claim_is_one():
    found = judgements("theory", {"a": claim(True), "b": claim(None)})
    assert [(one.sentence.says, one.verdict) for one in found] == [("A is better.", "holds"), ("A is better.", "open")]


def test_an_overview_says_which_seeds_ran_and_what_they_cost(tmp_path):
    assert overview("sensitivity", tmp_path) is None
    records = Records(tmp_path / "records")
    settings = [s for s in load_experiment("sensitivity").settings("quick") if "/base/" in s.name]
    for seed, chosen in ((0, settings), (1, settings[:1]), (2, settings)):
        for setting in chosen:
            run = {
                "cpu_seconds": 1800.0,
                "seconds": 3600.0,
                "code": "",
                "versions": {"capi": "1.0"},
                "processor": "z80",
            }
            results = {"score": 60.0, "learning_cpu_seconds": 1.0}
            records.add(
                {"setting": setting.name, "seed": seed, "values": dict(setting.values), "results": results, "run": run}
            )
    found = overview("sensitivity", tmp_path)
    [group] = found.groups
    assert (group.name, group.n_records, group.seeds) == ("mountain-car", 5, ())
    assert (found.cost.n_runs, found.cost.cpu_hours, found.cost.hours) == (5, 2.5, 5.0)
    n_settings = len(load_experiment("sensitivity").settings("full"))
    assert (found.cost.full_runs, found.cost.full_cpu_hours) == (5 * n_settings, 5 * 2 * 0.5)
    assert found.cost.n_unknown == n_settings - 2
    assert found.made_by == {"capi 1.0 on z80": 5}
    assert found.title == NAMES["sensitivity"]
