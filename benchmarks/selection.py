"""What `capi.selection.choose` chooses, against all candidates in hindsight, and whether its gate keeps what was done.

    python benchmarks/selection.py run [PROBLEM ...] [--seeds 0 10]   # records in benchmarks/records/selection; resumable
    python benchmarks/selection.py                                    # a table of the records

Problems: the paper's chain walk (5,000 random decisions), logs of control problems as in `dependable.py` (5,000 rows, half random),
LunarLander-v3 (`lunar-5000`, `lunar-20000`; needs Box2D: pip install swig box2d pygame), finite MDPs with 25 actions logged by a nearly deterministic expert (`expert-1000`, `expert-10000`,
`expert-100000`), Mountain-Car with and without noise in its rewards, where only the node size is chosen (`noise-0`, `noise-1`), the embedded table of HIV patients,
where the node sizes of values and policies are (`hiv-sizes`), Mountain-Car, where the number of neighbours and the ridge are (`kernel`), and three
problems of operations that were not looked at before selection was finished (`unseen-traffic`, `unseen-machine`, `unseen-warehouse`). All candidates learn from the same learning episodes; their true returns are only used here.
Candidates that refuse these episodes, for example because an action is missing, are left out, as selection itself does, and listed after the table.
"""

import argparse
import os
import platform
import time
import warnings
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from pathlib import Path

import numpy as np
from comparison.logs import landings
from comparison.records import Records
from comparison.worlds import WORLDS, returns_of
from dependability.problems import Control, Data, Patients, States, log_of

from capi import CAPI, FiniteMDP, Transitions
from capi._utils.shared import sharing
from capi.domains import ChainWalk, InventoryManagement, MachineMaintenance, MountainCar, TrafficIntersection
from capi.errors import CapiError
from capi.evaluators import KernelFittedQ
from capi.features.kernels import Gaussian
from capi.learning import rules
from capi.policies import EpsilonGreedy, Tabular, Uniform
from capi.policy_spaces import Forests, Neighbors
from capi.selection import Candidate, choose, default_candidates
from capi.selection.selecting import MOST_SHARED

FOLDER = Path(__file__).parent / "records" / "selection"
CONTROL = ("mountain-car", "pole", "cart-pole-v1", "acrobot-v1")
UNSEEN = {  # looked at when selection was finished
    "traffic": TrafficIntersection(),
    "machine": MachineMaintenance(),
    "warehouse": InventoryManagement(capacity=20, demand=4.0),
}
NODES = (2, 5, 15, 50, 150)
VALUE_NODES, POLICY_NODES = (5, 50), (5, 50, 500)  # eta_v and eta_pi, of `hiv-sizes`
RIDGES, NEIGHBOURS = (1e-4, 1e-2), (10, 75, 200)  # lambda and kappa, of `kernel`
RULE = "halves and whole"  # of the final values; records without it are of an earlier rule, by halves alone
LEARNERS = "rules-6"  # the defaults of CAPI where states move; records of such problems without it are of earlier ones
REPEATING = ("chain", "expert", "unseen")  # problems whose states repeat, in which these defaults have not changed


@dataclass(frozen=True)
class Lunar:
    """LunarLander-v3; the true return is undiscounted."""

    n_rows: int

    discount = 0.99

    def data(self, seed):
        columns = landings(self.n_rows, np.random.default_rng([seed, 0]))
        columns["episodes"] = columns.pop("episode")
        return Data(Transitions(**columns, n_actions=4))

    def worth(self, policy):
        rng = np.random.default_rng(0)

        def act(states):
            p = policy.probabilities(np.asarray(states, dtype=np.float64)).cumsum(axis=1)
            return np.minimum((rng.random((len(p), 1)) > p).sum(axis=1), 3)

        return float(returns_of(act, WORLDS["LunarLander-v3"]).mean())

    def log_worth(self, data):
        batch = data.batch
        return float(np.bincount(batch.episodes, weights=batch.rewards)[:-1].mean())


@dataclass(frozen=True)
class Expert:
    """A random finite MDP with 25 actions, logged by its optimal policy with 5 % random actions; the true return is exact."""

    n_rows: int

    discount, n_actions, n_states, random_share = 0.9, 25, 60, 0.05

    def __post_init__(self):
        object.__setattr__(self, "seed", 0)

    @cached_property
    def mdp(self):
        rng = np.random.default_rng([7, self.seed])
        transitions = rng.dirichlet(np.full(self.n_states, 0.05), size=(self.n_actions, self.n_states))
        return FiniteMDP(transitions, rng.random((self.n_states, self.n_actions)), self.discount)

    @cached_property
    def features(self):
        return np.random.default_rng([8, self.seed]).random((self.n_states, 3))

    @property
    def expert(self):
        return self.mdp.optimal_policy.act(np.arange(self.n_states)[:, None].astype(float))

    def data(self, seed):
        object.__setattr__(self, "seed", seed)
        for name in ("mdp", "features"):
            self.__dict__.pop(name, None)
        absorbing = np.zeros(self.n_states, dtype=bool)
        domain = States(self.mdp, self.features, absorbing, ["a", "b", "c"], list(range(self.n_actions)))
        logged = EpsilonGreedy(_Of(self.features, self.expert, self.n_actions), self.random_share)
        return Data(log_of(logged, domain, 50, self.n_rows, np.random.default_rng([seed, 0])))

    def worth(self, policy):
        return float(np.mean(self.mdp.values(policy.probabilities(self.features))))

    def log_worth(self, data):
        return self.worth(EpsilonGreedy(_Of(self.features, self.expert, self.n_actions), self.random_share))

    def extra(self):
        return {"random": self.worth(Uniform(self.n_actions)), "optimal": float(self.mdp.optimal_values.mean())}


class _Of:
    """The expert's action in states that are rows of features."""

    def __init__(self, features, actions, n_actions):
        self.n_actions = n_actions
        self._numbers = {tuple(row): s for s, row in enumerate(features)}
        self._table = Tabular(actions, n_actions)

    def act(self, states, allowed=None):
        return self._table.act(np.array([[float(self._numbers[tuple(row)])] for row in np.asarray(states)]), allowed)

    def probabilities(self, states, allowed=None):
        return np.eye(self.n_actions)[self.act(states, allowed)]


@dataclass(frozen=True)
class Chain:
    """The paper's chain walk, logged by random actions; the true return is exact, from all states alike."""

    n_rows: int = 5_000

    walk = ChainWalk()

    @property
    def discount(self):
        return self.walk.discount

    def data(self, seed):
        return Data(log_of(None, self.walk, 50, self.n_rows, np.random.default_rng([seed, 0])))

    def worth(self, policy):
        states = np.arange(self.walk.mdp.n_states, dtype=np.float64)[:, None]
        return float(self.walk.mdp.values(policy.probabilities(states)).mean())

    def log_worth(self, data):
        return self.worth(Uniform(2))


@dataclass(frozen=True)
class Operations:
    """A finite problem of operations, logged by its optimal policy with half of the actions at random; the true return is exact."""

    domain: object
    n_rows: int = 5_000

    random_share, limit = 0.5, 100

    @property
    def discount(self):
        return self.domain.discount

    @property
    def _logged(self):
        return EpsilonGreedy(self.domain.mdp.optimal_policy, self.random_share)

    def data(self, seed):
        return Data(log_of(self._logged, self.domain, self.limit, self.n_rows, np.random.default_rng([seed, 0])))

    def worth(self, policy):
        mdp = self.domain.mdp
        return float(mdp.start @ mdp.values(policy.probabilities(self.domain.states)))

    def log_worth(self, data):
        return self.worth(self._logged)


@dataclass(frozen=True)
class Noisy:
    """Mountain-Car whose rewards have normal noise."""

    scale: float

    @property
    def _plain(self):
        return Control("mountain-car")

    @property
    def discount(self):
        return self._plain.discount

    def data(self, seed):
        b = self._plain.data(seed).batch
        rewards = b.rewards + self.scale * np.random.default_rng([seed, 1]).normal(size=len(b))
        return Data(
            Transitions(
                b.states, b.actions, rewards, b.next_states, b.terminated, episodes=b.episodes, n_actions=b.n_actions
            )
        )

    def worth(self, policy):
        return self._plain.worth(policy)

    def log_worth(self, data):
        return self._plain.log_worth(data)


def problems():
    found = {"chain": Chain(), **{name: Control(name) for name in CONTROL}}
    found |= {f"lunar-{n}": Lunar(n) for n in (5_000, 20_000)}
    found |= {f"expert-{n}": Expert(n) for n in (1_000, 10_000, 100_000)}
    found |= {f"noise-{scale}": Noisy(scale) for scale in (0, 1)}
    found |= {"hiv-sizes": Patients("embedded"), "kernel": Control("mountain-car")}
    return found | {f"unseen-{name}": Operations(domain) for name, domain in UNSEEN.items()}


def candidates_of(name, batch, discount, seed):
    """Return what is chosen from: the library's candidates, or settings of one kind of learner."""
    kind = name.split("-")[0]
    if kind not in SETTINGS:
        return default_candidates(batch, discount, random_state=seed)
    return [Candidate(said, learner, size) for said, learner, size in SETTINGS[kind](batch, discount, seed)]


def node_sizes(batch, discount, seed):
    evaluator, space = rules.default_evaluator(batch, discount), Forests(min_samples_leaf=5, n_jobs=-1)
    for n in NODES:
        learner = CAPI(replace(evaluator, min_samples_split=n), space, discount, random_state=seed)
        yield f"nodes of {n}", learner, 1000 - n


def forest_sizes(batch, discount, seed):
    evaluator = rules.default_evaluator(batch, discount)
    for values, policies in product(VALUE_NODES, POLICY_NODES):
        space = Forests(min_samples_split=policies, n_jobs=-1)
        learner = CAPI(replace(evaluator, min_samples_split=values), space, discount, random_state=seed)
        yield f"values {values}, policies {policies}", learner, 10_000 - policies


def kernels(batch, discount, seed):
    box = MountainCar().box
    for ridge, neighbours in product(RIDGES, NEIGHBOURS):
        evaluator = KernelFittedQ(kernel=Gaussian(0.1), ridge=ridge, threshold=1e-3, scale=box, n_sweeps=1)
        space = Neighbors(neighbours, scale=box)
        yield (
            f"ridge {ridge:g}, {neighbours} neighbours",
            CAPI(evaluator, space, discount, 50, random_state=seed),
            10_000 - neighbours,
        )


SETTINGS = {"noise": node_sizes, "hiv": forest_sizes, "kernel": kernels}  # by the beginning of a problem's name


def hindsight(given, learning, worth):
    """Return the true return of each candidate, and why the others refused the learning episodes; `choose` leaves those out, too."""
    worths, refused = {}, {}
    for candidate in given:
        try:
            policy = candidate.learned(learning).policy_
        except (CapiError, ValueError) as error:  # as in `choose`
            refused[candidate.name] = f"{type(error).__name__}: {error}"
        else:
            worths[candidate.name] = worth(policy)
    return worths, refused


def values_of(name):
    """Return what a record of today's code says about itself."""
    learners = {} if name.startswith(REPEATING) else {"learners": LEARNERS}
    return {"problem": name, "rule": RULE, **learners}


def run(name, seed, records):
    values = values_of(name)
    if records.has(values, seed):
        return
    problem = problems()[name]
    data, started = problem.data(seed), time.process_time()
    batch, discount = data.batch, problem.discount
    learning, test = batch.split(0.7, random_state=seed)  # as `choose` does by itself
    given = candidates_of(name, learning, discount, seed)
    wall = time.perf_counter()
    with sharing(enabled=len(learning) <= MOST_SHARED):
        learner = choose(learning, discount, candidates=given, test=test, random_state=seed)
        wall, cpu = time.perf_counter() - wall, time.process_time() - started
        worths, refused = hindsight(given, learning, problem.worth)  # those that `choose` has learned are shared
    found = learner.selection_
    results = {
        "selection": found.to_dict(),
        "worths": worths,
        "refused": refused,
        "returned": problem.worth(learner.policy_),
        "log": problem.log_worth(data),
        "cpu_seconds": cpu,
        "wall_seconds": wall,
        **(problem.extra() if hasattr(problem, "extra") else {}),
    }
    records.add(values, seed, results, {"python": platform.python_version(), "cores": os.cpu_count()})
    print(f"{name} seed {seed}: {found.returned} ({found.gate.verdict}), {results['returned']:.4g}; chosen {found.chosen}, "
          f"{worths.get(found.chosen, float('nan')):.4g}; log {results['log']:.4g}; best {max(worths.values()):.4g}; {cpu:.0f} CPU s", flush=True)  # fmt: skip


def table(records):
    """Return a markdown table of all problems with records."""
    rows = [
        "| problem | seeds | chosen: way from the median candidate to the best (median, worst) | below the worst quarter | better, not better, "
        "cannot be tested | returned - log (median, worst) | not worse than the log | CPU s |",
        "|---|---|---|---|---|---|---|---|",
    ]
    by_name = {}
    for record in records:
        name, rule = record["values"]["problem"], record["values"].get("rule")
        if record["values"] != values_of(name):
            name += " (earlier learners)" if rule == RULE else " (earlier rule)"
        by_name.setdefault(name, []).append(record["results"])
    for name, found in sorted(by_name.items()):
        ways, low, gains, verdicts, fine = [], 0, [], [], 0
        for one in found:
            worths = np.array(list(one["worths"].values()))
            chosen = one["worths"].get(one["selection"]["chosen"], one["log"])
            best, middle = worths.max(), np.median(worths)
            ways.append((chosen - middle) / (best - middle) if best > middle else 1.0)
            low += chosen < np.quantile(worths, 0.25)
            gains.append(one["returned"] - one["log"])
            span = one["optimal"] - one["random"] if "optimal" in one else None
            fine += gains[-1] >= (-0.01 * span if span else 0.0)
            verdicts.append(one["selection"]["gate"]["verdict"])
        counted = ", ".join(str(verdicts.count(v)) for v in ("better", "not better", "cannot be tested"))
        cpu = np.median([one["cpu_seconds"] for one in found])
        rows.append(
            f"| {name} | {len(found)} | {np.median(ways):.2f}, {min(ways):.2f} | {low} | {counted} | "
            f"{np.median(gains):.4g}, {min(gains):.4g} | {fine} of {len(found)} | {cpu:.0f} |"
        )
    for name, found in sorted(by_name.items()):
        if name.startswith("noise"):
            chosen = [one["selection"]["chosen"].removeprefix("nodes of ") for one in found]
            rows.append(f"\n{name}: nodes chosen {', '.join(chosen)}")
        for candidate in sorted({refused for one in found for refused in one.get("refused", {})}):
            n_refused = sum(candidate in one.get("refused", {}) for one in found)
            rows.append(f"\n{name}: {candidate} refused the learning episodes of {n_refused} of {len(found)} seeds")
    return "\n".join(rows)


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=["table", "run"], nargs="?", default="table")
    parser.add_argument("problems", nargs="*", metavar="PROBLEM", help="default: all")
    parser.add_argument("--seeds", nargs=2, type=int, default=(0, 10), metavar=("FIRST", "END"))
    parser.add_argument("--folder", type=Path, default=FOLDER)
    options = parser.parse_args(arguments)
    records = Records(options.folder)
    if options.part == "table":
        print(table(records))
        return
    warnings.simplefilter("ignore")
    options.folder.mkdir(parents=True, exist_ok=True)
    for seed in range(*options.seeds):
        for name in options.problems or problems():
            run(name, seed, records)


if __name__ == "__main__":
    main()
