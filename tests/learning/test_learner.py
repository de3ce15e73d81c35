from dataclasses import dataclass

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone

from capi import CAPI, FiniteMDP, Transitions
from capi.domains import ChainWalk
from capi.errors import InvalidInputError, NotFittedError
from capi.evaluators import Exact
from capi.finite import TabularQ
from capi.policies import Constant, Tabular, Uniform
from capi.policy_spaces import Partition, Thresholds, Unrestricted
from capi.testing import random_batch
from capi.types import StateSample

MDP = ChainWalk(variant=1, success=0.7).mdp


def learner(**options):
    settings = {"evaluator": Exact(MDP, n_sweeps=1), "space": Thresholds(), "discount": 0.99, "n_iterations": 6}
    return CAPI(**{**settings, **options})


class RewardByAction:
    """An evaluator for tests: the mean reward of each action in the batch, plus noise from its rng."""

    def __init__(self, noise=0.0):
        self.noise = noise

    def evaluate(self, policy, transitions, *, discount, states=None, previous=None, rng=None):
        n_actions = transitions.n_actions
        means = [transitions.rewards[transitions.actions == a].mean() for a in range(n_actions)]
        values = np.array(means) + (self.noise * rng.normal(size=n_actions) if self.noise else 0.0)
        return ConstantQ(values)


@dataclass(frozen=True, eq=False)
class InProbabilities:
    """A deterministic policy that is not recognisable as one."""

    policy: Tabular

    @property
    def n_actions(self):
        return self.policy.n_actions

    def act(self, states, allowed=None):
        return self.policy.act(states, allowed)

    def probabilities(self, states, allowed=None):
        return self.policy.probabilities(states, allowed)


@pytest.mark.parametrize("weighted", [False, True])
def test_actions_are_measured_like_their_probabilities(weighted):
    """Deterministic policies are compared by their actions, all others by their probabilities."""

    def hidden(old, new, *, q, states, k):
        return InProbabilities(new)

    def hidden_at_times(old, new, *, q, states, k):
        return InProbabilities(new) if k % 2 else new

    weights = np.random.default_rng(0).integers(0, 3, size=len(MDP.states)) if weighted else None
    plain, *others = (
        learner(update=update, initial_policy=Constant(1, 2)).fit(states=(MDP.states, weights)).history_
        for update in (None, hidden, hidden_at_times)
    )
    for history in others:
        for one, other in zip(plain, history, strict=True):
            assert {**one, "seconds": 0} == {**other, "seconds": 0}


class ConstantQ:
    def __init__(self, row):
        self.row, self.n_actions = row, len(row)

    def values(self, states):
        return np.tile(self.row, (len(states), 1))


def cells(states):
    return np.zeros(len(states), dtype=int)


def test_each_round_is_one_evaluation_and_one_improvement():
    rounds = list(learner().iterate())
    assert [r.k for r in rounds] == list(range(6))
    policy, q = Constant(0, 2), np.zeros((200, 2))
    for r in rounds:
        q = MDP.bellman(policy, q)
        np.testing.assert_array_equal(r.q.table, q)
        old, policy = policy, Thresholds().improve(MDP.states, q)
        np.testing.assert_array_equal(r.policy.act(MDP.states), policy.act(MDP.states))
        assert r.changed == (old.act(MDP.states) != policy.act(MDP.states)).mean()
        regret = q.max(axis=1) - q[np.arange(200), policy.act(MDP.states)]
        assert r.loss == pytest.approx(regret.mean(), abs=1e-14)
        assert r.seconds > 0


def test_fit_keeps_the_last_policy_and_the_numbers_of_every_round():
    fitted = learner().fit()
    rounds = list(learner().iterate())
    assert [h["loss"] for h in fitted.history_] == [r.loss for r in rounds]
    assert set(fitted.history_[0]) == {"k", "loss", "changed", "value", "seconds"}
    for r in rounds:  # without weights or masks: what the greedy policy is worth, but for the loss
        best = r.q.values(MDP.states).max(axis=1).mean()
        assert np.isclose(r.value, best - r.loss)
    np.testing.assert_array_equal(fitted.policy_.act(MDP.states), rounds[-1].policy.act(MDP.states))
    np.testing.assert_array_equal(fitted.q_.table, rounds[-1].q.table)
    assert fitted.policy_.training.discount == 0.99


def test_with_all_policies_it_is_policy_iteration():
    policy = Constant(0, 2)
    for r in learner(evaluator=Exact(MDP), space=Unrestricted(), n_iterations=15).iterate():
        expected = MDP.greedy(MDP.action_values(policy))
        np.testing.assert_array_equal(r.policy.act(MDP.states), expected.actions)
        policy = expected
    assert MDP.performance_loss(policy) == pytest.approx(0, abs=1e-10)


def test_zero_one_loss_minimises_the_share_of_wrong_states():
    start = MDP.optimal_policy
    fitted = learner(evaluator=Exact(MDP), loss="zero-one", n_iterations=1, initial_policy=start).fit()
    assert MDP.performance_loss(fitted.policy_) == pytest.approx(22.98, abs=0.005)
    assert fitted.history_[0]["loss"] == 27 / 200


def test_same_random_state_same_bytes_and_another_one_differs():
    def noisy(seed):
        batch = random_batch()
        settings = {"evaluator": RewardByAction(noise=5.0), "space": Partition(cells), "discount": 0.5}
        return [r.q.row for r in CAPI(**settings, n_iterations=4, random_state=seed).iterate(batch)]

    np.testing.assert_array_equal(noisy(1), noisy(1))
    assert not np.array_equal(noisy(1), noisy(2))
    assert len(np.unique(noisy(1))) == 12, "every round draws anew"


@dataclass(frozen=True)
class Mixture:
    """Draws from the first policy with probability 0.9, else from the second."""

    one: object
    other: object
    n_actions: int = 2

    def probabilities(self, states, allowed=None):
        return 0.9 * self.one.probabilities(states) + 0.1 * self.other.probabilities(states)

    def act(self, states, allowed=None):
        return self.probabilities(states).argmax(axis=1)


def test_a_policy_whose_probabilities_still_move_has_not_settled():
    """A conservative update moves the mixture, not its most probable action: patience must see that."""
    settings = {"evaluator": Exact(MDP), "space": Unrestricted(), "n_iterations": 30}
    mixed = learner(**settings, update=lambda old, new, **_: Mixture(old, new), patience=1)
    rounds = list(mixed.iterate())
    assert len(rounds) == 30
    p = rounds[0].policy.probabilities(MDP.states)
    regret = rounds[0].q.table.max(axis=1, keepdims=True) - rounds[0].q.table
    assert rounds[0].loss == pytest.approx((p * regret).sum(axis=1).mean())
    assert 0 < rounds[0].changed < 0.1


@pytest.mark.parametrize("seed", [3, None, np.random.default_rng(5)], ids=["int", "none", "generator"])
def test_a_round_that_was_left_goes_on_with_any_random_state(seed):
    noisy = CAPI(RewardByAction(noise=5.0), Partition(cells), 0.5, 5, random_state=seed)
    batch = random_batch()
    whole = list(noisy.iterate(batch))
    rest = list(noisy.iterate(batch, after=whole[2]))
    np.testing.assert_array_equal([r.q.row for r in whole[3:]], [r.q.row for r in rest])


def test_a_function_may_use_its_buffer_again():
    buffer = np.zeros((2, 1))

    def reused(k, policy, rng):
        buffer[:] = [[k % 2], [k % 2 + 2]]
        return buffer

    def fresh(k, policy, rng):
        return np.array([[k % 2], [k % 2 + 2.0]])

    first, second = (learner(space=Unrestricted()).fit(states=f).history_ for f in (reused, fresh))
    assert [h["changed"] for h in first] == [h["changed"] for h in second]


def test_a_failed_fit_leaves_nothing_of_an_earlier_one():
    fitted = learner().fit()
    fitted.set_params(update=lambda old, new, **_: None)
    with pytest.raises(InvalidInputError, match="no policy was learned"):
        fitted.fit()
    with pytest.raises(NotFittedError, match="has no schema_ yet"):
        fitted.predict(MDP.states)
    assert not hasattr(fitted, "policy_")


def test_a_round_that_was_left_goes_on_as_if_it_had_not_been():
    settings = {"evaluator": RewardByAction(noise=5.0), "space": Partition(cells), "discount": 0.5, "n_iterations": 5}
    batch = random_batch()
    whole = list(CAPI(**settings, random_state=3).iterate(batch))
    rest = list(CAPI(**settings, random_state=3).iterate(batch, after=whole[1]))
    assert [r.k for r in rest] == [2, 3, 4]
    for a, b in zip(whole[2:], rest, strict=True):
        np.testing.assert_array_equal(a.q.row, b.q.row)
        assert (a.loss, a.changed, a.n_unchanged) == (b.loss, b.changed, b.n_unchanged)


def test_everything_may_be_a_function_of_the_round():
    seen = []

    def batches(k, policy, rng):
        seen.append(("batch", k, type(policy).__name__))
        return random_batch(seed=int(rng.integers(1000)))

    def evaluators(k, policy, rng):
        seen.append(("evaluator", k, type(policy).__name__))
        return RewardByAction(noise=1.0 / (k + 1))

    def spaces(k, policy, rng):
        return Partition(cells, default=k % 3)

    def samples(k, policy, rng):
        return rng.normal(size=(10 + k, 2)), np.ones(10 + k)

    settings = {"evaluator": evaluators, "space": spaces, "discount": 0.9, "n_iterations": 3, "random_state": 0}
    fitted = CAPI(**settings, initial_policy=Constant(0, 3)).fit(batches, states=samples)
    again = CAPI(**settings, initial_policy=Constant(0, 3)).fit(batches, states=samples)
    assert [entry[:2] for entry in seen[:6]] == [(kind, k) for k in range(3) for kind in ("batch", "evaluator")]
    assert seen[2][2] == "PartitionPolicy", "the function is given the current policy"
    np.testing.assert_array_equal(fitted.q_.row, again.q_.row)


def test_states_may_come_with_weights_and_masks():
    q = TabularQ(np.array([[1.0, 0.0], [0.0, 0.9]]))

    class Fixed:
        def evaluate(self, policy, transitions, **_):
            return q

    def one_round(states):
        settings = {"evaluator": Fixed(), "space": Partition(cells), "discount": 0.5, "n_iterations": 1}
        return CAPI(**settings, initial_policy=Constant(0, 2)).fit(states=states)

    states = np.array([[0.0], [1.0]])
    assert one_round(states).predict(states).tolist() == [0, 0]
    assert one_round((states, [1.0, 2.0])).predict(states).tolist() == [1, 1]
    mask = np.array([[False, True], [True, True]])
    masked = one_round(StateSample(states, None, mask))
    assert masked.predict(states, allowed=mask).tolist() == [1, 1]
    with pytest.raises(InvalidInputError, match="pass allowed"):
        masked.predict(states)


class RowQ:
    """Evaluates to given values of the batch's rows, whose only feature is the row number; remembers its calls."""

    def __init__(self, table):
        self.table, self.n_actions, self.calls = np.asarray(table, dtype=float), len(table[0]), []

    def evaluate(self, policy, transitions, *, states=None, rng=None, **_):
        self.calls.append((states, rng.random()))
        return self

    def values(self, states):
        return self.table[states[:, 0].astype(int)]


def numbered_batch(**columns):
    x = np.arange(3.0)[:, None]
    return Transitions(x, [0, 0, 0], np.zeros(3), x, np.zeros(3), n_actions=3, **columns)


def one_cell(table, batch, **options):
    evaluator = table if isinstance(table, RowQ) else RowQ(table)
    settings = {"evaluator": evaluator, "space": Partition(cells), "discount": 0.5, "n_iterations": 1}
    return CAPI(**{**settings, **options}).fit(batch)


def test_weights_of_the_batch_count_in_the_policy_the_loss_and_the_change():
    """Rows 0 and 1 prefer action 0 by 1, row 2 prefers action 1 by 1; row 2 counts as much as three."""
    table = [[1.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]
    plain, weighted = one_cell(table, numbered_batch()), one_cell(table, numbered_batch(weights=[1.0, 1.0, 3.0]))
    assert plain.predict([[0.0]])[0] == 0
    assert weighted.predict([[0.0]])[0] == 1
    assert plain.history_[0]["loss"] == pytest.approx(1 / 3)
    assert weighted.history_[0]["loss"] == pytest.approx((1 + 1 + 0) / 5)

    start = Tabular(np.array([1, 0, 1]), n_actions=3)
    moved = one_cell(table, numbered_batch(weights=[1.0, 1.0, 3.0]), initial_policy=start)
    assert moved.history_[0]["changed"] == pytest.approx(1 / 5), "only row 1 changes, from 0 to 1"


@pytest.mark.parametrize("loss", ["gap", "zero-one"])
def test_masks_of_the_batch_count_in_the_policy_and_the_loss(loss):
    """Action 2 is best everywhere but not allowed; among the others action 1 is best in two rows of three."""
    table = [[1.0, 2.0, 9.0], [1.0, 2.0, 9.0], [1.5, 1.0, 9.0]]
    mask = np.array([[True, True, False]] * 3)
    fitted = one_cell(table, numbered_batch(allowed=mask), loss=loss)
    assert fitted.predict([[0.0]], allowed=mask[:1])[0] == 1
    assert fitted.history_[0]["loss"] == pytest.approx({"gap": 0.5 / 3, "zero-one": 1 / 3}[loss])


def test_the_evaluator_receives_the_states_of_the_improvement():
    evaluator = RowQ([[1.0, 0.0, 0.0]] * 3)
    batch = numbered_batch()
    one_cell(evaluator, batch)
    np.testing.assert_array_equal(evaluator.calls[0][0], batch.states)


class RememberingSpace(Partition):
    drawn = ()

    def improve(self, states, q_values, *, rng=None, **options):
        type(self).drawn += (rng.random(),)
        return super().improve(states, q_values, **options)


def test_evaluator_and_space_draw_from_streams_of_their_own_in_each_round():
    evaluator, space = RowQ([[1.0, 0.0, 0.0]] * 3), RememberingSpace(cells)
    one_cell(evaluator, numbered_batch(), space=space, n_iterations=4, random_state=0)
    drawn = [number for _, number in evaluator.calls] + list(space.drawn)
    assert len(set(drawn)) == 8


def test_functions_of_the_round_bring_their_words_too():
    chain = ChainWalk(variant=2)
    by_function = learner(
        evaluator=lambda k, policy, rng: Exact(chain.mdp, n_sweeps=1), initial_policy=Constant(0, 2)
    ).fit()
    assert by_function.predict([[3.0]]).tolist() == ["right"]

    def batches(k, policy, rng):
        return numbered_batch(action_labels=["a", "b", "c"] if k < 2 else ["x", "y", "z"])

    named = CAPI(RowQ([[0.0, 1.0, 0.0]] * 3), Partition(cells), 0.5, 2, initial_policy=Constant(0, 3)).fit(batches)
    assert named.predict([[0.0]]).tolist() == ["b"]
    with pytest.raises(InvalidInputError, match="features and actions must not change between rounds; at k = 2"):
        named.set_params(n_iterations=3).fit(batches)


def test_the_batch_brings_its_states_weights_and_words():
    batch = Transitions(
        states=[[0.0], [0.0]],
        actions=[0, 1],
        rewards=[1.0, 2.0],
        next_states=[[0.0], [0.0]],
        terminated=[True, True],
        action_labels=["wait", "treat"],
        feature_names=["load"],
    )
    fitted = CAPI(RewardByAction(), Thresholds(), 0.0, 1).fit(batch)
    assert fitted.predict([[0.0]]).tolist() == ["treat"]
    assert fitted.policy_.rules() == "always treat"
    assert fitted.policy_.training.n_rows == 2
    with pytest.raises(InvalidInputError, match="must have 1 columns"):
        fitted.predict([[0.0, 1.0]])


def test_patience_stops_when_decisions_have_stood_still_for_so_many_rounds():
    assert len(learner(n_iterations=50, patience=1).fit().history_) == 1, "the first round moves nothing here"
    history = learner(n_iterations=50, patience=2).fit().history_
    assert [h["changed"] == 0 for h in history] == [True, False, False, False, True, True]


def test_patience_survives_a_break():
    settings = {"n_iterations": 50, "patience": 2}
    rounds = list(learner(**settings).iterate())
    assert [r.k for r in learner(**settings).iterate(after=rounds[-2])] == [rounds[-1].k]
    assert list(learner(**settings).iterate(after=rounds[-1])) == []


def test_keep_returns_the_best_by_the_users_score():
    def score(iteration):
        return -abs(iteration.k - 2)

    fitted = learner(keep=score).fit()
    rounds = list(learner().iterate())
    np.testing.assert_array_equal(fitted.q_.table, rounds[2].q.table)
    assert [h["score"] for h in fitted.history_] == [-2, -1, 0, -1, -2, -3]
    assert fitted.policy_.training.n_iterations == 3


@pytest.mark.parametrize("score", [1.0, -np.inf])
def test_keep_takes_the_first_among_equals(score):
    fitted = learner(keep=lambda iteration: score).fit()
    assert fitted.policy_.training.n_iterations == 1


def test_update_says_how_the_new_policy_enters_and_may_end_the_loop():
    def stubborn(old, new, *, q, states, k):
        return old if k < 2 else new if k < 4 else None

    rounds = list(learner(update=stubborn).iterate())
    assert len(rounds) == 4
    assert isinstance(rounds[1].policy, Constant)
    assert rounds[2].changed > 0


def test_a_stochastic_policy_can_go_round():
    rounds = list(learner(update=lambda old, new, **_: Uniform(2), n_iterations=3).iterate())
    np.testing.assert_allclose(rounds[2].q.table, MDP.bellman(Uniform(2), rounds[1].q.table))


def test_an_interrupted_fit_keeps_what_it_had():
    def interrupt(iteration):
        if iteration.k == 3:
            raise KeyboardInterrupt
        return iteration.k

    interrupted = learner(keep=interrupt)
    with pytest.raises(KeyboardInterrupt):
        interrupted.fit()
    assert len(interrupted.history_) == 3
    assert interrupted.predict(MDP.states).shape == (200,)


def test_an_interrupted_search_interrupts_the_loop():
    """A tree that depends on when Ctrl-C was pressed is not a result, and the next round must not start."""

    class Searched(Constant):
        stopped_by = None

    class Space:
        calls = 0

        def improve(self, states, q_values, **_):
            self.calls += 1
            policy = Searched(0, 2)
            policy.stopped_by = "interrupt" if self.calls == 3 else "node_limit"
            return policy

    interrupted = learner(space=Space())
    with pytest.raises(KeyboardInterrupt):
        interrupted.fit()
    assert len(interrupted.history_) == 2


def test_progress_goes_to_standard_error_when_asked(capsys):
    learner().fit()
    assert capsys.readouterr() == ("", "")
    learner().fit(progress=True)
    out, err = capsys.readouterr()
    assert out == ""
    assert "6/6" in err
    assert "loss" in err


def test_follows_scikit_learn():
    original = learner(patience=3)
    copy = clone(original)
    assert copy is not original
    assert copy.get_params()["patience"] == 3
    assert not hasattr(clone(original.fit()), "policy_")
    assert original.set_params(n_iterations=2) is original
    assert len(original.fit().history_) == 2
    assert repr(CAPI(Exact, Thresholds(), 0.9, patience=3)).endswith("discount=0.9, patience=3)")
    with pytest.raises(InvalidInputError, match="a parameter of CAPI must be one of"):
        original.set_params(gamma=0.9)


def test_predict_before_fit_is_refused():
    with pytest.raises(NotFittedError, match="call fit first"):
        learner().predict(MDP.states)


class Mute:
    """An evaluator that forgets to return."""

    n_actions = 2

    def evaluate(self, policy, transitions, **_):
        return None


class Broken:
    """Returns what it is told to."""

    def __init__(self, values=None, policy=None):
        self.returned, self.policy, self.n_actions = values, policy, 2

    def evaluate(self, policy, transitions, **_):
        return self

    def values(self, states):
        return self.returned

    def improve(self, states, q_values, **_):
        return self.policy


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"discount": 1.0}, r"discount must lie in \[0, 1\)"),
        ({"discount": 0.5}, "discount must be that of the model"),
        ({"n_iterations": 0}, "n_iterations must be an integer, at least 1"),
        ({"evaluator": Exact}, r"evaluator must have the method evaluate.*Did you mean Exact\(\)"),
        ({"space": "trees"}, "space must have the method improve"),
        ({"loss": "hinge"}, "loss must be one of 'gap', 'zero-one'"),
        ({"initial_policy": 0}, r"initial_policy must be a Policy.*Constant"),
        ({"keep": "first"}, "keep must be 'last', 'best' or a function"),
        ({"state_weights": "visits"}, "state_weights must be one of"),
        ({"accept": "all"}, "accept must be one of"),
        ({"keep": lambda iteration: np.nan}, "at k = 0 it returned nan"),
        ({"patience": 0}, "patience must be an integer, at least 1"),
        ({"update": 3}, "update must be a function"),
        ({"update": lambda old, new, **_: 5}, "update must return a Policy or None; got 5"),
        ({"keep": lambda iteration: None}, "at k = 0 it returned None"),
        ({"keep": np.zeros(2)}, "keep must be 'last', 'best' or a function"),
        ({"loss": np.zeros(2)}, "loss must be one of"),
        ({"update": lambda old, new, **_: None}, "no policy was learned"),
        ({"random_state": "x"}, "random_state must be"),
        (
            {"evaluator": lambda k, policy, rng: 3, "initial_policy": Uniform(2)},
            "must return a PolicyEvaluator; at k = 0 it returned 3",
        ),
        ({"evaluator": Broken(np.zeros((200, 3)) * np.nan)}, r"Broken's Q must be finite.*\[0, 0\] = nan"),
        ({"evaluator": Broken(np.zeros((5, 2)))}, "Broken's Q must have one row per state: 200"),
        ({"space": Broken()}, "Broken.improve must return a Policy; got None"),
        ({"space": Broken(policy=Constant(0, 3))}, "must return a Policy with 2 actions; got one with 3"),
        ({"evaluator": Broken(np.zeros((200, 3)))}, "Broken's Q must have one column per action; it has 3"),
        ({"evaluator": Mute()}, "Mute.evaluate must return a QFunction"),
    ],
)
def test_bad_settings_are_refused_with_a_sentence(options, words):
    with pytest.raises(InvalidInputError, match=words):
        learner(**options).fit(states=MDP.states)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"transitions": np.zeros((3, 2))}, "transitions must be Transitions.*got a ndarray"),
        ({"states": np.zeros((0, 1))}, "states must have at least one row"),
        ({"states": [0.0, 1.0]}, "states must have two dimensions"),
        ({"states": (MDP.states, [1.0])}, r"weights must have shape \(200,\)"),
        ({"states": (MDP.states, None, np.zeros((200, 2)))}, "allowed must allow at least one action"),
        ({"states": [[0.5]]}, "state indices"),
        ({"states": ()}, "a tuple of 0"),
    ],
)
def test_bad_data_are_refused_with_a_sentence(arguments, words):
    with pytest.raises(InvalidInputError, match=words):
        learner().fit(**arguments)


def test_without_states_or_number_of_actions_there_is_a_clear_word():
    blind = Broken(np.zeros((1, 2)))
    with pytest.raises(InvalidInputError, match="states must be given: neither a batch nor Broken provides them"):
        learner(evaluator=blind).fit()
    with pytest.raises(InvalidInputError, match="transitions or initial_policy must be given"):
        learner(evaluator=lambda k, policy, rng: blind).fit()


def test_a_model_of_its_own_size_is_no_toy():
    """Five thousand sparse states through the loop end at an optimal policy."""
    rng = np.random.default_rng(0)
    S = 5_000
    rows = np.repeat(np.arange(S), 3)
    parts = []
    for _ in range(3):
        weight = rng.random((S, 3)) + 0.1
        weight /= weight.sum(axis=1, keepdims=True)
        parts.append(sp.csr_array((weight.ravel(), (rows, rng.integers(S, size=3 * S))), shape=(S, S)))
    mdp = FiniteMDP(parts, rng.random((S, 3)), 0.9)
    learned = CAPI(Exact(mdp), Unrestricted(), 0.9, 12, patience=1).fit()
    assert mdp.performance_loss(learned.policy_) == pytest.approx(0, abs=1e-9)
