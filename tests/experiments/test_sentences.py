"""Every sentence of the paper's experiments is judged by claims that exist."""

from pathlib import Path

import pytest

from capi.experiments import NAMES
from capi.experiments.comparison import FEWEST_SEEDS
from capi.experiments.evidence import tally_text
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
    before = overview("sensitivity", tmp_path)
    assert (before.cost.n_runs, before.figures(), {claim.verdict for claim in before.claims.values()}) == (
        0,
        {},
        {"open"},
    )
    assert [group.text for group in before.groups] == ["none"] * 3
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
    groups = {group.name: group for group in found.groups}
    assert {name: group.n_records for name, group in groups.items()} == {"hiv": 0, "mountain-car": 5, "pole": 0}
    group = groups["mountain-car"]
    assert (group.n_settings, group.seeds) == (22, ())
    names = [setting.name.partition("/")[2] for setting in settings]
    assert group.text.startswith(f"0 to 2 ({names[0]}); 0, 2 ({names[1]}); none (discount-0.95/rfqi, ")
    assert found.n_runs_per_setting == (0, 3)
    assert (found.cost.n_runs, found.cost.cpu_hours, found.cost.hours) == (5, 2.5, 5.0)
    n_settings = len(load_experiment("sensitivity").settings("full"))
    assert (found.cost.full_runs, found.cost.full_cpu_hours) == (5 * n_settings, 5 * 2 * 0.5)
    assert len(found.cost.unknown) == n_settings - 2
    assert found.cost.not_counted.startswith(f"{n_settings - 2} settings that never ran: hiv/base/tree-fqi, ")
    assert found.versions == {}
    assert found.made_by == {"capi 1.0 on z80": 5}
    assert found.title == NAMES["sensitivity"]


@pytest.mark.skipif(not REPRODUCTION.exists(), reason="the records come with the repository only")
@pytest.mark.parametrize("name", NAMES)
def test_every_printed_interval_gives_the_verdict_beside_it(name):
    for claim in overview(name, REPRODUCTION / name).claims.values():
        for found in claim.differences.values():
            if found.n_seeds < FEWEST_SEEDS:
                assert found.supports is None
                continue
            low, high = limits_of(found.needed)
            inside, outside = low < found.low <= found.high < high, found.high < low or found.low > high
            if found.needed.startswith("not 0"):
                inside, outside = found.low > 0 or found.high < 0, outside or low < found.low <= found.high < high
                outside = outside and not inside and "fails" in found.needed
            assert found.supports is (True if inside else False if outside else None), found


def limits_of(needed):
    """Return the limits in the words of a judge."""
    numbers = [
        float(word.replace(",", "").rstrip(";")) for word in needed.split() if word[-1].isdigit() and word != "0"
    ]
    if needed.startswith("not 0"):
        return (-numbers[0], numbers[0]) if numbers else (float("-inf"), float("inf"))
    if needed.startswith("above"):
        return numbers[0] if numbers else 0.0, float("inf")
    return (float("-inf"), numbers[0]) if needed.startswith("below") else tuple(numbers)


def test_remarks_with_results_follow_from_the_claims():
    claims = load_experiment("chain").claims([])
    found = {one.sentence.says: one.ours for one in judgements("chain", claims)}
    assert not any(
        character.isdigit()
        for character in found["Variant 1 is designed so that the optimal policy is not in the space."]
    )
    name = "variant-1/success-0.7/optimal-policy-outside-space"
    claims[name] = Claim("", "", True, {"least_loss_in_space": 1.336})
    found = {one.sentence.says: one.ours for one in judgements("chain", claims)}
    assert found["Variant 1 is designed so that the optimal policy is not in the space."].endswith(
        "1.34 (success 0.7)."
    )


def test_the_tally_counts_the_parts_of_all_claims():
    claims = {"mean-loss/capi-leads": claim(True), "sum-loss/capi-leads": claim(False)}
    [found] = [one for one in judgements("mountain-car", claims) if one.claims]
    assert tally_text(found) == "1 of 2 parts holds, 1 fails"
    [alone] = [one for one in judgements("mountain-car", {"mean-loss/capi-leads": claim(True)}) if one.claims]
    assert tally_text(alone) == ""
