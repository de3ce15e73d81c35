"""A policy in a domain, what comes of it, and what is said when the domain misbehaves."""

from types import SimpleNamespace

import numpy as np
import pytest

from capi._utils.row_ops import draw_columns
from capi._utils.statistics import all_hold, bootstrap_interval, is_positive, standard_error
from capi.domains import ChainWalk
from capi.errors import InvalidInputError, SimulationError
from capi.policies import Constant, EpsilonGreedy, Tabular, Uniform
from capi.simulation import Performance, performance, sample_episodes, sample_steps, steps
from capi.simulation.engine import check_domain_fits


class Countdown:
    """State n goes to n - 1 and earns its action; at 0 it is over. Action 2 is allowed in even states only."""

    n_actions, feature_names, action_labels = 3, ("n",), ("a", "b", "c")
    discount = 0.5

    def initial(self, n, rng):
        return np.full((n, 1), 3.0) + rng.integers(0, 2, size=(n, 1))

    def step(self, states, actions, rng):
        return states - 1, actions.astype(float), states[:, 0] <= 1


class Masked(Countdown):
    def allowed(self, states):
        allowed = np.ones((len(states), 3), dtype=bool)
        allowed[states[:, 0] % 2 == 1, 2] = False
        return allowed


def test_returns_by_hand():
    found = performance(Constant(1, 3), Countdown(), starts=[[3.0], [1.0]], max_steps=10)
    np.testing.assert_allclose(found.returns, [1.75, 1.0])
    np.testing.assert_allclose(found.undiscounted, [3.0, 1.0])
    assert found.lengths.tolist() == [3, 1]
    assert found.terminated.tolist() == [True, True]
    cut = performance(Constant(1, 3), Countdown(), starts=[[3.0], [1.0]], max_steps=2, discount=0.0)
    assert cut.lengths.tolist() == [2, 1]
    assert cut.terminated.tolist() == [False, True]
    assert cut.returns.tolist() == [1.0, 1.0]


def test_episodes_are_whole_and_in_order():
    batch = sample_episodes(None, Countdown(), starts=[[3.0], [1.0], [4.0]], max_steps=3, random_state=0)
    assert batch.states[:, 0].tolist() == [3, 2, 1, 1, 4, 3, 2]
    assert batch.next_states[:, 0].tolist() == [2, 1, 0, 0, 3, 2, 1]
    assert batch.episodes.tolist() == [0, 0, 0, 1, 2, 2, 2]
    assert batch.terminated.tolist() == [False, False, True, True, False, False, False]
    np.testing.assert_allclose(batch.propensities, 1 / 3)
    assert batch.schema.action_labels == ("a", "b", "c")


def test_masks_of_the_domain_are_kept():
    batch = sample_episodes(None, Masked(), n_episodes=50, max_steps=9, random_state=0)
    odd = batch.states[:, 0] % 2 == 1
    assert not (batch.actions[odd] == 2).any()
    assert (batch.actions[~odd] == 2).any()
    assert batch.allowed[odd].sum(axis=1).tolist() == [2] * odd.sum()
    goes_on = ~batch.terminated
    np.testing.assert_array_equal(batch.next_allowed[goes_on, 2], batch.next_states[goes_on, 0] % 2 == 0)
    np.testing.assert_allclose(batch.propensities, np.where(odd, 1 / 2, 1 / 3))
    assert performance(Constant(2, 3), Masked(), starts=[[2.0]], max_steps=9).undiscounted.tolist() == [2.0]


def test_propensities_are_the_shares_with_which_actions_are_taken():
    policy = EpsilonGreedy(Constant(0, 2), 0.3)
    batch = sample_steps(policy, ChainWalk(), np.full((20_000, 1), 7.0), random_state=0)
    assert batch.episodes is None
    for action, share in ((0, 0.85), (1, 0.15)):
        taken = batch.actions == action
        np.testing.assert_allclose(batch.propensities[taken], share)
        assert taken.mean() == pytest.approx(share, abs=4 * np.sqrt(share * (1 - share) / 20_000))


def test_equal_seeds_give_equal_data():
    a, b, c = (sample_episodes(None, ChainWalk(), n_episodes=5, max_steps=20, random_state=s) for s in (1, 1, 2))
    np.testing.assert_array_equal(a.next_states, b.next_states)
    assert not np.array_equal(a.next_states, c.next_states)


def test_returns_agree_with_the_model():
    chain = ChainWalk(variant=2)
    policy = Tabular(np.where(np.arange(200) < 12, 1, 0), 2)
    found = performance(policy, chain, starts=np.full((4000, 1), 20.0), max_steps=800, random_state=0)
    exact = chain.mdp.values(policy)[20]
    assert found.mean == pytest.approx(exact, abs=4 * found.standard_error + 100 * 0.99**800)
    low, high = found.interval()
    assert low < found.mean < high
    assert high - low == pytest.approx(2 * 1.96 * found.standard_error, rel=0.15)


def test_a_policy_may_change_with_time():
    changing = Constant(0, 3)
    late = SimpleNamespace(n_actions=3, act=changing.act, probabilities=changing.probabilities)
    late.at = lambda t: Constant(t, 3)
    assert performance(late, Countdown(), starts=[[3.0]], max_steps=9).undiscounted.tolist() == [0 + 1 + 2]


def test_columns_are_drawn_by_their_probabilities():
    table = np.tile([0.2, 0.0, 0.5, 0.3, 0.0], (50_000, 1))
    shares = np.bincount(draw_columns(table, np.random.default_rng(0)), minlength=5) / 50_000
    np.testing.assert_allclose(shares, table[0], atol=0.01)
    assert shares[[1, 4]].tolist() == [0, 0]


class Raises(Countdown):
    def step(self, states, actions, rng):
        if states[0, 0] < 3:
            raise ZeroDivisionError("no more")
        return super().step(states, actions, rng)


class Nan(Countdown):
    def step(self, states, actions, rng):
        following, rewards, ends = super().step(states, actions, rng)
        rewards[1] = np.nan
        return following, rewards, ends


BROKEN = {
    "raises": (Raises(), r"Raises\.step failed at step 1 .*no more"),
    "nan": (Nan(), r"must return finite numbers; at step 0, from state \[3\.\] with action 0"),
}
for _name, _result, _message in (
    ("rewards", lambda x: (x - 1, np.zeros((len(x), 1)), np.zeros(len(x), dtype=bool)), "rewards of shape"),
    ("states", lambda x: (x[:, 0], np.zeros(len(x)), np.zeros(len(x), dtype=bool)), "next states of shape"),
    ("flags", lambda x: (x, np.zeros(len(x)), np.zeros(len(x))), "terminated as booleans"),
    ("two", lambda x: (x, np.zeros(len(x))), "must return next states, rewards and terminated"),
    ("nothing", lambda _: None, "must return next states, rewards and terminated"),
):
    _class = type("Broken", (Countdown,), {"step": lambda _, x, a, r, f=_result: f(x)})
    BROKEN[_name] = (_class(), _message)


@pytest.mark.parametrize("case", BROKEN)
def test_a_domain_that_misbehaves_is_named_with_the_step(case):
    domain, message = BROKEN[case]
    with pytest.raises(SimulationError, match=message):
        performance(Constant(0, 3), domain, starts=[[3.0], [3.0]], max_steps=5)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: performance(Constant(0, 2), Countdown(), n_episodes=1, max_steps=1), "domain's 3 actions; it has 2"),
        (
            lambda: performance(Constant(0, 3), Countdown(), max_steps=1),
            "n_episodes or starts must be given: the number of episodes, or their start states",
        ),
        (lambda: performance(Constant(0, 3), Countdown(), n_episodes=0, max_steps=1), "n_episodes"),
        (lambda: performance(Constant(0, 3), Countdown(), n_episodes=1, max_steps=0), "max_steps"),
        (lambda: performance(Constant(0, 3), Countdown(), starts=[[1.0, 2.0]], max_steps=1), "1 columns"),
        (lambda: performance(Constant(0, 3), "nothing", n_episodes=1, max_steps=1, discount=0.9), "domain must have"),
        (lambda: performance(Constant(0, 3), "nothing", n_episodes=1, max_steps=1), "discount must be given"),
        (lambda: sample_steps(None, Countdown(), [[np.nan]]), "states must be finite"),
        (lambda: EpsilonGreedy(Uniform(2), 1.5), "epsilon"),
        (lambda: bootstrap_interval(np.ones(3), 1.0), "level"),
        (lambda: performance(None, Countdown(), n_episodes=1, max_steps=1), "policy must be a Policy"),
        (lambda: performance(Constant, Countdown(), n_episodes=1, max_steps=1), "policy must be a Policy"),
        (lambda: sample_episodes(None, Countdown, n_episodes=1, max_steps=1), "Did you mean Countdown"),
        (lambda: sample_episodes(None, Countdown(), n_episodes=1, starts=[[1.0]], max_steps=1), "not both"),
        (lambda: EpsilonGreedy(None, 0.5), "policy must be a Policy"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(InvalidInputError, match=message):
        call()


def test_statistics_of_few_values():
    assert np.isnan(standard_error(np.ones(1)))
    assert np.isnan(bootstrap_interval(np.ones(1))).all()
    assert bootstrap_interval(np.full(9, 2.5)) == (2.5, 2.5)
    assert standard_error(np.array([1.0, 3.0])) == pytest.approx(1.0)
    one = Performance(np.array([2.0]), np.array([2.0]), np.array([7]), np.array([True]), 0.9)
    assert str(one) == "return 2 in one episode of 7 steps"


class Writes(Countdown):
    def step(self, states, actions, rng):
        states -= 1
        return states, actions.astype(float), states[:, 0] <= 0


class Wordy(Countdown):
    def step(self, states, actions, rng):
        return states - 1, np.array(["much"] * len(states)), states[:, 0] <= 1


class Starts(Countdown):
    def __init__(self, states):
        self.states = states

    def initial(self, n, rng):
        return 1 / 0 if self.states is None else self.states


def test_more_ways_to_misbehave():
    for domain, message in (
        (Writes(), "read-only"),
        (Wordy(), "rewards as numbers"),
        (Starts(np.ones((3, 1))), r"finite states of shape \(2, 1\); it returned \(3, 1\)"),
        (Starts(np.full((2, 1), np.nan)), "finite states"),
        (Starts(None), "initial failed"),
    ):
        with pytest.raises(SimulationError, match=message):
            performance(Constant(0, 3), domain, n_episodes=2, max_steps=5)


def test_the_given_starts_are_not_written_to():
    starts = np.array([[3.0]])
    with pytest.raises(SimulationError):
        performance(Constant(0, 3), Writes(), starts=starts, max_steps=5)
    assert starts[0, 0] == 3.0


class Odd:
    """A policy whose probabilities are whatever is given."""

    n_actions = 3

    def __init__(self, row):
        self.row = row

    def act(self, states, allowed=None):
        return np.zeros(len(states), dtype=int)

    def probabilities(self, states, allowed=None):
        return np.tile(self.row, (len(states), 1))


@pytest.mark.parametrize("row", [[0.5, 0.5], [1.0, 1.0, 1.0], [1.5, -0.5, 0.0], [np.nan, 0.5, 0.5]])
def test_probabilities_of_a_policy_are_checked(row):
    with pytest.raises(InvalidInputError, match=r"Odd.probabilities"):
        performance(Odd(row), Countdown(), n_episodes=1, max_steps=2)


def test_a_policy_that_ignores_masks_is_named():
    with pytest.raises(InvalidInputError, match="the actions of Odd must be allowed"):
        performance(Odd([0.0, 0.0, 1.0]), Masked(), starts=[[3.0]], max_steps=2)


def test_exploring_keeps_to_masks_and_to_time():
    batch = sample_episodes(EpsilonGreedy(Constant(2, 3), 0.5), Masked(), n_episodes=200, max_steps=9, random_state=0)
    odd = batch.states[:, 0] % 2 == 1
    assert not (batch.actions[odd] == 2).any()
    np.testing.assert_allclose(batch.propensities[odd & (batch.actions == 1)], 0.25)
    np.testing.assert_allclose(batch.propensities[~odd & (batch.actions == 2)], 0.5 + 0.5 / 3)
    late = SimpleNamespace(n_actions=3, act=Constant(0, 3).act, probabilities=Constant(0, 3).probabilities)
    late.at = lambda t: Constant(t, 3)
    assert performance(EpsilonGreedy(late, 0.0), Countdown(), starts=[[3.0]], max_steps=9).undiscounted.tolist() == [
        3.0
    ]


def test_the_same_seed_does_not_test_on_the_starts_that_it_sampled():
    sampled = sample_episodes(None, ChainWalk(), n_episodes=50, max_steps=1, random_state=0).states
    tested = []
    domain = ChainWalk()
    spy = SimpleNamespace(
        n_actions=2, feature_names=("state",), action_labels=("left", "right"), initial=domain.initial, discount=0.9
    )
    spy.step = lambda x, a, rng: (tested.append(x), domain.step(x, a, rng))[1]
    performance(Constant(0, 2), spy, n_episodes=50, max_steps=1, random_state=0)
    assert not np.array_equal(tested[0], sampled)


def test_intervals_widen_with_their_level_and_are_normal_for_many():
    values = np.random.default_rng(0).normal(size=500)
    narrow, wide = (np.diff(bootstrap_interval(values, level))[0] for level in (0.5, 0.99))
    assert narrow < wide
    many = np.random.default_rng(0).normal(size=20_000)
    np.testing.assert_allclose(np.diff(bootstrap_interval(many)), 2 * 1.95996 * standard_error(many), rtol=1e-4)


def test_verdicts():
    assert is_positive(np.array([1.0, 1.1, 0.9])) is True
    assert is_positive(-np.array([1.0, 1.1, 0.9])) is False
    assert is_positive(np.array([1.0, -1.1, 0.9])) is None
    assert is_positive(np.array([1.0])) is None
    assert is_positive(np.zeros(9)) is None
    assert all_hold([True, True]) is True
    assert all_hold([True, None]) is None
    assert all_hold([True, None, False]) is False
    assert all_hold([]) is None


class Lost(Countdown):
    def step(self, states, actions, rng):
        following, rewards, ends = super().step(states, actions, rng)
        return np.where(following < 2, np.inf, following), rewards, ends


def test_next_states_that_are_no_numbers_are_named():
    with pytest.raises(SimulationError, match="at step 1, from state"):
        performance(Constant(0, 3), Lost(), starts=[[3.0]], max_steps=5)


def test_a_policy_with_more_actions_is_refused():
    with pytest.raises(InvalidInputError, match="3 actions; it has 4"):
        performance(Constant(0, 4), Countdown(), n_episodes=1, max_steps=1)


def test_starts_follow_the_seed():
    a, b = (sample_episodes(None, Countdown(), n_episodes=50, max_steps=1, random_state=s).states for s in (0, 1))
    assert not np.array_equal(a, b)


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("sample_episodes", lambda: sample_episodes(Countdown(), Uniform(3), n_episodes=1, max_steps=1)),
        ("sample_episodes", lambda: sample_episodes(Countdown(), n_episodes=1, max_steps=1)),
        ("sample_steps", lambda: sample_steps(Countdown(), Uniform(3), [[1.0]])),
        ("sample_steps", lambda: sample_steps(Countdown(), [[1.0]], Uniform(3))),
        ("performance", lambda: performance(Countdown(), Uniform(3), n_episodes=1, max_steps=1)),
        ("steps", lambda: steps(Countdown(), Uniform(3), np.ones((1, 1)), 1, np.random.default_rng(0))),
        ("check_domain_fits", lambda: check_domain_fits(Countdown(), Uniform(3))),
    ],
)
def test_the_domain_before_the_policy_is_refused_with_the_right_order(name, call):
    with pytest.raises(
        InvalidInputError, match=rf"^{name} takes the policy first.*Write {name}\(policy, domain, \.\.\.\)\."
    ):
        call()


def test_no_policy_decides_at_random():
    with pytest.raises(InvalidInputError, match="With None as the policy, actions are uniformly random"):
        sample_episodes(Countdown(), n_episodes=1, max_steps=1)
    settings = {"n_episodes": 5, "max_steps": 9, "random_state": 0}
    assert sample_episodes(None, Countdown(), **settings) == sample_episodes(Uniform(3), Countdown(), **settings)
    given = {"policy": None, "domain": Countdown(), "states": [[3.0]], "random_state": 0}
    assert len(sample_steps(**given)) == 1
