import numpy as np
import pytest

from capi.domains import CartPole
from capi.experiments.pole import claims, figures, run, settings, summary, table
from capi.experiments.pole.run import batch_of
from capi.experiments.pole.settings import COST_SAMPLES, LEARNING, METHODS, ROLLOUTS, SAMPLES

SMALL = {**LEARNING, **ROLLOUTS, "n_trees": 10, "n_iterations": 60, "track_limit": None}


def test_sizes():
    full, quick = settings("full"), settings("quick")
    assert len(full) == 2 * (len(METHODS) * len(SAMPLES) + 3 * 4) + 3 * len(COST_SAMPLES)
    assert len({setting.name for setting in full}) == len(full)
    assert {setting.values["track_limit"] for setting in quick} == {None, 2.4}
    assert {s.values["refresh_every"] for s in full if s.values["group"] == "new-trees"} == {1}


def test_a_batch_has_exactly_the_samples_asked_for():
    batch = batch_of(CartPole(), 700, np.random.default_rng(0))
    assert len(batch) == 700
    ends = np.append(batch.episodes[1:] != batch.episodes[:-1], True)
    assert batch.terminated[ends][:-1].all()


@pytest.mark.parametrize(("method", "eta"), METHODS[:2])
def test_values_from_a_small_batch_balance_the_pole(method, eta):
    record = run({**SMALL, "method": method, "eta_pi": eta, "n_samples": 3000}, seed=0)
    assert record["steps"] > 300  # a random policy falls after 33
    assert record["n_used"] == 3000


def test_rollouts_balance_it_too_with_more_samples():
    record = run({**SMALL, "method": "Tree-DPI", "eta_pi": 20, "n_samples": 1_000_000}, seed=0)
    assert record["steps"] > 1000
    assert 900_000 < record["n_used"] < 1_100_000


def records(n_seeds, sizes=(1000, 30000)):
    """Return made-up records: as in the paper without a track limit, all the same with one."""
    made_up = {"Tree-FQI": lambda n: n / 20, "Tree-CAPI": lambda n: min(3000, n / 3), "Tree-DPI": lambda n: 20.0}
    costs = {"learning_cpu_seconds": 1.0, "decision_cpu_seconds": 1e-6}
    return [
        {"group": group, "method": method, "eta_pi": eta, "n_samples": n, "n_used": n, "seed": seed, **costs}
        | {"steps": made_up[method](n) if group == "no-track-limit" else 100.0, "fewest_steps": 20, "return": -0.1}
        for group in ("no-track-limit", "track-limit")
        for method, eta in METHODS
        for n in sizes
        for seed in range(n_seeds)
    ]


def test_records_become_figures_and_claims():
    rows = table(records(6))
    assert len(summary(rows)[2]) == 12
    assert sorted(figures(rows)) == ["pole-no-track-limit.png", "pole-track-limit.png"]
    assert {key: claim.holds for key, claim in claims(records(6)).items()} == {
        "no-track-limit/capi-solves-it-with-many-samples": True,
        "no-track-limit/capi-leads-with-few-samples": True,
        "no-track-limit/capi-leads-at-all-sizes": True,
        "no-track-limit/simple-policies-suffice-less-if-too-simple": None,  # both sizes of trees are the same
        "no-track-limit/capi-is-more-stable": None,  # no run differs from another
        "no-track-limit/rollouts-need-more-samples": True,
        "no-track-limit/rollouts-need-thousands-of-times-as-many": None,  # not run
        "track-limit/capi-solves-it-with-many-samples": False,
        "track-limit/capi-leads-with-few-samples": None,  # all the same: nothing is decided
        "track-limit/capi-leads-at-all-sizes": None,
        "track-limit/simple-policies-suffice-less-if-too-simple": None,
        "track-limit/capi-is-more-stable": None,
        "track-limit/rollouts-need-more-samples": None,
        "track-limit/rollouts-need-thousands-of-times-as-many": None,
    }
    assert {claim.holds for claim in claims(records(2)).values()} == {None}


def case(method, eta, n, steps, group="no-track-limit", learning=1.0, decision=1e-6, n_seeds=6):
    costs = {"learning_cpu_seconds": learning, "decision_cpu_seconds": decision, "n_used": n, "return": -0.1}
    return [
        {"group": group, "method": method, "eta_pi": eta, "n_samples": n, "seed": seed, "fewest_steps": 9, **costs}
        | {"steps": float(steps(seed))}
        for seed in range(n_seeds)
    ]


@pytest.mark.parametrize(
    ("at_most", "fewer", "verdict"), [(2990, 500, True), (2990, 2950, False), (1500, 500, False), (None, 500, None)]
)
def test_rollouts_match_the_others_with_many_more_samples(at_most, fewer, verdict):
    found = case("Tree-CAPI", 20, 10_000, lambda seed: 3000) + case("Tree-FQI", None, 30_000, lambda seed: 3000 - seed)
    found += case("Tree-DPI", 500, 1_000_000, lambda seed: fewer + seed)
    found += [] if at_most is None else case("Tree-DPI", 500, 30_000_000, lambda seed: at_most + seed)
    assert claims(found)["no-track-limit/rollouts-need-thousands-of-times-as-many"].holds is verdict


@pytest.mark.parametrize(("factor", "verdict"), [(0.1, True), (3.0, False), (1.0, None)])
def test_stability_is_the_distance_from_the_median(factor, verdict):
    steps = [0, 600, 300, 900, 100, 800]
    found = case("Tree-FQI", None, 1000, lambda seed: steps[seed])
    found += case("Tree-CAPI", 20, 1000, lambda seed: 5 + factor * steps[seed])
    assert claims(found)["no-track-limit/capi-is-more-stable"].holds is verdict


@pytest.mark.parametrize(
    ("times", "verdicts"),
    [((2.0, 1.0), (True, True, True)), ((9.0, 5.0), (False, False, True)), ((0.2, 1.0), (False, True, False))],
)
def test_costs_are_compared_with_new_trees_on_both_sides(times, verdicts):
    wobble = lambda value: lambda seed: value * (1 + seed / 100)  # noqa: E731
    found = []
    for seed in range(6):
        learning, decision = (wobble(each)(seed) for each in times)
        found += case("Tree-CAPI", 20, 1000, lambda _: 1, "new-trees", learning, decision * 1e-6)[seed : seed + 1]
    found += case("Tree-FQI", None, 1000, lambda _: 1, "new-trees", 1.0, 1e-6)
    found += case("Tree-DPI", 20, 1000, lambda _: 1, "no-track-limit", 0.5)
    judged = claims(found)
    names = ("learning-costs-about-twice-as-much", "decisions-cost-the-same", "capi-costs-more-than-rollouts")
    assert tuple(judged[f"new-trees/{name}"].holds for name in names) == verdicts


def test_claims_need_seeds_only_where_they_compare():
    few_at_many = [r for r in records(6) if r["n_samples"] == 1000 or r["seed"] < 3]
    verdicts = {key: claim.holds for key, claim in claims(few_at_many).items()}
    assert verdicts["no-track-limit/capi-leads-with-few-samples"] is True
    assert verdicts["no-track-limit/capi-solves-it-with-many-samples"] is None


@pytest.mark.parametrize("rows", [slice(0, 1), slice(5, 7)])
def test_pieces_work_on_some_of_the_records(rows):
    some = records(1)[rows]
    assert {claim.holds for claim in claims(some).values()} == {None}
    assert list(figures(table(some))) == ["pole-no-track-limit.png"]
