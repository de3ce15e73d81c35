"""Doubly robust evaluation of a policy on a million logged decisions with 200 resamples, compared with pandas and SciPy.

    python benchmarks/offline.py

The nuisance models (action values, behaviour probabilities) are fitted beforehand and not timed. The peer computes the same
numbers per episode with pandas' grouped products and sums, and resamples their mean with ``scipy.stats.bootstrap``; it has no
weighted doubly robust estimator.
"""

import numpy as np
import pandas as pd
from scipy import stats
from timing import best_of

from capi._utils.randomness import seed_sequence
from capi.data.transitions import Transitions
from capi.offline.episodes import Episodes
from capi.offline.estimators import MeanOfEpisodes, SumOfRatios
from capi.offline.importance_weights import Weights
from capi.offline.resampling import resampled

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


def main():
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
