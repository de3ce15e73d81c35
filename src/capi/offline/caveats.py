"""Caveats about the estimates of a policy."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from capi.data.elapsed import UNNAMED, discount_unit
from capi.errors import LEAST_SHOWN, NEGLIGIBLE, Caveat
from capi.offline.behaviour import Behaviour
from capi.offline.estimate import Estimate
from capi.offline.facts import NOT_ONE, Facts, LogSums
from capi.offline.importance_weights import enough_overlap
from capi.offline.log import Log
from capi.types import Policy

FEW_EPISODES, TOO_FEW_EPISODES = 30, 10  # with fewer, intervals are too short, and meaningless
MOST = 0.5  # share of the value beyond the log's end above which the estimate is unreliable
MUCH = 0.1  # share of rarely taken decisions, or of the value beyond the log's end, above which there is a warning
APART = 4.0  # standard errors between two estimates above which chance does not explain the difference
DECIDES = 0.5  # share of the squared influence above which one episode dominates
FEWEST_TAKEN, FEWEST_IN_GROUP = (
    20,
    50,
)  # fewest decisions by which given probabilities are checked: in all rows, and in a group


def headline(facts: Iterable[Facts], methods: Sequence[str]) -> str:
    """Return the method of the headline estimate: doubly robust if there is enough overlap, otherwise fitted Q, otherwise the first."""
    overlap = all(enough_overlap(f.overlap.effective_episodes, f.n_episodes) for f in facts)
    for method in ("doubly-robust", "fitted-q") if overlap else ("fitted-q", "doubly-robust"):
        if method in methods:
            return method
    return methods[0]


def caveats_of(policies: list[Policy], facts: Facts) -> list[Caveat]:
    """Return the caveats about the estimates of a policy."""
    return [
        *_about_learning(policies, facts),
        *_about_actions(facts),
        *_about_weights(facts),
        *_about_behaviour(facts.behaviour, facts.n_rows),
        *about_given_probabilities(facts.of_log, facts.log.batch.schema.action_labels),
        *_about_discount(facts.log),
        *_about_unit(policies, facts.log),
        *_about_ratios(facts),
        *_about_size(facts.n_episodes),
    ]


def _about_learning(policies: list[Policy], facts: Facts) -> Iterator[Caveat]:
    seen, unchecked = _seen(policies, facts.log)
    if seen > 0:
        rest = (
            "of these episodes are among those that the policy was learned from, so its estimated value is too optimistic. "
            "Evaluate it on other episodes, or evaluate the learner with cross_evaluate."
        )
        yield Caveat(
            "seen-episodes",
            f"{_percent(seen)} {rest}",
            "severe" if seen > NEGLIGIBLE else "warning",
            count=_count(seen, facts.n_episodes),
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


def _about_actions(facts: Facts) -> Iterator[Caveat]:
    rare, never = facts.rarely_taken
    n_rows, labels = facts.n_rows, facts.log.batch.schema.action_labels
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


def _about_weights(facts: Facts) -> Iterator[Caveat]:
    n, w = facts.n_episodes, facts.overlap
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
    elif not enough_overlap(w.effective_episodes, n):
        rest = "Do not trust the weighted and doubly robust estimates."
        yield Caveat(
            "little-overlap",
            f"the policy and the log overlap too little: {n} logged episodes are worth {w.effective_episodes:.1f} of the policy's own "
            f"(the heaviest has {_percent(w.largest_share)} of the weight). {rest}",
            "severe",
            count=float(w.effective_episodes),
            text_without_counts=f"the policy and the log overlap too little: the logged episodes are worth fewer than {LEAST_SHOWN} of the policy's own. {rest}",
        )


def _about_discount(log: Log) -> Iterator[Caveat]:
    if log.episodes.discount == 0 and log.episodes.extent.n_steps > 1:
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


def _about_ratios(facts: Facts) -> Iterator[Caveat]:
    mean = facts.mean_ratio
    if mean is not None:
        yield Caveat(
            "mean-ratio",
            f"the ratios of the policy's to the log's probabilities should average 1 but average {mean:.2f}: "
            "either the log's probabilities are wrong, or the policy takes actions that the log never takes.",
            "severe",
        )


def _about_size(n: int) -> Iterator[Caveat]:
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
        known = getattr(training.episodes, "n_rows", None)
        if (
            share and known is not None and known < training.n_rows
        ):  # learned from a batch in parts, known by its sample
            share = min(1.0, share * training.n_rows / known)
        unchecked |= share is None
        total += (share or 0.0) * mine.n_episodes / len(log.episodes)
    return total, unchecked


def _about_behaviour(b: Behaviour, n_rows: int) -> Iterator[Caveat]:
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
            count=_count(b.rare, n_rows),
            share=b.rare,
            text_without_counts=f"some {rest}",
        )


def about_given_probabilities(sums: LogSums, labels: Sequence[Any]) -> Iterator[Caveat]:
    """Yield a caveat if the probabilities in the log do not match the logged actions in some group of states.

    Whatever the policy, the mean over the rows of a group of 1 / p where an action was taken, and 0 where it was not, should be 1.
    """
    if sums.inverse is None:
        return
    whole = sums.inverse.sum(axis=1, keepdims=True)
    for fewest, groups in ((FEWEST_TAKEN, whole), (FEWEST_IN_GROUP, sums.inverse)):
        rows, taken, total, squares = groups
        for group, a in np.argwhere(taken >= fewest):
            n = rows[group, a]
            off = float(total[group, a] / n) - 1
            error = float(np.sqrt(max(squares[group, a] / n - (1 + off) ** 2, 0.0) / n))
            if abs(off) > max(NOT_ONE, 5 * error):
                yield Caveat(
                    "wrong-probabilities",
                    f"the log's probabilities do not match its actions: in some states {labels[a]!r} was taken {1 + off:.2f} times as often as "
                    "they say. Are they the probabilities of the actions taken, given the state? Weighted and doubly robust estimates inherit the error.",
                    "warning",
                )
                return


def dominance(estimate: Estimate, behaviour: Estimate) -> Caveat | None:
    """Return a caveat if a single episode dominates an estimate and moves it by more than the standard error of the logged behaviour's value."""
    largest, share = estimate.most_influential
    if not largest / estimate.n_episodes > behaviour.standard_error:  # false for NaN too
        return None
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
