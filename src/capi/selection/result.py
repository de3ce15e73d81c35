"""The result of a selection: what was tried, what was chosen and why, and whether it is better than what was done."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from capi.plotting.style import SMALL_TEXT_SIZE, colour_of, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from capi.offline.evidence import Evidence

BEHAVIOUR = "what was done"  # the name of that candidate
EXPLAINED = (
    "(first value: after a short fit, to drop most candidates; value: after a full one; below the best: by how much, +- one standard error. "
    "These values only rank candidates; the test decides.)"
)
CHOSEN, RETURNED, DROPPED, UNTESTED = "chosen", "the result", "dropped after the first values", "cannot be tested"
NOT_RANKED = "only tested"  # a baseline without a value
DOUBLY_ROBUST, FITTED_Q, SIMULATED = "doubly robust", "fitted Q", "simulated episodes"


@dataclass(frozen=True)
class Tried:
    """One candidate: its scores and what became of it.

    Parameters
    ----------
    name : str
    size : int
        Its place in the order of simplicity.
    rough : float or None
        Value on held-out episodes after a few rounds.
    value, standard_error : float or None
        Value after learning in full: on held-out episodes; of simulated episodes, the mean of the rough value and that of the policy that
        learned from all learning episodes.
    behind, behind_error : float or None
        How far it is behind the best one, and the standard error of that.
    left : float or None
        Share of its decisions that the log rarely takes in similar states.
    seconds : float
    fate : str
        "chosen", "chosen, not better", "chosen, cannot be tested", "chosen, not tested" (what was done is not), "the result, ..." (of a policy that
        is the result although another one was chosen), "not chosen", "dropped after the first values", "leaves the log in ...", "failed: ...",
        "not tried: ..." or "only tested".
    settings : str
        Those of its learner.
    """

    name: str
    size: int
    rough: float | None
    value: float | None = None
    standard_error: float | None = None
    behind: float | None = None
    behind_error: float | None = None
    left: float | None = None
    seconds: float = 0.0
    fate: str = DROPPED
    settings: str = ""

    def after_test(self, chosen: str, returned: str, tested: Sequence[dict[str, Any]]) -> Tried:
        """Return it with what became of it, now that the tests have been made."""
        if self.name == returned:
            return replace(self, fate=CHOSEN if self.name == chosen else f"{RETURNED}, {self.fate}")
        verdict = next((str(one["verdict"]) for one in tested if one["name"] == self.name), None)
        if self.name == chosen:
            return replace(self, fate=f"{CHOSEN}, {verdict or 'not tested'}")
        if self.fate == NOT_RANKED:
            return replace(self, fate=f"{NOT_RANKED}, {verdict}" if verdict else "not tested")
        return self

    def failed(self, error: BaseException) -> Tried:
        """Return it without a value, because its learner failed in the end."""
        return replace(
            self, value=None, standard_error=None, behind=None, behind_error=None, fate=f"failed: {reason(error)}"
        )


@dataclass(frozen=True)
class Gate:
    """The test of the chosen policy on episodes that selection has not seen.

    Parameters
    ----------
    verdict : "better", "not better" or "cannot be tested"
    sentence : str
        For whoever decides.
    n_episodes : int
        Number of test episodes.
    error_rate : float
        Probability of "better" if nothing is better.
    tested : sequence of dict
        Name, difference from what was done, its lower bound and the reason of each tested policy.
    """

    verdict: str
    sentence: str
    n_episodes: int
    error_rate: float
    tested: Sequence[dict[str, Any]] = ()


@dataclass(frozen=True, eq=False)
class Selection:
    """Which candidate was chosen, out of which, and whether it is better than what was done.

    Parameters
    ----------
    tried : sequence of Tried
    chosen : str
        The best candidate by its scores, or a simpler one that is as good.
    returned : str
        The policy that passed the test, or what was done.
    gate : Gate
    discount : float
    n_learning : int
        Number of episodes that were used to learn and to choose.
    score : str
        What the values are: "doubly robust" if policies and log overlap enough, else "fitted Q" (one decision per episode) or "simulated episodes".
    evidence : Evidence, optional
        The evaluation of the tested policy.
    is_cost : bool
        Whether rewards are negative costs: then the text and the figure give costs, of which smaller ones are better.
    """

    tried: Sequence[Tried]
    chosen: str
    returned: str
    gate: Gate
    discount: float
    n_learning: int
    score: str = SIMULATED
    evidence: Evidence | None = field(default=None, repr=False)
    is_cost: bool = False

    @property
    def verdict(self) -> str:
        """One sentence for whoever decides."""
        return self.gate.sentence

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values that JSON can hold."""
        return {
            "version": 1,
            "tried": [_plain(asdict(one)) for one in self.tried],
            "chosen": self.chosen,
            "returned": self.returned,
            "gate": {**asdict(self.gate), "tested": [_plain(one) for one in self.gate.tested]},
            "discount": self.discount,
            "n_learning": self.n_learning,
            "score": self.score,
        }

    def __str__(self) -> str:
        width = max(len(one.name) for one in self.tried)
        lines = [f"{'candidate':<{width}}  {'first value':>11}  {'value':>10}  {'below the best':>20}  result"]
        for one in sorted(self.tried, key=_order):
            behind = "" if one.behind is None else f"{one.behind:.4g} +- {one.behind_error or 0:.2g}"
            behind = "-" if one.behind == 0 else behind
            first, value = self._shown(one.rough), self._shown(one.value)
            lines.append(f"{one.name:<{width}}  {_text(first):>11}  {_text(value):>10}  {behind:>20}  {one.fate}")
        explained = f"{EXPLAINED}\n(Values are costs: smaller is better.)" if self.is_cost else EXPLAINED
        return "\n".join([*lines, explained, self.verdict])

    def _shown(self, value: float | None) -> float | None:
        return 0.0 - value if self.is_cost and value is not None else value

    def plot(self) -> Figure:
        """Return a figure of the candidates with the standard errors of their values."""
        known = [one for one in sorted(self.tried, key=_order, reverse=True) if one.value is not None]
        figure, [axes] = new_figure(7.0, 0.8 + 0.35 * max(len(known), 1))
        for height, one in enumerate(known):
            colour = colour_of(1 if one.name == self.chosen else 0)
            axes.errorbar(self._shown(one.value) or 0.0, height, xerr=one.standard_error or 0.0, fmt="o", color=colour)
        axes.set_yticks(range(len(known)), [one.name for one in known])
        axes.set_xlabel(
            f"{'cost' if self.is_cost else 'value'} ({self.score}), with one standard error", fontsize=SMALL_TEXT_SIZE
        )
        return figure


def reason(error: BaseException) -> str:
    """Return the kind and the text of an error."""
    return f"{type(error).__name__}: {error}"


def _order(one: Tried) -> tuple[bool, float, float]:
    return one.value is None, -(one.value or 0.0), -(one.rough if one.rough is not None else -math.inf)


def _text(number: float | None) -> str:
    return "" if number is None else f"{number:.5g}"


def _plain(record: dict[str, Any]) -> dict[str, Any]:
    return {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in record.items()}
