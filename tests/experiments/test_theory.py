"""The experiments on the analysis: settings, single runs, and claims from records that are made up."""

import json

import numpy as np
import pytest

from capi.experiments.experiment import load_experiment
from capi.experiments.theory import claims, figures, run, settings, summary, table
from capi.experiments.theory.figure import slope
from capi.experiments.theory.run import effort_of, gaps_of

ALL = settings("full")
QUICK = [s for s in ALL if s.values["problem"] not in ("hiv", "mountain-car") and s.values["group"] != "methods"]


def made_up(losses, n_seeds):
    """Return records whose losses are a function of the setting, the number of its level and the seed."""
    return [
        {
            "setting": s.name,
            **s.values,
            "seed": seed,
            "levels": s.values.get("levels", [0]),
            "losses": [losses(s.values, i, seed) for i in range(len(s.values.get("levels", [0])))],
        }
        for s in ALL
        for seed in range(n_seeds)
    ]


def as_claimed(values, i, seed):
    noise = 1 + 0.02 * np.random.default_rng([seed, i]).normal()
    level = values.get("levels", [1])[i]
    case, group = values["case"], values["group"]
    if group == "damping":
        return 0.1 * level ** (1 + (values["zeta"] or 1.0)) * noise
    if group == "rates":
        exponent = {"zeta-1": -1.0, "zeta-0.5": -0.75, "large-gaps": -3.0, "fits": -1.1, "does-not-fit": -0.5}[case]
        return level**exponent * noise
    better = case in ("late", "capi", "smooth/thresholds", "gap-weighted", "important", "uncertain")
    return (1.0 if better else 2.0) * noise


def the_other_way_round(values, i, seed):
    noise = 1 + 0.02 * np.random.default_rng([seed, i]).normal()
    level = values.get("levels", [1])[i]
    if values["group"] == "damping":
        return 0.1 * level**0.5 * noise
    if values["group"] == "rates":
        exponent = {"large-gaps": -0.1, "does-not-fit": -1.2}.get(values["case"], -0.3)
        return level**exponent * noise
    worse = values["case"] in ("late", "capi", "smooth/thresholds", "gap-weighted", "important", "uncertain")
    return (2.0 if worse else 1.0) * noise


def test_the_folder_is_found_by_its_name():
    assert load_experiment("theory").run is run
    assert len({s.name for s in ALL}) == len(ALL)
    assert all(json.loads(json.dumps(s.values)) == s.values for s in ALL)


def test_claims_follow_the_records():
    assert {claim.holds for claim in claims(made_up(as_claimed, 8)).values()} == {True}
    assert {claim.holds for claim in claims(made_up(the_other_way_round, 8)).values()} == {False}


def test_few_seeds_decide_nothing_and_some_records_are_enough():
    records = made_up(as_claimed, 2)
    assert {claim.holds for claim in claims(records).values()} == {None}
    json.dumps([claim.numbers for claim in claims(records[:1]).values()], allow_nan=False)
    assert claims([]).keys() == claims(records).keys()
    assert (
        {claim.verdict for claim in claims([]).values()}
        == {claim.verdict for claim in claims(records[:1]).values()}
        == {"open"}
    )
    rows = table(records)
    assert len(summary(rows)[2]) == len(ALL)
    assert set(figures(rows)) == {
        f"theory-{g}.png" for g in ("later", "damping", "rates", "methods", "regularities", "losses", "informative")
    }
    assert set(figures(table(records[:1]))) == {"theory-later.png"}


def test_schedules_have_the_same_budget():
    for n in (6, 8, 11):
        early, even, late = (effort_of(name, n) for name in ("early", "evenly", "late"))
        assert early.sum() == even.sum() == late.sum()
        assert early[0] > even[0] >= even[-1] > early[-1]
        np.testing.assert_array_equal(early[::-1], late)


def test_gaps_have_their_law():
    rng = np.random.default_rng(0)
    for zeta in (0.5, 2.0):
        gaps = gaps_of(zeta, 100_000, rng)
        assert np.mean(gaps <= 0.3) == pytest.approx(0.3**zeta, abs=0.01)
    assert (gaps_of(None, 3, rng) == 1).all()


def test_slopes_leave_out_levels_without_loss():
    assert slope({"levels": [1, 2, 4], "losses": [1.0, 0.25, 0.0]}) == pytest.approx(-2.0)
    assert np.isnan(slope({"levels": [1, 2], "losses": [1.0, 0.0]}))


@pytest.mark.parametrize("setting", QUICK, ids=lambda s: s.name)
def test_runs_give_the_same_losses_again(setting):
    values = {**setting.values, "levels": setting.values.get("levels", [0])[:2]}
    if "levels" not in setting.values:
        del values["levels"]
    first, second = run(values, 1), run(values, 1)
    assert first == second
    assert len(first["levels"]) == len(first["losses"])
    assert all(np.isfinite(first["losses"]))
    assert min(first["losses"]) >= 0


@pytest.mark.slow
@pytest.mark.parametrize("setting", [s for s in ALL if s not in QUICK], ids=lambda s: s.name)
def test_the_longer_runs_finish(setting):
    assert all(np.isfinite(run(setting.values, 1)["losses"]))
