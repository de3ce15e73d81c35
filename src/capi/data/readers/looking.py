"""One look at all pieces of a table: their episodes, the values that encodings depend on, and the schema of all of them together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from capi._utils.late import pyarrow as pa
from capi._utils.late import pyarrow_compute as pc
from capi.data.columns import Column
from capi.data.episode_codes import codes_of
from capi.data.readers.actions import actions_of
from capi.data.readers.arrow import Table, reads_column
from capi.data.readers.categories import check_ids
from capi.data.readers.encode import learn, nan_as_null, numbers
from capi.data.readers.foreign import decoded
from capi.data.readers.ordered import ordered_column
from capi.data.readers.pieces import kind_of, same_kind
from capi.data.readers.roles import Roles
from capi.data.schema import Schema
from capi.errors import InvalidInputError

SAMPLED_DATES = 1000  # of a column of dates: the first year and whether they have times follow from few


@dataclass(frozen=True, eq=False)
class Found:
    """What one look at a piece finds."""

    name: str  # of the piece
    n_rows: int
    kinds: dict[str, str]  # what each column holds
    columns: dict[str, Values]
    episodes: NDArray[np.uint64]  # each once; without episodes empty
    first: Any = None  # the episode of the first row, of the last one,
    last: Any = None
    head: int = 0  # the number of rows at the beginning that belong to the first one,
    returns: bool = False  # and whether it comes back after them
    n_cut: int = 0  # rows that are no decisions, because they hold only the last state of an episode


@dataclass(frozen=True, eq=False)
class Values:
    """The values of a column, as far as its encoding depends on them."""

    type: Any  # of Arrow
    where: str  # the piece
    counts: Counter[Any] = field(default_factory=Counter)
    has_missing: bool = False
    order: tuple[Any, ...] | None = None  # of ordered categories

    def merged(self, other: Values, name: str) -> Values:
        """Return the values of two pieces."""
        if self.order is not None and other.order is not None and self.order != other.order:
            raise _other_order(other.where, name, other.order, self.order)
        kind = other.type if pa.types.is_null(self.type) else self.type
        return Values(
            kind,
            self.where,
            self.counts + other.counts,
            self.has_missing or other.has_missing,
            self.order or other.order,
        )

    def table(self, name: str, most: int) -> Table:
        """Return a table of one column that is encoded as the whole one is: each value at most ``most`` times."""
        values = [value for value in self.counts for _ in range(min(self.counts[value], most))]
        if self.has_missing:
            values.append(None)
        if self.order is not None:
            at = {value: i for i, value in enumerate(self.order)}
            codes = pa.array([None if value is None else at[value] for value in values], pa.int32())
            array = pa.DictionaryArray.from_arrays(codes, pa.array(self.order), ordered=True)
        else:
            plain = self.type.value_type if pa.types.is_dictionary(self.type) else self.type
            array = pa.array(values, plain)
        return Table("the files", (name,), len(values), {name: pa.chunked_array([array])}.__getitem__)


def _other_order(where: str, name: str, here: Sequence[Any], there: Sequence[Any]) -> InvalidInputError:
    return InvalidInputError(
        f"{where}, column {name!r}: must have the same ordered categories everywhere; here they are {list(here)}, elsewhere {list(there)}. "
        "Write all of them in the same order, or give it with ordered."
    )


def looked_at(piece: Any, roles: Mapping[str, Any]) -> Found:
    """Return what one look at a piece finds: its episodes, and the values on which encodings depend."""
    checked = Roles(**roles)
    listed = set() if checked.schema is not None else {*checked.state, *(checked.next_state or ())}
    if checked.schema is None and checked.action_labels is None:
        listed.add(checked.action)
    types = piece.types(checked.columns)
    needed = [name for name in sorted(listed) if _depends_on_values(types[name]) or name == checked.action]
    flag = None if checked.next_state or checked.one_step else checked.truncated or checked.terminated
    needed += [name for name in (checked.episode, flag) if name is not None]
    table = piece.table(list(dict.fromkeys(needed)) or [checked.action])
    columns = {
        name: _values(name, table, types[name], name not in checked.ordered)
        if name in needed
        else Values(types[name], piece.name)
        for name in sorted(listed)
    }
    kinds = {name: kind_of(kind) for name, kind in types.items()}
    n_rows, flagged = table.n_rows, 0 if flag is None else int(np.count_nonzero(numbers(flag, table) == 1))
    if checked.episode is None or n_rows == 0:
        n_cut = flagged if flag == checked.truncated else n_rows - flagged
        return Found(
            piece.name, n_rows, kinds, columns, np.empty(0, dtype=np.uint64), n_cut=0 if flag is None else n_cut
        )
    ids = _codes(checked.episode, table)
    episodes = np.unique(ids)
    n_cut = 0 if flag is None else flagged if flag == checked.truncated else len(episodes) - flagged
    head = n_rows if (ids == ids[0]).all() else int((ids != ids[0]).argmax())
    returns = bool((ids[head:] == ids[0]).any())
    return Found(piece.name, n_rows, kinds, columns, episodes, ids[0], ids[-1], head, returns, n_cut)


def _depends_on_values(kind: Any) -> bool:
    types = pa.types
    return not (types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind) or types.is_decimal(kind))


@reads_column
def _values(name: str, table: Table, kind: Any, with_order: bool) -> Values:
    column, order = table.column(name), None
    if pa.types.is_dictionary(column.type):
        if (
            column.type.ordered and column.num_chunks and with_order
        ):  # as the files have them: `column` has unified them
            orders = list(dict.fromkeys(tuple(chunk.dictionary.to_pylist()) for chunk in table.get(name).chunks))
            if len(orders) > 1:
                raise _other_order(table.name, name, orders[1], orders[0])
            order = orders[0]
        column = decoded(column)
    plain = nan_as_null(column)
    if pa.types.is_temporal(plain.type):
        known = plain.drop_null()
        few = [*pc.unique(known.slice(0, SAMPLED_DATES)).to_pylist(), pc.min(known).as_py(), pc.max(known).as_py()]
        return Values(kind, table.name, Counter(value for value in few if value is not None), plain.null_count > 0)
    counted = pc.value_counts(plain)
    counts = dict(zip(counted.field("values").to_pylist(), counted.field("counts").to_pylist(), strict=True))
    missing = counts.pop(None, 0)
    return Values(kind, table.name, Counter(counts), missing > 0, order)


@reads_column
def _codes(name: str, table: Table) -> NDArray[np.uint64]:
    """Return a number for each row's episode id (n,) that is the same in every piece."""
    column = nan_as_null(table.column(name))
    known = np.asarray(column.is_valid())
    check_ids(known, name, table)
    if pa.types.is_integer(column.type):
        return codes_of(column.to_numpy())
    array = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    return np.concatenate(
        [codes_of(chunk.dictionary.to_pylist())[chunk.indices.to_numpy(zero_copy_only=False)] for chunk in array.chunks]
    )


def learned_schema(found: Sequence[Found], roles: Roles) -> Schema:
    """Return the names, encodings and labels of all pieces together."""
    for name in roles.columns:
        known: tuple[str, str] | None = None
        for one in found:
            known = same_kind(name, known, (one.kinds[name], one.name))
    if roles.schema is not None:
        return roles.schema
    columns = dict(found[0].columns)
    for other in found[1:]:
        columns = {name: values.merged(other.columns[name], name) for name, values in columns.items()}
    following = dict(zip(roles.state, roles.next_state or (), strict=False))
    encoded: list[Column] = []
    for name in roles.state:
        values = columns[name]
        if name in following:
            values = values.merged(columns[following[name]], name)
        table = values.table(name, roles.min_category_rows)
        encoded.append(
            ordered_column(name, table, (), roles.ordered.get(name)) or learn(name, table, (), roles.min_category_rows)
        )
    labels = roles.action_labels
    if labels is None:
        table = columns[roles.action].table(roles.action, 1)
        rows = np.arange(table.n_rows - columns[roles.action].has_missing)
        labels = actions_of(roles, table, rows, None)[1]
    return Schema.of_columns(encoded, labels)
