"""`choose`: which evaluator, space and sizes to use, and whether the result is better than what was done.

The episodes are divided first: most are for learning and selection, the others test the result once. All candidates learn roughly from one half of the
first part and are valued on the other half, both ways, after which most are dropped. Where all of them overlap with the log, values are doubly robust, and
the candidates that remain learn in full from both halves. Else values are those of episodes that are simulated with the other half's steps, and the
candidates that remain learn in full from all learning episodes: of small logs a half says little about what the whole teaches.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from capi._utils.executors import check_executor, ordered
from capi._utils.randomness import shuffled_folds
from capi._utils.shared import sharing
from capi._utils.threads import n_threads, one_blas_thread
from capi._utils.validation import Floats, as_discount, as_int, is_real
from capi.data.transitions import Transitions
from capi.errors import InvalidInputError
from capi.learning.rules import horizon
from capi.policies import cloned
from capi.selection._fits import Task, valued
from capi.selection._memory import Memory
from capi.selection.candidates import Candidate, baselines, checked_candidates, default_candidates
from capi.selection.gate import FEWEST_EPISODES, SINGLE, gated
from capi.selection.result import DOUBLY_ROBUST, FITTED_Q, NOT_RANKED, SIMULATED, Selection, Tried
from capi.simulation.logged_steps import Surroundings
from capi.types import Policy

N_FINALISTS = 5
ROUGH_SHARE = 0.5  # of the budget
FEWEST_TESTED = 3  # episodes
MOST_SHARED = 100_000  # learning rows; what candidates have in common for more would take too much memory
Values = Sequence[dict[str, Any]]  # the results of the fits of a candidate
ADVICE = "always_learn=True (--always-learn) returns the learned policy."
SMALLEST_RATE = 1e-9  # of errors; with smaller ones there are no quantiles
MOST_LEFT = 0.1  # share of such decisions above which a value is a guess


@one_blas_thread()  # as in the processes of n_jobs and executors: more threads change the last digits, and with them decisions
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
    usable: Callable[[Policy], None] | None = None,
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
        Return a learned policy whatever the test says: the one that passed it, else the chosen one or, if that is what was done, the best learned one.
    budget : float, optional
        Seconds; candidates that do not fit into half of them are not tried. Those near the log and the others are tried in turns, in the order of
        the list, at least one of each kind. The result then depends on the machine.
    folder : str or Path, optional
        Keeps the values of finished fits, so that an interrupted selection continues.
    random_state : int
    n_jobs : int, optional
        Number of fits at a time, in processes; None is one, which uses all cores by itself. The result does not depend on it.
    executor : concurrent.futures.Executor, dask.distributed.Client or name of a joblib backend, optional
        Where the fits run instead. The result does not depend on it.
    usable : function, optional
        Raises an error for a policy that cannot be used, for example because it cannot be saved; its candidate then fails.
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
        _check_number(batch.n_episodes)
        learning, test = batch.split(1 - test_share, random_state=seed)
    check_episodes(learning, test)
    given = default_candidates(learning, discount, random_state=seed) if candidates is None else candidates
    others = baselines(discount, random_state=seed)
    asked = checked_candidates(given, [other.name for other in others])
    work = _Work(learning, discount, seed, n_jobs, Memory.of(folder, learning, discount, seed), shown, executor, usable)
    with sharing(enabled=len(learning) <= MOST_SHARED):
        rough = work.rough(others[:2], asked, budget)
        finalists = _finalists(rough, others[0].name)
        tried, score = work.final(finalists, rough)
        named = {c.name: c for c in finalists}
        learners: dict[str, Any] = {}

        def policy_of(name: str) -> Any:
            """Return the policy of a candidate that learned from all learning episodes; None if it cannot."""
            if name not in learners:
                try:
                    learners[name] = named[name].learned(learning)
                    work.check_usable(learners[name].policy_)
                except Exception as error:
                    learners[name] = None
                    tried[:] = [one.failed(error) if one.name == name else one for one in tried]
            return None if learners[name] is None else learners[name].policy_

        while policy_of(first := _simplest(tried)) is None:
            pass  # the next one is chosen
        chosen = named[first]
        chosen.warn_of_rare_actions(learning)
        ranked = sorted(
            (one for one in tried if one.value is not None and one.name != chosen.name),
            key=lambda one: -(one.value or 0.0),
        )
        near = [one.name for one in ranked if named[one.name].near_log]  # whose test needs the least overlap
        others_of = [one.name for one in ranked if not named[one.name].near_log]
        learned = [name for name in (chosen.name, *near, *others_of) if named[name].size > 0]
        single = others[-1].fitted(learning)
        learners[others[-1].name] = single
        gate, returned, evidence = gated(
            learned,
            policy_of,
            test,
            discount,
            error_rate,
            seed,
            n_jobs,
            single.policy_ if batch.n_actions > 1 else None,
        )
        if returned is not None:
            result = ""
        elif not always_learn:
            returned, result = others[0].name, f" The result is what was done. {ADVICE}"
        else:
            best = [chosen.name] * (chosen.size > 0) + [one.name for one in ranked if named[one.name].size > 0]
            found = next((name for name in best if policy_of(name) is not None), None)
            evidence = evidence if found == chosen.name else None
            returned = others[0].name if found is None else found
            result = f" The result is {returned} all the same, as asked."
            if found is None:
                result = " The result is what was done, because no candidate could learn from all learning episodes."
        gate = replace(gate, sentence=gate.sentence + result)
        learner = learners.get(returned) or (named.get(returned) or others[0]).learned(learning)
    tried = [
        one.after_test(chosen.name, returned, gate.tested) for one in (*tried, Tried(SINGLE, 0, None, fate=NOT_RANKED))
    ]
    learner.selection_ = Selection(tried, chosen.name, returned, gate, discount, learning.n_episodes, score, evidence)
    return learner


def _check(batch: Any, test_share: float, error_rate: float, budget: float | None) -> None:
    if not isinstance(batch, Transitions):
        raise InvalidInputError(f"batch must be Transitions; got {type(batch).__name__}.")
    for name, value in (("test_share", test_share), ("error_rate", error_rate)):
        least = SMALLEST_RATE if name == "error_rate" else 0.0
        if not is_real(value) or not least < value < 1:
            raise InvalidInputError(f"{name} must lie strictly between {least:g} and 1; got {value!r}.")
    if budget is not None and (not is_real(budget) or not budget > 0):
        raise InvalidInputError(f"budget must be a positive number of seconds; got {budget!r}.")


def _check_number(n_episodes: int) -> None:
    if n_episodes < FEWEST_EPISODES:
        raise InvalidInputError(
            f"selection needs at least {FEWEST_EPISODES} episodes, for learning, comparing and testing; there are {n_episodes}."
        )


def check_episodes(learning: Transitions, test: Any) -> None:
    """Refuse too few episodes, or test episodes that cannot test anything, before anything is learned."""
    if not isinstance(test, Transitions):
        raise InvalidInputError(f"test must be Transitions; got {type(test).__name__}.")
    if test.schema != learning.schema:
        raise InvalidInputError("test must have the same columns and actions as batch.")
    _check_number(learning.n_episodes + test.n_episodes)
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
        usable: Callable[[Policy], None] | None = None,
    ) -> None:
        check_executor(executor)
        self.usable = usable
        self.executor = executor
        self.batch, self.discount, self.seed, self.memory, self.shown = batch, discount, seed, memory, shown
        self.n_jobs = n_threads(n_jobs)
        fold = np.repeat(shuffled_folds(batch.n_episodes, 2, seed), batch.episode_lengths)
        self.halves = [(batch.subset(fold != k), batch.subset(fold == k)) for k in range(2)]
        self.simple = horizon(batch, discount) == 1
        self._logged: list[Floats] | None = None
        self._worlds: list[Surroundings | None] | None = None

    def check_usable(self, policy: Policy) -> None:
        """Raise an error if a policy that learned from all learning episodes cannot be used."""
        if self.usable is not None:
            self.usable(policy)

    @property
    def worlds(self) -> list[Surroundings | None]:
        """For each half, the process of its steps; None if every episode is a single decision."""
        if self._worlds is None:
            self._worlds = [
                None if self.simple else Surroundings.of(fold, rest, self.discount, self.seed, n_threads(-1))
                for rest, fold in self.halves
            ]
        return self._worlds

    @property
    def world_of_all(self) -> Surroundings | None:
        """The process of the steps of both halves; how far from its rows is usual is known from the halves."""
        halves = [world for world in self.worlds if world is not None]
        if not halves:
            return None
        found = Surroundings.of(self.batch, self.batch, self.discount, self.seed, n_threads(-1))
        return replace(found, usual=float(np.mean([half.usual for half in halves])))

    @property
    def logged(self) -> list[Floats]:
        """For each half, how probable the other half makes each action in its states (n, A)."""
        if self._logged is None:
            self._logged = [
                cloned(rest, calibrated=False, random_state=self.seed, n_jobs=-1).probabilities(
                    fold.states, fold.allowed
                )
                for rest, fold in self.halves
            ]
        return self._logged

    def rough(
        self, done: Sequence[Candidate], asked: Sequence[Candidate], budget: float | None
    ) -> list[tuple[Candidate, Tried]]:
        """Return what was ``done`` and the candidates, each with its value after a few rounds, as the mean of both halves.

        With a budget, those that do not stay near the log and those that do are tried in turns, at least one of each kind.
        """
        started = perf_counter()
        candidates = [*done, *asked]
        tasks = {(c, k): Task(c, *self.halves[k], k, "rough") for c in candidates for k in range(2)}
        kinds = [[c for c in asked if c.near_log == near] for near in (False, True)]
        in_turns = [c for pair in zip_longest(*kinds) for c in pair if c is not None]
        groups = [[c] for c in (*done, *in_turns)] if budget is not None else [candidates]
        fewest = len(done) + sum(map(bool, kinds))
        values: dict[str, Values] = {}
        for group in groups:
            if budget is None or len(values) < fewest or perf_counter() - started <= ROUGH_SHARE * budget:
                values |= self._values({c.name: [tasks[c, k] for k in range(2)] for c in group}, self.worlds)
        known = {name: both for name, both in values.items() if _fine(both) and _left(both) <= MOST_LEFT}
        self.score = self._score(known.values())
        found = []
        for c in candidates:
            if c.name in values:
                found.append((c, _tried(c, values[c.name], self.score)))
            else:
                found.append((c, Tried(c.name, c.size, None, fate="not tried: no time left")))
        if all(one.rough is None for _, one in found):
            raise InvalidInputError(f"no candidate could learn from this batch; the first one: {found[0][1].fate}.")
        self.found = values
        return found

    def _score(self, known: Iterable[Values]) -> str:
        """Return the name of the score that all candidates have."""
        listed = list(known)
        if listed and all("robust" in v for both in listed for v in both):
            return DOUBLY_ROBUST
        return FITTED_Q if self.simple else SIMULATED

    def final(
        self, finalists: Sequence[Candidate], rough: Sequence[tuple[Candidate, Tried]]
    ) -> tuple[list[Tried], str]:
        """Return all candidates, those that remain with values of learners that learned in full, and the name of the score."""
        if self.score == SIMULATED:
            whole = {c.name: [Task(c, self.batch, self.batch, None, "whole")] for c in finalists}
            values = self._values(whole, [self.world_of_all])
            # the mean of what the learner is worth on other episodes, and of what its policy is worth
            parts: dict[str, tuple[Values, list[float]]] = {
                name: ([*self.found[name], *both], [0.25, 0.25, 0.5]) for name, both in values.items() if _fine(both)
            }
        else:
            tasks = {c.name: [Task(c, *self.halves[k], k, "final") for k in range(2)] for c in finalists}
            again = not (self.simple and self.score == DOUBLY_ROBUST)  # else the first fits were full ones already
            values = self._values(tasks, self.worlds) if again else {c.name: self.found[c.name] for c in finalists}
            self.score = self._score(both for both in values.values() if _fine(both))
            parts = {name: (both, [0.5, 0.5]) for name, both in values.items() if _fine(both)}
        if not parts:
            raise InvalidInputError("no candidate could learn from this batch in full.")
        means = {name: _combined(given, self.score) for name, given in parts.items()}
        best = max(means, key=lambda name: means[name])
        tried = []
        for candidate, one in rough:
            name = candidate.name
            if name not in means:
                failed = next((v["failed"] for v in values.get(name, []) if "failed" in v), None)
                tried.append(one if failed is None else replace(one, fate=f"failed: {failed}"))
                continue
            tried.append(
                replace(
                    one,
                    value=means[name],
                    standard_error=_error(_influences(parts[name], self.score)),
                    behind=means[best] - means[name],
                    behind_error=_error(
                        [
                            b - m
                            for m, b in zip(
                                _influences(parts[name], self.score), _influences(parts[best], self.score), strict=True
                            )
                        ]
                    ),
                    seconds=one.seconds
                    + sum(v["seconds"] for v in values[name] if values[name] is not self.found[name]),
                    fate="not chosen",
                )
            )
        return tried, self.score

    def _values(self, tasks: Mapping[str, Sequence[Task]], worlds: Sequence[Surroundings | None]) -> dict[str, Values]:
        """Return the results of the tasks of each candidate; those that are known are not computed again."""
        listed = [(task, worlds[task.half or 0]) for of in tasks.values() for task in of]
        missing = [(task, world) for task, world in listed if self.memory.get(*task.key) is None]
        apart = self.n_jobs > 1 or self.executor is not None  # then each has one thread
        calls = (
            (
                task,
                None if task.half is None else self.logged[task.half],
                world,
                self.batch,
                self.discount,
                self.seed,
                apart,
                self.usable,
            )
            for task, world in missing
        )
        results = ordered(valued, calls, self.executor, self.n_jobs)
        shown = self.shown([(task.candidate, task.half) for task, _ in missing])
        for _, (task, _world), result in zip(shown, missing, results, strict=True):
            name, fit = task.key
            self.memory.put(name, fit, result)
        return {name: [self.memory.get(*task.key) or {} for task in of] for name, of in tasks.items()}


def _tried(candidate: Candidate, both: Values, score: str) -> Tried:
    seconds, settings = sum(v["seconds"] for v in both), repr(candidate.learner)
    if not _fine(both):
        why = next(v["failed"] for v in both if "failed" in v) if any("failed" in v for v in both) else "no value"
        return Tried(candidate.name, candidate.size, None, seconds=seconds, fate=f"failed: {why}", settings=settings)
    left = _left(both)
    fate = f"leaves the log in {100 * left:.0f} % of its decisions" if left > MOST_LEFT else Tried.fate
    value = float(np.mean([_part(v, score)["value"] for v in both]))
    return Tried(candidate.name, candidate.size, value, left=left, seconds=seconds, fate=fate, settings=settings)


def _part(found: dict[str, Any], score: str) -> dict[str, Any]:
    """Return the value and the episodes' influences of a fit; of a candidate that leaves the log those of the model."""
    robust: dict[str, Any] | None = found.get("robust") if score == DOUBLY_ROBUST else None
    return found if robust is None else robust


def _combined(given: tuple[Values, Sequence[float]], score: str) -> float:
    return float(sum(share * _part(v, score)["value"] for v, share in zip(*given, strict=True)))


def _influences(given: tuple[Values, Sequence[float]], score: str) -> list[Floats]:
    """Return what each episode adds to a combined value, one array per set of independent episodes."""
    parts = [share * np.array(_part(v, score)["of_episodes"]) for v, share in zip(*given, strict=True)]
    return [np.sum(parts, axis=0)] if score == SIMULATED else parts  # all simulations start in the same states


def _left(both: Values) -> float:
    return float(np.mean([v["left"] for v in both]))


def _fine(both: Sequence[dict[str, Any]]) -> bool:
    return all("value" in v and math.isfinite(v["value"]) for v in both)


def _finalists(rough: Sequence[tuple[Candidate, Tried]], baseline: str) -> list[Candidate]:
    """Return the candidates with the best rough values, the best one near the log, whose test needs the least overlap, and the baseline.

    Values of policies that leave the log are guesses, so these are only compared if there are no others.
    """
    known = [(c, one.rough) for c, one in rough if one.rough is not None and (one.left or 0.0) <= MOST_LEFT]
    if all(c.size == 0 for c, _ in known):
        known = [(c, one.rough) for c, one in rough if one.rough is not None]
    best = sorted((pair for pair in known if pair[0].name != baseline), key=lambda pair: (-pair[1], pair[0].size))
    kept = {baseline, *(c.name for c, _ in best[:N_FINALISTS]), *[c.name for c, _ in best if c.near_log][:1]}
    return [c for c, _ in known if c.name in kept]


def _simplest(tried: Sequence[Tried]) -> str:
    """Return the simplest candidate whose value is within one standard error of the best one's; what was done is only chosen if it is the best."""
    known = [one for one in tried if one.value is not None]
    if not known:  # neither a candidate nor the clone of the log
        why = next((f" The last one {one.fate}" for one in reversed(tried) if one.fate.startswith("failed")), "")
        raise InvalidInputError(f"no policy that was learned from all learning episodes can be used.{why}")
    near = [one for one in known if one.behind is not None and one.behind <= (one.behind_error or 0.0)]
    near = near or [max(known, key=lambda one: one.value or 0.0)]  # the best one failed in the end
    near = [one for one in near if one.size > 0] or near
    return min(near, key=lambda one: (one.size, -(one.value or 0.0))).name


def _error(parts: Sequence[Floats]) -> float:
    """Return the standard error of a sum of means, from what the episodes of each add."""
    return float(np.sqrt(np.sum([np.var(p, ddof=1) / len(p) if len(p) > 1 else 0.0 for p in parts])))
