"""What speaks against trusting the estimates of a policy."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from capi.data.sketch import share_known
from capi.errors import LEAST_SHOWN, Caveat
from capi.offline.behaviour import Behaviour
from capi.offline.evidence import Estimate
from capi.offline.log import Log
from capi.offline.nuisances import Quantities
from capi.types import Policy

ENOUGH = 20  # effective episodes that a doubly robust number needs, or half of all
FEW_EPISODES, TOO_FEW_EPISODES = 30, 10  # below which intervals are too short, and below which they say nothing
RARELY = 0.01  # share of an action among the decisions in such states, below which nothing is known about it
MOST = 0.5  # of the value beyond the log, with which nothing can be said
MUCH = 0.1  # of the decisions rarely taken, or of the value beyond the log, of which one should know
APART = 4.0  # standard errors between two estimates beyond which chance is no reason
DECIDES = 0.5  # share of the squared influence by which one episode decides
FEWEST_TAKEN = 20  # decisions by which given probabilities are judged
TINY = 1e-9  # probabilities below it are as good as none
NOT_ONE = 0.1  # how far the mean ratio may be from one


def headline(parts: Iterable[Quantities], log: Log) -> str:
    """Return the method that stands for a policy: doubly robust if there is overlap enough, else fitted Q, else the first."""
    enough = min(ENOUGH, len(log.episodes) / 2)
    overlap = all(q.weights.effective_episodes >= enough for q in parts)
    for method in ("doubly-robust", "fitted-q") if overlap else ("fitted-q", "doubly-robust"):
        if method in log.settings.methods:
            return method
    return log.settings.methods[0]


def caveats_of(policies: list[Policy], q: Quantities, log: Log) -> list[Caveat]:
    """Return what speaks against trusting the estimates of a policy."""
    return [
        *_about_learning(policies, log),
        *_about_actions(q, log),
        *_about_weights(q, log),
        *_about_behaviour(log.behaviour),
        *_about_given(log),
        *_about_discount(log),
        *_about_ratios(q, log),
        *_about_size(log),
    ]


def _about_learning(policies: list[Policy], log: Log) -> Iterator[Caveat]:
    seen = _seen(policies, log)
    if seen > 0:
        rest = (
            "of these episodes are among those that the policy was learned from, so that its value here flatters it. "
            "Evaluate it on other episodes, or the learner with cross_evaluate."
        )
        yield Caveat(
            "seen-episodes",
            f"{_percent(seen)} {rest}",
            "severe",
            count=_count(seen, len(log.episodes)),
            share=seen,
            text_without_counts=f"some {rest}",
        )


def _about_actions(q: Quantities, log: Log) -> Iterator[Caveat]:
    rare, never = rarely_taken(q, log)
    n_rows, labels = len(log.batch), log.batch.schema.action_labels
    if never:
        shares = ", ".join(f"{labels[a]!r} ({_percent(share)} of its decisions)" for a, share in never.items())
        names = ", ".join(f"{labels[a]!r}" for a in never)
        rest = "nothing says what that is worth. Forbid it, or collect such decisions."
        told = _most_telling(never.values())
        yield Caveat(
            "unlogged-actions",
            f"the log never took {shares}: {rest}",
            "severe",
            count=_count(told, n_rows),
            share=told,
            text_without_counts=f"the log never took {names}: {rest}",
        )
    if rare > MUCH:
        rest = "of the policy's decisions were hardly ever taken in such states: there every estimate rests on guesses."
        yield Caveat(
            "rarely-taken",
            f"{_percent(rare)} {rest}",
            "severe",
            count=_count(rare, n_rows),
            share=rare,
            text_without_counts=f"some {rest}",
        )


def _about_weights(q: Quantities, log: Log) -> Iterator[Caveat]:
    e, w = log.episodes, q.weights
    if w.overflows:
        yield Caveat(
            "weights-overflow",
            f"importance weights overflow (the largest is e^{w.largest_log:.0f}): there are no weighted and no doubly robust estimates. "
            "The probabilities of the logged actions are tiny; check them, or shorten the episodes.",
            "severe",
        )
    elif w.lost_after is not None:
        yield Caveat(
            "no-agreement",
            f"from step {w.lost_after + 1} on no logged episode agrees with the policy: there are no importance-sampling estimates, "
            "and the doubly robust ones rest on the fitted values alone from there on.",
            "severe",
            count=0,
        )
    elif w.effective_episodes < min(ENOUGH, len(e) / 2):
        rest = "Weighted and doubly robust estimates should not be trusted."
        yield Caveat(
            "little-overlap",
            f"the policy and the log overlap too little: {len(e)} episodes are worth {w.effective_episodes:.1f} of the policy's own "
            f"(the heaviest has {_percent(w.largest_share)} of the weight). {rest}",
            "severe",
            count=float(w.effective_episodes),
            text_without_counts=f"the policy and the log overlap too little: the episodes are worth fewer than {LEAST_SHOWN} of the policy's own. {rest}",
        )


def _about_discount(log: Log) -> Iterator[Caveat]:
    if log.episodes.discount == 0 and log.episodes.lengths.max() > 1:
        yield Caveat(
            "discount-zero",
            "at discount 0 only the first decision of each episode counts. If each decision stands for itself, leave the episode column out.",
            "note",
        )


def _about_ratios(q: Quantities, log: Log) -> Iterator[Caveat]:
    mean = _mean_ratio(q, log)
    if mean is not None:
        yield Caveat(
            "mean-ratio",
            f"the ratios of the policy's and the log's probabilities should be 1 in the mean, and are {mean:.2f}: "
            "either the log's probabilities are wrong, or the policy does what the log never does.",
            "severe",
        )


def _about_size(log: Log) -> Iterator[Caveat]:
    n = len(log.episodes)
    if n < FEW_EPISODES:
        yield Caveat(
            "few-episodes",
            f"there are only {n} episodes: intervals from so few are too short.",
            "severe" if n < TOO_FEW_EPISODES else "warning",
            count=n,
            text_without_counts=f"there are fewer than {LEAST_SHOWN} episodes: intervals from so few are too short.",
        )


def _seen(policies: list[Policy], log: Log) -> float:
    """Return the share of the episodes that the policy which decides in them was learned from."""
    trained = [getattr(policy, "training", None) for policy in policies]
    if not any(training is not None and training.episodes for training in trained):
        return 0.0
    hashes, share = log.batch.episode_hashes(), 0.0
    same = all(policy is policies[0] for policy in policies)
    for k, training in enumerate(trained[:1] if same else trained):
        mine = hashes if same else hashes[log.fold_of_episode == k]
        if training is not None and training.episodes:
            share += share_known(mine, training.episodes) * len(mine) / len(hashes)
    return share


def _about_behaviour(b: Behaviour) -> Iterator[Caveat]:
    if b.is_miscalibrated:
        yield Caveat(
            "miscalibrated-probabilities",
            f"the estimated behaviour probabilities are off by {_percent(b.calibration_error)} in the mean "
            f"(chance alone: {_percent(b.expected_error)}): weighted estimates inherit that. Give the true ones, or another classifier.",
            "warning",
            share=float(b.calibration_error),
        )
    if b.rare > 0.001:
        rest = "of the logged decisions had a probability below 1 %: a few of them may decide the weighted estimates."
        yield Caveat(
            "improbable-decisions",
            f"{_percent(b.rare)} {rest}",
            "warning",
            count=_count(b.rare, len(b.probability)),
            share=b.rare,
            text_without_counts=f"some {rest}",
        )


def _about_given(log: Log) -> Iterator[Caveat]:
    """Yield a caveat if the probabilities that the log gives do not fit what it did, in some kind of states.

    Whatever the policy, the mean of 1 / p over the rows that took an action, zero for those that did not, is 1 in every kind of states.
    """
    b, t = log.behaviour, log.batch
    if not b.given:
        return
    leaves, counts = log.by_leaf
    for leaf in np.flatnonzero(counts.sum(axis=1)):
        inside = leaves == leaf
        for a in range(t.n_actions):
            rows = np.flatnonzero(inside if t.allowed is None else inside & t.allowed[:, a])
            inverse = np.where(t.actions[rows] == a, 1 / np.maximum(b.probability[rows], TINY), 0.0)
            if np.count_nonzero(inverse) < FEWEST_TAKEN:
                continue
            off, error = float(inverse.mean()) - 1, float(inverse.std()) / np.sqrt(len(rows))
            if abs(off) > max(NOT_ONE, 5 * error):
                yield Caveat(
                    "wrong-probabilities",
                    f"the log's probabilities do not fit what it did: in some states {t.schema.action_labels[a]!r} was taken {1 + off:.2f} times as often as "
                    "they say. Are they those of the actions taken, given the state? Weighted and doubly robust estimates inherit the error.",
                    "warning",
                )
                return


def dominance(estimate: Estimate, behaviour: Estimate) -> Caveat | None:
    """Return a caveat if a single episode decides an estimate, and moves it by more than chance moves what was done."""
    sizes = np.abs(estimate.influence)
    largest = float(sizes.max())
    if not largest / len(sizes) > behaviour.standard_error:  # NaN is not either
        return None
    share = 1 / float(np.square(sizes / largest).sum())
    if share <= DECIDES:
        return None
    return Caveat(
        "dominant-episode",
        f"a single episode decides the estimate: it has {_percent(share)} of the squared influence. Look at it; "
        "without it the number would be another.",
        "severe",
        count=1,
        text_without_counts=f"fewer than {LEAST_SHOWN} episodes decide the estimate. Look at them; without them the number would be another.",
    )


def _mean_ratio(q: Quantities, log: Log) -> float | None:
    """Return the mean ratio of the policy's and the log's probabilities if it differs from 1 by more than chance explains."""
    e = log.episodes
    if q.weights.overflows:  # which has its own warning
        return None
    with np.errstate(over="ignore", invalid="ignore"):  # a single ratio beyond all bounds is all noise
        sums, rows = e.weights * e.summed(q.weights.ratios), e.weights * e.lengths
        mean = float(sums.sum() / rows.sum())
        noise = float(np.linalg.norm(sums - mean * rows) / rows.sum())
    return mean if abs(mean - 1) > max(NOT_ONE, 4 * noise) else None


def rarely_taken(q: Quantities, log: Log) -> tuple[float, dict[int, float]]:
    """Return the share of the policy's decisions that were rarely taken in such states, and the share of each action never taken at all."""
    leaves, counts = log.by_leaf
    rows = counts * (len(log.batch) / counts.sum())  # weights have any scale
    shares = (rows + 1) / (rows + 1).sum(axis=1, keepdims=True)  # by Laplace's rule, for few rows show nothing
    never = counts.sum(axis=0) == 0
    rare = (shares[leaves] < RARELY) | never
    counted = log.episodes.weights[log.episodes.of_row]
    mean = np.average(q.probabilities, axis=0, weights=counted)
    taken = {int(a): float(mean[a]) for a in np.flatnonzero(never & (mean > 0))}
    return float(np.average((q.probabilities * rare).sum(axis=1), weights=counted)), taken


def extrapolated_share(q: Quantities, log: Log) -> float:
    """Return the share of the value that lies behind the log's end, by the fitted values."""
    e = log.episodes
    if not e.truncated.any():
        return 0.0
    ends = e.last[e.truncated]
    tail = float((e.weights[e.truncated] * np.abs(e.worth[ends] * e.discount * q.next_values[ends])).sum())
    whole = float((e.weights * np.abs(q.start_values)).sum())
    return min(tail / whole, 1.0) if whole > 0 else float(tail > 0)


def much_extrapolated(share: float) -> Caveat | None:
    """Return a caveat if a large share of the value lies behind the log's end."""
    if share <= MUCH:
        return None
    return Caveat(
        "beyond-log",
        f"about {_percent(share)} of the value lies behind the end of the recorded episodes, where only the fitted values know of it; "
        "no interval covers their error there.",
        "severe" if share > MOST else "warning",
        share=share,
    )


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %" if share >= 0.1 else f"{100 * share:.2g} %"


def _count(share: float, of: int) -> float:
    return round(share * of, 6)  # weighted shares stand for no whole numbers


def _most_telling(shares: Iterable[float]) -> float:
    """Return the share that leaves the fewest on one of its sides, though not none."""
    return min(shares, key=lambda share: min(share, round(1 - share, 9) or share))


def disagreement(estimates: Mapping[str, Estimate], method: str) -> Caveat | None:
    """Return a caveat if the doubly robust estimate corrects that of fitted Q by more than chance explains; ``method`` is the headline."""
    if not {"doubly-robust", "fitted-q"} <= set(estimates):
        return None
    robust, fitted = estimates["doubly-robust"], estimates["fitted-q"]
    apart = robust - fitted
    if not abs(apart.value) > max(APART * apart.standard_error, 1e-9 * abs(fitted.value)):  # NaN is not either
        return None
    return Caveat(
        "estimates-disagree",
        f"fitted Q ({fitted.value:.4g}) and doubly robust ({robust.value:.4g}) estimates differ by more than chance explains: the fitted values are "
        "biased, or the probabilities are wrong. Perhaps the state's columns do not tell enough, such as the time that is left.",
        "severe" if method == "fitted-q" else "warning",
    )
