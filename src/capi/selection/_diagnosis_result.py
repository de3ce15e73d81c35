"""The result of a diagnosis: the parts of the loss, the stability of the rules, and what to do."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from capi._utils.late import matplotlib
from capi._utils.validation import Floats
from capi.offline.presentation import finite, number
from capi.plotting.style import INK, colour_of, name_axes, new_figure
from capi.selection._log_support import RARE

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NEGLIGIBLE = (
    0.02  # share of the policy's value, or of what its decisions are worth, up to which a part is not worth mentioning
)
N_BARS = 10  # of the histogram of rows
WORDS = {
    "evaluator": "Most of the loss comes from the estimated action values: {} per episode. They change with the episodes that they are learned from. "
    "Collect more episodes, or smooth more: larger leaves, more trees, fewer columns.",
    "space": "Most of the loss comes from the policy space: {} per episode. Policies outside of it are worth more in other episodes, too. Choose "
    "a larger one: deeper trees, forests, or combinations of columns.",
    "sample": "Most of the loss comes from the sample: {} per episode. The policy suits its own episodes more than others. Choose a smaller space, "
    "such as a shallower tree with larger leaves, or collect more episodes.",
    "log": "Leaving the log matters most: the policy expects to gain {} per episode by actions that the log rarely takes, and what these are "
    "worth rests on few rows. Forbid them with allowed actions or rules (Constrained), or try them out and log them.",
}


@dataclass(frozen=True, eq=False)
class Diagnosis:
    """Where the loss of a learner comes from, in reward units per episode, and how stable its rules are.

    Parameters
    ----------
    evaluator : float
        What decisions that are greedy in the action values of one half of the episodes lose in those of the other half.
    evaluator_seeds : float
        The same for two evaluations of the policy on all episodes with different seeds.
    space : float
        How much more the best of all policies is worth than the policy of the space, both learned from one half of the episodes and
        valued in the model of the other half. Negative if the restriction helps.
    space_in_model : float
        The same for ``policy_`` on all episodes, both valued in the same model, whose noise the best policy exploits, too.
    sample : float
        The loss on held-out episodes minus that on learning episodes, ``held_out_loss - learning_loss``, of policies learned from halves.
    learning_loss, held_out_loss : float
    log : float
        What the policy expects to gain by actions that the log takes with a probability below 5 %, over the best action that it does take.
    left_by_visits, left_by_rows : float
        The share of such decisions, weighted by the policy's visits and in the rows.
    same_root, same_columns, same_decisions : float
        Share of the refits on resampled episodes with the same column in the first split and with the same columns, and mean share of the refits
        with the same decision in a row. For policies that are not trees, of the trees by which rules show them.
    same_decisions_by_row : array of shape (n,)
        Share of the refits with the same decision in each row.
    value : float
        Value of the policy in the model of the batch.
    stakes : float
        What the choice of actions is worth: the loss of the worst decisions where the policy decides.
    n_rows, n_episodes, n_refits : int
    notes : tuple of str
        What could not be measured, or was measured in another way, and why.
    """

    evaluator: float
    evaluator_seeds: float
    space: float
    space_in_model: float
    sample: float
    learning_loss: float
    held_out_loss: float
    log: float
    left_by_visits: float
    left_by_rows: float
    same_root: float
    same_columns: float
    same_decisions: float
    same_decisions_by_row: Floats = field(repr=False)
    value: float
    stakes: float
    n_rows: int
    n_episodes: int
    n_refits: int
    notes: tuple[str, ...] = ()

    @property
    def parts(self) -> dict[str, float]:
        """The four parts of the loss, by name; not below zero, NaN if one could not be measured."""
        found = {"evaluator": self.evaluator, "space": self.space, "sample": self.sample, "log": self.log}
        return {name: value if math.isnan(value) else max(value, 0.0) for name, value in found.items()}

    @property
    def dominant(self) -> str | None:
        """The largest part, or None if none is worth mentioning."""
        known = {name: value for name, value in self.parts.items() if not math.isnan(value)}
        name = max(known, key=lambda each: known[each], default=None)
        scale = min(self.stakes, abs(self.value))
        return None if name is None or known[name] <= NEGLIGIBLE * scale else name

    @property
    def advice(self) -> str:
        """Which part dominates and what to do about it."""
        if all(map(math.isnan, self.parts.values())):
            return "No part could be measured; the notes say why."
        if self.dominant is None:
            return (
                f"No part loses more than {100 * NEGLIGIBLE:g} % of what the policy and the choice of its actions are worth: "
                "nothing needs to be changed."
            )
        return WORDS[self.dominant].format(number(self.parts[self.dominant]))

    def __str__(self) -> str:
        share = f"{_percent(self.left_by_visits)} of the visits and {_percent(self.left_by_rows)} of the rows"
        rows = [
            (
                "evaluator",
                self.evaluator,
                f"between halves of the episodes; {number(self.evaluator_seeds)} between seeds",
            ),
            ("space", self.space, f"on other episodes; {number(self.space_in_model)} on the same ones"),
            (
                "sample",
                self.sample,
                f"{number(self.held_out_loss)} held out, {number(self.learning_loss)} while learning",
            ),
            ("leaving the log", self.log, f"{share} take an action with probability below {100 * RARE:g} %"),
        ]
        stable = (
            f"Of {self.n_refits} refits on resampled episodes, {_percent(self.same_root)} have the same first column and "
            f"{_percent(self.same_columns)} the same columns; they make {_percent(self.same_decisions)} of the decisions alike."
        )
        return "\n".join(
            [
                f"Possible loss, in reward units per episode; the policy is worth {number(self.value)}, the choice of actions {number(self.stakes)}",
                *(f"  {name:<16}{number(value):>10}   {words}" for name, value, words in rows),
                stable,
                self.advice,
                *(f"Note: {note}" for note in self.notes),
            ]
        )

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values that JSON can hold; of the rows, the shares in ten bars of agreement from 0 to 1."""
        names = (
            "evaluator evaluator_seeds space space_in_model sample learning_loss held_out_loss log left_by_visits left_by_rows "
            "same_root same_columns same_decisions value stakes"
        )
        counts = np.histogram(self.same_decisions_by_row, bins=N_BARS, range=(0, 1))[0]
        return {
            **{name: finite(getattr(self, name)) for name in names.split()},
            "rows_by_agreement": (counts / self.n_rows).tolist(),
            "dominant": self.dominant,
            "advice": self.advice,
            "n_rows": self.n_rows,
            "n_episodes": self.n_episodes,
            "n_refits": self.n_refits,
            "notes": list(self.notes),
        }

    def plot(self) -> Figure:
        """Return a figure of the parts of the loss, and of the share of refits that agree with the policy, row by row."""
        figure, (left, right) = new_figure(7.5, 2.6, n_cols=2)
        names = {"evaluator": "evaluator", "space": "space", "sample": "sample", "log": "leaving the log"}
        for place, (name, value) in enumerate(reversed(self.parts.items())):
            if math.isnan(value):
                left.text(0.02, place, "not measured", transform=left.get_yaxis_transform(), va="center", color=INK)
            else:
                left.barh(place, value, color=colour_of(1 if name == self.dominant else 0), height=0.6)
        left.set_yticks(range(len(names)), list(reversed(names.values())))
        left.set_ylim(-0.6, len(names) - 0.4)
        ticker = matplotlib.ticker
        left.xaxis.set_major_locator(ticker.MaxNLocator(4))
        left.xaxis.set_major_formatter(
            ticker.StrMethodFormatter("{x:.10g}")
        )  # no factor below the axis to apply mentally
        name_axes(left, x="reward units per episode", title="where the loss comes from")
        known = self.same_decisions_by_row[~np.isnan(self.same_decisions_by_row)]
        right.hist(known, bins=N_BARS, range=(0, 1), weights=np.full(len(known), 100 / self.n_rows), color=colour_of(0))
        name_axes(
            right, x="share of refits with the same decision", y="% of the rows", title="how stable decisions are"
        )
        return figure


def _percent(share: float) -> str:
    return "-" if math.isnan(share) else f"{100 * share:.3g} %"
