"""Evidence discounts by elapsed time: closed forms, slow twins, derivatives, and steps of one unit."""

import json

import numpy as np
import pytest

import builders
from capi.data.origin import Origin
from capi.evaluators import FittedQ
from capi.offline.episodes import Episodes
from capi.offline.fitted_q import FittedStart, Regression, fitted_evaluation
from capi.offline.importance_weights import Weights
from capi.offline.score import fitted_value
from capi.policies import Constant, EpsilonGreedy, Training, Uniform, described
from offline.helpers import WEIGHTINGS, Table, estimators, hushed, of_model, ratios_of, remade, walks

EVERY_STATE = Regression(n_trees=2, min_samples_leaf=1)


class LongSteps(builders.Layers):
    """Layers whose steps last a time that depends on state and action."""

    def __init__(self, rng):
        super().__init__(rng)
        self.lasts = rng.uniform(0.2, 4.0, size=self.rewards.shape)

    def values(self, pi, discount):
        v, q = np.zeros(len(pi)), np.zeros(pi.shape)
        for x in reversed(range(len(pi))):
            after = (x // self.n_states + 1) * self.n_states
            for a in range(self.n_actions):
                following = 0.0 if self.ends[x, a] == 1 else self.moves[x, a] @ v[after : after + self.n_states]
                q[x, a] = self.rewards[x, a] + discount ** self.lasts[x, a] * (1 - self.ends[x, a]) * following
            v[x] = pi[x] @ q[x]
        return v, q

    def every_log(self, longest=None):
        batch, p = super().every_log(longest)
        return remade(batch, elapsed=self.lasts[batch.states[:, 0].astype(int), batch.actions]), p


@pytest.mark.parametrize("discount", [0.0, 0.9])
@pytest.mark.parametrize("seed", range(3))
def test_every_log_in_its_frequency_gives_exactly_the_value_whatever_the_model(seed, discount):
    rng = np.random.default_rng(seed)
    process = LongSteps(rng)
    batch, p = process.every_log()
    ratios = ratios_of(batch, process.policy, process.behaviour)
    found = estimators(batch, discount, ratios, *of_model(batch, rng.normal(size=process.policy.shape), process.policy))
    for method in WEIGHTINGS:
        value = float(found[method].values(p[None])[0])
        assert value == pytest.approx(process.value(process.policy, discount), abs=1e-12), method


@pytest.mark.parametrize("longest", [1, 2])
def test_truncated_episodes_are_closed_over_the_time_of_their_last_step(longest):
    process = LongSteps(np.random.default_rng(5))
    batch, p = process.every_log(longest)
    ratios = ratios_of(batch, process.policy, process.behaviour)
    model = of_model(batch, process.values(process.policy, 0.9)[1], process.policy)
    for method, estimator in estimators(batch, 0.9, ratios, *model).items():
        value = float(estimator.values(p[None])[0])
        assert value == pytest.approx(process.value(process.policy, 0.9), abs=1e-12), method


def test_fitted_q_and_the_logged_behaviour_have_their_exact_values():
    process = LongSteps(np.random.default_rng(3))
    batch, p = process.every_log()
    batch = remade(batch, weights=p[Episodes(batch, 0.9).of_row])
    found = hushed(Table(process.policy), batch, methods=["fitted-q"], n_resamples=2, regression=EVERY_STATE)
    assert found.estimate == pytest.approx(process.value(process.policy, 0.9), abs=1e-8)
    assert found.behaviour.value == pytest.approx(process.value(process.behaviour, 0.9), abs=1e-12)


def test_the_discount_of_a_row_is_that_of_the_time_since_the_start():
    lengths = np.array([3, 1, 2])
    batch = builders.Transitions(
        np.zeros((6, 1)), [0] * 6, [1.0] * 6, np.zeros((6, 1)), [False, False, True, True, False, False],
        episodes=np.repeat([0, 1, 2], lengths), elapsed=[0.1, 2.5, 1.0, 1.0, 3.0, 7.0],
    )  # fmt: skip
    e = Episodes(batch, 0.5)
    np.testing.assert_allclose(e.worth, 0.5 ** np.array([0, 0.1, 2.6, 0, 0, 3.0]), rtol=1e-15)
    assert (e.worth[e.starts] == 1).all()
    np.testing.assert_allclose(0.5 * e.over_steps(np.ones(6)), 0.5 ** np.array([0.1, 2.5, 1, 1, 3, 7]), rtol=1e-15)


def test_effective_episodes_weigh_steps_by_their_mean_time():
    batch = walks(n_episodes=20, longest=3, seed=2)
    e = Episodes(remade(batch, elapsed=np.full(len(batch), 2.5)), 0.8)
    ratios = np.random.default_rng(0).lognormal(size=len(batch))
    as_if = Episodes(batch, 0.8**2.5)
    assert Weights(e, ratios).effective_episodes == pytest.approx(Weights(as_if, ratios).effective_episodes, rel=1e-12)


def test_influence_is_the_derivative_in_the_counts(monkeypatch):
    monkeypatch.setattr("capi.offline.fitted_q.CLOSE", 1e-13)
    monkeypatch.setattr("capi.offline.fitted_q.EXACT", 1e-13)
    batch = walks(n_episodes=18)
    batch = remade(batch, elapsed=np.random.default_rng(2).uniform(0.1, 3.0, size=len(batch)))
    fitted = fitted_evaluation(Uniform(2), Episodes(batch, 0.8), Regression(n_trees=3), np.random.default_rng(0))
    estimator, weights = FittedStart([(np.arange(18), fitted)], np.ones(18)), np.ones(18)
    expected = np.empty(18)
    for i in range(18):
        moved = np.array([weights, weights])
        moved[:, i] += [1e-4, -1e-4]
        high, low = estimator.values(moved)
        expected[i] = (high - low) / 2e-4 * 18
    np.testing.assert_allclose(estimator.influence(weights), expected, atol=3e-5 * np.abs(expected).max())


def test_equal_steps_of_k_units_are_a_discount_to_the_power_of_k():
    """The whole evaluation, truncated episodes and what was done included; powers of two keep all trees the same."""
    batch = walks(n_episodes=40)
    policy = EpsilonGreedy(Constant(1, 2), 0.2)
    found = hushed(policy, remade(batch, elapsed=np.full(len(batch), 2.0)), discount=0.5)
    expected = hushed(policy, batch, discount=0.25)
    np.testing.assert_allclose(found.summary(), expected.summary(), rtol=1e-7)
    assert found.extrapolated_share == pytest.approx(expected.extrapolated_share, rel=1e-9)
    assert found.extrapolated_share > 0
    assert found.effective_episodes == pytest.approx(expected.effective_episodes, rel=1e-9)
    assert "discount 0.5 per unit of elapsed time)" in str(found)
    assert found.to_dict()["discount_per"] == "unit of elapsed time"
    assert "discount_per" not in expected.to_dict()


@pytest.mark.parametrize("evaluator", [None, FittedQ(n_trees=3)], ids=["default", "given"])
def test_steps_of_one_unit_change_no_byte(evaluator):
    batch = walks(n_episodes=15)
    policy = EpsilonGreedy(Constant(1, 2), 0.2)
    records = []
    for t in (batch, remade(batch, elapsed=np.ones(len(batch)))):
        record = hushed(policy, t, evaluator=evaluator, n_resamples=5).to_dict()
        record.pop("discount_per", None)
        records.append(json.dumps(record))
    assert records[0] == records[1]


def test_the_score_of_a_policy_uses_the_elapsed_time():
    batch = walks(n_episodes=30)
    two = remade(batch, elapsed=np.full(len(batch), 2.0))
    scores = [fitted_value(Constant(1, 2), t, discount=d) for t, d in ((two, 0.5), (batch, 0.25), (batch, 0.5))]
    assert scores[0] == scores[1]
    assert scores[0] != pytest.approx(scores[2], rel=1e-3)


@pytest.mark.parametrize(
    ("learned", "logged", "warned"),
    [
        (None, None, False),
        ("7 days", "7 days", False),
        ("7 days", "unit of elapsed time", False),
        ("unit of elapsed time", "1 day", False),
        ("7 days", None, True),
        (None, "7 days", True),
        ("7 days", "1 day", True),
        ("unit of elapsed time", None, True),
    ],
)
def test_a_policy_that_was_learned_with_another_unit_is_flagged(learned, logged, warned):
    batch = walks(n_episodes=12)
    if logged is not None:
        batch = remade(batch, elapsed=np.ones(len(batch)))
        origin = Origin("the table", len(batch), "both", discount_per=None if logged.startswith("unit") else logged)
        batch = batch._with({"origin": origin})
    policy = described(Constant(1, 2), None, Training(0.9, 1, 60, {}, discount_per=learned))
    found = hushed(policy, batch, methods=["per-decision"], n_resamples=2)
    texts = [caveat.text for caveat in found.warnings if caveat.kind == "other-time-unit"]
    assert len(texts) == warned
    if warned:
        assert f"a discount per {learned or 'row'}, and this log is discounted per {logged or 'row'}:" in texts[0]
