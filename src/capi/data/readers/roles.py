"""The roles of a table's columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypedDict

from capi._utils.validation import as_discount, as_int, as_names, sequence_of_names
from capi.data.elapsed import check_discount_per
from capi.data.readers.ordered import checked_orders
from capi.errors import LEAST_SHOWN, InvalidInputError

if TYPE_CHECKING:
    from capi.data.schema import Schema


SINGLE = ("action", "reward", "cost", "episode", "time", "terminated", "truncated", "propensity", "weight")


class RoleNames(TypedDict, total=False):
    """The roles as keywords of a reader."""

    state: str | Sequence[str]
    action: str
    reward: str | None
    cost: str | None
    episode: str | None
    time: str | None
    terminated: str | None
    truncated: str | None
    propensity: str | None
    next_state: str | Sequence[str] | None
    allowed: str | Mapping[Any, str] | None
    weight: str | None
    discount: float | None
    discount_per: float | str | None
    action_labels: Sequence[Any] | None
    schema: Schema | None
    min_category_rows: int
    ordered: Mapping[str, Sequence[str]] | None


@dataclass(frozen=True, kw_only=True, eq=False)
class Roles:
    """The roles of a table's columns, checked; `Transitions.from_frame` explains them."""

    state: Any
    action: str
    reward: str | None = None
    cost: str | None = None
    episode: str | None = None
    time: str | None = None
    terminated: str | None = None
    truncated: str | None = None
    propensity: str | None = None
    next_state: Any = None
    allowed: Any = None
    weight: str | None = None
    discount: float | None = None
    discount_per: float | str | None = None
    action_labels: Any = None
    schema: Schema | None = field(default=None, repr=False)
    min_category_rows: int = LEAST_SHOWN
    ordered: Any = None

    def __post_init__(self) -> None:
        if self.reward is not None and self.cost is not None:
            raise InvalidInputError(
                f"reward and cost must not both be given, because a cost is a reward with its sign changed; got {self.reward!r} and {self.cost!r}."
            )
        required = ("action", "reward") if self.cost is None else ("action",)
        for name in SINGLE:
            column = getattr(self, name)
            if not isinstance(column, str) and (column is not None or name in required):
                raise InvalidInputError(
                    f"{name} must name one column, and column names must be strings; got {column!r}."
                )
        for name in ("state", "next_state"):
            columns = getattr(self, name)
            if columns is not None:
                columns = (columns,) if isinstance(columns, str) else sequence_of_names(columns, name)
                object.__setattr__(self, name, as_names(columns, name, len(columns)))
        masks = tuple(self.allowed.values()) if isinstance(self.allowed, Mapping) else (self.allowed,)
        if not all(isinstance(name, str) for name in masks if name is not None):
            raise InvalidInputError(
                f"allowed must be a column or a mapping from actions to columns; got {self.allowed!r}."
            )
        if not self.state:
            raise InvalidInputError(f"state must name at least one column; got {self.state!r}.")
        self._check_state()
        if self.next_state is not None and len(self.next_state) != len(self.state):
            raise InvalidInputError(
                f"next_state must name one column for each of the {len(self.state)} state columns; got {len(self.next_state)}."
            )
        if self.discount is not None:
            as_discount(self.discount)
        if self.time is not None and self.episode is None:
            raise InvalidInputError(
                "time must be given with episode: without it each row is its own episode. "
                "For one long episode add a column that is the same in each row."
            )
        check_discount_per(self.discount_per, self.time)
        if self.episode is None and self.next_state and not self.one_step and not self.terminated:
            raise InvalidInputError(
                "terminated must be given with next_state unless episode is given: otherwise each row would count as terminated."
            )
        as_int(self.min_category_rows, "min_category_rows", minimum=1)
        object.__setattr__(self, "ordered", checked_orders(self.ordered, self.state))
        self._check_schema()

    @property
    def one_step(self) -> bool:
        """Whether nothing beyond the next reward counts."""
        return self.discount == 0

    @property
    def columns(self) -> list[str]:
        """All columns that are read, each once."""
        single = (getattr(self, name) for name in SINGLE)
        masks = self.allowed.values() if isinstance(self.allowed, Mapping) else (self.allowed,)
        names = (*self.state, *(self.next_state or ()), *single, *masks)
        return list(dict.fromkeys(name for name in names if name is not None))

    def _check_state(self) -> None:
        """Refuse what was decided and what came of it as a state; as a next state it may be right: that of the last action or reward."""
        for role in ("action", "reward", "cost"):
            column = getattr(self, role)
            if column in self.state:
                raise InvalidInputError(
                    f"state must name columns that were known before the decision; it names {column!r}, which is the {role} of the same row. "
                    f"Leave it out of state; a column with the {role} of the row before it may stay."
                )

    def _check_schema(self) -> None:
        if self.schema is None:
            return
        if not hasattr(self.schema, "columns") or not hasattr(self.schema, "action_labels"):
            raise InvalidInputError(f"schema must be the Schema of a batch; got {self.schema!r}.")
        if self.action_labels is not None:
            raise InvalidInputError(
                "action_labels must not be given with schema, which has them already. Pass only one of the two."
            )
        if self.ordered:
            raise InvalidInputError("ordered must not be given with schema, which has the orders already.")
        known = tuple(column.name for column in self.schema.columns)
        if self.state != known:
            raise InvalidInputError(
                f"state must be the columns of the schema, {list(known)!r}; got {list(self.state)!r}."
            )
