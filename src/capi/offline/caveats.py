"""Caveats about the estimates of a policy."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from capi.data.elapsed import UNNAMED, discount_unit
from capi.errors import LEAST_SHOWN, NEGLIGIBLE, Caveat
from capi.offline.behaviour import Behaviour
from capi.offline.evidence import Estimate
from capi.offline.importance_weights import enough_overlap
from capi.offline.log import Log
from capi.offline.nuisances import Quantities
from capi.types import Policy

FEW_EPISODES, TOO_FEW_EPISODES = 30, 10  # with fewer, intervals are too short, and meaningless
RARELY = 0.01  # share of an action among the decisions in similar states below which nothing is known about it
MOST = 0.5  # share of the value beyond the log's end above which the estimate is unreliable
MUCH = 0.1  # share of rarely taken decisions, or of the value beyond the log's end, above which there is a warning
APART = 4.0  # standard errors between two estimates above which chance does not explain the difference
DECIDES = 0.5  # share of the squared influence above which one episode dominates
FEWEST_TAKEN, FEWEST_IN_GROUP = (
    20,
    50,
)  # fewest decisions by which given probabilities are checked: in all rows, and in a group
TINY = 1e-9  # smaller probabilities count as zero
NOT_ONE = 0.1  # tolerated distance of the mean ratio from one


def headline(parts: Iterable[Quantities], log: Log) -> str:
    """Return the method of the headline estimate: doubly robust if there is enough overlap, otherwise fitted Q, otherwise the first."""
    overlap = all(enough_overlap(q.weights.effective_episodes, len(log.episodes)) for q in parts)
    for method in ("doubly-robust", "fitted-q") if overlap else ("fitted-q", "doubly-robust"):
        if method in log.settings.methods:
            return method
    return log.settings.methods[0]


def caveats_of(policies: list[Policy], q: Quantities, log: Log) -> list[Caveat]:
    """Return the caveats about the estimates of a policy."""
    return [
        *_about_learning(policies, log),
        *_about_actions(q, log),
        *_about_weights(q, log),
        *_about_behaviour(log.behaviour),
        *about_given_probabilities(log),
        *_about_discount(log),
        *_about_unit(policies, log),
        *_about_ratios(q, log),
        *_about_size(log),
    ]


def _about_learning(policies: list[Policy], log: Log) -> Iterator[Caveat]:
    seen, unchecked = _seen(policies, log)
    if seen > 0:
        rest = (
            "of these episodes are among those that the policy was learned from, so its estimated value is too optimistic. "
            "Evaluate it on other episodes, or evaluate the learner with cross_evaluate."
        )
        yield Caveat(
            "seen-episodes",
            f"{_percent(seen)} {rest}",
            "severe" if seen > NEGLIGIBLE else "warning",
            count=_count(seen, len(log.episodes)),
            share=seen,
            text_without_counts=f"some {rest}",
        )
    if unchecked:
        yield Caveat(
            "unchecked-episodes",
            "it cannot be checked whether the policy was learned from these episodes, because its file does not record them. If it was, its "
            "estimated value is too optimistic. Make sure that it was not, or evaluate the run folder: capi evaluate RUN TABLE.",
            "warning",
        )


def _about_actions(q: Quantities, log: Log) -> Iterator[Caveat]:
    rare, never = rarely_taken(q, log)
    n_rows, labels = len(log.batch), log.batch.schema.action_labels
    if never:
        shares = ", ".join(f"{labels[a]!r} ({_percent(share)} of its decisions)" for a, share in never.items())
        names = ", ".join(f"{labels[a]!r}" for a in never)
        rest = "its value is unknown. Forbid the action, or collect decisions that take it."
        told = _most_telling(never.values())
        yield Caveat(
            "unlogged-actions",
            f"the log never took {shares}: {rest}",
            "severe" if sum(never.values()) > NEGLIGIBLE else "warning",
            count=_count(told, n_rows),
            share=told,
            text_without_counts=f"the log never took {names}: {rest}",
        )
    if rare > MUCH:
        rest = "of the policy's decisions were rarely or never taken in similar states: estimates there are extrapolations."
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
            f"importance weights overflow (the largest is e^{w.largest_log:.0f}), so there are no weighted or doubly robust estimates. "
            "The probabilities of the logged actions are tiny: check them, or shorten the episodes.",
            "severe",
        )
    elif w.lost_after is not None:
        yield Caveat(
            "no-agreement",
            f"from step {w.lost_after + 1} on no logged episode agrees with the policy: there are no importance-sampling estimates, "
            "and the doubly robust ones rely on the fitted values alone after that step.",
            "severe",
            count=0,
        )
    elif not enough_overlap(w.effective_episodes, len(e)):
        rest = "Do not trust the weighted and doubly robust estimates."
        yield Caveat(
            "little-overlap",
            f"the policy and the log overlap too little: {len(e)} logged episodes are worth {w.effective_episodes:.1f} of the policy's own "
            f"(the heaviest has {_percent(w.largest_share)} of the weight). {rest}",
            "severe",
            count=float(w.effective_episodes),
            text_without_counts=f"the policy and the log overlap too little: the logged episodes are worth fewer than {LEAST_SHOWN} of the policy's own. {rest}",
        )


def _about_discount(log: Log) -> Iterator[Caveat]:
    if log.episodes.discount == 0 and log.episodes.lengths.max() > 1:
        yield Caveat(
            "discount-zero",
            "at discount 0 only the first decision of each episode counts. If the decisions are independent, leave out the episode column.",
            "note",
        )


def _about_unit(policies: list[Policy], log: Log) -> Iterator[Caveat]:
    """Yield a caveat if the discount of a policy's batch referred to another time than the log's."""
    mine = discount_unit(log.batch)
    for training in (getattr(policy, "training", None) for policy in policies):
        if training is None or training.n_rows is None:
            continue
        units = {mine, training.discount_per}
        if len(units) == 2 and (None in units or UNNAMED not in units):
            theirs = f"per {training.discount_per or 'row'}"
            yield Caveat(
                "other-time-unit",
                f"the policy was learned with a discount {theirs}, and this log is discounted per {mine or 'row'}: "
                "these are not the values that it was learned for. Read the table with the same discount_per.",
                "warning",
            )
            return


def _about_ratios(q: Quantities, log: Log) -> Iterator[Caveat]:
    mean = _mean_ratio(q, log)
    if mean is not None:
        yield Caveat(
            "mean-ratio",
            f"the ratios of the policy's to the log's probabilities should average 1 but average {mean:.2f}: "
            "either the log's probabilities are wrong, or the policy takes actions that the log never takes.",
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


def _seen(policies: list[Policy], log: Log) -> tuple[float, bool]:
    """Return the share of the episodes that their fold's policy was learned from, and whether there are some that cannot be checked."""
    trained = [getattr(policy, "training", None) for policy in policies]
    same = all(policy is policies[0] for policy in policies)
    total, unchecked = 0.0, False
    for k, training in enumerate(trained[:1] if same else trained):
        if training is None or training.n_rows is None:  # not learned from a batch
            continue
        mine = log.batch if same else log.batch.subset(log.fold_of_row == k)
        share = None if training.episodes is None else training.episodes.share_in(mine)
        unchecked |= share is None
        total += (share or 0.0) * mine.n_episodes / len(log.episodes)
    return total, unchecked


def _about_behaviour(b: Behaviour) -> Iterator[Caveat]:
    if b.is_miscalibrated:
        yield Caveat(
            "miscalibrated-probabilities",
            f"the estimated behaviour probabilities are off by {_percent(b.calibration_error)} on average "
            f"(chance alone: {_percent(b.expected_error)}): weighted estimates inherit this error. Pass the true probabilities, or another classifier.",
            "warning",
            share=float(b.calibration_error),
        )
    if b.rare > 0.001:
        rest = "of the logged decisions had a probability below 1 %: a few of them may dominate the weighted estimates."
        yield Caveat(
            "improbable-decisions",
            f"{_percent(b.rare)} {rest}",
            "warning",
            count=_count(b.rare, len(b.probability)),
            share=b.rare,
            text_without_counts=f"some {rest}",
        )


def about_given_probabilities(log: Log) -> Iterator[Caveat]:
    """Yield a caveat if the probabilities in the log do not match the logged actions in some group of states.

    Whatever the policy, the mean over the rows of a group of 1 / p where an action was taken, and 0 where it was not, should be 1.
    """
    b, t = log.behaviour, log.batch
    if not b.given:
        return
    leaves, counts = log.by_leaf
    groups = [np.ones(len(t), dtype=bool), *(leaves == leaf for leaf in np.flatnonzero(counts.sum(axis=1)))]
    for inside in groups:
        for a in range(t.n_actions):
            rows = np.flatnonzero(inside if t.allowed is None else inside & t.allowed[:, a])
            inverse = np.where(t.actions[rows] == a, 1 / np.maximum(b.probability[rows], TINY), 0.0)
            if np.count_nonzero(inverse) < (FEWEST_TAKEN if inside.all() else FEWEST_IN_GROUP):
                continue
            off, error = float(inverse.mean()) - 1, float(inverse.std()) / np.sqrt(len(rows))
            if abs(off) > max(NOT_ONE, 5 * error):
                yield Caveat(
                    "wrong-probabilities",
                    f"the log's probabilities do not match its actions: in some states {t.schema.action_labels[a]!r} was taken {1 + off:.2f} times as often as "
                    "they say. Are they the probabilities of the actions taken, given the state? Weighted and doubly robust estimates inherit the error.",
                    "warning",
                )
                return


def dominance(estimate: Estimate, behaviour: Estimate) -> Caveat | None:
    """Return a caveat if a single episode dominates an estimate and moves it by more than the standard error of the logged behaviour's value."""
    sizes = np.abs(estimate.influence)
    largest = float(sizes.max())
    if not largest / len(sizes) > behaviour.standard_error:  # false for NaN too
        return None
    share = 1 / float(np.square(sizes / largest).sum())
    if share <= DECIDES:
        return None
    return Caveat(
        "dominant-episode",
        f"a single episode dominates the estimate: it has {_percent(share)} of the squared influence. Inspect it; "
        "without it the estimate would be different.",
        "severe",
        count=1,
        text_without_counts=f"fewer than {LEAST_SHOWN} episodes dominate the estimate. Inspect them; without them the estimate would be different.",
    )


def _mean_ratio(q: Quantities, log: Log) -> float | None:
    """Return the mean ratio of the policy's to the log's probabilities if it differs from 1 by more than chance explains, otherwise None."""
    e = log.episodes
    if q.weights.overflows:  # covered by another warning
        return None
    with np.errstate(over="ignore", invalid="ignore"):  # an infinite ratio makes the noise infinite
        sums, rows = e.weights * e.summed(q.weights.ratios), e.weights * e.lengths
        mean = float(sums.sum() / rows.sum())
        noise = float(np.linalg.norm(sums - mean * rows) / rows.sum())
    return mean if abs(mean - 1) > max(NOT_ONE, 4 * noise) else None


def rarely_taken(q: Quantities, log: Log) -> tuple[float, dict[int, float]]:
    """Return the share of the policy's decisions that were rarely taken in similar states, and the share of each action that was never taken."""
    leaves, counts = log.by_leaf
    rows = counts * (len(log.batch) / counts.sum())  # the scale of weights is arbitrary
    shares = (rows + 1) / (rows + 1).sum(axis=1, keepdims=True)  # by Laplace's rule, because a few rows prove nothing
    never = counts.sum(axis=0) == 0
    rare = (shares[leaves] < RARELY) | never
    counted = log.episodes.weights[log.episodes.of_row]
    mean = np.average(q.probabilities, axis=0, weights=counted)
    taken = {int(a): float(mean[a]) for a in np.flatnonzero(never & (mean > 0))}
    return float(np.average((q.probabilities * rare).sum(axis=1), weights=counted)), taken


def extrapolated_share(q: Quantities, log: Log) -> float:
    """Return the share of the value that lies beyond the end of the log, according to the fitted values."""
    e = log.episodes
    if not e.truncated.any():
        return 0.0
    ends = e.last[e.truncated]
    tail = float(
        (e.weights[e.truncated] * np.abs(e.worth[ends] * e.discount * e.over_steps(q.next_values)[ends])).sum()
    )
    whole = float((e.weights * np.abs(q.start_values)).sum())
    return min(tail / whole, 1.0) if whole > 0 else float(tail > 0)


def much_extrapolated(share: float) -> Caveat | None:
    """Return a caveat if a large share of the value lies beyond the end of the log."""
    if share <= MUCH:
        return None
    return Caveat(
        "beyond-log",
        f"about {_percent(share)} of the value lies beyond the end of the recorded episodes, where it comes from the fitted values alone; "
        "no interval covers their error there.",
        "severe" if share > MOST else "warning",
        share=share,
    )


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %" if share >= 0.1 else f"{100 * share:.2g} %"


def _count(share: float, of: int) -> float:
    return round(share * of, 6)  # weighted shares do not correspond to integers


def _most_telling(shares: Iterable[float]) -> float:
    """Return the share for which the smaller of the share and its complement is smallest, but not zero."""
    return min(shares, key=lambda share: min(share, round(1 - share, 9) or share))


def disagreement(estimates: Mapping[str, Estimate], method: str) -> Caveat | None:
    """Return a caveat if the doubly robust and fitted Q estimates differ by more than chance explains; ``method`` is the headline."""
    if not {"doubly-robust", "fitted-q"} <= set(estimates):
        return None
    robust, fitted = estimates["doubly-robust"], estimates["fitted-q"]
    apart = robust - fitted
    if not abs(apart.value) > max(APART * apart.standard_error, 1e-9 * abs(fitted.value)):  # false for NaN too
        return None
    return Caveat(
        "estimates-disagree",
        f"fitted Q ({fitted.value:.4g}) and doubly robust ({robust.value:.4g}) estimates differ by more than chance explains: the fitted values are "
        "biased, or the probabilities are wrong. Perhaps the state lacks information, such as the remaining time.",
        "severe" if method == "fitted-q" else "warning",
    )
