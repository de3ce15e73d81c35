import numpy as np
import pytest

from capi.domains import MountainCar
from capi.experiments.experiment import load_experiment
from capi.experiments.mountain_car import claims, figures, run, settings, summary, table
from capi.experiments.mountain_car.run import batch_of
from capi.experiments.mountain_car.settings import KAPPA, LEARNING, SAMPLES

SIZES = (200, 500, 2000)
KAPPAS = (1, 75, 200)


def made_up(steps, seeds, group="mean-loss"):
    """Return records whose steps are a function of kappa, the number of samples and the seed."""
    return [
        {
            "group": group,
            "method": "RFQI" if kappa is None else "KNN-CAPI",
            "kappa": kappa,
            "n_samples": n,
            "seed": seed,
            "steps": steps(kappa, n, seed),
            "return": -steps(kappa, n, seed) / 2,
            "last_steps": [60.0, 80.0],
            "last_returns": [-30.0, -40.0],
            "n_goals": 3,
            "learning_cpu_seconds": 1.0,
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
    assert len({s.name for s in full}) == len(full)
    values = [s.values for s in full]
    assert {v["n_samples"] for v in values} == set(SAMPLES)
    assert all({None, KAPPA} <= {v["kappa"] for v in values if v["n_samples"] == n} for n in SAMPLES)
    assert all(v["kappa"] is None or 2 * v["kappa"] <= v["n_samples"] for v in values)
    assert len(quick) < 50


def test_lambda_is_read_in_both_ways():
    """0.01 / n times n, or not times n."""
    ridges = {(s.values["group"], s.values["n_samples"], s.values["ridge"]) for s in settings("full")}
    assert ridges == {("mean-loss", n, 0.01) for n in SAMPLES} | {("sum-loss", n, 0.01 / n) for n in SAMPLES}


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
    values = {"kappa": kappa, "n_samples": 600, "ridge": 0.01, **LEARNING, "n_iterations": 60, "n_last": 2}
    record = run(values, seed=2)
    assert record["steps"] < 120  # random actions take 162
    assert -49.2 < record["return"] < -25
    assert record["n_goals"] > 0
    assert (record["last_steps"][-1], record["last_returns"][-1]) == (record["steps"], record["return"])
    again = run(values, seed=2)
    assert {**again, "learning_cpu_seconds": record["learning_cpu_seconds"]} == record


def test_records_become_a_table_and_figures():
    rows = table(made_up(as_in_the_paper, 4))
    assert len(rows) == 4 * 3 * 4
    _, headings, lines = summary(rows)
    assert headings == ["group", "method", "kappa", "runs", "200", "500", "2000"]
    assert [line[1:4] for line in lines] == [["RFQI", "", "4"], *(["KNN-CAPI", str(kappa), "4"] for kappa in KAPPAS)]
    assert {(row["steps_mean_last"], row["return_mean_last"]) for row in rows} == {(70.0, -35.0)}
    drawn = figures(rows)
    assert sorted(drawn) == ["mountain-car-kappa-mean-loss.png", "mountain-car-samples-mean-loss.png"]
    assert all(len(figure.axes) == 2 for figure in drawn.values())
    figures(rows[:4])  # one seed has no standard errors


def of_mean_loss(records):
    found = {key: claim.holds for key, claim in claims(records).items()}
    assert {holds for key, holds in found.items() if key.startswith("sum-loss")} == {None}, "without runs"
    return {key: holds for key, holds in found.items() if key.startswith("mean-loss")}


@pytest.mark.parametrize(("more", "verdict"), [(2.0, True), (30.0, False), (10.0, None)])
def test_the_chosen_kappa_may_be_a_little_worse_than_the_best(more, verdict):
    steps = lambda kappa, n, seed: 60.0 + (more + seed % 3 - 1) * (kappa == KAPPA) + 40 * (kappa == 1)  # noqa: E731
    records = [
        record | {"n_samples": n, "steps": steps(record["kappa"], n, record["seed"])}
        for n in SAMPLES
        for record in made_up(as_in_the_paper, 12)
        if record["n_samples"] == SIZES[0]
    ]
    assert claims(records)["mean-loss/the-chosen-kappa-is-a-good-one"].holds is verdict


def test_claims_hold_where_the_numbers_are_the_papers():
    assert of_mean_loss(made_up(as_in_the_paper, 12)) == {
        "mean-loss/both-learn-a-reasonable-policy": True,
        "mean-loss/capi-leads": True,
        "mean-loss/capi-leads-most-with-few-samples": True,
        "mean-loss/capi-is-reasonable-more-often": True,
        "mean-loss/kappa-makes-a-big-difference-with-few-samples": True,
        "mean-loss/kappa-makes-a-difference-with-many-samples": True,
        "mean-loss/kappa-has-an-optimum": True,
        "mean-loss/the-chosen-kappa-is-a-good-one": None,  # not run with all numbers of samples
    }


def test_claims_fail_where_the_numbers_are_not():
    assert of_mean_loss(made_up(the_other_way_round, 12)) == {
        "mean-loss/both-learn-a-reasonable-policy": False,
        "mean-loss/capi-leads": False,
        "mean-loss/capi-leads-most-with-few-samples": True,  # it lags by more with many
        "mean-loss/capi-is-reasonable-more-often": None,  # neither ever is
        "mean-loss/kappa-makes-a-big-difference-with-few-samples": True,
        "mean-loss/kappa-makes-a-difference-with-many-samples": True,
        "mean-loss/kappa-has-an-optimum": False,
        "mean-loss/the-chosen-kappa-is-a-good-one": False,
    }


def test_an_optimum_must_beat_both_ends_at_a_number_of_samples():
    """One end alone supports nothing, although the best kappa is clearly better than it."""
    falling = claims(made_up(lambda kappa, n, seed: 60.0 - (kappa or 0) / 100 + seed % 2, 12))[
        "mean-loss/kappa-has-an-optimum"
    ]
    assert falling.verdict == "fails"
    assert falling.parts == ("fails",) * len(SIZES), "both ends of a number of samples are one part"
    means = [part.mean for part in falling.differences.values()]
    assert min(means) < 0 < max(means)


def test_where_all_is_the_same_nothing_but_the_level_is_decided():
    verdicts = of_mean_loss(made_up(lambda kappa, n, seed: 55.0, 12))
    assert verdicts.pop("mean-loss/both-learn-a-reasonable-policy") is True
    assert verdicts.pop("mean-loss/kappa-makes-a-big-difference-with-few-samples") is False
    assert set(verdicts.values()) == {None}


def test_few_runs_decide_nothing():
    assert {claim.holds for claim in claims(made_up(as_in_the_paper, 4)).values()} == {None}


def test_runs_without_the_papers_kappa_or_with_one_kappa_decide_little():
    records = [r for r in made_up(as_in_the_paper, 12) if r["kappa"] in (None, 1)]
    assert {claim.holds for claim in claims(records).values()} <= {None, False}


def test_readings_of_lambda_are_judged_apart():
    both = made_up(as_in_the_paper, 12) + made_up(the_other_way_round, 12, group="sum-loss")
    verdicts = {key: claim.holds for key, claim in claims(both).items() if key.endswith("/capi-leads")}
    assert verdicts == {"mean-loss/capi-leads": True, "sum-loss/capi-leads": False}
    assert len(figures(table(both))) == 4


def test_pieces_work_on_some_of_the_records():
    assert list(figures(table(made_up(as_in_the_paper, 1)[:1]))) == ["mountain-car-samples-mean-loss.png"]
    assert {claim.holds for claim in claims(made_up(as_in_the_paper, 1)[:1]).values()} == {None}
    apart = [r for r in made_up(as_in_the_paper, 2) if (r["seed"] == 0) == (r["kappa"] is None)]
    assert {claim.holds for claim in claims(apart).values()} == {None}, "no seed has run with both methods"
