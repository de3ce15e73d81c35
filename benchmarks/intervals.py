"""Coverage of the intervals of `capi.offline` on problems with a known value.

No peer is needed: the reference is the true value. Batches are simulated, evaluated with the defaults of `evaluate` (200
resamples, 95 % intervals), and compared with the values of the policy and of the behaviour. Each evaluation is written to
results/coverage/ when it finishes, one line of JSON per estimator, and the tables are computed from these lines:

    python benchmarks/intervals.py                 everything (more than half an hour), then the tables
    python benchmarks/intervals.py --quick         a few batches of everything, in a separate folder
    python benchmarks/intervals.py --only mdp bandit --sizes 50 200
    python benchmarks/intervals.py --only regrow   the effect of keeping the trees
    python benchmarks/intervals.py --tables        only the tables of the results so far

New measurements replace earlier ones.
"""

import argparse
import json
import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from scipy.special import dawsn

from capi import Transitions
from capi.errors import EvidenceWarning
from capi.finite import FiniteMDP
from capi.offline import METHODS, evaluate

FOLDER = Path(__file__).parent.parent / "results" / "coverage"
SIZES = (50, 200, 1000)  # episodes
N_BATCHES = 300
REGROWN = (
    ("bandit", 50, 100),
    ("mdp", 50, 20),
)  # problem, episodes, batches: each of 100 resamples has its own trees
N_STATES, N_ACTIONS, DISCOUNT = 6, 3, 0.9


@dataclass(frozen=True, eq=False)
class Stochastic:
    """A policy given by its probabilities: a function from states (n, d) to (n, A)."""

    of_states: Callable
    n_actions: int = N_ACTIONS

    def probabilities(self, states, allowed=None):
        return self.of_states(states)

    def act(self, states, allowed=None):
        return self.of_states(states).argmax(axis=1)


def tabular(table):
    """Return the policy whose probabilities in state x are ``table[x]``."""
    return Stochastic(lambda states: table[states[:, 0].astype(int)])


def drawn(probabilities, rng):
    """Return one column drawn from each row of ``probabilities`` (n, k) -> (n,)."""
    return (rng.random((len(probabilities), 1)) > probabilities.cumsum(axis=1)[:, :-1]).sum(axis=1)


@dataclass(frozen=True, eq=False)
class Walk:
    """A finite MDP with six states and three actions, and noise on the rewards.

    A decision ends the episode with probability ``ends`` on average, and the log stops after at most ``horizon`` decisions.
    """

    ends: float
    horizon: int
    sharpness: float  # of the evaluated policy
    noise: float = 0.5

    @cached_property
    def model(self):
        rng = np.random.default_rng(7)
        moves = rng.dirichlet(np.full(N_STATES, 0.5), size=(N_ACTIONS, N_STATES))  # (A, S, S)
        rewards = rng.normal(size=(N_STATES, N_ACTIONS))
        ending = self.ends * rng.uniform(0.5, 1.5, size=(N_ACTIONS, N_STATES))
        start = rng.dirichlet(np.full(N_STATES, 2.0))
        P = np.zeros((N_ACTIONS, N_STATES + 1, N_STATES + 1))  # the last state is the end
        P[:, :-1, :-1] = moves * (1 - ending[..., None])
        P[:, :-1, -1] = ending
        P[:, -1, -1] = 1.0
        mdp = FiniteMDP(P, np.vstack([rewards, np.zeros(N_ACTIONS)]), DISCOUNT, start=np.append(start, 0.0))
        return mdp, P

    @cached_property
    def behaviour(self):
        """Probabilities of the behaviour policy (S + 1, A), each at least 0.15."""
        return 0.45 / N_ACTIONS + 0.55 * np.random.default_rng(8).dirichlet(np.ones(N_ACTIONS), size=N_STATES + 1)

    @cached_property
    def target(self):
        """Probabilities of the target: the best action with probability ``sharpness``, otherwise the behaviour (S + 1, A)."""
        best = np.eye(N_ACTIONS)[self.model[0].optimal_policy.actions]
        return self.sharpness * best + (1 - self.sharpness) * self.behaviour

    @property
    def policy(self):
        return tabular(self.target)

    @cached_property
    def truths(self):
        """The values of the policy and of the behaviour."""
        mdp = self.model[0]
        return tuple(float(mdp.start @ mdp.values(p)) for p in (self.target, self.behaviour))

    discount = DISCOUNT

    def draw(self, n, rng):
        mdp, P = self.model
        x, episode, columns = mdp.initial(n, rng)[:, 0].astype(int), np.arange(n), []
        for t in range(self.horizon):
            a = drawn(self.behaviour[x], rng)
            y = drawn(P[a, x], rng)
            r = mdp.rewards[x, a] + self.noise * rng.normal(size=len(x))
            columns.append(np.stack([episode, np.full(len(x), t), x, a, r, y, self.behaviour[x, a]]))
            going = y < N_STATES
            x, episode = y[going], episode[going]
        rows = np.concatenate(columns, axis=1)
        e, _, x, a, r, y, p = rows[:, np.lexsort((rows[1], rows[0]))]
        return Transitions(
            x[:, None],
            a.astype(int),
            r,
            y[:, None],
            y == N_STATES,
            n_actions=N_ACTIONS,
            episodes=e.astype(int),
            propensities=p,
        )


@dataclass(frozen=True, eq=False)
class Trial:
    """One decision per episode: the outcomes of three arms depend on three features, their probabilities on one of them."""

    discount = 0.0

    @staticmethod
    def behaviour_of(states):
        logits = np.stack([np.zeros(len(states)), 0.5 * states[:, 0], -0.5 * states[:, 0]], axis=1)
        p = np.exp(logits)
        return p / p.sum(axis=1, keepdims=True)

    @staticmethod
    def target_of(states):
        best = np.where(states[:, 1] > 0, 1, np.where(states[:, 2] > 0, 2, 0))
        return 0.1 / N_ACTIONS + 0.9 * np.eye(N_ACTIONS)[best]

    @staticmethod
    def outcomes(states):
        return np.stack([np.zeros(len(states)), states[:, 1], 0.5 + np.sin(2 * states[:, 2])], axis=1)

    @property
    def policy(self):
        return Stochastic(self.target_of)

    @cached_property
    def truths(self):
        """The values of the policy and of the behaviour: integrals over normal states, in closed form or by quadrature."""
        sines = dawsn(math.sqrt(2)) / math.sqrt(math.pi)  # the mean of sin(2 z) where z > 0
        best = 1 / math.sqrt(2 * math.pi) + 0.5 * (0.25 + sines)
        points, weights = np.polynomial.hermite_e.hermegauss(60)
        third = self.behaviour_of(points[:, None])[:, 2] @ weights / weights.sum()
        return 0.1 / N_ACTIONS * 0.5 + 0.9 * best, float(0.5 * third)

    def draw(self, n, rng):
        states = rng.normal(size=(n, 3))
        p = self.behaviour_of(states)
        a = drawn(p, rng)
        r = self.outcomes(states)[np.arange(n), a] + rng.normal(size=n)
        ended = np.ones(n, dtype=bool)
        return Transitions(states, a, r, states, ended, n_actions=N_ACTIONS, propensities=p[np.arange(n), a])


PROBLEMS = {
    "mdp": Walk(ends=0.25, horizon=1000, sharpness=0.3),
    "truncated": Walk(ends=0.25, horizon=3, sharpness=0.3),
    "bandit": Trial(),
    "poor": Walk(ends=0.0, horizon=15, sharpness=0.95),
}
TITLES = {
    "mdp": "finite MDP, episodes end",
    "truncated": "finite MDP, cut after 3 decisions",
    "bandit": "one decision, three arms",
    "poor": "poor overlap: cut after 15 decisions",
}


def without_probabilities(batch):
    """Return the batch without its logged probabilities."""
    columns = (batch.states, batch.actions, batch.rewards, batch.next_states, batch.terminated)
    return Transitions(*columns, n_actions=batch.n_actions, episodes=batch.episodes)


def measured(found, truth):
    """Return whether the intervals of an estimate contain the truth, and their widths."""
    record = {"value": found.value, "error": found.value - truth, "se": found.standard_error}
    for kind in ("bootstrap", "asymptotic"):
        low, high = getattr(found, kind)
        record[kind], record[f"{kind} width"] = bool(low <= truth <= high), high - low
    return record


def evaluated(name, n, given, b, methods=METHODS, **settings):
    """Return the results for one simulated batch: one record per estimator, and one for the behaviour."""
    problem = PROBLEMS[name]
    batch = problem.draw(n, np.random.default_rng([list(PROBLEMS).index(name), n, b]))
    batch = batch if given else without_probabilities(batch)
    truth, logged = problem.truths
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EvidenceWarning)
        found = evaluate(
            problem.policy, batch, discount=problem.discount, methods=methods, random_state=b, n_jobs=1, **settings
        )
    facts = {
        "problem": name,
        "n": n,
        "given": given,
        "batch": b,
        "unreliable": found.unreliable,
        "warned": len(found.warnings),
        "effective": found.effective_episodes,
        "extrapolated": found.extrapolated_share,
    }
    records = [facts | {"method": "behaviour"} | measured(found.behaviour, logged)]
    for method, estimate in found.estimates.items():
        paired = measured(estimate - found.behaviour, truth - logged)
        record = facts | {"method": method, "headline": found.method == method} | measured(estimate, truth)
        records.append(
            record | {f"paired {key}": paired[key] for key in ("bootstrap", "asymptotic", "bootstrap width")}
        )
    return records


def resampled_batch(batch, rng):
    """Return a batch with the same number of episodes, drawn with replacement."""
    starts, lengths = batch.episode_starts, batch.episode_lengths
    chosen = rng.integers(len(starts), size=len(starts))
    rows = np.concatenate([np.arange(starts[i], starts[i] + lengths[i]) for i in chosen])
    columns = [getattr(batch, c)[rows] for c in ("states", "actions", "rewards", "next_states", "terminated")]
    episode = np.repeat(np.arange(len(chosen)), lengths[chosen])
    return Transitions(*columns, n_actions=batch.n_actions, episodes=episode, propensities=batch.propensities[rows])


def regrown(name, n, b, n_resamples):
    """Return fitted Q on one simulated batch, with kept trees and with new trees on each resample."""
    problem = PROBLEMS[name]
    batch = problem.draw(n, np.random.default_rng([list(PROBLEMS).index(name), n, b]))
    rng, truth = np.random.default_rng([99, b]), problem.truths[0]

    def fitted(logged, seed, resamples):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", EvidenceWarning)
            options = {"methods": ("fitted-q",), "n_resamples": resamples, "random_state": seed, "n_jobs": 1}
            return evaluate(problem.policy, logged, discount=problem.discount, **options).estimates["fitted-q"]

    kept = fitted(batch, b, n_resamples)
    anew = np.array([fitted(resampled_batch(batch, rng), i, 1).value for i in range(n_resamples)])
    low, high = np.quantile(anew, [0.025, 0.975])
    facts = {"problem": name, "n": n, "batch": b}
    of_regrown = {
        "bootstrap": bool(low <= truth <= high),
        "bootstrap width": high - low,
        "shift": anew.mean() - kept.value,
    }
    return [
        facts | {"method": "kept"} | measured(kept, truth) | {"shift": float(kept.draws.mean() - kept.value)},
        facts | {"method": "regrown", "error": kept.value - truth} | of_regrown,
    ]


def written(path, pieces):
    """Write the records of each piece as soon as it finishes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        for records in pieces:
            file.writelines(json.dumps(record, default=float) + "\n" for record in records)
            file.flush()


def read(folder, pattern):
    return [json.loads(line) for path in sorted(folder.glob(pattern)) for line in path.open()]


def mean(records, key):
    numbers = [r[key] for r in records if r[key] is not None and math.isfinite(r[key])]
    return float(np.mean(numbers)) if numbers else math.nan


def percent(share):
    return f"{100 * share:.0f} %" if math.isfinite(share) else "-"


def covered(records):
    """Return the coverage of bootstrap, asymptotic and paired bootstrap intervals; a batch without an interval counts as a miss."""
    keys = ("bootstrap", "asymptotic", "paired bootstrap")
    return " / ".join(f"{100 * mean(records, key):.0f}" for key in keys if key in records[0]) if records else "-"


def precision(records):
    """Return the mean widths of bootstrap and asymptotic intervals, the ideal width, bias / spread, and the RMSE."""
    errors = np.array([r["error"] for r in records if math.isfinite(r["error"])])
    if len(errors) < 2:
        return ["-"] * 5
    bias, spread = errors.mean(), errors.std(ddof=1)
    widths = [mean(records, f"{kind} width") for kind in ("bootstrap", "asymptotic")] + [2 * 1.96 * spread]
    return [*(f"{w:.2f}" for w in widths), f"{bias / spread:+.2f}", f"{math.sqrt((errors**2).mean()):.3f}"]


def line(*cells):
    print("|", *(f"{cell} |" for cell in cells))


def coverage_tables(folder, detail):
    """Print one table per problem; widths and errors are those with ``detail`` episodes."""
    records = read(folder, "*-[0-9]*-*.jsonl")
    for name, title in TITLES.items():
        of_problem = [r for r in records if r["problem"] == name]
        if not of_problem:
            continue
        truth, logged = PROBLEMS[name].truths
        sizes = sorted({r["n"] for r in of_problem})
        shown = detail if detail in sizes else sizes[0]
        print(f"\n### {title} (value {truth:.3f}, behaviour {logged:.3f})\n")
        widths = (f"width, n = {shown}", "asymptotic", "3.92 sd")
        line("estimator", "probabilities", *(f"n = {n}" for n in sizes), *widths, "bias/sd", "rmse")
        line(*["---"] * (7 + len(sizes)))
        for given in (True, False):
            for method in (*METHODS, "behaviour") if given else METHODS:
                mine = {
                    n: [r for r in of_problem if (r["given"], r["method"], r["n"]) == (given, method, n)] for n in sizes
                }
                if any(mine.values()):
                    label = "given" if given else "estimated"
                    line(method, label, *(covered(mine[n]) for n in sizes), *precision(mine[shown]))
        print()
        line(
            "probabilities",
            "n",
            "batches",
            "effective",
            "extrapolated",
            "warned",
            "unreliable",
            "headline doubly robust",
        )
        line(*["---"] * 8)
        for given in (True, False):
            for n in sizes:
                mine = [r for r in of_problem if (r["given"], r["method"], r["n"]) == (given, "doubly-robust", n)]
                if mine:
                    shares = [
                        mean(mine, "extrapolated"),
                        np.mean([r["warned"] > 0 for r in mine]),
                        mean(mine, "unreliable"),
                    ]
                    facts = ("given" if given else "estimated", n, len(mine), f"{mean(mine, 'effective'):.1f}")
                    line(*facts, *map(percent, shares), percent(mean(mine, "headline")))


def regrown_table(folder):
    records = read(folder, "regrow-*.jsonl")
    if not records:
        return
    print("\n### Kept trees, and new trees on each resample\n")
    line("problem", "n", "batches", "trees", "coverage", "width", "3.92 sd", "mean of the resamples minus the estimate")
    line(*["---"] * 8)
    for name, n in sorted({(r["problem"], r["n"]) for r in records}):
        for method in ("kept", "regrown"):
            mine = [r for r in records if (r["problem"], r["n"], r["method"]) == (name, n, method)]
            found = [mean(mine, "bootstrap width"), 2 * 1.96 * np.std([r["error"] for r in mine]), mean(mine, "shift")]
            facts = (TITLES[name], n, len(mine), method, percent(mean(mine, "bootstrap")))
            line(*facts, *(f"{number:.2f}" for number in found))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--tables", action="store_true")
    parser.add_argument("--only", nargs="+", choices=[*PROBLEMS, "regrow"], default=[*PROBLEMS, "regrow"])
    parser.add_argument("--sizes", nargs="+", type=int, default=SIZES)
    parser.add_argument("--behaviour", nargs="+", choices=["given", "estimated"], default=["given", "estimated"])
    parser.add_argument(
        "--detail", type=int, default=200, help="number of episodes for which widths and errors are shown"
    )
    parser.add_argument("--batches", type=int, default=N_BATCHES)
    options = parser.parse_args()
    folder, n_batches = (FOLDER / "quick", 4) if options.quick else (FOLDER, options.batches)
    for name in [] if options.tables else [p for p in options.only if p != "regrow"]:
        for n in options.sizes:
            for kind in options.behaviour:
                given = kind == "given"
                methods = [m for m in METHODS if given or m != "fitted-q"]  # which does not use probabilities
                pieces = (evaluated(name, n, given, b, methods) for b in range(n_batches))
                written(folder / f"{name}-{n}-{kind}.jsonl", pieces)
    if "regrow" in options.only and not options.tables:
        for name, n, batches in REGROWN:
            some, n_resamples = (range(2), 10) if options.quick else (range(batches), 100)
            written(folder / f"regrow-{name}-{n}.jsonl", (regrown(name, n, b, n_resamples) for b in some))
    coverage_tables(folder, options.detail)
    regrown_table(folder)


if __name__ == "__main__":
    main()
