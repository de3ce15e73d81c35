import numpy as np
import pytest

from capi.domains import MountainCar
from capi.experiments.sensitivity import SEEDS, claims, figures, run, settings, summary, table
from capi.experiments.sensitivity.run import Mirrored, changed, collected
from capi.experiments.sensitivity.settings import BASE, CHANGES, METHODS, cases
from capi.testing import check_domain

SMALL = {
    "hiv": {"n_trees": 2, "n_patients": 2, "n_steps": 10, "n_rounds": 2, "n_iterations": 3, "refresh_every": 2},
    "mountain-car": {"n_samples": 100, "n_iterations": 3, "kappa": 5},
    "pole": {"n_trees": 2, "n_samples": 200, "n_iterations": 3},
}


def test_one_choice_is_changed_at_a_time():
    for setting in settings("full"):
        values = setting.values
        differing = [name for name, value in BASE[values["problem"]].items() if values[name] != value]
        assert differing == ([] if values["factor"] == "base" else [values["factor"]])
    assert SEEDS["full"] == 5
    assert {s.values["problem"] for s in settings("quick")} == {"mountain-car"}


def test_the_choices_that_the_paper_leaves_open_are_there():
    assert {"discount", "eta_v", "observe", "reward_on", "n_iterations", "ties"} <= set(CHANGES["hiv"])
    assert "ridge" in CHANGES["mountain-car"]
    assert "track_limit" in CHANGES["pole"]


@pytest.mark.parametrize("problem", BASE)
def test_every_case_runs(problem, monkeypatch):
    monkeypatch.setitem(
        BASE, problem, BASE[problem] | SMALL[problem] | ({"collecting_iterations": 2} if problem == "hiv" else {})
    )
    scores = {}
    for factor, level in cases(problem):
        values = BASE[problem] | ({} if factor == "base" else {factor: level}) | {"problem": problem}
        if factor == "n_iterations":
            values["n_iterations"] = 4
        found = run({**values, "method": METHODS[problem][1]}, seed=100)
        assert np.isfinite(found["score"])
        scores[factor, level] = found["score"]
    value_based = run({**BASE[problem], "problem": problem, "method": METHODS[problem][0]}, seed=100)
    assert np.isfinite(value_based["score"])


def test_all_cases_share_the_batch_of_a_seed(monkeypatch):
    monkeypatch.setitem(BASE, "hiv", BASE["hiv"] | SMALL["hiv"] | {"collecting_iterations": 2})
    batch = collected(3, 1)
    assert collected(3, 1) is batch
    other = changed(batch, rewards=batch.rewards + 1)
    np.testing.assert_array_equal(other.states, batch.states)
    np.testing.assert_array_equal(other.rewards, batch.rewards + 1)


def test_a_mirrored_domain_is_the_same_with_actions_the_other_way_round():
    cars = MountainCar()
    mirrored = Mirrored(cars)
    check_domain(mirrored)
    starts, rng = cars.initial(20, np.random.default_rng(0)), np.random.default_rng
    actions = np.arange(20) % 3
    for ours, theirs in zip(
        mirrored.step(starts, actions, rng(1)), cars.step(starts, 2 - actions, rng(1)), strict=True
    ):
        np.testing.assert_array_equal(ours, theirs)
    assert list(mirrored.action_labels) == list(cars.action_labels)[::-1]


def synthetic(lead, n_seeds=5):
    """Return records in which CAPI leads by 10 in the base case, and by ``lead`` in every other one."""
    return [
        {
            "problem": problem,
            "factor": factor,
            "level": level,
            "method": method,
            "seed": seed,
            "learning_cpu_seconds": 1.0,
        }
        | {"score": 100 + seed + (sign * (10 if factor == "base" else lead + 0.1 * seed) if number else 0.0)}
        for problem, sign in (("hiv", 1), ("mountain-car", -1))
        for factor, level in cases(problem)
        for number, method in enumerate(METHODS[problem])
        for seed in range(n_seeds)
    ]


@pytest.mark.parametrize(("lead", "n_seeds", "holds"), [(30, 5, True), (-30, 5, True), (9.8, 5, None), (30, 4, None)])
def test_only_a_clear_change_of_the_lead_is_a_verdict(lead, n_seeds, holds):
    found = claims(synthetic(lead, n_seeds))
    assert len(found) == sum(len(cases(problem)) - 1 for problem in BASE)
    assert {claim.holds for name, claim in found.items() if not name.startswith("pole")} == {holds}
    assert {claim.verdict for name, claim in found.items() if name.startswith("pole")} == {"open"}, "without runs"
    part = found["hiv/observe-counts"].differences["change of the lead"]
    assert part.mean == pytest.approx(lead - 10 + 0.05 * (n_seeds - 1))
    assert "states counts instead of log10" in found["hiv/observe-counts"].statement


def test_records_become_a_table_and_figures():
    rows = table(synthetic(5))
    _, headings, lines = summary(rows)
    assert [line[1] for line in lines if line[0] == "mountain-car"][:2] == ["base case", "discount 0.95"]
    assert len(headings) == len(lines[0])
    assert list(figures(rows)) == ["sensitivity-hiv.png", "sensitivity-mountain-car.png"]
    assert list(figures(rows[:1])) == []
