"""Evaluation on a log in parts: all rows in every estimate, the same for every partitioning, and equal to the log in memory."""

import json
import warnings

import numpy as np
import pytest

from capi import CAPI, PartitionedTransitions
from capi.data.survey import keys_of
from capi.errors import EvidenceWarning, InvalidInputError
from capi.evaluators import FittedQ
from capi.evaluators.partitioned_averager import PartitionedAverager
from capi.offline import compare, cross_evaluate, evaluate
from capi.offline.episodes import Episodes
from capi.offline.fitted_q import Regression, fitted_evaluation
from capi.offline.parts import drawn_counts
from capi.policies import Constant
from capi.policy_spaces import Trees
from capi.runs import RunSettings, compare_runs
from offline.helpers import WEIGHTINGS, bandit, remade, walks
from scale.conftest import log
from scale.test_command import COLUMNS, SIZES, folder, run  # noqa: F401  a fixture


class Leaning:
    """A policy that leans to the second action where the first column is large."""

    n_actions = 2

    def probabilities(self, states, allowed=None):
        share = 1 / (1 + np.exp(-states[:, 0]))
        return np.column_stack([1 - share, share])

    def act(self, states, allowed=None):
        return self.probabilities(states).argmax(axis=1)


class Given:
    """Action values that do not depend on the data, as an evaluator."""

    n_actions = 2

    def evaluate(self, policy, transitions, *, discount, states=None, previous=None, rng=None):
        return self

    def values(self, states):
        return np.column_stack([states[:, 0], 0.5 + states[:, 0] ** 2])


def weighted(batch):
    """Return the batch with weights of its episodes, some of them 0."""
    weights = np.random.default_rng(3).integers(0, 4, size=batch.n_episodes) / 2.0
    return remade(batch, weights=np.repeat(weights, batch.episode_lengths))


LOGS = {
    "ended": lambda: walks(300, ends=1.0),
    "truncated": lambda: walks(300),
    "weighted": lambda: weighted(walks(300)),
    "elapsed": lambda: (lambda b: remade(b, elapsed=np.random.default_rng(0).integers(1, 4, size=len(b)) / 2))(walks(300)),
    "one-step": lambda: bandit(800),
    "masked": lambda: (lambda b: remade(b, allowed=np.ones((len(b), 2), dtype=bool), next_allowed=np.ones((len(b), 2), dtype=bool)))(walks(300)),
}  # fmt: skip


def parted(batch, n_parts, **settings):
    return PartitionedTransitions.of(batch, -(-len(batch) // n_parts), **{"sample_rows": 200, **settings})


def found_in(batch, policy=None, **settings):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EvidenceWarning)
        return evaluate(policy or Leaning(), batch, **{"discount": 0.9, "n_resamples": 50, **settings})


@pytest.mark.parametrize("name", LOGS)
def test_with_given_models_estimates_equal_those_in_memory_for_every_partitioning(name):
    batch = LOGS[name]()
    settings = {"evaluator": Given(), "methods": WEIGHTINGS}
    whole = found_in(batch, **settings)
    of_parts = [found_in(parted(batch, n), **settings) for n in (1, 2, 8)]
    for found in of_parts:
        for method in WEIGHTINGS:
            mine, theirs = found.estimates[method], whole.estimates[method]
            assert mine.value == pytest.approx(theirs.value, rel=1e-9, abs=1e-12)
            assert mine.standard_error == pytest.approx(theirs.standard_error, rel=1e-7)
            np.testing.assert_allclose(mine.draws, of_parts[0].estimates[method].draws, rtol=1e-9)
        for name_ in ("effective_episodes", "rarely_taken_share", "extrapolated_share"):
            assert getattr(found, name_) == pytest.approx(getattr(whole, name_), rel=1e-9)
        assert (found.n_rows, found.n_episodes, found.method) == (whole.n_rows, whole.n_episodes, whole.method)
        assert [c.kind for c in found.warnings] == [c.kind for c in of_parts[0].warnings]
        assert 0 < found.sample_rows < found.n_rows
        if name in ("ended", "one-step"):  # otherwise the behaviour's own values complete episodes
            assert found.behaviour.value == pytest.approx(whole.behaviour.value, rel=1e-12)
            assert found.difference.standard_error == pytest.approx(whole.difference.standard_error, rel=1e-6)
    if name == "one-step":
        best = of_parts[2].best_action
        assert best.estimate.value == pytest.approx(whole.best_action.estimate.value, rel=1e-9)
        assert best.label == whole.best_action.label


@pytest.mark.parametrize("name", ["truncated", "weighted", "one-step"])
def test_fitted_models_give_the_same_for_every_partitioning_and_agree_with_memory(name):
    batch = LOGS[name]()
    batch = remade(batch, propensities=None) if name == "truncated" else batch
    small = {"regression": Regression(n_trees=5)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EvidenceWarning)
        whole, *of_parts = (
            compare({"it": Leaning(), "second": Constant(1, 2)}, one, discount=0.8, n_resamples=50, **small)
            for one in (batch, parted(batch, 1), parted(batch, 2), parted(batch, 8))
        )
    for found in of_parts:
        for mine, first, theirs in zip(*(c.evidence.values() for c in (found, of_parts[0], whole)), strict=True):
            for method, estimate in mine.estimates.items():
                assert estimate.value == pytest.approx(first.estimates[method].value, rel=1e-9)
                np.testing.assert_allclose(estimate.draws, first.estimates[method].draws, rtol=1e-9)
                error = np.hypot(estimate.standard_error, theirs.estimates[method].standard_error)
                assert abs(estimate.value - theirs.estimates[method].value) < 3 * error
            assert str(mine.verdict) == str(first.verdict)
            assert mine.behaviour_model.calibration_error == pytest.approx(
                first.behaviour_model.calibration_error, nan_ok=True
            )
            assert mine.best_action.of_folds == first.best_action.of_folds
        apart = found.difference("it", "second")
        assert apart.standard_error < sum(found[one].estimates[found.method].standard_error for one in ("it", "second"))


@pytest.mark.parametrize("name", ["truncated", "weighted", "elapsed", "one-step"])
def test_values_on_all_rows_and_their_influence_are_those_of_the_model_in_memory(name):
    """The slow twin: fitted Q evaluation in memory, on the same trees."""
    batch = LOGS[name]()
    episodes = Episodes.counted(batch, 0.8)
    fitted = fitted_evaluation(Leaning(), episodes, Regression(n_trees=4, min_samples_leaf=5), np.random.default_rng(0))
    parts = parted(batch, 5)
    model = PartitionedAverager.of(fitted.q, episodes.batch, parts, parts.survey(random_state=0), 0.8)
    value, handles = model.value_with_influence(Leaning())
    assert value == pytest.approx(fitted.value(episodes.weights), rel=1e-5)
    influence = fitted.influence()
    np.testing.assert_allclose(
        np.concatenate(parts.crew.results(handles)), influence, atol=2e-3 * np.abs(influence).max()
    )


def test_the_error_of_values_beyond_the_log_is_part_of_the_interval():
    """With a sample of a tenth of the episodes, the values that complete truncated ones are less certain than those of all episodes."""
    batch = walks(1500, ends=0.0)
    small = {"methods": ["doubly-robust"], "regression": Regression(n_trees=5, min_samples_leaf=5), "n_resamples": 20}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EvidenceWarning)
        errors = [
            compare({"it": Leaning()}, one, discount=0.8, **small)["it"].behaviour.standard_error
            for one in (batch, parted(batch, 4, sample_rows=len(batch) // 10))
        ]
    assert errors[1] > 1.1 * errors[0]


def test_counts_of_resamples_are_poisson_and_depend_on_the_key_alone():
    keys = keys_of(np.arange(100_000, dtype=np.uint64), np.uint64(1))
    one, two = drawn_counts(keys, np.uint64(2)), drawn_counts(keys, np.uint64(3))
    np.testing.assert_allclose(
        np.bincount(one.astype(int))[:5] / 1e5, np.exp(-1) / np.array([1, 1, 2, 6, 24]), atol=0.006
    )
    assert abs(np.corrcoef(one, two)[0, 1]) < 0.015
    np.testing.assert_array_equal(drawn_counts(keys[::-3], np.uint64(2)), one[::-3])


def test_a_cluster_gives_the_same_bytes(client):
    batch = walks(200)
    small = {"regression": Regression(n_trees=3), "n_resamples": 20, "discount": 0.8}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EvidenceWarning)
        here, there = (
            compare({"it": Constant(1, 2)}, parted(batch, 4, executor=e), **small)["it"] for e in (None, client)
        )
    assert json.dumps(here.to_dict()) == json.dumps(there.to_dict())
    for method, estimate in here.estimates.items():
        assert estimate.draws.tobytes() == there.estimates[method].draws.tobytes()


def test_no_agreement_and_overflow_are_found_over_all_parts():
    batch = remade(walks(200, ends=1.0), actions=np.zeros(len(walks(200)), dtype=int))
    found = found_in(parted(batch, 3), Constant(1, 2), methods=WEIGHTINGS, evaluator=Given())
    assert {"unlogged-actions", "no-agreement"} <= {caveat.kind for caveat in found.warnings}
    assert np.isnan(found.estimates["weighted"].value)
    assert np.isfinite(found.estimates["doubly-robust"].value)
    tiny = remade(walks(200, ends=1.0), propensities=np.full(len(walks(200)), 1e-200))
    found = found_in(parted(tiny, 3), methods=WEIGHTINGS, evaluator=Given())
    assert "weights-overflow" in {caveat.kind for caveat in found.warnings}
    assert all(np.isnan(one.value) for one in found.estimates.values())
    json.dumps(found.to_dict())


def test_a_batch_that_fits_into_the_sample_is_evaluated_in_memory():
    batch = bandit(100)
    found = found_in(parted(batch, 3, sample_rows=10**6))
    assert found.sample_rows is None
    assert found.estimates["per-decision"].value == pytest.approx(found_in(batch).estimates["per-decision"].value)


def test_a_part_without_weight_changes_nothing():
    batch = walks(240, ends=1.0)
    weights = np.repeat(np.arange(240) >= 90, batch.episode_lengths).astype(float)
    batch = remade(batch, weights=weights)
    settings = {"evaluator": Given(), "discount": 0.8}
    one, eight = (found_in(parted(batch, n), **settings) for n in (1, 8))
    for method, estimate in one.estimates.items():
        assert eight.estimates[method].value == pytest.approx(estimate.value, rel=1e-9)
    assert (one.n_episodes, eight.n_episodes) == (150, 150)


@pytest.mark.parametrize("seed", [0, 5])
def test_learning_episodes_are_recognised(seed):
    """With another seed the samples of learning and evaluation share only some episodes."""
    batch = parted(log(400), 3, sample_rows=1000)
    policy = (
        CAPI(FittedQ(n_trees=2, n_sweeps=1), Trees(max_depth=1), n_iterations=1, discount=0.8, random_state=seed)
        .fit(batch)
        .policy_
    )
    found = found_in(batch, policy, methods=["per-decision"])
    seen = next(caveat for caveat in found.warnings if caveat.kind == "seen-episodes")
    assert seen.severity == "severe"
    assert seen.share > 0.7


def test_what_cannot_be_done_is_named():
    with pytest.raises(InvalidInputError, match="must have as many actions"):
        evaluate(Constant(0, 4), parted(walks(100), 2), discount=0.9)
    with pytest.raises(InvalidInputError, match="sample must have at least 90 episodes"):
        evaluate(Constant(0, 2), parted(walks(100), 2, sample_rows=60), discount=0.9, n_folds=90)
    with pytest.raises(InvalidInputError, match="PartitionedTransitions"):
        cross_evaluate({"it": Leaning()}, parted(walks(100), 2), discount=0.9)


def test_the_commands_evaluate_and_compare_on_all_rows(folder, tmp_path, client):  # noqa: F811
    sampled = ["--sample-rows", 100, "--hold-out", 0.4, *COLUMNS, *SIZES]
    for name, seed in (("one", 0), ("two", 0)):
        run(
            "fit",
            folder,
            "--out",
            tmp_path / name,
            *sampled,
            "--random-state",
            seed,
            *(["--max-depth", 1] if name == "two" else []),
        )
    said = run("evaluate", tmp_path / "one", "--n-resamples", 20)
    learned = RunSettings.from_toml(tmp_path / "one" / "settings.toml")
    held_out = learned.all_held_out()
    n = len(held_out)
    assert f"sums over all {n:,} rows" in said
    there = run(
        "evaluate", tmp_path / "one", "--n-resamples", 20, "--dask", client.scheduler.address, "--json", stream="stdout"
    )
    found = json.loads(there)
    assert found == {
        k: v for k, v in json.loads((tmp_path / "one" / "evaluation.json").read_text()).items() if k != "policy"
    }
    assert (found["n_rows"], found["source"], found["kind"]) == (n, "log/*.parquet", "held-out")
    assert 0 < found["sample_rows"] < n
    run("report", tmp_path / "one")
    assert f"from a sample of {found['sample_rows']:,} rows" in (tmp_path / "one" / "report.html").read_text()
    compared = compare_runs([tmp_path / "one", tmp_path / "two"], n_resamples=20)
    assert {one.n_rows for one in compared.values.evidence.values()} == {n}
    assert not {"seen-episodes", "unchecked-episodes"} & {
        c.kind for one in compared.values.evidence.values() for c in one.warnings
    }
