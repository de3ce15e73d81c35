"""The result of a certificate: bounds, what limits them, and what they mean."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any

from capi.offline.presentation import finite, number

WORDS = {
    "sample": "the sample ({n} independent {units} leave {value} to chance)",
    "space": "the policy space (even its best policy loses {value} on held-out {units})",
    "values": "the action values (decisions that are best by one half of the data lose {value} by the other half)",
}


@dataclass(frozen=True)
class Certificate:
    """Bounds on the loss of a learner's last improvement, in reward units per decision, and what limits them.

    Parameters
    ----------
    delta : float
        The probability with which some bound may fail.
    held_out_loss, loss_bound : float
        The gap-weighted loss on held-out units, and an upper bound on its expectation.
    least_loss, least_bound : float
        The least held-out loss of a policy of the space, and a lower bound on the least expected one: 0 if none is known.
    learning_loss : float
        The loss on the half that the policy was learned from.
    stakes : float
        The loss of the worst decisions; a bound above it says nothing.
    largest_gap : float
    values_loss : float
        What decisions that are greedy in the values of one half lose in those of the other half.
    values_error : float
        Root mean square of the largest difference between both in a state.
    uncertain_decisions : float
        Share of held-out states in which a difference as large as the one found could change the best action.
    decisions_per_episode : float
        Discounted number of decisions of an episode of the policy.
    concentration : float
        How much more often than the log the policy visits some logged row, in the model of the batch; NaN if there is none.
    units : str
        What was treated as independent: episodes, or rows.
    n_units, n_rows, n_draws : int
        Held-out units and rows; draws of random signs, 0 if a growth function took their place.
    notes : tuple of str
    """

    delta: float
    held_out_loss: float
    loss_bound: float
    least_loss: float
    least_bound: float
    learning_loss: float
    stakes: float
    largest_gap: float
    values_loss: float
    values_error: float
    uncertain_decisions: float
    decisions_per_episode: float
    concentration: float
    units: str
    n_units: int
    n_rows: int
    n_draws: int
    notes: tuple[str, ...] = ()

    @property
    def excess_bound(self) -> float:
        """An upper bound on how much more the policy loses than the best one of the space, per decision."""
        return self.loss_bound - self.least_bound

    @property
    def is_vacuous(self) -> bool:
        """Whether the bound says nothing: even the worst decisions would not break it."""
        return self.loss_bound >= self.stakes

    @property
    def parts(self) -> dict[str, float]:
        """What the sample, the space and the values contribute, each per decision."""
        return {"sample": self.loss_bound - self.held_out_loss, "space": self.least_loss, "values": self.values_loss}

    @property
    def limited_by(self) -> str:
        """The largest part."""
        return max(self.parts, key=lambda name: self.parts[name])

    @property
    def per_episode(self) -> float:
        """The bound for a whole episode, if the policy visited states as often as the log does."""
        return self.loss_bound * self.decisions_per_episode

    @property
    def worst_per_episode(self) -> float:
        """The bound for a whole episode, if all of the loss were where the policy goes most."""
        return self.per_episode * self.concentration

    @property
    def verdict(self) -> str:
        """The bound in a sentence, or why it is vacuous."""
        if self.stakes == 0:
            return "There is nothing to lose: all actions have the same value."
        if self.is_vacuous:
            most = "sample" if self.parts["sample"] >= self.held_out_loss else "space"
            return (
                f"This bound is vacuous here because of {self._words(most)}: the policy loses at most {number(self.loss_bound)} per decision, but the "
                f"worst decisions would lose {number(self.stakes)}."
            )
        return (
            f"With probability {1 - self.delta:.4g} the last improvement loses at most {number(self.loss_bound)} per decision, and at most "
            f"{number(self.excess_bound)} more than the best policy of the space; the worst decisions would lose {number(self.stakes)}. "
            f"The largest part comes from {self._words(self.limited_by)}."
        )

    def _words(self, name: str) -> str:
        return WORDS[name].format(n=self.n_units, units=self.units, value=number(self.parts[name]))

    def __str__(self) -> str:
        signs = f"{self.n_draws} draws of signs" if self.n_draws else "the growth function"
        rows = [
            (
                "held-out loss",
                self.held_out_loss,
                f"on {self.n_units} {self.units}; {number(self.learning_loss)} while learning",
            ),
            ("bound", self.loss_bound, f"holds with probability {1 - self.delta / 2:.4g}"),
            ("least in the space", self.least_loss, f"at least {number(self.least_bound)} in expectation, by {signs}"),
            ("excess", self.excess_bound, "at most, over the best policy of the space"),
            (
                "uncertain values",
                self.values_loss,
                f"by honest halves; {100 * self.uncertain_decisions:.3g} % of the decisions could be others",
            ),
            ("worst decisions", self.stakes, f"largest gap {number(self.largest_gap)}"),
        ]
        where = f" ({number(self.worst_per_episode)} if all of it were where the policy goes most)"
        return "\n".join(
            [
                "Loss of the last improvement, in reward units per decision",
                *(f"  {name:<20}{number(value):>10}   {words}" for name, value, words in rows),
                f"Per episode the bound is {number(self.per_episode)}{'' if math.isnan(self.concentration) else where}.",
                self.verdict,
                *(f"Note: {note}" for note in self.notes),
            ]
        )

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values that JSON can hold."""
        plain: dict[str, Any] = {}
        for one in fields(self):
            value = getattr(self, one.name)
            plain[one.name] = (
                finite(value) if isinstance(value, float) else list(value) if isinstance(value, tuple) else value
            )
        more = {name: finite(getattr(self, name)) for name in ("excess_bound", "per_episode", "worst_per_episode")}
        return {**plain, **more, "is_vacuous": self.is_vacuous, "limited_by": self.limited_by, "verdict": self.verdict}
