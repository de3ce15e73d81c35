import numpy as np
import pytest

from capi.domains import MountainCar
from capi.experiments.driver import load_experiment
from capi.experiments.mountain_car import claims, figures, run, settings, summary, table
from capi.experiments.mountain_car.run import batch_of
from capi.experiments.mountain_car.settings import KAPPA, LEARNING, SAMPLES, SEEDS

SIZES = (200, 500, 2000)
KAPPAS = (1, 75, 200)


def made_up(steps, seeds):
    """Return records whose steps are a function of kappa, the number of samples and the seed."""
    return [
        {
            "method": "RFQI" if kappa is None else "KNN-CAPI",
            "kappa": kappa,
            "n_samples": n,
            "seed": seed,
            "steps": steps(kappa, n, seed),
            "return": -steps(kappa, n, seed) / 2,
            "steps_mean_last": 70.0,
            "return_mean_last": -35.0,
            "n_goals": 3,
            "seconds": 1.0,
        }
        for seed in range(seeds)
        for n in SIZES
        for kappa in (None, *KAPPAS)
    ]


def as_in_the_paper(kappa, n, seed):
    noise = np.random.default_rng([seed, n, kappa or 0]).normal()
    if kappa is None:
        return 100 - 45 * (n / 2000) + noise
    if kappa == KAPPA:
        return 58 - 8 * (n / 2000) + noise
    return 90 - 20 * (n / 2000) + noise


def the_other_way_round(kappa, n, seed):
    noise = np.random.default_rng([seed, n, kappa or 0]).normal()
    return 90 + (0 if kappa is None else 20 if kappa == KAPPA else 5) + (n / 200) * (kappa == KAPPA) + noise


def test_the_folder_is_found_by_its_name():
    assert load_experiment("mountain-car").run is run


def test_sizes():
    full, quick = settings("full"), settings("quick")
    assert {s["n_samples"] for s in full} == set(SAMPLES)
    assert {s["seed"] for s in full} == set(range(SEEDS))
    assert all({None, KAPPA} <= {s["kappa"] for s in full if s["n_samples"] == n} for n in SAMPLES)
    assert all(s["kappa"] is None or 2 * s["kappa"] <= s["n_samples"] for s in full + quick)
    assert len(quick) < 50


def test_a_batch_has_exactly_the_samples_asked_for():
    batch = batch_of(MountainCar(), 6000, np.random.default_rng(0))
    assert len(batch) == 6000
    assert batch.episode_lengths.max() == 100
    ends = np.append(batch.episodes[1:] != batch.episodes[:-1], True)
    assert (batch.terminated[ends] | (batch.episode_lengths == 100))[:-1].all()
    assert not batch.terminated[~ends].any()


def test_a_smaller_batch_is_the_beginning_of_a_larger_one():
    small, large = (batch_of(MountainCar(), n, np.random.default_rng(7)) for n in (300, 900))
    np.testing.assert_array_equal(small.states, large.states[:300])
    np.testing.assert_array_equal(small.actions, large.actions[:300])


@pytest.mark.parametrize("kappa", [None, 40])
def test_a_small_batch_is_enough_to_do_better_than_at_random(kappa):
    setting = {"kappa": kappa, "n_samples": 600, "seed": 2, **LEARNING, "n_iterations": 60, "n_last": 2}
    record = run(setting)
    assert record["steps"] < 120  # random actions take 162
    assert -49.2 < record["return"] < -25
    assert record["n_goals"] > 0
    assert run(setting) == {**record, "seconds": pytest.approx(0, abs=60)}


def test_records_become_a_table_and_figures():
    rows = table(made_up(as_in_the_paper, 4))
    assert len(rows) == 4 * 3 * 4
    _, headings, lines = summary(rows)
    assert headings == ["method", "kappa", "runs", "200", "500", "2000"]
    assert [line[:3] for line in lines] == [["RFQI", "", "4"], *(["KNN-CAPI", str(kappa), "4"] for kappa in KAPPAS)]
    drawn = figures(rows)
    assert sorted(drawn) == ["mountain-car-kappa.png", "mountain-car-samples.png"]
    assert all(len(figure.axes) == 2 for figure in drawn.values())
    figures(rows[:4])  # one seed has no standard errors


def test_claims_hold_where_the_numbers_are_the_papers():
    assert {key: claim.holds for key, claim in claims(made_up(as_in_the_paper, 12)).items()} == {
        "both-learn-a-reasonable-policy": True,
        "capi-leads": True,
        "capi-leads-most-with-few-samples": True,
        "capi-is-reasonable-more-often": True,
        "kappa-makes-a-big-difference-with-few-samples": True,
        "kappa-makes-a-difference-with-many-samples": True,
        "kappa-has-an-optimum": True,
    }


def test_claims_fail_where_the_numbers_are_not():
    assert {key: claim.holds for key, claim in claims(made_up(the_other_way_round, 12)).items()} == {
        "both-learn-a-reasonable-policy": False,
        "capi-leads": False,
        "capi-leads-most-with-few-samples": True,  # it lags by more with many
        "capi-is-reasonable-more-often": None,  # neither ever is
        "kappa-makes-a-big-difference-with-few-samples": True,
        "kappa-makes-a-difference-with-many-samples": True,
        "kappa-has-an-optimum": False,
    }


def test_where_all_is_the_same_nothing_but_the_level_is_decided():
    verdicts = {key: claim.holds for key, claim in claims(made_up(lambda kappa, n, seed: 55.0, 12)).items()}
    assert verdicts.pop("both-learn-a-reasonable-policy") is True
    assert verdicts.pop("kappa-makes-a-big-difference-with-few-samples") is False
    assert set(verdicts.values()) == {None}


def test_few_runs_decide_nothing():
    assert {claim.holds for claim in claims(made_up(as_in_the_paper, 4)).values()} == {None}


def test_runs_without_the_papers_kappa_or_with_one_kappa_decide_little():
    records = [r for r in made_up(as_in_the_paper, 12) if r["kappa"] in (None, 1)]
    assert {claim.holds for claim in claims(records).values()} <= {None, False}
