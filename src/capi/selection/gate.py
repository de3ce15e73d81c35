"""Whether a chosen policy is better than what was done, on episodes that were not used to learn or to choose it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

from capi.data.transitions import Transitions
from capi.errors import EvidenceWarning
from capi.offline.estimate import Estimate
from capi.offline.evaluation import evaluate
from capi.offline.evidence import Evidence
from capi.selection.result import UNTESTED, Gate
from capi.types import Policy

FEWEST_EPISODES = 10  # of a batch; with fewer nothing can be tested
MOST_TESTED = 2  # learned policies; the second one only if the first is not better
SINGLE = "the best single action"
METHODS = ("doubly-robust", "fitted-q")


def gated(
    names: Sequence[str],
    policy_of: Callable[[str], Policy | None],
    test: Transitions,
    discount: float,
    error_rate: float,
    seed: int,
    n_jobs: int | None,
    single: Policy | None = None,
) -> tuple[Gate, str | None, Evidence | None]:
    """Return the test of the first policies of ``names``, the name of the one to return (None: what was done), and its evidence.

    A policy is better if the lower confidence bounds of its differences from what was done and from the best single action are positive. Up to three
    policies are tested (a candidate without a policy is left out), each with a third of ``error_rate``, so one of them is wrongly called better with at most that probability.
    """
    share = error_rate / (MOST_TESTED + 1)
    tested: list[dict[str, Any]] = []
    first: Evidence | None = None
    for name in names:
        policy = policy_of(name) if len(tested) < MOST_TESTED else None
        if policy is None:
            continue
        found = _evidence(policy, test, discount, share, seed, n_jobs, name)
        first = first or found
        record = _judged(found, beats_single=True)
        tested.append(record)
        if record["verdict"] == "better":
            sentence = (
                f"{name} is better than what was done, by {record['difference']:.4g} (at least {record['at_least']:.4g}), "
                f"on {test.n_episodes} episodes that it was not chosen on."
            )
            return Gate("better", sentence, test.n_episodes, error_rate, tested), name, found
    if single is not None:
        found = _evidence(single, test, discount, share, seed, n_jobs, SINGLE)
        record = _judged(found, beats_single=False)
        tested.append(record)
        if record["verdict"] == "better":
            sentence = (
                f"The best single action is better than what was done, by {record['difference']:.4g} (at least {record['at_least']:.4g}), on "
                f"{test.n_episodes} episodes that it was not chosen on; no learned policy is known to be better than that."
            )
            return Gate("better", sentence, test.n_episodes, error_rate, tested), SINGLE, found
    verdict = UNTESTED if tested and all(one["verdict"] == UNTESTED for one in tested) else "not better"
    return Gate(verdict, _sentence(tested, verdict, test), test.n_episodes, error_rate, tested), None, first


def _evidence(
    policy: Policy, test: Transitions, discount: float, share: float, seed: int, n_jobs: int | None, name: str
) -> Evidence:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EvidenceWarning)
        return evaluate(
            policy,
            test,
            discount=discount,
            methods=METHODS,
            level=1 - 2 * share,
            random_state=seed,
            n_jobs=-1 if n_jobs is None else n_jobs,
            name=name,
            n_resamples=1000,
        )


def _judged(found: Evidence, *, beats_single: bool) -> dict[str, Any]:
    """Return whether a policy is better than what was done, and than the best single action if that can be valued."""
    record: dict[str, Any] = {"name": found.name, "estimate": found.estimate, "difference": None, "at_least": None}
    if found.not_comparable:
        return {**record, "verdict": UNTESTED, "reason": found.not_comparable}
    severe = [str(caveat) for caveat in found.warnings if caveat.severity == "severe"]
    if severe:
        return {**record, "verdict": UNTESTED, "reason": severe[0].rstrip(".")}
    difference = found.difference
    low = _at_least(difference)
    record |= {"difference": difference.value, "at_least": low, "verdict": "better", "reason": ""}
    if not low > 0:
        return {**record, "verdict": "not better", "reason": "it may be no better than what was done"}
    from_single = found.best_action_difference
    if beats_single and from_single is not None and not _at_least(from_single) > 0:
        return {**record, "verdict": "not better", "reason": "it may be no better than the best single action"}
    return record


def _at_least(difference: Estimate) -> float:
    """Return the lower of the two lower confidence bounds."""
    return min(difference.asymptotic[0], difference.bootstrap[0])


def _sentence(tested: Sequence[dict[str, Any]], verdict: str, test: Transitions) -> str:
    reasons = "; ".join(f"{one['name']}: {one['reason']}" for one in tested)
    if not tested:
        return "Nothing that was learned is worth more than what was done."
    start = (
        "Whether a learned policy is better than what was done cannot be tested with this log"
        if verdict == UNTESTED
        else "No learned policy is known to be better than what was done"
    )
    return f"{start} ({reasons}; {test.n_episodes} held-out episodes)."
