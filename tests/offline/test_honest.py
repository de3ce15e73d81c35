"""Whoever is evaluated must not have seen the episodes."""

import numpy as np
import pytest

from capi import CAPI, Transitions, load_policy
from capi.errors import EvidenceWarning
from capi.evaluators import FittedQ
from capi.learning import Learner
from capi.offline import Comparison, Evidence, cross_evaluate
from capi.offline.fitted_q import Regression
from capi.policies import Constant, Uniform
from capi.policy_spaces import Trees
from offline.helpers import bandit, hushed, remade, told, walks, warned_of

SMALL = {"regression": Regression(n_trees=2), "n_resamples": 10}


def learner(discount=0.0):
    return CAPI(FittedQ(n_trees=3), Trees(max_depth=1), discount=discount, n_iterations=1, random_state=0)


@pytest.fixture(scope="module")
def batch():
    return bandit(200)


@pytest.fixture(scope="module")
def policy(batch):
    return learner().fit(batch.subset(np.arange(200) < 100)).policy_


@pytest.mark.parametrize(
    ("rows", "share"),
    [((0, 100), "100 %"), ((50, 150), "50 %"), ((95, 195), "5 %"), ((0, 50), "100 %"), ((100, 200), None)],
    ids=["all", "half", "few", "a part", "none"],
)
def test_the_share_of_known_episodes_is_told(batch, policy, rows, share):
    mine = batch.subset(np.arange(*rows))
    found = told(policy, mine, discount=None)
    assert found.discount == 0.0  # the policy's own
    assert warned_of(found, "among those that the policy was learned from") == (share is not None)
    if share is not None:
        assert warned_of(found, f"^{share} of these episodes are among those")
        assert found.unreliable
        assert found.verdict.endswith("Do not rely on it: see the warnings.")


def kinds(found):
    return {caveat.kind for caveat in found.warnings}


def test_a_policy_from_a_file_says_that_it_cannot_be_checked(batch, policy, tmp_path):
    policy.save(tmp_path / "policy.capi")
    found = told(load_policy(tmp_path / "policy.capi"), batch, discount=0.0)
    assert warned_of(found, "^it cannot be checked whether the policy was learned from these episodes")
    assert next(c.severity for c in found.warnings if c.kind == "unchecked-episodes") == "warning"
    assert not kinds(found) & {"seen-episodes"}
    assert "unchecked-episodes" not in kinds(hushed(policy, batch, discount=0.0))
    assert "unchecked-episodes" not in kinds(hushed(Constant(0, 2), batch, discount=0.0)), "nobody learned it"


def test_known_episodes_are_known_again_from_a_file_that_was_asked_to_record_them(tmp_path):
    whole = walks(120)
    mine = whole.subset(whole.episodes < 60)
    policy = learner(0.9).fit(mine).policy_
    policy.save(tmp_path / "policy.capi", with_episodes=True)
    loaded = load_policy(tmp_path / "policy.capi")
    share = [c.share for c in hushed(loaded, whole).warnings if c.kind == "seen-episodes"]
    assert share == [pytest.approx(0.5, abs=0.03)], "of those with two or more rows"
    assert not kinds(hushed(loaded, whole.subset(whole.episodes >= 60))) & {"seen-episodes", "unchecked-episodes"}
    loaded.save(tmp_path / "again.capi")
    assert "unchecked-episodes" in kinds(hushed(load_policy(tmp_path / "again.capi"), whole)), "nobody asked again"


def test_the_share_of_many_episodes_is_right():
    many = bandit(6000)
    n = len(many)
    policy = learner().fit(many.subset(np.arange(n) < n // 2)).policy_
    mine = many.subset((np.arange(n) >= n // 4) & (np.arange(n) < 3 * n // 4))
    found = hushed(policy, mine, discount=0.0, methods="weighted")
    assert next(c.share for c in found.warnings if c.kind == "seen-episodes") == 0.5
    unseen = many.subset(np.arange(n) >= n // 2)
    assert not warned_of(hushed(policy, unseen, discount=0.0, methods="weighted"), "learned from")


def test_episodes_that_look_alike_are_not_taken_for_each_other():
    """One of six states and a reward of zero or one: honest test episodes have their like among the others, and that proves nothing."""
    rng = np.random.default_rng(0)
    x, actions = rng.integers(6, size=(400, 1)).astype(float), rng.integers(2, size=400)
    whole = Transitions(
        x, actions, (rng.random(400) < 0.5).astype(float), x, np.ones(400, dtype=bool), propensities=np.full(400, 0.5)
    )
    first, second = whole.split(0.5, random_state=0)
    found = told(learner().fit(first).policy_, second, discount=0.0)
    assert found.warnings == ()


class Spy(Learner):
    """Keeps the episodes that it was fitted on, and returns a policy that keeps what it was asked for."""

    def __init__(self, seen=None):
        self.seen = seen

    def __sklearn_clone__(self):
        return self  # so that what it keeps is found again

    @property
    def discount(self):
        return 0.9

    def fit(self, transitions, **options):
        asked = set()
        self.seen.append((set(transitions.states[:, 0]), asked))

        class Asked(Uniform):
            def probabilities(self, states, allowed=None):
                asked.update(states[:, 0])
                return super().probabilities(states)

        self.policy_ = Asked(2)
        return self


@pytest.mark.filterwarnings("ignore::capi.errors.EvidenceWarning")
def test_each_fold_is_decided_by_a_learner_that_has_not_seen_it():
    """States number the rows: of a fold's policy only its own rows, and those it learned from (by the model), are asked."""
    n = 60
    x = np.arange(float(n))[:, None]
    batch = Transitions(x, np.arange(n) % 2, x[:, 0], x, np.arange(n) % 3 == 2, episodes=np.arange(n) // 3, propensities=np.full(n, 0.5))  # fmt: skip
    seen, shown = [], []
    found = cross_evaluate(Spy(seen), batch, n_folds=4, shown=lambda folds: shown.append(list(folds)) or folds, methods="weighted", **SMALL)  # fmt: skip
    assert isinstance(found, Evidence)
    assert (found.kind, found.discount, found.name) == ("cross", 0.9, "the learner")
    assert shown == [[0, 1, 2, 3]]
    assert len(seen) == 4
    folds = [set(x[:, 0]) - learned for learned, _ in seen]
    assert sorted(row for fold in folds for row in fold) == list(range(n))  # each row is left out once
    for fold, (_, asked) in zip(folds, seen, strict=True):
        assert asked == fold
        assert {row // 3 for row in fold}.isdisjoint({row // 3 for row in set(range(n)) - fold})


@pytest.mark.filterwarnings("ignore::capi.errors.EvidenceWarning")
def test_fitted_q_of_a_fold_is_of_that_fold_alone():
    batch = walks(60)
    found = cross_evaluate({"a": learner(0.9), "b": Constant(1, 2)}, batch, n_folds=3, **SMALL)
    assert isinstance(found, Comparison)
    for name in "ab":
        assert np.isfinite([e.value for e in found[name].estimates.values()]).all()
        assert found[name].kind == "cross"
    once = cross_evaluate(Constant(1, 2), batch, discount=0.9, n_folds=3, **SMALL)
    assert once.to_dict()["estimates"][0]["estimate"] == found["b"].to_dict()["estimates"][0]["estimate"]
    # a policy that is the same in all folds has the weights that it has on the whole log
    assert once.estimates["weighted"].value == pytest.approx(hushed(Constant(1, 2), batch, n_folds=3, regression=SMALL["regression"]).estimates["weighted"].value)  # fmt: skip


def test_refitted_learners_have_not_seen_anything_and_given_policies_are_asked(batch, policy):
    with pytest.warns(EvidenceWarning, match="given: 50 % of these episodes are among those"):
        found = cross_evaluate({"learner": learner(), "given": policy}, batch, **SMALL)
    assert found["learner"].warnings == ()
    assert not found["learner"].unreliable
    assert found["given"].unreliable


def test_learners_that_differ_in_discount_need_one(batch):
    with pytest.raises(ValueError, match="learned with different ones"):
        cross_evaluate({"a": learner(0.0), "b": learner(0.5)}, batch)
    assert cross_evaluate({"a": learner(0.0), "b": learner(0.5)}, batch, discount=0.25, **SMALL)["a"].discount == 0.25


def test_what_a_learner_gains_on_its_own_episodes_is_not_there_in_others():
    """Noise alone: a learner finds a good policy in it, and cross evaluation does not."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 3))
    noise = Transitions(
        x, rng.integers(2, size=300), rng.normal(size=300), x, np.ones(300, dtype=bool), propensities=np.full(300, 0.5)
    )
    deep = CAPI(FittedQ(n_trees=5), Trees(max_depth=5), discount=0.0, n_iterations=1, random_state=0)
    fitted = hushed(deep.fit(noise).policy_, noise, discount=0.0, n_resamples=100)
    assert fitted.difference.bootstrap[0] > 0
    assert fitted.unreliable
    honest = cross_evaluate(deep, remade(noise), **{**SMALL, "n_resamples": 100})
    assert honest.difference.bootstrap[0] < 0 < honest.difference.bootstrap[1]
    assert not honest.unreliable


@pytest.mark.filterwarnings("ignore::capi.errors.EvidenceWarning")
def test_action_values_come_from_episodes_that_they_are_not_asked_for():
    n = 60
    x = np.arange(float(n))[:, None]
    batch = Transitions(x, np.arange(n) % 2, x[:, 0], x + 0.25, np.arange(n) % 3 == 2, episodes=np.arange(n) // 3, propensities=np.full(n, 0.5))  # fmt: skip
    kept = []

    class Asked:
        n_actions = 2

        def __init__(self, learned):
            self.learned = learned

        def values(self, states):
            kept.append((self.learned, {int(v) // 3 for v in states[:, 0]}))
            return np.zeros((len(states), 2))

    class Known:
        def evaluate(self, policy, transitions, **options):
            return Asked({int(v) // 3 for v in transitions.states[:, 0]})

    hushed(Uniform(2), batch, evaluator=Known(), n_folds=4, methods="doubly-robust")
    assert {i for _, asked in kept for i in asked} == set(range(20))
    for learned, asked in kept:
        assert learned.isdisjoint(asked)
        assert len(learned) == 15
