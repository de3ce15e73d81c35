"""Results of an evaluation: estimates with intervals, the value of the logged behaviour, and caveats."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from capi._utils.late import pandas as pd
from capi._utils.renamed import renamed
from capi._utils.validation import check_choice
from capi.errors import Caveat, InvalidInputError
from capi.offline.behaviour import Behaviour
from capi.offline.estimate import Estimate
from capi.offline.importance_weights import enough_overlap
from capi.offline.presentation import LOGGED, SMALLER, as_costs, drawn, finite, number, span, table, verdict
from capi.offline.sensitivity import Sensitivity

if TYPE_CHECKING:
    from matplotlib.figure import Figure

METHODS = (
    "doubly-robust",
    "weighted-doubly-robust",
    "fitted-q",
    "weighted",
    "per-decision",
    "weighted-per-decision",
)
NO_OVERLAP = {  # kinds of severe caveats that leave nothing to compare, and why
    "unlogged-actions": "it takes actions that the log never took",
    "rarely-taken": "too many of its decisions were rarely or never taken in similar states",
    "weights-overflow": "its importance weights overflow",
    "no-agreement": "too few logged episodes agree with it",
    "little-overlap": "too few logged episodes agree with it",
    "dominant-episode": "a single episode decides the estimate",
}


@dataclass(frozen=True, eq=False)
class BestAction:
    """The best single action: what the log says about taking one action always.

    For each fold of episodes the action is chosen on all other folds and valued on the fold alone, so that choosing the best of several
    does not flatter it.

    Parameters
    ----------
    label : object
        The best action by all episodes.
    of_folds : tuple
        The action that was chosen for each fold.
    n_candidates : int
        The number of actions with enough overlap to be valued.
    estimate : Estimate
    """

    label: Any
    of_folds: tuple[Any, ...]
    n_candidates: int
    estimate: Estimate

    @property
    def name(self) -> str:
        """The words for it in a sentence."""
        return f"the best single action ({self.label})"

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values that JSON can hold."""
        return {
            "action": str(self.label),
            "of_folds": [str(label) for label in self.of_folds],
            "n_candidates": self.n_candidates,
            **self.estimate.to_dict(),
        }


@renamed(doubtful="unreliable", hardly_taken="rarely_taken_share", beyond="extrapolated_share")
@dataclass(frozen=True, eq=False)
class Evidence:
    """Estimated value of a policy from logged episodes: the mean discounted sum of rewards from an episode's first state on.

    Parameters
    ----------
    name : str
        Name of the policy.
    method : str
        The estimator that gives `estimate`.
    estimates : mapping from method to Estimate
        One per estimator.
    behaviour : Estimate
        Value of the logged behaviour, from the same first states.
    behaviour_model : Behaviour
        The probabilities of the logged actions, and how far they can be trusted.
    effective_episodes : float
        Kish's effective number of episodes after weighting, averaged over steps with the discount as weight.
    rarely_taken_share : float
        Share of the policy's decisions that were rarely taken in similar states.
    extrapolated_share : float
        Share of the estimate that lies beyond the recorded end of truncated episodes, where it comes from the fitted model alone.
    warnings : tuple of Caveat
        Reasons not to trust the numbers.
    n_rows, n_episodes : int
    discount, level : float
    source : str
        Name of the table.
    kind : "table" or "cross"
        One policy on the whole log, or one policy per fold, learned without that fold.
    discount_per : str, optional
        The time that the discount refers to, if the batch has elapsed times; None if every step counts the same.
    best_action : BestAction, optional
        The best single action, valued on the same episodes.
    sensitivity : Sensitivity, optional
        How strong an unmeasured confounder would have to be to undo the comparison with the logged behaviour.
    unavailable : mapping from "best_action" or "sensitivity" to str
        Why one of them is missing.
    sample_rows : int, optional
        Of a log in parts: the number of rows in the sample of episodes on which models were fitted, faults of the table looked for, and
        the sensitivity was found; everything else is summed over all rows. None if there is no sample.
    is_behaviour : bool
        Whether the policy stands for what was done in this log, as the result of a selection can: then its value is the mean of the log,
        and it is not compared with it. `estimates` are those of a model of it.
    is_cost : bool
        Whether rewards are negative costs: then texts, tables and figures give costs, of which smaller ones are better; numbers and
        `to_dict` stay rewards.
    """

    name: str
    method: str
    estimates: Mapping[str, Estimate]
    behaviour: Estimate
    behaviour_model: Behaviour
    effective_episodes: float
    rarely_taken_share: float
    extrapolated_share: float
    warnings: tuple[Caveat, ...]
    n_rows: int
    n_episodes: int
    discount: float
    level: float
    source: str
    kind: str
    discount_per: str | None = None
    best_action: BestAction | None = None
    sensitivity: Sensitivity | None = None
    unavailable: Mapping[str, str] = field(default_factory=dict)
    sample_rows: int | None = None
    is_behaviour: bool = False
    is_cost: bool = False

    @property
    def unreliable(self) -> bool:
        """Whether any warning is severe, so that the estimate should not be trusted."""
        return any(caveat.severity == "severe" for caveat in self.warnings)

    @property
    def not_comparable(self) -> str:
        """Why the policy cannot be compared with anything, because it and the log do not overlap; empty if it can."""
        if self.is_behaviour:
            return ""
        severe = {caveat.kind for caveat in self.warnings if caveat.severity == "severe"}
        if enough_overlap(self.effective_episodes, self.n_episodes):
            severe -= {"no-agreement", "little-overlap"}  # agreement is lost only where it counts for little
        return next((reason for kind, reason in NO_OVERLAP.items() if kind in severe), "")

    def by(self, method: str) -> Estimate:
        """Return the value of the policy by an estimator; of what was done, the mean of the log."""
        return self.behaviour if self.is_behaviour else self.estimates[method]

    @property
    def estimate(self) -> float:
        """The estimated value."""
        return self.by(self.method).value

    @property
    def interval(self) -> tuple[float, float]:
        """The bootstrap interval of `estimate`."""
        return self.by(self.method).bootstrap

    @property
    def difference(self) -> Estimate:
        """The value of the policy minus that of the logged behaviour; meaningless if the policy is `not_comparable`."""
        return self.by(self.method) - self.behaviour

    @property
    def verdict(self) -> str:
        """One sentence that compares the policy with the logged behaviour, or says why nothing can be said."""
        if self.is_behaviour:
            return f"{self.name} is what was done, so there is nothing to compare: {self._value(' (', ')')}."
        return self._compared_with(LOGGED, self.difference)

    @property
    def best_action_difference(self) -> Estimate | None:
        """The value of the policy minus that of the best single action, if there is one; meaningless if the policy is `not_comparable`."""
        return None if self.best_action is None else self.by(self.method) - self.best_action.estimate

    @property
    def best_action_verdict(self) -> str:
        """One sentence that compares the policy with the best single action, or says why nothing can be said."""
        difference = self.best_action_difference
        if self.best_action is None or difference is None:
            reason = self.unavailable.get("best_action", "")
            return f"There is no comparison with a best single action: {reason}." if reason else ""
        return self._compared_with(self.best_action.name, difference)

    @property
    def sensitivity_text(self) -> str:
        """What an unmeasured confounder could undo, or why that is unknown."""
        if self.not_comparable or self.is_behaviour:
            return ""
        if self.sensitivity is not None:
            return str(self.sensitivity)
        reason = self.unavailable.get("sensitivity", "")
        return f"Sensitivity to an unmeasured confounder: {reason}." if reason else ""

    @property
    def sample_text(self) -> str:
        """What rests on all rows and what on a sample; empty if there is no sample."""
        if self.sample_rows is None:
            return ""
        models = "" if self.behaviour_model.given else "the behaviour probabilities, "
        return (
            f"estimates, intervals and overlap are sums over all {self.n_rows:,} rows; {models}the values inside doubly robust estimates and "
            f"beyond the end of episodes, the cuts of the trees of fitted Q, checks of the table and the sensitivity rest on a sample of {self.sample_rows:,} rows"
        )

    def _compared_with(self, other: str, difference: Estimate) -> str:
        if self.not_comparable:
            return f"{self.name} cannot be compared with {other}, because {self.not_comparable}: see the warnings."
        sentence = verdict(self.name, other, difference, is_cost=self.is_cost)
        doubtful = self.unreliable and not self.is_behaviour  # whose value needs no weights and no model
        return f"{sentence} Do not rely on it: see the warnings." if doubtful else sentence

    def summary(self) -> pd.DataFrame:
        """Return all estimates, the value of the logged behaviour, and the difference, one per row."""
        return pd.DataFrame(self._lines()).set_index(["policy", "method"]).astype(float)

    def plot(self) -> Figure:
        """Return a figure of all estimates with their intervals, and of the logged behaviour."""
        title = f"{self.name}, by {self.method} on {self.n_episodes} episodes"
        lines = [line for line in self._lines() if not line["policy"].startswith("difference")]
        return drawn(lines, self.level, title, self.method)

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values that JSON can hold."""
        low, high = self.interval
        return {
            "format": "capi evaluation",
            "version": 3,  # in version 1, warnings were plain strings; version 2 had no best action, and a difference always
            "source": self.source,
            "kind": self.kind,
            "n_rows": self.n_rows,
            "n_episodes": self.n_episodes,
            **({} if self.sample_rows is None else {"sample_rows": self.sample_rows}),
            "discount": self.discount,
            **({} if self.discount_per is None else {"discount_per": self.discount_per}),
            "level": self.level,
            "n_resamples": len(self.behaviour.draws),
            "method": self.method,
            "estimate": finite(self.estimate),
            "interval": [finite(low), finite(high)],
            "estimates": self._estimates(),
            **({"is_behaviour": True} if self.is_behaviour else {}),
            **({"is_cost": True} if self.is_cost else {}),
            "behaviour": self.behaviour.to_dict(),
            "difference": None if self.not_comparable or self.is_behaviour else self.difference.to_dict(),
            "not_comparable": self.not_comparable or None,
            "best_action": self._best_action_record(),
            "sensitivity": self._sensitivity_record(),
            "effective_episodes": self.effective_episodes,
            "overlap": {"rarely_taken_share": self.rarely_taken_share},
            "extrapolated_share": self.extrapolated_share,
            "behaviour_model": {
                "given": self.behaviour_model.given,
                "calibration_error": finite(self.behaviour_model.calibration_error),
                "text": str(self.behaviour_model),
            },
            "warnings": [caveat.to_dict() for caveat in self.warnings],
            "unreliable": self.unreliable,
            "verdict": self.verdict,
        }

    def _best_action_record(self) -> dict[str, Any]:
        difference = self.best_action_difference
        if self.best_action is None or difference is None:
            return {"unavailable": self.unavailable.get("best_action", "")}
        stated = None if self.not_comparable else difference.to_dict()
        return {**self.best_action.to_dict(), "difference": stated, "verdict": self.best_action_verdict}

    def _sensitivity_record(self) -> dict[str, Any]:
        if self.not_comparable:
            return {"unavailable": "the policy cannot be compared with the logged behaviour"}
        if self.is_behaviour:
            return {"unavailable": "the policy is what was done, so there is no difference to undo"}
        if self.sensitivity is None:
            return {"unavailable": self.unavailable.get("sensitivity", "")}
        return self.sensitivity.to_dict()

    def __str__(self) -> str:
        per = "" if self.discount_per is None else f" per {self.discount_per}"
        sizes = f"{self.n_episodes} episodes, {self.n_rows} decisions, discount {self.discount:g}{per}"
        value = self._value(", ", "")
        what = "what was done, " if self.is_behaviour else ""
        head = f"{self.name}: {what}{value} ({self._used}; {sizes})"
        if self.not_comparable:
            head = f"{self.name}: no estimate to rely on ({sizes})"
        return "\n".join([head, *table(self._lines()), *self._notes()])

    def _value(self, before: str, after: str) -> str:
        """Return the estimate and its interval as text."""
        low, high = self.interval
        line = {"estimate": self.estimate, "low": low, "high": high}
        line = as_costs(line) if self.is_cost else line
        return f"{number(line['estimate'])}{before}{100 * self.level:g} % interval {span((line['low'], line['high']))}{after}"

    def _lines(self) -> list[dict[str, Any]]:
        lines = self._rewards()
        return list(map(as_costs, lines)) if self.is_cost else lines

    def _rewards(self) -> list[dict[str, Any]]:
        lines = self._estimates()
        lines.append({"policy": LOGGED, "method": "mean return", **self.behaviour.to_dict()})
        best = self.best_action
        if best is not None:
            lines.append({"policy": best.name, "method": "chosen on other episodes", **best.estimate.to_dict()})
        if self.not_comparable:
            return lines
        if not self.is_behaviour:
            lines.append({"policy": "difference", "method": self.method, **self.difference.to_dict()})
        gain = self.best_action_difference
        if gain is not None:
            lines.append({"policy": "difference from the best single action", "method": self._used, **gain.to_dict()})
        return lines

    @property
    def _used(self) -> str:
        """The words for the estimator that gives `estimate`."""
        return "mean return" if self.is_behaviour else self.method

    def _estimates(self) -> list[dict[str, Any]]:
        name = "a model of what was done" if self.is_behaviour else self.name
        return [{"policy": name, "method": method, **found.to_dict()} for method, found in self.estimates.items()]

    def _notes(self) -> list[str]:
        lines = [
            f"effective episodes {self.effective_episodes:.1f} of {self.n_episodes}; {self.behaviour_model}",
            SMALLER if self.is_cost else "",
            self.sample_text,
            *(f"warning: {warning}" for warning in self.warnings),
            self.verdict,
            self.best_action_verdict,
            self.sensitivity_text,
        ]
        return [line for line in lines if line]


@dataclass(frozen=True, eq=False)
class Comparison:
    """Several policies on the same episodes, with the paired differences between them.

    Parameters
    ----------
    evidence : mapping from names to Evidence
    """

    evidence: Mapping[str, Evidence]

    def __getitem__(self, name: str) -> Evidence:
        check_choice(name, "a policy", tuple(self.evidence))
        return self.evidence[name]

    @property
    def method(self) -> str:
        """The estimator that is compared, the same for all policies."""
        return next(iter(self.evidence.values())).method

    def difference(self, name: str, other: str) -> Estimate:
        """Return the value of one policy minus that of another, on the same episodes and resamples."""
        return self[name].by(self.method) - self[other].by(self.method)

    def verdict(self, name: str, other: str) -> str:
        """Return one sentence that says whether one policy is better than another."""
        for one in (name, other):
            if self[one].not_comparable:
                return (
                    f"{name} and {other} cannot be compared: about {one}, {self[one].not_comparable}. See the warnings."
                )
        sentence = verdict(name, other, self.difference(name, other), is_cost=self._is_cost)
        unreliable = self[name].unreliable or self[other].unreliable
        return f"{sentence} Do not rely on it: see the warnings." if unreliable else sentence

    def summary(self) -> pd.DataFrame:
        """Return each policy, the logged behaviour, and all paired differences, one per row."""
        return pd.DataFrame(self._lines()).set_index(["policy", "method"]).astype(float)

    def plot(self) -> Figure:
        """Return a figure of the policies with their intervals, and of the logged behaviour."""
        first = next(iter(self.evidence.values()))
        lines = list(map(as_costs, self._policies())) if self._is_cost else self._policies()
        return drawn(lines, first.level, f"{self.method}, {first.n_episodes} episodes")

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values that JSON can hold."""
        return {"policies": {n: e.to_dict() for n, e in self.evidence.items()}, "differences": self._differences()}

    def __str__(self) -> str:
        warnings = {f"{e.name}: {warning}" for e in self.evidence.values() for warning in e.warnings}
        pairs = itertools.combinations(self.evidence, 2)
        verdicts = [self.verdict(name, other) for name, other in pairs]
        notes = [SMALLER] if self._is_cost else []
        return "\n".join([*table(self._lines()), *notes, *(f"warning: {w}" for w in sorted(warnings)), *verdicts])

    def _policies(self) -> list[dict[str, Any]]:
        lines = [
            {"policy": name, "method": self.method, **e.by(self.method).to_dict()}
            if not e.is_behaviour
            else {"policy": f"{name} (what was done)", "method": e._used, **e.behaviour.to_dict()}
            for name, e in self.evidence.items()
        ]
        behaviour = next(iter(self.evidence.values())).behaviour
        return [*lines, {"policy": LOGGED, "method": "mean return", **behaviour.to_dict()}]

    def _differences(self) -> list[dict[str, Any]]:
        behaviour = [
            {"policy": f"{name} - {LOGGED}", "method": self.method, **e.difference.to_dict()}
            for name, e in self.evidence.items()
            if not (e.not_comparable or e.is_behaviour)
        ]
        pairs = [
            {"policy": f"{a} - {b}", "method": self.method, **self.difference(a, b).to_dict()}
            for a, b in itertools.combinations(self.evidence, 2)
            if not (self[a].not_comparable or self[b].not_comparable)
        ]
        return [*behaviour, *pairs]

    def _lines(self) -> list[dict[str, Any]]:
        lines = [*self._policies(), *self._differences()]
        return list(map(as_costs, lines)) if self._is_cost else lines

    @property
    def _is_cost(self) -> bool:
        return next(iter(self.evidence.values())).is_cost


def check_methods(methods: Any) -> tuple[str, ...]:
    """Return the requested estimators, checked."""
    asked = METHODS if methods is None else (methods,) if isinstance(methods, str) else tuple(methods)
    if not asked:
        raise InvalidInputError(f"methods must name at least one of {', '.join(METHODS)}; got none.")
    for method in asked:
        check_choice(method, "a method", METHODS)
    return tuple(dict.fromkeys(asked))
