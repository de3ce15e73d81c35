"""Adapters for Gymnasium: its environments as simulators, and our domains as its environments.

An environment runs one episode at a time and chooses its own start states, so `capi.simulation.sampling` and
`capi.simulation.returns` accept it and rollouts do not. Its actions must be discrete: our action k is its action
``start + k``. Observations become rows of numbers: a Box is flattened, a Discrete becomes one column that counts from 0,
and other spaces are converted with Gymnasium's ``flatten``.

Conversely, ``DomainEnv(domain)`` is a Gymnasium environment for any `Domain`, and `register` registers the ids of our
domains. Gymnasium is imported only when needed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache, partial
from importlib import import_module
from typing import Any

import numpy as np

from capi._utils.late import gymnasium
from capi._utils.validation import Bools, Floats, Ints, as_floats, as_int, as_integers, check_actions
from capi.data.readers.spaces import observation_names
from capi.errors import InvalidInputError, SimulationError
from capi.simulation.engine import Step, check_domain, checked_step, decide, masks_of, start_states
from capi.types import Domain, Policy

ENVIRONMENTS = {  # id: domain and step limit
    "capi/ChainWalk-v0": ("capi.domains.chain:ChainWalk", 1000),
    "capi/CartPole-v0": ("capi.domains.cart_pole:CartPole", 3000),
    "capi/HIV-v0": ("capi.domains.hiv:HIV", 1000),
    "capi/MountainCar-v0": ("capi.domains.mountain_car:MountainCar", 200),
}
N_SEEDS = 2**31  # some environments accept only 32-bit seeds


def is_environment(thing: Any) -> bool:
    """Return whether ``thing`` is a Gymnasium environment."""
    module = sys.modules.get("gymnasium")  # if it was never imported, there are no environments
    return module is not None and isinstance(thing, module.Env)


def words_of(env: gymnasium.Env[Any, Any]) -> dict[str, Any]:
    """Return the names of the observation's columns, and the environment's action numbers as labels.

    Examples
    --------
    >>> import gymnasium
    >>> words_of(gymnasium.make("CartPole-v1"))
    {'feature_names': ('obs_0', 'obs_1', 'obs_2', 'obs_3'), 'action_labels': (0, 1)}
    """
    bench = _bench(env)
    labels = tuple(range(bench.first_action, bench.first_action + bench.n_actions))
    return {"feature_names": bench.feature_names, "action_labels": labels}


def run(
    policy: Policy, env: gymnasium.Env[Any, Any], n_episodes: int, max_steps: int, rng: np.random.Generator
) -> tuple[Floats, Iterator[Step]]:
    """Return the start states (n, d) and an iterator over the steps of ``n_episodes`` consecutive episodes.

    The environment runs during iteration, so the start states are zeros until their episodes begin. A step is
    ``terminated`` only if the environment reports termination: truncation and ``max_steps`` only end the episode. Each
    episode has its own seed. Seeds are drawn first, so different policies get the same ones.
    """
    bench = _bench(env)
    if policy.n_actions != bench.n_actions:
        raise InvalidInputError(
            f"the policy must have the {bench.n_actions} actions of {bench.name}; it has {policy.n_actions}: {policy!r}."
        )
    limit = as_int(max_steps, "max_steps", minimum=1)
    seeds = rng.integers(N_SEEDS, size=as_int(n_episodes, "n_episodes", minimum=1))
    starts = np.zeros((len(seeds), len(bench.feature_names)))
    return starts, _steps(bench, policy, seeds, limit, rng, starts)


def _steps(
    bench: _Bench, policy: Policy, seeds: Ints, max_steps: int, rng: np.random.Generator, starts: Floats
) -> Iterator[Step]:
    """Run one episode per seed in ``seeds`` (n,) and write its start state to ``starts`` (n, d)."""
    for episode, seed in enumerate(seeds):
        x, masks = bench.reset(int(seed), episode)
        starts[episode] = x[0]
        for t in range(max_steps):
            actions, propensities = decide(policy.at(t) if hasattr(policy, "at") else policy, x, masks, rng)
            check_actions(actions, bench.n_actions)
            following, reward, terminated, truncated, next_masks = bench.step(int(actions[0]), episode, t)
            yield Step(
                t,
                np.array([episode]),
                x,
                masks,
                actions,
                propensities,
                np.array([reward]),
                following,
                np.array([terminated]),
                next_masks,
            )
            if terminated or truncated:
                break
            x, masks = following, next_masks


@dataclass(frozen=True, eq=False)
class _Bench:
    """An environment with states as rows and actions from 0, whose errors name the episode and step."""

    env: Any
    name: str
    feature_names: tuple[str, ...]
    row: Callable[[Any], Any]  # converts an observation to numbers
    first_action: int
    n_actions: int

    def reset(self, seed: int, episode: int) -> tuple[Floats, Bools | None]:
        """Begin an episode; return its first state (1, d) and the allowed actions (1, A)."""
        where = f"the reset of episode {episode}"
        with self._failures(where):
            observation, info = self.env.reset(seed=seed)
            state = self._state(observation)
        self._check(state, 0.0, where)
        return state, self._masks(info, where)

    def step(self, action: int, episode: int, t: int) -> tuple[Floats, float, bool, bool, Bools | None]:
        """Take ``action``, counted from 0; return next state (1, d), reward, terminated, truncated and mask (1, A)."""
        where = f"step {t} of episode {episode}"
        with self._failures(where):
            observation, reward, terminated, truncated, info = self.env.step(self.first_action + action)
            result = self._state(observation), float(reward), bool(terminated), bool(truncated)
        self._check(result[0], result[1], where)
        return *result, self._masks(info, where, terminated=result[2])

    def _masks(self, info: Any, where: str, *, terminated: bool = False) -> Bools | None:
        """Return ``info["action_mask"]`` (1, A), Gymnasium's own convention, or None if there is none."""
        if "action_mask" not in info:
            return None
        if terminated:
            return np.zeros((1, self.n_actions), dtype=bool)  # no further decision
        allowed = np.asarray(info["action_mask"]).astype(bool)
        if allowed.shape != (self.n_actions,) or not allowed.any():
            raise SimulationError(
                f"{self.name} must allow at least one of its {self.n_actions} actions; at {where} its action_mask was {allowed}."
            )
        return allowed[None]

    def _state(self, observation: Any) -> Floats:
        """Return a copy of the observation (1, d): environments may overwrite it in the next step."""
        return np.array(self.row(observation), dtype=np.float64)[None, :]

    def _check(self, state: Floats, reward: float, where: str) -> None:
        d = len(self.feature_names)
        if state.shape != (1, d):
            raise SimulationError(
                f"{self.name} must return observations from its observation space, {d} numbers; at {where} it returned "
                f"{state.shape[1]}."
            )
        if not (np.isfinite(state).all() and np.isfinite(reward)):
            raise SimulationError(
                f"{self.name} must return finite numbers; at {where} it returned observation {state[0]} and reward {reward}."
            )

    @contextmanager
    def _failures(self, where: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            raise SimulationError(f"{self.name} failed at {where}: {error!r}.") from error


def _bench(env: Any) -> _Bench:
    """Return the adapter of an environment, or raise an error if its spaces are not supported."""
    inner = env.unwrapped
    name = type(inner).__name__ if inner.spec is None else inner.spec.id
    if not isinstance(env.action_space, gymnasium.spaces.Discrete):
        raise InvalidInputError(
            f"{name} must have a Discrete action space; its action space is {env.action_space}. Wrap the environment: "
            "gymnasium.wrappers.DiscretizeAction bins a Box, TransformAction accepts any map from a Discrete."
        )
    feature_names, row = _columns(env.observation_space, name)
    return _Bench(env, name, feature_names, row, int(env.action_space.start), int(env.action_space.n))


def _columns(space: Any, name: str) -> tuple[tuple[str, ...], Callable[[Any], Any]]:
    """Return the column names of observations, and the function that converts an observation to numbers."""
    utils = gymnasium.spaces.utils
    if isinstance(space, gymnasium.spaces.Discrete):
        return ("state",), lambda observation: np.ravel(observation).astype(np.float64) - int(space.start)
    try:
        d = utils.flatdim(space)
    except (NotImplementedError, ValueError) as error:
        raise _unsuitable(space, name) from error
    if d == 0:
        raise _unsuitable(space, name)
    # flatten would cast to the dtype of the space and hide an observation outside of it
    flat = np.ravel if isinstance(space, gymnasium.spaces.Box) else partial(utils.flatten, space)
    return _names(space, d), flat


def _names(space: Any, d: int) -> tuple[str, ...]:
    """Return the names that Minari data sets of the same space have, unless flattening adds columns, such as those of a finite part."""
    with suppress(InvalidInputError):
        names = tuple(observation_names(space))
        if len(names) == d:
            return names
    return tuple(f"obs_{i}" for i in range(d))


def _unsuitable(space: Any, name: str) -> InvalidInputError:
    return InvalidInputError(
        f"{name} must have observations that flatten to a fixed number of numbers; its observation space is {space}. "
        "Wrap the environment: gymnasium.wrappers.TransformObservation can convert it to a Box, FilterObservation can "
        "keep only the numeric parts."
    )


def register() -> None:
    """Register our domains with Gymnasium: capi/ChainWalk-v0, capi/CartPole-v0, capi/HIV-v0 and capi/MountainCar-v0.

    Pass settings of the domain to ``gymnasium.make``. Ids that are already registered are left unchanged. Gymnasium has no
    plugin mechanism that would call this function; importing `capi.simulation.environments` does.

    Examples
    --------
    >>> import gymnasium
    >>> register()
    >>> env = gymnasium.make("capi/ChainWalk-v0", success=1.0)
    >>> observation, _ = env.reset(seed=0, options={"state": [8]})
    >>> observation, reward, terminated, truncated, _ = env.step(1)
    >>> observation
    array([9.])
    """
    registration = gymnasium.envs.registration
    for name, (domain, max_steps) in ENVIRONMENTS.items():
        if name not in registration.registry:
            registration.register(
                name,
                entry_point=f"{__name__}:_made",
                max_episode_steps=max_steps,
                kwargs={"domain": domain},
            )


def _made(domain: str, **settings: Any) -> gymnasium.Env[Floats, np.int64]:
    """Return the environment of the domain ``"module:class"`` with the given settings."""
    module, _, name = domain.partition(":")
    return _environment_class()(getattr(import_module(module), name)(**settings))


def __getattr__(name: str) -> Any:
    if name == "DomainEnv":
        return _environment_class()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


@cache
def _environment_class() -> Any:
    """Return ``DomainEnv``, a class that only exists once Gymnasium is imported."""

    class DomainEnv(gymnasium.Env[Floats, np.int64]):
        """Any `Domain` as a Gymnasium environment, without a step limit.

        ``reset(options={"state": [...]})`` starts from that state. If the domain has ``allowed``, info contains its result
        as ``action_mask``.

        Parameters
        ----------
        domain : Domain
            The domain to simulate.
        """

        __qualname__ = "DomainEnv"  # the name that pickle looks up
        metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012  Gymnasium declares it so

        def __init__(self, domain: Domain) -> None:
            check_domain(domain)
            self.domain = domain
            self.observation_space = gymnasium.spaces.Box(
                -np.inf, np.inf, (len(domain.feature_names),), dtype=np.float64
            )
            self.action_space = gymnasium.spaces.Discrete(domain.n_actions)
            self._state: Floats | None = None  # (1, d), None while no episode is running
            self._t = 0

        def reset(
            self, *, seed: int | None = None, options: dict[str, Any] | None = None
        ) -> tuple[Floats, dict[str, Any]]:
            """Begin an episode from a random start, or from ``options["state"]``; return observation and info."""
            super().reset(seed=seed)
            given = dict(options or {})
            start = given.pop("state", None)
            if given:
                raise InvalidInputError(f"options may contain only the key 'state'; got {options!r}.")
            if start is not None:
                start = as_floats(start, "options['state']", ndim=1)
            self._state = start_states(self.domain, start, 1 if start is None else None, self.np_random).copy()
            self._t = 0
            return self._state[0].copy(), self._info(self._state)

        def step(self, action: Any) -> tuple[Floats, float, bool, bool, dict[str, Any]]:
            """Take ``action``; return observation, reward, terminated, False and info."""
            if self._state is None:
                raise InvalidInputError("no episode is running: call reset first, and again after each episode.")
            actions = as_integers([action], "action")
            check_actions(actions, self.domain.n_actions, "action")
            following, rewards, ends = checked_step(self.domain, self._state, actions, self.np_random, self._t)
            terminated = bool(ends[0])
            self._state, self._t = None if terminated else following, self._t + 1
            return following[0].copy(), float(rewards[0]), terminated, False, self._info(following)

        def _info(self, states: Floats) -> dict[str, Any]:
            masks = masks_of(self.domain, states)
            return {} if masks is None else {"action_mask": masks[0].astype(np.int8)}  # dtype of Discrete.sample

    return DomainEnv
