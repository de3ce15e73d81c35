"""Evaluation of a policy from logged decisions, compared with pandas and SciPy.

    python benchmarks/offline.py           doubly robust evaluation on a million decisions, 200 resamples
    python benchmarks/offline.py hiv       fitted Q and all estimators on 9,000 decisions of 45 simulated patients

In the first, the nuisance models (action values, behaviour probabilities) are fitted beforehand and not timed. The peer computes the same
numbers per episode with pandas' grouped products and sums, and resamples their mean with ``scipy.stats.bootstrap``; it has no
weighted doubly robust estimator.

In the second, times are CPU seconds, and the peer solves a resample of fitted Q on the same trees with SciPy's sparse matrices of
leaves and BiCGSTAB, from the estimate's solution, to 1e-4 of its first residual.
"""

import sys
import time
import warnings
from collections import defaultdict

import numpy as np
import pandas as pd
from scipy import sparse, stats
from scipy.sparse.linalg import LinearOperator, bicgstab
from timing import best_of

from capi import CAPI
from capi._utils.randomness import seed_sequence
from capi._utils.threads import one_blas_thread
from capi.data.transitions import Transitions
from capi.datasets import COUNTS, hiv_table
from capi.errors import EvidenceWarning
from capi.evaluators import FittedQ
from capi.offline import METHODS, evaluate
from capi.offline.episodes import Episodes
from capi.offline.estimators import MeanOfEpisodes, SumOfRatios
from capi.offline.importance_weights import Weights
from capi.offline.log import Settings, log_of
from capi.offline.nuisances import fitted_start
from capi.offline.resampling import resampled
from capi.policy_spaces import Trees

ROWS, RESAMPLES, DISCOUNT = 1_000_000, 200, 0.95


def log(steps, rng):
    """Return episodes of ``steps`` random steps, with random action values and probability ratios in place of fitted ones."""
    ends = np.arange(1, ROWS + 1) % steps == 0
    x = rng.normal(size=(ROWS, 4))
    episode = np.arange(ROWS) // steps
    batch = Transitions(x, rng.integers(3, size=ROWS), rng.normal(size=ROWS), x, ends, episodes=episode, n_actions=3)
    following = np.where(ends, 0.0, rng.normal(size=ROWS))
    return Episodes(batch, DISCOUNT), rng.choice([0.5, 1.5], size=ROWS), rng.normal(size=ROWS), following


def ours(episodes, ratios, taken, following, starts, n_jobs, both):
    weights = Weights(episodes, ratios)
    differences = episodes.worth * (episodes.batch.rewards + DISCOUNT * following - taken)
    estimators = [MeanOfEpisodes(starts + episodes.summed(weights.of_rows * differences))]
    if both:
        estimators.append(SumOfRatios.by_step(weights, differences, starts))
    draws = resampled(estimators, episodes.weights, RESAMPLES, seed_sequence(0), 5, n_jobs)
    intervals = [np.quantile(drawn, [0.025, 0.975]) for drawn in draws]
    return float(estimators[0].values(episodes.weights[None])[0]), intervals


def peer(episodes, ratios, taken, following, starts):
    batch = episodes.batch
    rows = pd.DataFrame({"episode": batch.episodes, "ratio": ratios})
    groups = rows.groupby("episode", sort=False)
    weight, time = groups["ratio"].cumprod(), groups.cumcount()
    rows["term"] = DISCOUNT**time * weight * (batch.rewards + DISCOUNT * following - taken)
    numbers = starts + rows.groupby("episode", sort=False)["term"].sum().to_numpy()
    found = stats.bootstrap(
        (numbers,), np.mean, n_resamples=RESAMPLES, batch=10, method="percentile", rng=np.random.default_rng(0)
    )
    return float(numbers.mean()), found.confidence_interval


def patients():
    """Return the decisions on 45 patients of the embedded table, and a tree learned from the other 105."""
    table = pd.read_parquet(hiv_table())
    table[list(COUNTS)] = np.log10(table[list(COUNTS)])
    table["truncated"] = table.groupby("patient").cumcount(ascending=False) == 0
    roles = {"episode": "patient", "time": "day", "truncated": "truncated", "propensity": "propensity"}
    batch = Transitions.from_frame(table, state=list(COUNTS), action="drugs", reward="reward", **roles)
    learning, testing = batch.split(0.7, random_state=0)
    learner = CAPI(FittedQ(n_sweeps=5), Trees(max_depth=3), discount=0.98, n_iterations=8, random_state=0)
    return testing, learner.fit(learning).policy_


def seconds_of(call):
    started = time.process_time()
    result = call()
    return time.process_time() - started, result


class SciPySystem:
    """Fitted Q on the trees of an evaluation, with one sparse matrix for the leaves of the decisions and one for those of the next states."""

    def __init__(self, fitted):
        cells, under, n = fitted.under.model.cells, fitted.under, len(fitted.episodes.batch)
        size = (n, len(cells.first))
        leaf = np.repeat(np.arange(size[1]), cells.sizes)
        rows = np.concatenate([cells.members[a:b] for a, b in zip(cells.first, cells.end, strict=True)])
        self.taken = sparse.csr_matrix((np.ones(len(rows)), (rows, leaf)), shape=size)
        pointers, leaves, shares = under.following.compressed()
        self.following = sparse.csr_matrix((shares, leaves, pointers), shape=size)
        self.from_rows, self.fitted = self.taken.T, fitted
        sizes = cells.sizes
        self.left_out = sizes / np.maximum(sizes - 1, 1.0)

    def value(self, counts):
        under, e = self.fitted.under, self.fitted.episodes
        steps, old, theta = under.model.steps, under.next_values, under.leaf_values
        rows = counts[e.of_row]
        below = self.from_rows @ rows
        inverse = np.divide(1.0, below, out=np.zeros_like(below), where=below > 0)

        def leaves(targets):
            return inverse * (self.from_rows @ (rows * targets))

        moved = np.where(inverse > 0, self.left_out * (leaves(under.model.batch.rewards + steps * old) - theta), 0.0)
        operator = LinearOperator(
            (len(rows), len(rows)), matvec=lambda v: v - self.following @ leaves(steps * v), dtype=np.float64
        )
        change, failed = bicgstab(operator, self.following @ moved, rtol=1e-4, atol=0.0, maxiter=500)
        of_starts = under.initial.values(theta + moved + leaves(steps * change))
        return np.nan if failed else float(np.average(of_starts, weights=counts))


def hiv(n_compared=20):
    warnings.simplefilter("ignore", EvidenceWarning)
    batch, policy = patients()
    evaluate(policy, batch, discount=0.98, n_resamples=2)  # compiles
    for name, methods in (("fitted Q alone", ("fitted-q",)), ("all estimators", METHODS)):
        seconds, _ = seconds_of(lambda methods=methods: evaluate(policy, batch, discount=0.98, methods=methods))
        print(f"{len(batch):,} decisions, {name}, {RESAMPLES} resamples: {seconds:.1f} s")
    log, spent = log_of(batch, Settings(discount=0.98)), defaultdict(float)
    with one_blas_thread():
        spent["grow trees four times, and solve"], fitted = seconds_of(lambda: fitted_start([policy], log, "table"))
        weights = log.episodes.weights
        spent["resample"], _ = seconds_of(lambda: resampled([fitted], weights, RESAMPLES, log.seeds, 5, 1))
        spent["influence"], _ = seconds_of(lambda: fitted.influence(weights))
        print("  fitted Q itself:", ", ".join(f"{part} {seconds:.2f} s" for part, seconds in spent.items()))
        evaluation, rng = fitted.parts[0][1], np.random.default_rng(0)
        peer_system, n = SciPySystem(evaluation), len(weights)
        counts = [np.bincount(rng.integers(n, size=n), minlength=n).astype(float) for _ in range(n_compared)]
        times = np.array(
            [[seconds_of(lambda c=c, s=s: s.value(c)) for s in (evaluation, peer_system)] for c in counts]
        )  # (resamples, 2, seconds and value)
    mine, other = np.median(times[:, :, 0], axis=0)
    apart = np.abs(np.diff(times[:, :, 1], axis=1)).max() / times[:, 0, 1].std()
    print(
        f"  a resample: {1e3 * mine:.0f} ms, with SciPy {1e3 * other:.0f} ms; ratio {other / mine:.1f}; values differ by {apart:.0e} of their spread"
    )


def main():
    if sys.argv[1:] == ["hiv"]:
        hiv()
        return
    rng = np.random.default_rng(0)
    for steps in (1, 10, 100):
        episodes, ratios, taken, following = log(steps, rng)
        starts = rng.normal(size=len(episodes))
        parts = (episodes, ratios, taken, following, starts)
        print(f"{ROWS:,} rows in episodes of {steps}, {RESAMPLES} resamples")
        for both, n_jobs in ((True, 1), (True, 2), (False, 2)):
            seconds, (value, _) = best_of(lambda parts=parts, n_jobs=n_jobs, both=both: ours(*parts, n_jobs, both), 2)
            what = "doubly robust and weighted doubly robust" if both else "doubly robust only"
            print(f"  {what}, {n_jobs} threads: {seconds:.2f} s")
        other, (same, _) = best_of(lambda parts=parts: peer(*parts), 2)
        print(
            f"  doubly robust only, pandas and SciPy: {other:.2f} s; ratio {other / seconds:.2f}; values differ by {abs(value - same):.0e}"
        )


if __name__ == "__main__":
    main()
