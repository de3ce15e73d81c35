"""`choose`: which evaluator, space and sizes to use, and whether the result is better than what was done.

The episodes are divided first: most are for learning and selection, the others test the result once. In two stages the candidates learn from one half of
the first part and are valued on the other half, both ways: roughly, after which most are dropped, and then in full. Values are those of simulated episodes
that are put together from the other half's steps; if every episode is a single decision, those of fitted Q evaluation.
"""

from __future__ import annotations

import hashlib
import math
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from capi._utils.executors import check_executor, ordered
from capi._utils.randomness import shuffled_folds
from capi._utils.threads import n_threads
from capi._utils.validation import Bools, as_discount, as_int, is_real
from capi.data.transitions import Transitions
from capi.errors import CapiError, InvalidInputError, RareActionWarning
from capi.learning.rules import horizon
from capi.offline.fitted_q import Regression
from capi.offline.score import fitted_value_with_influence
from capi.policies import cloned
from capi.selection._memory import Memory
from capi.selection._simulation import Surroundings
from capi.selection.candidates import Candidate, baselines, checked_candidates, default_candidates
from capi.selection.gate import FEWEST_EPISODES, gated
from capi.selection.result import Selection, Tried

N_FINALISTS = 4
SCORING_TREES, N_SIMULATED, MORE = (
    30,
    200,
    5,
)  # trees or simulated episodes of a rough value; a final one has five times as many
ROUGH_SHARE = 0.5  # of the budget
FEWEST_TESTED = 3  # episodes
ADVICE = "always_learn=True (--always-learn) returns the learned policy."
RARELY, MOST_LEFT = (
    0.05,
    0.1,
)  # probability of an action that the log rarely takes; share of such decisions above which a value is a guess


def choose(
    batch: Transitions,
    discount: float,
    *,
    candidates: Any = None,
    test: Transitions | None = None,
    test_share: float = 0.3,
    error_rate: float = 0.05,
    always_learn: bool = False,
    budget: float | None = None,
    folder: str | Path | None = None,
    random_state: int = 0,
    n_jobs: int | None = None,
    executor: Any = None,
    shown: Callable[[Sequence[Any]], Iterable[Any]] = iter,
) -> Any:
    """Choose evaluator, space and sizes for a batch, learn with them, and test the policy on episodes that were not used for either.

    If the policy is not better than what was done and than the best single action, with the stated error rate, or if the log cannot tell, the
    result is what was done.

    Parameters
    ----------
    batch : Transitions
        With at least ten episodes; without episode numbers each row is one.
    discount : float in [0, 1)
    candidates : mapping from names to learners, the simplest first, or list of Candidate, optional
        By default `default_candidates`: fine and coarse values, small trees and forests, with and without support, and policies near the log.
    test : Transitions, optional
        Other episodes, which only test the result. By default a share of those of ``batch``.
    test_share : float in (0, 1)
        That share.
    error_rate : float in (0, 1)
        Probability of "better" for a policy that is not.
    always_learn : bool
        Return the chosen policy whatever the test says.
    budget : float, optional
        Seconds; candidates that do not fit into half of them are not tried, in the order of the list. The result then depends on the machine.
    folder : str or Path, optional
        Keeps the values of finished fits, so that an interrupted selection continues.
    random_state : int
    n_jobs : int, optional
        Number of fits at a time, in processes; None is one, which uses all cores by itself. The result does not depend on it.
    executor : concurrent.futures.Executor, dask.distributed.Client or name of a joblib backend, optional
        Where the fits run instead. The result does not depend on it.
    shown : callable
        Wraps the list of fits, for example with a progress bar.

    Returns
    -------
    learner
        A fitted learner with ``policy_``, and with ``selection_``: what was tried, the test, and a sentence about it.

    Examples
    --------
    >>> from capi import CAPI, Transitions
    >>> from capi.evaluators import FittedQ
    >>> from capi.policy_spaces import Trees
    >>> rng = np.random.default_rng(0)
    >>> x, arms = rng.random((600, 1)), rng.integers(2, size=600)
    >>> batch = Transitions(x, arms, 1.0 * (arms == (x[:, 0] > 0.5)), x, np.ones(600, dtype=bool), propensities=np.full(600, 0.5))
    >>> learner = choose(batch, 0.0, candidates={"tree": CAPI(FittedQ(), Trees(max_depth=1), 0.0, 1, random_state=0)})
    >>> learner.selection_.gate.verdict
    'better'
    """
    discount, seed = as_discount(discount), as_int(random_state, "random_state", minimum=0)
    _check(batch, test_share, error_rate, budget)
    learning = batch
    if test is None:
        learning, test = batch.split(1 - test_share, random_state=seed)
    _check_test(learning, test)
    given = default_candidates(learning, discount, random_state=seed) if candidates is None else candidates
    others = baselines(discount, random_state=seed)
    asked = checked_candidates(given, [other.name for other in others])
    work = _Work(learning, discount, seed, n_jobs, Memory.of(folder, learning, discount, seed), shown, executor)
    rough = work.rough([others[0], *asked], budget)
    finalists = _finalists(rough, others[0].name)
    tried = work.final(finalists, rough)
    chosen = next(one for one in finalists if one.name == _simplest(tried))
    tried = [replace(one, fate="chosen") if one.name == chosen.name else one for one in tried]
    ranked = sorted(
        (one for one in tried if one.value is not None and one.name != chosen.name), key=lambda one: -(one.value or 0.0)
    )
    named = {c.name: c for c in finalists}
    near = [one.name for one in ranked if named[one.name].near_log]  # whose test needs the least overlap
    others_of = [one.name for one in ranked if not named[one.name].near_log]
    order = [chosen.name, *near, *others_of]
    learners = {chosen.name: chosen.fitted(learning)}

    def policy_of(name: str) -> Any:
        if name not in learners:
            learners[name] = named[name].fitted(learning)
        return learners[name].policy_

    single = others[-1].fitted(learning)
    learners[others[-1].name] = single
    gate, returned, evidence = gated(
        [name for name in order if named[name].size > 0],
        policy_of,
        test,
        discount,
        error_rate,
        seed,
        n_jobs,
        single.policy_ if batch.n_actions > 1 else None,
    )
    if always_learn:
        result = "" if returned == chosen.name else f" The result is {chosen.name} all the same, as asked."
        returned, evidence = chosen.name, None if returned not in (None, chosen.name) else evidence
    else:
        result = "" if returned is not None else f" The result is what was done. {ADVICE}"
        returned = others[0].name if returned is None else returned
    gate = replace(gate, sentence=gate.sentence + result)
    learner = learners.get(returned) or (named.get(returned) or others[0]).fitted(learning)
    learner.selection_ = Selection(tried, chosen.name, returned, gate, discount, learning.n_episodes, evidence)
    return learner


def _check(batch: Any, test_share: float, error_rate: float, budget: float | None) -> None:
    if not isinstance(batch, Transitions):
        raise InvalidInputError(f"batch must be Transitions; got {type(batch).__name__}.")
    if batch.n_episodes < FEWEST_EPISODES:
        raise InvalidInputError(
            f"selection needs at least {FEWEST_EPISODES} episodes, for learning, comparing and testing; this batch has {batch.n_episodes}."
        )
    for name, value in (("test_share", test_share), ("error_rate", error_rate)):
        if not is_real(value) or not 0 < value < 1:
            raise InvalidInputError(f"{name} must lie strictly between 0 and 1; got {value!r}.")
    if budget is not None and (not is_real(budget) or budget <= 0):
        raise InvalidInputError(f"budget must be a positive number of seconds; got {budget!r}.")


def _check_test(learning: Transitions, test: Any) -> None:
    """Refuse test episodes that cannot test anything, before anything is learned."""
    if not isinstance(test, Transitions):
        raise InvalidInputError(f"test must be Transitions; got {type(test).__name__}.")
    if test.schema != learning.schema:
        raise InvalidInputError("test must have the same columns and actions as batch.")
    if min(test.n_episodes, learning.n_episodes) < FEWEST_TESTED:
        raise InvalidInputError(
            f"at least {FEWEST_TESTED} episodes must be left for learning and for the test; got {learning.n_episodes} and {test.n_episodes}. "
            "Change test_share (--hold-out)."
        )


class _Work:
    """The fits of a selection: each learns from one half of the episodes and is valued on the other one."""

    def __init__(
        self,
        batch: Transitions,
        discount: float,
        seed: int,
        n_jobs: int | None,
        memory: Memory,
        shown: Any,
        executor: Any = None,
    ) -> None:
        check_executor(executor)
        self.executor = executor
        self.batch, self.discount, self.seed, self.memory, self.shown = batch, discount, seed, memory, shown
        self.n_jobs = n_threads(n_jobs)
        fold = np.repeat(shuffled_folds(batch.n_episodes, 2, seed), batch.episode_lengths)
        self.halves = [(batch.subset(fold != k), batch.subset(fold == k)) for k in range(2)]
        self._rare: list[Bools] | None = None
        self._worlds: list[Surroundings | None] | None = None

    @property
    def worlds(self) -> list[Surroundings | None]:
        """For each half, the process of its steps; None if every episode is a single decision."""
        if self._worlds is None:
            simple = horizon(self.batch, self.discount) == 1
            self._worlds = [
                None if simple else Surroundings.of(fold, rest, self.discount, self.seed, n_threads(-1))
                for rest, fold in self.halves
            ]
        return self._worlds

    @property
    def rare(self) -> list[Bools]:
        """For each half, the actions that the other half rarely takes in similar states (n, A)."""
        if self._rare is None:
            least = min(RARELY, 0.5 / self.batch.n_actions)
            self._rare = [
                cloned(rest, calibrated=False, random_state=self.seed, n_jobs=-1).probabilities(
                    fold.states, fold.allowed
                )
                < least
                for rest, fold in self.halves
            ]
        return self._rare

    def rough(self, candidates: Sequence[Candidate], budget: float | None) -> list[tuple[Candidate, Tried]]:
        """Return each candidate with its value after a few rounds, as the mean of both halves."""
        started = perf_counter()
        found: list[tuple[Candidate, Tried]] = []
        groups = [[c] for c in candidates] if budget is not None else [list(candidates)]
        for group in groups:
            if budget is not None and len(found) > 1 and perf_counter() - started > ROUGH_SHARE * budget:
                found += [(c, Tried(c.name, c.size, None, fate="not tried: no time left")) for c in group]
                continue
            for candidate, values in zip(group, self._values(group, quick=True), strict=True):
                found.append((candidate, _tried(candidate, values)))
        if all(one.rough is None for _, one in found):
            raise InvalidInputError(f"no candidate could learn from this batch; the first one: {found[0][1].fate}.")
        return found

    def final(self, finalists: Sequence[Candidate], rough: Sequence[tuple[Candidate, Tried]]) -> list[Tried]:
        """Return all candidates, those that remain with values of learners that learned in full."""
        values = dict(zip((c.name for c in finalists), self._values(finalists, quick=False), strict=True))
        means = {name: _mean([v["value"] for v in both]) for name, both in values.items() if _fine(both)}
        if not means:
            raise InvalidInputError("no candidate could learn from this batch in full.")
        best = max(means, key=lambda name: means[name])
        tried = []
        for candidate, one in rough:
            if candidate.name not in means:
                tried.append(one)
                continue
            mine, its = values[candidate.name], values[best]
            apart = [np.array(b["of_episodes"]) - np.array(m["of_episodes"]) for m, b in zip(mine, its, strict=True)]
            tried.append(
                replace(
                    one,
                    value=means[candidate.name],
                    standard_error=_error([np.array(v["of_episodes"]) for v in mine]),
                    behind=means[best] - means[candidate.name],
                    behind_error=_error(apart),
                    seconds=one.seconds + sum(v["seconds"] for v in mine),
                    fate="not chosen",
                )
            )
        return tried

    def _values(self, candidates: Sequence[Candidate], *, quick: bool) -> list[list[dict[str, Any]]]:
        tasks = [(c, k) for c in candidates for k in range(2)]
        missing = [task for task in tasks if self.memory.get(*_key(*task, quick)) is None]
        apart = self.n_jobs > 1 or self.executor is not None  # then each has one thread
        calls = (
            (c, *self.halves[k], self.rare[k], self.worlds[k], self.batch, self.discount, self.seed, quick, apart)
            for c, k in missing
        )
        results = ordered(_valued, calls, self.executor, self.n_jobs)
        for (c, k), result in zip(self.shown(missing), results, strict=True):
            self.memory.put(*_key(c, k, quick), result)
        return [[self.memory.get(*_key(c, k, quick)) or {} for k in range(2)] for c in candidates]


def _key(candidate: Candidate, half: int, quick: bool) -> tuple[str, str]:
    settings = hashlib.sha256(repr(candidate.learner).encode()).hexdigest()[:16]
    return f"{candidate.name} {settings}", f"{'rough' if quick else 'final'} {half}"


def _valued(
    candidate: Candidate,
    rest: Transitions,
    fold: Transitions,
    rare: Bools,
    world: Surroundings | None,
    starts: Transitions,
    discount: float,
    seed: int,
    quick: bool,
    one_thread: bool,
) -> dict[str, Any]:
    """Return the value, on one half, of what a candidate learned from the other one."""
    started = perf_counter()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RareActionWarning)
            policy = candidate.fitted(rest, quick=quick).policy_
        more = 1 if quick else MORE
        if world is None:
            regression = Regression(n_trees=SCORING_TREES * more, n_jobs=1 if one_thread else n_threads(-1))
            value, of_episodes = fitted_value_with_influence(policy, fold, discount, regression, seed)
        else:
            value, of_episodes = world.value(policy, starts, N_SIMULATED * more, seed)
        left = float((policy.probabilities(fold.states, fold.allowed) * rare).sum(axis=1).mean())
    except (CapiError, ValueError) as error:
        return {"failed": f"{type(error).__name__}: {error}", "seconds": perf_counter() - started}
    seconds = perf_counter() - started
    return {"value": value, "of_episodes": of_episodes.tolist(), "left": left, "seconds": seconds}


def _tried(candidate: Candidate, both: Sequence[dict[str, Any]]) -> Tried:
    seconds = sum(v["seconds"] for v in both)
    if not _fine(both):
        reason = next(v["failed"] for v in both if "failed" in v) if any("failed" in v for v in both) else "no value"
        return Tried(candidate.name, candidate.size, None, seconds=seconds, fate=f"failed: {reason}")
    left = _mean([v["left"] for v in both])
    fate = f"leaves the log in {100 * left:.0f} % of its decisions" if left > MOST_LEFT else "pruned"
    return Tried(
        candidate.name, candidate.size, _mean([v["value"] for v in both]), left=left, seconds=seconds, fate=fate
    )


def _fine(both: Sequence[dict[str, Any]]) -> bool:
    return all("value" in v and math.isfinite(v["value"]) for v in both)


def _finalists(rough: Sequence[tuple[Candidate, Tried]], baseline: str) -> list[Candidate]:
    """Return the candidates with the best rough values, the best one near the log, whose test needs the least overlap, and the baseline.

    Values of policies that leave the log are guesses, so these are only compared if there are no others.
    """
    known = [(c, one.rough) for c, one in rough if one.rough is not None and (one.left or 0.0) <= MOST_LEFT]
    if all(c.name == baseline for c, _ in known):
        known = [(c, one.rough) for c, one in rough if one.rough is not None]
    best = sorted((pair for pair in known if pair[0].name != baseline), key=lambda pair: (-pair[1], pair[0].size))
    kept = {baseline, *(c.name for c, _ in best[:N_FINALISTS]), *[c.name for c, _ in best if c.near_log][:1]}
    return [c for c, _ in known if c.name in kept]


def _simplest(tried: Sequence[Tried]) -> str:
    """Return the simplest candidate whose value is within one standard error of the best one's; what was done is only chosen if it is the best."""
    known = [one for one in tried if one.value is not None]
    near = [one for one in known if one.behind is not None and one.behind <= (one.behind_error or 0.0)]
    near = [one for one in near if one.size > 0] or near
    return min(near, key=lambda one: (one.size, -(one.value or 0.0))).name


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values))


def _error(parts: Sequence[Any]) -> float:
    """Return the standard error of the mean of parts' means, from their episodes' influences."""
    return float(np.sqrt(np.sum([np.var(p, ddof=1) / len(p) if len(p) > 1 else 0.0 for p in parts])) / len(parts))
