"""The problems: where their data come from, and the true return of a policy.

Every problem has ``discount``, ``n_actions``, ``data(seed)``, ``worth(policy)`` and ``log_worth(data)``.
"""

import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from capi import FiniteMDP, Transitions
from capi.datasets import load_hiv_batch
from capi.domains import HIV, CartPole, MountainCar
from capi.experiments.hiv.run import learner as collecting_learner
from capi.experiments.hiv.run import rounds
from capi.experiments.hiv.settings import LAST, LEARNING, PROTOCOL
from capi.files.atomic import result_folder, written_whole
from capi.policies import EpsilonGreedy, Uniform
from capi.simulation import performance, sample_episodes, sample_steps

from .environments import HEURISTICS, AcrobotV1, CartPoleV1, MountainCarV0

MDPS = "CAPI_MDPS"  # environment variable: the folder of the finite MDPs
CACHE = "CAPI_BENCHMARK_CACHE"  # environment variable: the folder of generated batches
TEST_SEED, N_TEST = 20_000, 200  # of the start states of test episodes, the same for all runs
RANDOM_SHARE = 0.5  # of the decisions in logs of control problems
N_RANDOM_PATIENTS = 50
COLLECTING = {**PROTOCOL, **LEARNING, **LAST, "n_rounds": 5, "eta_pi": None}  # as in scripts/make_hiv_table.py
FIRST_SEED = 1_000  # of new patients; the embedded ones have seed 0


@dataclass(frozen=True, eq=False)
class Data:
    """A batch, and where episodes begin if its first rows do not show it."""

    batch: Transitions
    starts: tuple | None = None  # states (m, d) and their probabilities (m,)


@dataclass(frozen=True)
class Patients:
    """HIV treatment; the true return is discounted, over 1,000 decisions from the unhealthy state."""

    source: str  # "embedded": the table of the package; "new": another table, made in the same way with another seed

    discount, n_actions = 0.98, 4

    def data(self, seed):
        return Data(load_hiv_batch() if self.source == "embedded" else new_patients(seed))

    def worth(self, policy, n_episodes=1):
        return performance(policy, HIV(), n_episodes=n_episodes, max_steps=1000, discount=self.discount).mean

    def random_worth(self):
        return self.worth(Uniform(self.n_actions), N_RANDOM_PATIENTS)

    def log_worth(self, data):
        """Return the mean logged return: five rounds, the first at random, the others with 15 % random decisions."""
        return logged_return(data.batch, self.discount)


@dataclass(frozen=True)
class Control:
    """A control problem, learned from a half-random log; the true return is undiscounted, over 200 test episodes.

    Each logged decision is uniformly random with probability 1/2, otherwise that of a heuristic. Episodes are cut off at the
    step limit, in the log and in tests.
    """

    name: str
    n_rows: int = 5_000

    @property
    def _world(self):
        """The domain of the log, the domain of the tests, and the step limit."""
        return {
            "mountain-car": (MountainCar(), MountainCar(), 200),
            "pole": (CartPole(), CartPole(reward="survival"), 3_000),  # the return is the number of steps in balance
            "cart-pole-v1": (CartPoleV1(), CartPoleV1(), 500),
            "mountain-car-v0": (MountainCarV0(), MountainCarV0(), 200),
            "acrobot-v1": (AcrobotV1(), AcrobotV1(), 500),
        }[self.name]

    @property
    def discount(self):
        return self._world[0].discount

    @property
    def n_actions(self):
        return self._world[0].n_actions

    @property
    def log_policy(self):
        return EpsilonGreedy(HEURISTICS[self.name], RANDOM_SHARE)

    def data(self, seed):
        domain, _, limit = self._world
        return Data(log_of(self.log_policy, domain, limit, self.n_rows, np.random.default_rng([seed, 0])))

    def worth(self, policy):
        _, domain, limit = self._world
        starts = domain.initial(N_TEST, np.random.default_rng(TEST_SEED))
        found = performance(policy, domain, starts=starts, max_steps=limit, random_state=TEST_SEED)
        return float(found.undiscounted.mean())

    def random_worth(self):
        return self.worth(Uniform(self.n_actions))

    def log_worth(self, data):
        return self.worth(self.log_policy)


@dataclass(frozen=True, eq=False)
class States:
    """A finite MDP as a domain whose states are rows of features."""

    mdp: FiniteMDP
    features: np.ndarray  # (S, d), all different
    absorbing: np.ndarray  # (S,)
    feature_names: list
    action_labels: list

    @property
    def n_actions(self):
        return self.mdp.n_actions

    @cached_property
    def _numbers(self):
        return {tuple(row): s for s, row in enumerate(self.features)}

    def initial(self, n, rng):
        return self.features[rng.choice(len(self.features), size=n, p=self.mdp.start)]

    def step(self, states, actions, rng):
        s = np.array([float(self._numbers[tuple(row)]) for row in states])
        following, rewards, _ = self.mdp.step(s[:, None], actions, rng)
        y = following[:, 0].astype(np.int64)
        return self.features[y], rewards, self.absorbing[y]


@dataclass(frozen=True)
class Finite:
    """A finite MDP of the optimal-tree literature (Vos and Verwer, 2023); the true return is exact, from its start states.

    ``source`` is "pairs", rows whose state (not absorbing) and action are drawn uniformly, with the start distribution given;
    or "log", episodes of the uniformly random policy, cut off after 200 steps.
    """

    name: str
    source: str = "pairs"
    n_rows: int = 20_000

    discount, limit = 0.99, 200

    @cached_property
    def _arrays(self):
        folder = os.environ.get(MDPS)
        if not folder:
            raise FileNotFoundError(f"the folder of the finite MDPs must be given: --mdps FOLDER, or {MDPS}.")
        with np.load(Path(folder) / f"{self.name}.npz") as file:
            return {key: file[key] for key in file.files}

    @cached_property
    def mdp(self):
        a = self._arrays
        return FiniteMDP(np.moveaxis(a["P"], 2, 0), a["r"], self.discount, start=a["d0"])

    @cached_property
    def domain(self):
        names = self._arrays["features"].tolist(), self._arrays["actions"].tolist()
        return States(self.mdp, self.features, self.absorbing, *names)

    @cached_property
    def features(self):
        """The features of each state (S, d)."""
        return np.asarray(self._arrays["X"], dtype=np.float64)

    @cached_property
    def absorbing(self):
        """Whether each state is never left and gives no reward (S,)."""
        s = np.arange(len(self.features))
        stays = np.isclose(self._arrays["P"][s, s], 1).all(axis=1)
        return stays & (self._arrays["r"] == 0).all(axis=1)

    @property
    def n_actions(self):
        return self.mdp.n_actions

    def data(self, seed):
        rng, d0 = np.random.default_rng([seed, 0]), self._arrays["d0"]
        if self.source == "log":
            return Data(log_of(None, self.domain, self.limit, self.n_rows, rng))
        states = self.features[rng.choice(np.flatnonzero(~self.absorbing), self.n_rows)]
        first = np.flatnonzero(d0)
        return Data(sample_steps(None, self.domain, states, random_state=rng), (self.features[first], d0[first]))

    def worth(self, policy):
        return float(self._arrays["d0"] @ self.mdp.values(policy.probabilities(self.features)))

    def random_worth(self):
        return self.worth(Uniform(self.n_actions))

    def log_worth(self, data):
        return self.random_worth()  # both kinds of data come from random actions


def problem_of(values):
    """Return the problem of a setting."""
    kinds = {"hiv": Patients, "control": Control, "mdp": Finite}
    return kinds[values["problem"]](**values["of_problem"])


def log_of(policy, domain, limit, n_rows, rng):
    """Return the first ``n_rows`` rows of episodes under a policy (None: random); the last episode is cut off."""
    parts, n = [], 0
    while n < n_rows:
        parts.append(sample_episodes(policy, domain, n_episodes=20, max_steps=limit, random_state=rng))
        n += len(parts[-1])
    return Transitions.concat(parts, renumber_episodes=True).subset(np.arange(n_rows))


def logged_return(batch, discount):
    """Return the mean discounted return of the logged episodes, which are cut off where the log ends."""
    ages = np.arange(len(batch)) - np.repeat(batch.episode_starts, batch.episode_lengths)
    return float((discount**ages * batch.rewards).sum() / batch.n_episodes)


def new_patients(seed):
    """Return a batch of patients made as the embedded one was (scripts/make_hiv_table.py), with another seed; kept on disk."""
    own = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "capi" / "benchmarks"
    path = result_folder(os.environ.get(CACHE) or own) / f"hiv-{seed}.npz"
    names = ("states", "actions", "rewards", "next_states", "terminated", "episodes", "propensities")
    if not path.exists():
        number = FIRST_SEED + seed
        batch, _ = rounds(HIV(), collecting_learner(COLLECTING, number), COLLECTING, number)
        with written_whole(path) as place, place.open("wb") as file:
            np.savez_compressed(file, **{name: getattr(batch, name) for name in names})
    with np.load(path) as file:
        columns = {name: file[name] for name in names}
    hiv = HIV()
    for name in ("states", "next_states"):  # the embedded table has counts in single precision
        columns[name] = hiv.observed(hiv.counts(columns[name]).astype(np.float32).astype(np.float64))
    return Transitions(**columns, feature_names=hiv.feature_names, action_labels=hiv.action_labels)
