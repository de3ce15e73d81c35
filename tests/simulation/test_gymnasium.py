import pickle
import subprocess
import sys
import warnings

import numpy as np
import pytest

import capi.simulation.gymnasium
from capi.domains import ChainWalk
from capi.errors import InvalidInputError, SimulationError
from capi.policies import Constant, EpsilonGreedy, Uniform
from capi.simulation import performance, sample_episodes
from capi.simulation.engine import check_domain_fits

gymnasium = pytest.importorskip("gymnasium")
spaces = gymnasium.spaces
registration = gymnasium.envs.registration


class Counter(gymnasium.Env):
    """Counts its steps and takes what its tests want it to do; ends after four steps."""

    def __init__(self, observe=lambda t: np.array([float(t)]), space=None, actions=None, reward=lambda t: 1.0):
        self.observation_space = spaces.Box(-np.inf, np.inf, (1,), np.float64) if space is None else space
        self.action_space = spaces.Discrete(2) if actions is None else actions
        self.observe, self.reward = observe, reward
        self.taken, self.seeds = [], []

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.seeds.append(seed)
        self.t = 0
        return self.observe(0), {}

    def step(self, action):
        self.taken.append(action)
        self.t += 1
        return self.observe(self.t), self.reward(self.t), self.t == 4, False, {}


class FromTheClock:
    """Action t mod 2 at time t."""

    def at(self, t):
        return Constant(t % 2, n_actions=2)

    n_actions = 2


def same(a, b):
    return all(np.array_equal(getattr(a, name), getattr(b, name)) for name in ("states", "actions", "next_states"))


# An environment as source of data and test bench


def test_is_environment():
    assert capi.simulation.gymnasium.is_environment(gymnasium.make("CartPole-v1"))
    assert capi.simulation.gymnasium.is_environment(Counter())
    assert not capi.simulation.gymnasium.is_environment(ChainWalk())
    assert not capi.simulation.gymnasium.is_environment(Counter)


def test_gymnasium_is_not_imported_before_it_is_needed():
    code = (
        "import sys, capi.simulation, capi.simulation, capi.simulation.gymnasium as g; "
        "assert not g.is_environment(1); assert 'gymnasium' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_fall_is_terminated():
    batch = sample_episodes(
        Constant(1, n_actions=2), gymnasium.make("CartPole-v1"), n_episodes=3, max_steps=500, random_state=0
    )
    last = np.append(batch.episodes[1:] != batch.episodes[:-1], True)
    np.testing.assert_array_equal(batch.terminated, last)
    np.testing.assert_array_equal(batch.next_states[~last], batch.states[np.flatnonzero(~last) + 1])
    assert batch.schema.feature_names == ("obs_0", "obs_1", "obs_2", "obs_3")
    assert batch.schema.action_labels == (0, 1)


@pytest.mark.parametrize(
    ("env", "max_steps"), [(gymnasium.make("CartPole-v1"), 5), (gymnasium.make("CartPole-v1", max_episode_steps=5), 99)]
)
def test_an_episode_that_is_cut_off_is_not_terminated(env, max_steps):
    batch = sample_episodes(Constant(1, n_actions=2), env, n_episodes=3, max_steps=max_steps, random_state=0)
    assert len(batch) == 15
    assert not batch.terminated.any()


def test_the_policys_probabilities_are_recorded():
    policy = EpsilonGreedy(Constant(0, n_actions=2), 0.4)
    batch = sample_episodes(policy, gymnasium.make("CartPole-v1"), n_episodes=20, max_steps=50, random_state=0)
    np.testing.assert_allclose(batch.propensities, np.where(batch.actions == 0, 0.8, 0.2))
    assert set(batch.actions) == {0, 1}


def test_equal_seeds_give_equal_data():
    settings = {"n_episodes": 4, "max_steps": 20}
    env = gymnasium.make("CartPole-v1")
    first, again = (sample_episodes(None, env, **settings, random_state=3) for _ in range(2))
    other = sample_episodes(None, env, **settings, random_state=4)
    assert same(first, again)
    assert not np.array_equal(first.states[0], other.states[0])
    assert len(np.unique(first.states[:, 0][np.diff(first.episodes, prepend=-1) > 0])) == 4  # each has its own start


def test_the_starts_do_not_depend_on_the_policy():
    """So that policies are compared on the same ones."""
    env = Counter()
    for policy in (Constant(0, n_actions=2), Uniform(2)):
        sample_episodes(policy, env, n_episodes=3, max_steps=4, random_state=0)
    assert env.seeds[:3] == env.seeds[3:]
    assert len(set(env.seeds)) == 3


def test_the_starts_are_written_as_episodes_begin():
    env = gymnasium.make("CartPole-v1")
    starts, steps = capi.simulation.gymnasium.run(Uniform(2), env, 3, 10, np.random.default_rng(0))
    assert starts.shape == (3, 4)
    assert not starts.any()
    taken = list(steps)
    np.testing.assert_array_equal(starts, [step.states[0] for step in taken if step.t == 0])
    assert all(step.rewards.shape == step.terminated.shape == step.running.shape == (1,) for step in taken)


def test_performance_counts_steps_and_discounts_within_each_episode():
    result = performance(Uniform(2), Counter(), n_episodes=3, max_steps=10, discount=0.5)
    assert result.lengths.tolist() == [4, 4, 4]
    assert result.terminated.all()
    np.testing.assert_allclose(result.returns, 1 + 0.5 + 0.25 + 0.125)
    np.testing.assert_allclose(result.undiscounted, 4)
    cut = performance(Uniform(2), Counter(), n_episodes=2, max_steps=3, discount=0.5)
    assert cut.lengths.tolist() == [3, 3]
    assert not cut.terminated.any()


def test_performance_of_a_policy_that_balances():
    env = gymnasium.make("CartPole-v1")

    class Upright:
        n_actions = 2

        def act(self, states, allowed=None):
            return self.probabilities(states).argmax(axis=1)

        def probabilities(self, states, allowed=None):
            return np.eye(2)[(states[:, 2] + 0.5 * states[:, 3] > 0).astype(int)]

    result = performance(Upright(), env, n_episodes=3, max_steps=1000, discount=0.9)
    assert result.lengths.tolist() == [500, 500, 500]  # where CartPole-v1 truncates
    assert not result.terminated.any()


def test_a_policy_may_change_with_time():
    env = Counter()
    sample_episodes(FromTheClock(), env, n_episodes=2, max_steps=4)
    assert env.taken == [0, 1, 0, 1] * 2


def test_actions_are_counted_from_the_environments_first():
    env = Counter(actions=spaces.Discrete(3, start=5))
    batch = sample_episodes(None, env, n_episodes=10, max_steps=4, random_state=0)
    assert batch.schema.action_labels == (5, 6, 7)
    np.testing.assert_array_equal(batch.actions, np.array(env.taken) - 5)
    assert set(batch.actions) == {0, 1, 2}


def test_finite_states_are_one_column_from_zero():
    batch = sample_episodes(None, gymnasium.make("FrozenLake-v1"), n_episodes=20, max_steps=50, random_state=0)
    assert batch.schema.feature_names == ("state",)
    assert batch.states[0, 0] == 0
    assert batch.states.shape[1] == 1
    shifted = Counter(lambda t: np.uint8(3 + t), spaces.Discrete(5, start=3, dtype=np.uint8))
    assert sample_episodes(None, shifted, n_episodes=1, max_steps=9).states[:, 0].tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("space", "observe", "row"),
    [
        (spaces.Box(0, 9, (2, 3)), lambda t: np.arange(6.0).reshape(2, 3), [0, 1, 2, 3, 4, 5]),
        (spaces.Box(0, 9, ()), lambda t: np.float32(2), [2]),
        (spaces.Box(0, 255, (2,), np.uint8), lambda t: np.array([7, 255], dtype=np.uint8), [7, 255]),
        (spaces.MultiDiscrete([2, 3]), lambda t: np.array([1, 0]), [0, 1, 1, 0, 0]),
        (spaces.MultiBinary(2), lambda t: np.array([0, 1], dtype=np.int8), [0, 1]),
        (spaces.Tuple([spaces.Discrete(2), spaces.Box(0, 9, (1,))]), lambda t: (1, np.array([4.0])), [0, 1, 4]),
        (
            spaces.Dict({"near": spaces.Discrete(3), "speed": spaces.Box(0, 9, (2,))}),
            lambda t: {"near": 2, "speed": np.array([0.5, 8.0])},
            [0, 0, 1, 0.5, 8],
        ),
    ],
    ids=["matrix", "number", "bytes", "several", "bits", "tuple", "dict"],
)
def test_observations_are_flattened(space, observe, row):
    batch = sample_episodes(None, Counter(observe, space), n_episodes=1, max_steps=2)
    np.testing.assert_array_equal(batch.states, [row, row])
    assert batch.schema.feature_names == tuple(f"obs_{i}" for i in range(len(row)))


def test_an_environment_may_write_to_its_observations():
    buffer = np.zeros(1)

    def observe(t):
        buffer[0] = t
        return buffer

    batch = sample_episodes(None, Counter(observe), n_episodes=1, max_steps=9)
    assert batch.states[:, 0].tolist() == [0, 1, 2, 3]
    assert batch.next_states[:, 0].tolist() == [1, 2, 3, 4]


@pytest.mark.parametrize(
    "space",
    [
        spaces.Dict({"words": spaces.Sequence(spaces.Discrete(3))}),
        spaces.Graph(spaces.Box(0, 1, (2,)), None),
        spaces.Box(0, 1, (0,)),
        spaces.Space(),
    ],
    ids=lambda space: type(space).__name__,
)
def test_observations_that_are_no_row_of_numbers_are_refused(space):
    with pytest.raises(InvalidInputError, match=r"Counter must have observations .*TransformObservation") as refusal:
        sample_episodes(None, Counter(space=space), n_episodes=1, max_steps=1)
    assert str(space) in str(refusal.value)


@pytest.mark.parametrize("space", [spaces.Box(-1, 1, (2,)), spaces.MultiDiscrete([2, 2])], ids=str)
def test_actions_that_are_not_discrete_are_refused(space):
    with pytest.raises(
        InvalidInputError, match=r"Counter must have a Discrete action space; .*DiscretizeAction"
    ) as refusal:
        performance(Uniform(2), Counter(actions=space), n_episodes=1, max_steps=1, discount=0.9)
    assert str(space) in str(refusal.value)


def test_what_does_not_fit_is_refused_before_anything_runs():
    env = gymnasium.make("CartPole-v1")
    rng = np.random.default_rng(0)
    with pytest.raises(InvalidInputError, match="the 2 actions of CartPole-v1; it has 3"):
        capi.simulation.gymnasium.run(Uniform(3), env, 1, 1, rng)
    with pytest.raises(InvalidInputError, match="n_episodes must be an integer, at least 1"):
        capi.simulation.gymnasium.run(Uniform(2), env, 0, 1, rng)
    with pytest.raises(InvalidInputError, match="max_steps must be an integer, at least 1"):
        capi.simulation.gymnasium.run(Uniform(2), env, 1, 0, rng)
    with pytest.raises(InvalidInputError, match="chooses its own start states"):
        sample_episodes(None, env, starts=np.zeros((1, 4)), max_steps=1)


def test_a_policy_that_takes_other_actions_is_refused():
    class Wrong:
        n_actions = 2

        def act(self, states, allowed=None):
            return np.array([2])

        def probabilities(self, states, allowed=None):
            return np.array([[0.0, 0.0, 1.0]])

    with pytest.raises(InvalidInputError, match=r"Wrong.probabilities must have shape \(1, 2\)"):
        sample_episodes(Wrong(), Counter(), n_episodes=1, max_steps=1)


def raises_at(bad):
    def observe(t):
        if t == bad:
            raise RuntimeError("the wheel came off")
        return np.array([float(t)])

    return observe


def one_of(good, bad, when):
    return lambda t: bad if t == when else good


@pytest.mark.parametrize(
    ("env", "message"),
    [
        (Counter(raises_at(3)), r"Counter failed at step 2 of episode 0: RuntimeError\('the wheel came off'\)"),
        (Counter(raises_at(0)), r"Counter failed at the reset of episode 0: RuntimeError"),
        (
            Counter(one_of(np.zeros(1), np.array([np.nan]), 2)),
            r"finite numbers; at step 1 of episode 0 it returned .*nan",
        ),
        (Counter(one_of(np.zeros(1), np.array([np.inf]), 0)), r"finite numbers; at the reset of episode 0"),
        (Counter(reward=one_of(0.0, np.nan, 4)), r"finite numbers; at step 3 of episode 0 .* reward nan"),
        (Counter(reward=one_of(0.0, None, 1)), r"Counter failed at step 0 of episode 0: TypeError"),
        (Counter(one_of(np.zeros(1), np.zeros(2), 1)), r"space, 1 numbers; at step 0 of episode 0 it returned 2"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_an_environment_that_fails_says_where(env, message):
    with pytest.raises(SimulationError, match=message):
        sample_episodes(None, env, n_episodes=2, max_steps=10, random_state=0)


def test_the_episode_of_a_failure_is_named():
    env = Counter()
    env.reward = lambda t: np.nan if len(env.seeds) == 3 else 0.0
    with pytest.raises(SimulationError, match="step 0 of episode 2"):
        performance(Uniform(2), env, n_episodes=5, max_steps=10, discount=0.9)


def test_an_environment_is_rejected_as_a_domain():
    with pytest.raises(InvalidInputError, match="Gymnasium"):
        check_domain_fits(None, gymnasium.make("CartPole-v1"))


# Our domains as environments

IDS = list(capi.simulation.gymnasium.ENVIRONMENTS)


@pytest.fixture
def registered():
    capi.simulation.gymnasium.register()


@pytest.fixture
def unregistered():
    """Gymnasium as it is before our ids are registered."""
    before = dict(registration.registry)
    for name in capi.simulation.gymnasium.ENVIRONMENTS:
        registration.registry.pop(name, None)
    yield
    registration.registry.clear()
    registration.registry.update(before)


@pytest.mark.parametrize("name", IDS)
def test_passes_gymnasiums_checker(name, registered):
    from gymnasium.utils.env_checker import check_env

    env = gymnasium.make(name).unwrapped
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        check_env(env)
    told = [str(warning.message) for warning in caught]
    assert all("infinity. This is probably too" in message for message in told), told  # a domain states no bounds


@pytest.mark.parametrize("name", IDS)
def test_the_domain_and_its_environment_give_the_same_episode(name, registered):
    env = gymnasium.make(name)
    domain = env.unwrapped.domain
    observation, _ = env.reset(seed=5)
    rng = np.random.default_rng(np.random.SeedSequence(5))
    x = domain.initial(1, rng)
    np.testing.assert_array_equal(observation, x[0])
    for action in (0, 1, 1, 0, 1):
        observation, reward, terminated, truncated, _ = env.step(action)
        x, rewards, ends = domain.step(x, np.array([action]), rng)
        np.testing.assert_array_equal(observation, x[0])
        assert (reward, terminated, truncated) == (rewards[0], ends[0], False)
    assert type(reward) is float
    assert type(terminated) is bool


@pytest.mark.parametrize("name", IDS)
def test_time_limits_come_from_the_registration(name, registered):
    assert gymnasium.spec(name).max_episode_steps == capi.simulation.gymnasium.ENVIRONMENTS[name][1]
    env = gymnasium.make(name, max_episode_steps=2)
    env.reset(seed=0)
    assert env.step(0)[3] is False
    assert env.step(0)[2:4] == (False, True)


@pytest.mark.parametrize("name", IDS)
def test_our_environments_are_sources_of_data(name, registered):
    batch = sample_episodes(None, gymnasium.make(name), n_episodes=2, max_steps=3, random_state=0)
    assert len(batch) == 6


def test_settings_go_to_the_domain(registered):
    env = gymnasium.make("capi/ChainWalk-v0", success=1.0, reward_on="next_state")
    assert env.unwrapped.domain.reward_on == "next_state"
    env.reset(options={"state": [8]})
    observation, reward, *_ = env.step(1)
    assert (observation.tolist(), reward) == ([9.0], 1.0)
    with pytest.raises(InvalidInputError, match="reward_on must be one of"):
        gymnasium.make("capi/ChainWalk-v0", reward_on="never")


def test_registering_twice_changes_nothing(unregistered):
    capi.simulation.gymnasium.register()
    specs = {name: gymnasium.spec(name) for name in capi.simulation.gymnasium.ENVIRONMENTS}
    capi.simulation.gymnasium.register()  # Gymnasium would warn of an override, and warnings are errors here
    assert all(gymnasium.spec(name) is spec for name, spec in specs.items())


def test_a_registration_is_plain_data(registered):
    spec = gymnasium.spec("capi/ChainWalk-v0")
    again = type(spec).from_json(spec.to_json())
    assert isinstance(gymnasium.make(again).unwrapped.domain, ChainWalk)
    vector = gymnasium.make_vec("capi/ChainWalk-v0", num_envs=3, vectorization_mode="sync")
    assert vector.reset(seed=0)[0].shape == (3, 1)


def test_an_environment_can_be_pickled():
    env = capi.simulation.gymnasium.DomainEnv(ChainWalk())
    env.reset(seed=0)
    copy = pickle.loads(pickle.dumps(env))
    assert [copy.step(0)[0].item() for _ in range(5)] == [env.step(0)[0].item() for _ in range(5)]


def test_an_environment_starts_where_it_is_told():
    env = capi.simulation.gymnasium.DomainEnv(ChainWalk())
    start = np.array([17.0])
    observation, _ = env.reset(options={"state": start})
    start[0] = observation[0] = 99.0  # neither is the environment's own
    assert env.step(0)[0][0] in (16.0, 18.0)
    with pytest.raises(InvalidInputError, match=r"options\['state'\] must have one dimension"):
        env.reset(options={"state": [[17.0]]})
    with pytest.raises(InvalidInputError, match="must have 1 columns"):
        env.reset(options={"state": [17.0, 3.0]})
    with pytest.raises(InvalidInputError, match="only the key 'state'"):
        env.reset(options={"start": [17.0]})


class Ending:
    """Ends at once; forbids its second action."""

    n_actions, feature_names, action_labels = 2, ("x",), ("a", "b")

    def initial(self, n, rng):
        return np.zeros((n, 1))

    def allowed(self, states):
        return np.tile([True, False], (len(states), 1))

    def step(self, states, actions, rng):
        return states + 1, np.ones(len(states)), np.ones(len(states), dtype=bool)


def test_an_episode_must_be_running():
    env = capi.simulation.gymnasium.DomainEnv(Ending())
    with pytest.raises(InvalidInputError, match="call reset first"):
        env.step(0)
    env.reset()
    assert env.step(0)[2] is True
    with pytest.raises(InvalidInputError, match="again after each episode"):
        env.step(0)


def test_what_is_allowed_is_told():
    env = capi.simulation.gymnasium.DomainEnv(Ending())
    _, info = env.reset(seed=0)
    assert env.action_space.sample(info["action_mask"]) == 0
    assert env.step(0)[4]["action_mask"].tolist() == [1, 0]


def test_wrong_actions_and_domains_are_refused():
    env = capi.simulation.gymnasium.DomainEnv(ChainWalk())
    env.reset(seed=0)
    with pytest.raises(InvalidInputError, match=r"action must lie in 0\.\.1"):
        env.step(-1)
    with pytest.raises(InvalidInputError, match="domain must have initial"):
        capi.simulation.gymnasium.DomainEnv(object())
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        capi.simulation.gymnasium.nothing  # noqa: B018


class OddForbidsTwo:
    """Counts down to zero; action 2 is allowed in even states only."""

    n_actions, feature_names, action_labels = 3, ("n",), ("a", "b", "c")

    def initial(self, n, rng):
        return np.full((n, 1), 6.0)

    def allowed(self, states):
        return np.column_stack([np.ones((len(states), 2), dtype=bool), states[:, 0] % 2 == 0])

    def step(self, states, actions, rng):
        return states - 1, actions.astype(float), states[:, 0] <= 1


def test_an_environment_before_the_policy_is_refused_with_the_right_order():
    env = gymnasium.make("CartPole-v1")
    with pytest.raises(InvalidInputError, match=r"Write sample_episodes\(policy, domain, \.\.\.\)\."):
        sample_episodes(env, n_episodes=1, max_steps=2)
    with pytest.raises(InvalidInputError, match=r"Write performance\(policy, domain, \.\.\.\)\.$"):
        performance(env, Uniform(2), n_episodes=1, max_steps=2, discount=0.9)


def test_action_masks_of_an_environment_are_kept():
    batch = sample_episodes(
        None, capi.simulation.gymnasium.DomainEnv(OddForbidsTwo()), n_episodes=30, max_steps=9, random_state=0
    )
    even = batch.states[:, 0] % 2 == 0
    np.testing.assert_array_equal(batch.allowed[:, 2], even)
    assert batch.allowed[np.arange(len(batch)), batch.actions].all()
    np.testing.assert_allclose(batch.propensities, np.where(even, 1 / 3, 1 / 2))
    np.testing.assert_array_equal(batch.next_allowed[:, 2], ~even & ~batch.terminated)
    assert not batch.next_allowed[batch.terminated].any()
    kept = performance(
        Constant(2, 3), capi.simulation.gymnasium.DomainEnv(OddForbidsTwo()), n_episodes=1, max_steps=9, discount=0.5
    )
    assert kept.undiscounted.tolist() == [2.0 * 3]  # in 6, 4 and 2; in odd states the lowest action
