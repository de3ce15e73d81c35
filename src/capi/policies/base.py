"""Base classes of our policies: the schema that names columns and actions, plots, and decisions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from capi._utils import registry
from capi._utils.validation import Bools, Floats, as_allowed, as_integers, as_states, check_actions, check_shape
from capi.data.columns import is_table
from capi.data.learned_episodes import Learned
from capi.data.rows import is_rows
from capi.data.schema import Schema
from capi.errors import InvalidInputError
from capi.plotting.regions import draw_decisions, features_to_draw
from capi.policies.decisions import Decisions, check_masks_given, one_hot
from capi.types import Policy

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, slots=True)
class Training:
    """How a policy was learned: what its users need to know in addition to the rule itself."""

    discount: float
    n_iterations: int
    n_rows: int | None  # of the batch; None when the evaluator held a model
    versions: dict[str, str]
    episodes: Learned | None = field(default=None, compare=False, repr=False)  # None: not known any more
    discount_per: str | None = None  # the time that the discount refers to; None: a step


@dataclass(frozen=True, kw_only=True, eq=False)
class Described:
    """Base class of our learned policies: holds the schema, which the learner attaches with `described`."""

    schema: Schema | None = field(default=None, repr=False)
    training: Training | None = field(default=None, repr=False)

    def save(self: Any, path: str | Path, *, with_states: bool = False, with_episodes: bool = False) -> None:
        """Write the policy to a file that `capi.load_policy` opens, anywhere and safely; see `capi.save_policy`."""
        registry.save_policy(self, path, with_states=with_states, with_episodes=with_episodes)

    def predict(self: Any, rows: Any, allowed: ArrayLike | None = None) -> NDArray[Any]:
        """Return the decisions (n,) for the rows of a table, in the table's own labels.

        A policy that was learned without a table has no labels, and returns numbers of actions.

        Parameters
        ----------
        rows : table, mapping, list of mappings, or array of shape (n, d)
            A pandas, polars or Arrow table or a mapping of columns; one row as a mapping from column names to values; a list
            of such rows; or states as an array. Other columns than those of the learning table are ignored. Categories that
            did not occur there are treated as missing values, with an `UnseenCategoryWarning`.
        allowed : array of shape (n, A), optional
            The actions to choose from, for policies learned with masks.

        Examples
        --------
        >>> import numpy as np
        >>> from capi.policies import Constant
        >>> from capi.data import Schema
        >>> policy = Constant(1, 2, schema=Schema(("age",), ("wait", "treat")))
        >>> policy.predict([{"age": 50.0}, {"age": None}]).tolist()
        ['treat', 'treat']
        """
        if self.schema is None:
            if is_table(rows) or is_rows(rows):
                raise InvalidInputError(
                    "rows must be an array of states: this policy was learned without a table and has no column names."
                )
            states = as_states(rows)
        else:
            states = self.schema.states_of(rows)
        mask = as_allowed(allowed, "allowed", (len(states), self.n_actions))
        actions = self.act(states, mask) if len(states) else np.empty(0, dtype=np.int64)
        return np.asarray(actions) if self.schema is None else self.schema.labels_of(actions)

    def _repr_html_(self) -> str:
        return registry.policy_html(self)

    def plot(self: Any, states: ArrayLike | None = None) -> Figure:
        """Return a plot of the policy; ``figure.savefig("policy.png")`` saves it.

        It shows `plot_decisions` over the one or two columns that influence the decisions most: those for which the most
        decisions change when their values are shuffled among the states. Trees are drawn as trees.

        Parameters
        ----------
        states : array of shape (n, d), optional
            Such as those of the batch. By default the states that the policy was learned from, if it keeps them.
        """
        check_masks_given(getattr(self, "masked", False), None)
        kept = self.learning_states() if states is None and hasattr(self, "learning_states") else states
        if kept is None:
            raise InvalidInputError(
                "states must be given, such as those of the batch: this policy does not keep the states that it was learned from."
            )
        x = as_states(kept)
        return self.plot_decisions(x, features_to_draw(self.act, x, self.schema))

    def plot_decisions(self: Any, states: ArrayLike, features: Sequence[Any] = (0, 1)) -> Figure:
        """Return a plot of the decisions over one or two features; ``figure.savefig("decisions.png")`` saves it.

        Parameters
        ----------
        states : array of shape (n, d)
            Such as those of the batch. Over two features they are drawn as points; the regions behind them are the decisions in
            states whose other features are at their medians. Over one feature bars show the share of each action.
        features : one or two columns, by index or name
        """
        check_masks_given(getattr(self, "masked", False), None)
        return draw_decisions(self.act, as_states(states), features, self.n_actions, self.schema)


@dataclass(frozen=True, kw_only=True, eq=False)
class Deterministic(Described):
    """Base class of our deterministic policies: one-hot probabilities and the schema."""

    def probabilities(self: Policy, states: Floats, allowed: Bools | None = None) -> Floats:
        """Return the one-hot distribution of the decision (n, A)."""
        return one_hot(self.act(states, allowed), self.n_actions)


def described(policy: Policy, schema: Schema | None, training: Training) -> Policy:
    """Return ``policy`` with schema and training record attached if it is one of ours; others are returned unchanged."""
    return replace(policy, schema=schema, training=training) if isinstance(policy, Described) else policy


def decided(policy: Policy, states: Floats, allowed: Bools | None = None) -> Decisions:
    """Return the decisions of ``policy`` in ``states`` (n, d)."""
    if not isinstance(policy, Deterministic):
        return policy.probabilities(states, allowed)
    name = f"the result of {type(policy).__name__}.act"
    actions = as_integers(policy.act(states, allowed), name)
    check_shape(actions, name, (len(states),))
    check_actions(actions, policy.n_actions, name)
    return actions
