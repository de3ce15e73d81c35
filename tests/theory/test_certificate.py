"""Certificates hold as often as they say, name what limits them, and refuse what they cannot certify."""

import numpy as np
import pytest

from capi import CAPI, Transitions
from capi._utils.randomness import numbered_rng, seed_sequence
from capi.baselines import CPI, PSDP
from capi.errors import InvalidInputError
from capi.evaluators import FittedQ
from capi.evaluators.averager import Averager
from capi.loss import regrets
from capi.policies import Constant
from capi.policy_spaces import Forests, OptimalTrees, Thresholds, Unrestricted
from capi.testing import random_batch
from capi.theory import certificate, concentrability, discounted_concentrability
from capi.theory._fronts import Cuts, StarHulls, drawn_signs
from capi.theory.certifying import HALVES
from capi.theory.deviations import Complexity, bernstein_bound, least_mean, local_deviation


def arms(n, seed=0, noise=0.0, n_rows=1):
    """Return a batch of one-step decisions, in which the better arm depends on one column; ``n_rows`` equal rows form an episode."""
    rng = np.random.default_rng(seed)
    x = np.repeat(rng.random((n, 1)), n_rows, axis=0)
    chosen = rng.integers(2, size=n * n_rows)
    rewards = 1.0 * (chosen == (x[:, 0] > 0.4)) + noise * rng.normal(size=len(x))
    numbers = np.repeat(np.arange(n), n_rows) if n_rows > 1 else None
    ends = np.ones(len(x), dtype=bool) if n_rows == 1 else np.arange(len(x)) % n_rows == n_rows - 1
    return Transitions(x, chosen, rewards, x, ends, episodes=numbers)


def crossed(n, seed=0):
    """Return a batch in which the better arm depends on two columns together."""
    rng = np.random.default_rng(seed)
    x, chosen = rng.choice([-1.0, 1.0], (n, 2)), rng.integers(2, size=n)
    rewards = np.where(chosen == (x[:, 0] * x[:, 1] > 0), 1.0, 0.0)
    return Transitions(x, chosen, rewards, x, np.ones(n, dtype=bool))


def learner(space, **settings):
    return CAPI(FittedQ(min_samples_split=100), space, discount=0.0, random_state=0, **settings)


def test_more_data_give_a_smaller_bound():
    bounds = [certificate(learner(Thresholds()), arms(n)).loss_bound for n in (400, 2000, 8000)]
    assert bounds == sorted(bounds, reverse=True)


def test_a_small_sample_is_vacuous_and_says_why():
    found = certificate(learner(Thresholds()), arms(12, noise=1.0))
    assert found.is_vacuous
    assert found.verdict.startswith("This bound is vacuous here because of the sample (6 independent rows leave")
    assert found.verdict in str(found)


def test_a_space_that_is_too_small_is_named_and_its_least_loss_is_bounded_from_below():
    found = certificate(learner(Thresholds()), crossed(8000))
    assert found.limited_by == "space"
    assert 0.2 < found.least_bound <= found.least_loss <= found.loss_bound
    assert found.excess_bound < 0.3
    large = certificate(learner(OptimalTrees(max_depth=2)), crossed(8000))
    assert large.least_loss == 0
    assert large.loss_bound < 0.1 * found.loss_bound
    assert large.n_draws == 0
    assert found.n_draws == 100


def test_values_that_differ_between_halves_are_named():
    rough = CAPI(FittedQ(min_samples_split=5), OptimalTrees(max_depth=3), discount=0.0, random_state=0)
    found = certificate(rough, arms(300, noise=3.0), units="rows")
    assert found.values_loss > 0.2
    assert found.uncertain_decisions > 0.3


def test_rows_of_an_episode_count_once():
    batch = arms(400, n_rows=10)
    by_episodes, by_rows = (certificate(learner(Thresholds()), batch, units=units) for units in ("episodes", "rows"))
    assert (by_episodes.n_units, by_rows.n_units, by_rows.n_rows) == (200, 2000, 2000)
    assert by_episodes.loss_bound > 3 * by_rows.loss_bound


def test_equal_rows_in_an_episode_change_nothing():
    """With equal weights inside an episode, its mean loss is that of one row."""
    losses = np.random.default_rng(0).random(50)
    assert bernstein_bound(losses, 1.0, 0.1) == bernstein_bound(
        np.repeat(losses, 3).reshape(50, 3).mean(axis=1), 1.0, 0.1
    )


def test_the_empirical_bernstein_bound_holds_as_often_as_it_says():
    rng = np.random.default_rng(0)
    held = [bernstein_bound(rng.random(40) * (rng.random(40) < 0.3), 1.0, 0.1) >= 0.15 for _ in range(500)]
    assert np.mean(held) >= 0.9


@pytest.mark.parametrize("by_means", [False, True])
def test_the_lower_bound_on_the_least_loss_holds(by_means):
    """The least loss on samples is below the least expected loss; the bound must be below both."""
    rng = np.random.default_rng(1)
    states = np.arange(30.0)[:, None]
    lost = regrets(rng.normal(size=(30, 2)))
    everything = Cuts(states, lost, np.full(30, 1 / 30))
    truth, largest = float(everything.of(lost / 30).min()), float(lost.max())
    n, bounds = 20_000, []
    for _ in range(5):
        sample = rng.integers(30, size=n)
        shares = np.full(n, 1 / n)
        cuts = Cuts(states[sample], lost[sample], shares, by_means=by_means)
        signs = drawn_signs(None, shares, rng)
        hulls = StarHulls.of((cuts.front(signs()) for _ in range(20)), is_hull=False)
        least = float(cuts.of(lost[sample] / n).min())
        bounds.append(least_mean(least, Complexity(n, largest, hulls, 0.0, 1.0, 0.001), 0.05))
    assert 0 < max(bounds) <= truth


def test_growth_functions_replace_draws_at_a_price():
    drawn = Complexity(1000, 1.0, StarHulls(np.full((10, 1), 0.1), np.full((10, 1), 0.02), False), 0.0, 1.0, 0.01)
    counted = Complexity(1000, 1.0, None, np.log(2000), 1.0, 0.0)
    assert counted.overall > drawn.overall
    assert counted.local(1e-6) < counted.local(1e-2) <= counted.overall
    assert least_mean(0.5, drawn, 0.05) > 0
    assert least_mean(0.0, drawn, 0.05) == 0
    assert least_mean(0.5, Complexity(10, 0.0, None, 1.0, 0.0, 0.0), 0.05) == 0


def test_several_steps_masks_and_other_spaces_are_certified():
    batch = random_batch(0, n_episodes=60)
    found = certificate(
        CAPI(FittedQ(min_samples_split=20), OptimalTrees(max_depth=1), discount=0.9, n_iterations=3), batch
    )
    assert found.units == "episodes"
    assert found.n_units == 30
    assert found.decisions_per_episode > 1
    assert found.concentration >= 1
    assert found.worst_per_episode >= found.per_episode > 0
    record = found.to_dict()
    assert record["verdict"] == found.verdict
    assert all(not isinstance(value, float) or np.isfinite(value) for value in record.values())
    forest = certificate(CAPI(FittedQ(min_samples_split=20), Forests(n_trees=3), discount=0.9, n_iterations=2), batch)
    assert forest.least_bound == 0
    assert "is not known" in forest.notes[-1]
    rng = np.random.default_rng(0)
    allowed = rng.random((len(batch), batch.n_actions)) < 0.8
    allowed[np.arange(len(batch)), batch.actions] = True
    masked = batch._with({"allowed": allowed, "next_allowed": np.roll(allowed, -1, axis=0)})
    found = certificate(CAPI(FittedQ(min_samples_split=20), Thresholds(), discount=0.9, n_iterations=2), masked)
    assert np.isfinite(found.loss_bound)
    assert found.least_bound == 0


def test_all_policies_lose_nothing_at_best_and_equal_values_cannot_be_lost():
    found = certificate(learner(Unrestricted()), arms(40))
    assert (found.least_loss, found.least_bound, found.notes) == (0.0, 0.0, ())
    flat = Transitions(
        *(np.zeros((40, 1)), np.arange(40) % 2, np.zeros(40), np.zeros((40, 1)), np.ones(40, dtype=bool))
    )
    assert certificate(learner(Thresholds()), flat).verdict.startswith("There is nothing to lose")


def test_prices_of_leaves_do_not_raise_the_least_loss():
    """A policy that is not preferred is still in the space."""
    dear, free = (certificate(learner(OptimalTrees(max_depth=2, leaf_penalty=p)), crossed(2000)) for p in (0.6, 0.0))
    assert dear.learning_loss > 0.3
    assert dear.least_loss == free.least_loss == 0
    assert dear.least_bound == 0


def test_the_same_seed_gives_the_same_certificate():
    batch = random_batch(1, n_episodes=30)
    again = [
        certificate(
            CAPI(FittedQ(min_samples_split=20), Thresholds(), discount=0.9, n_iterations=2), batch, random_state=3
        )
        for _ in range(2)
    ]
    assert again[0] == again[1]


def test_what_cannot_be_certified_is_refused():
    batch = random_batch(0)
    with pytest.raises(InvalidInputError, match="learner must be a learner"):
        certificate("capi", batch)
    with pytest.raises(InvalidInputError, match="batch must be the Transitions"):
        certificate(learner(Thresholds()), batch.states)
    with pytest.raises(InvalidInputError, match="needs at least four"):
        certificate(learner(Thresholds()), random_batch(0, n_episodes=3))
    with pytest.raises(InvalidInputError, match="delta must lie strictly between 0 and 1"):
        certificate(learner(Thresholds()), batch, 0.0)
    with pytest.raises(InvalidInputError, match="units must be one of"):
        certificate(learner(Thresholds()), batch, units="days")
    for other in (CPI(FittedQ(), Thresholds(), 0.9, 2), PSDP(FittedQ(n_sweeps=1), Thresholds(), 0.9, 2)):
        with pytest.raises(InvalidInputError, match="combines it with earlier policies"):
            certificate(other, batch)
    with pytest.raises(InvalidInputError, match="the same in every round"):
        certificate(learner(lambda k, policy, rng: Thresholds(), n_iterations=1), batch)


def test_concentrability_in_the_model_of_a_batch():
    """In one-step problems every row is visited in the first step alone, those of the chosen action more often."""
    batch = arms(400)
    q = FittedQ(min_samples_split=100, n_sweeps=1).evaluate(Constant(0, 2), batch, discount=0.0)
    model = Averager.of(q, batch, discount=0.0)
    now = concentrability(model, Constant(0, 2), 0, 0)
    assert now > 400 / np.sum(batch.actions == 0) * 0.99
    assert concentrability(model, Constant(0, 2), 0, 1) == 0
    steps = random_batch(0, n_episodes=20)
    q = FittedQ(min_samples_split=30, n_sweeps=3).evaluate(Constant(0, 3), steps, discount=0.5)
    model = Averager.of(q, steps, discount=0.5)
    visits = model.occupancy(Constant(0, 3))
    total = sum(0.5**m * concentrability(model, Constant(0, 3), 0, m) for m in range(30))
    assert total >= float(visits.max()) * len(steps) - 1e-6
    policies = [Constant(0, 3), Constant(2, 3)]
    futures = discounted_concentrability(model, policies, 3)
    for k in range(3):
        one_by_one = [max(concentrability(model, policy, k, m) for policy in policies) for m in range(40)]
        assert futures.sums[k] == pytest.approx(0.5 ** np.arange(40) @ one_by_one, rel=1e-5)
    with pytest.raises(InvalidInputError, match="at least one policy"):
        discounted_concentrability(model, [], 1)


# -- slow twins ------------------------------------------------------------------------------------


def test_the_empirical_bernstein_bound_is_its_formula():
    losses, z = np.tile([0.0, 1.0, 0.5, 0.1], 100), np.log(2 / 0.4)
    variance = np.sum((losses - 0.4) ** 2) / 399
    assert bernstein_bound(losses, 9.0, 0.4) == pytest.approx(
        0.4 + np.sqrt(2 * variance * z / 400) + 7 * 9 * z / (3 * 399)
    )
    assert bernstein_bound(losses[:4], 1.0, 0.4) == 1.0
    assert bernstein_bound(losses[:1], 3.0, 0.4) == 3.0


@pytest.mark.parametrize(
    ("n", "n_draws", "total", "least", "better"),
    [(10**6, 50, 0.01, 0.6, "overall"), (10**4, 20_000, 0.0005, 0.2, "local")],
)
def test_the_lower_bound_is_its_formula(n, n_draws, total, least, better):
    """One member with second moment 0.04 and the same sum in every draw; the fixed point by bisection."""
    b, delta = 2.0, 0.1
    hulls = StarHulls(np.full((n_draws, 1), 0.04), np.full((n_draws, 1), total), is_hull=False)
    complexity = Complexity(n, b, hulls, 0.0, 1.0, 0.01)
    slack = b * np.sqrt(2 * np.log(1 / 0.01) / (n * n_draws))
    x = np.log(6 / (delta - 0.01))

    def average(radius):
        return total * min(1.0, np.sqrt(radius / 0.04)) + slack

    low, high = 0.0, 10.0
    for _ in range(100):
        middle = (low + high) / 2
        right = 20 * b * average(2 * middle) + 31 * b**2 * x / n
        low, high = (middle, high) if right > middle else (low, middle)
    K, alpha, beta = 4.0, 0.3, 0.7
    d = K * 4 * (1 + alpha) ** 2 * (1 + beta) / (100 * b) * low
    d += (2 * (1 / 3 + 1 / alpha) + 2 * (1 + 1 / beta) * K) * b * x / n
    overall = least - 2 * (total + slack) - 3 * b * np.sqrt(np.log(4 / (delta - 0.01)) / (2 * n))
    assert local_deviation(complexity, x) == pytest.approx(d)
    bounds = {"local": K / (K + 1) * (least - d), "overall": overall}
    assert max(bounds, key=bounds.get) == better
    assert least_mean(least, complexity, delta) == pytest.approx(bounds[better])


class MeansOfHalves:
    """Action values from the mean reward of each action on each side of 0.5, whatever the policy."""

    def evaluate(self, policy, transitions, *, discount, states=None, previous=None, rng=None):
        side = transitions.states[:, 0] > 0.5
        table = [
            [transitions.rewards[(side == s) & (transitions.actions == a)].mean() for a in (0, 1)]
            for s in (False, True)
        ]
        return SidedValues(np.array(table))


class SidedValues:
    n_actions = 2

    def __init__(self, table):
        self.table = table

    def values(self, states):
        return self.table[(np.asarray(states)[:, 0] > 0.5).astype(int)]


@pytest.mark.parametrize("n_rows", [1, 3])
def test_a_certificate_by_hand(n_rows):
    """All numbers again from the two halves, row by row; episodes of equal length count alike."""
    batch, delta = arms(60, noise=2.0, n_rows=n_rows), 0.2
    found = certificate(CAPI(MeansOfHalves(), OptimalTrees(max_depth=0), discount=0.0, n_iterations=2), batch, delta)
    seeds = seed_sequence(0)
    first, second = batch.split(0.5, random_state=numbered_rng(seeds, HALVES))
    q, other = (MeansOfHalves().evaluate(None, part, discount=0.0).values(second.states) for part in (first, second))
    learned = MeansOfHalves().evaluate(None, first, discount=0.0).values(first.states)
    always = int(np.argmax(learned.sum(axis=0)))  # the best constant
    lost, again = q.max(axis=1, keepdims=True) - q, other.max(axis=1, keepdims=True) - other
    largest = (learned.max(axis=1) - learned.min(axis=1)).max()
    of_units = lost[:, always].reshape(-1, n_rows).mean(axis=1)
    assert found.held_out_loss == pytest.approx(of_units.mean())
    assert found.loss_bound == pytest.approx(bernstein_bound(of_units, largest, delta / 2))
    assert found.least_loss == pytest.approx(lost.mean(axis=0).min())
    assert found.learning_loss == pytest.approx((learned.max(axis=1) - learned[:, always]).mean())
    assert (found.largest_gap, found.stakes) == pytest.approx((largest, lost.max(axis=1).mean()))
    assert found.values_loss == pytest.approx(again[np.arange(len(q)), q.argmax(axis=1)].mean())
    differences = np.abs(q - other).max(axis=1)
    assert found.values_error == pytest.approx(np.sqrt((differences**2).mean()))
    assert found.uncertain_decisions == pytest.approx((lost.max(axis=1) <= 2 * differences).mean())
    assert (found.n_units, found.n_rows) == (30, 30 * n_rows)
    assert found.decisions_per_episode == 1.0
