"""Turn the columns of a table into the parts of a batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from capi._utils.validation import Floats, Ints
from capi.data.columns import Column
from capi.data.elapsed import TimeUnit
from capi.data.origin import Origin
from capi.data.readers.actions import actions_of, advice_on_gaps, masks_of
from capi.data.readers.arrow import Table
from capi.data.readers.categories import levels_of
from capi.data.readers.elapsed import elapsed_of
from capi.data.readers.encode import encode, learn, numbers
from capi.data.readers.episodes import Episodes, episodes_of
from capi.data.readers.ordered import ordered_column
from capi.data.readers.roles import Roles
from capi.data.readers.times import later_dates, steps_of

LATE = 0.9  # share of the known rewards that are in last rows, and of the missing ones that are not
LATE_ADVICE = " Rewards only at the end? Put 0 into the other rows: docs/howto/late-rewards.md."


@dataclass(frozen=True, eq=False)
class Read:
    """The result of reading: checked, unshared arrays, with the names and labels that describe them."""

    arrays: dict[str, Any]  # by the names of Transitions' arrays
    columns: tuple[Column, ...]
    action_labels: tuple[Any, ...]
    origin: Origin
    rows: Ints  # the table's row of each decision (n,)


def read(table: Table, roles: Roles, *, whole: bool = True) -> Read:
    """Return the decisions of a table, its rows sorted and its columns encoded; of one that is not ``whole`` others may have all the weight."""
    table.check_names(roles.columns)
    if not table.n_rows:
        raise table.rejection(
            None, "the table must have at least one row; it has none", advice=" Check how the rows were filtered."
        )
    episodes = episodes_of(table, roles)
    labels = roles.action_labels if roles.schema is None else roles.schema.action_labels
    actions, labels = actions_of(roles, table, episodes.rows, labels)
    arrays: dict[str, Any] = {
        "actions": actions,
        "rewards": _rewards(roles, table, episodes),
        "terminated": episodes.terminated,
        "episodes": episodes.episode,
        "propensities": _propensities(roles.propensity, table, episodes),
        "weights": _weights(roles.weight, table, episodes, whole),
        "elapsed": elapsed_of(table, roles, episodes),
        "allowed": None,
        "next_allowed": None,
    }
    if roles.allowed is not None:
        needed = not roles.one_step
        masks = masks_of(roles.allowed, table, labels, episodes, actions, roles.action, needed)
        arrays["allowed"], arrays["next_allowed"] = masks
    columns = _columns(table, roles)
    arrays["states"], arrays["next_states"] = _states(columns, table, roles, episodes)
    n_only_next = table.n_rows - len(episodes.rows)
    origin = Origin(
        table.name,
        table.n_rows,
        episodes.ends,
        n_only_next,
        episodes.episode_ids,
        discount_per=None if roles.discount_per is None else TimeUnit.of(roles.discount_per).text(str(roles.time)),
        steps=steps_of(table, roles, episodes),
        later=later_dates(table, roles, columns, episodes),
        levels=levels_of(columns, table),
    )
    return Read(arrays, columns, labels, origin, episodes.rows)


def _columns(table: Table, roles: Roles) -> tuple[Column, ...]:
    if roles.schema is not None:
        return roles.schema.columns
    others = [()] * len(roles.state) if roles.next_state is None else [(name,) for name in roles.next_state]
    return tuple(
        ordered_column(name, table, other, roles.ordered.get(name))
        or learn(name, table, other, roles.min_category_rows)
        for name, other in zip(roles.state, others, strict=True)
    )


def _states(columns: tuple[Column, ...], table: Table, roles: Roles, episodes: Episodes) -> tuple[Floats, Floats]:
    """Return states and next states (n, d); terminal rows, whose next state is unused, have their own state as next state."""
    ordered = _in_order(encode(columns, table), episodes)
    states = ordered if len(episodes.at) == len(ordered) else np.take(ordered, episodes.at, axis=0)
    if roles.next_state is None:
        return states, np.take(ordered, episodes.then, axis=0)
    next_states = np.take(_in_order(encode(columns, table, roles.next_state), episodes), episodes.at, axis=0)
    unused = episodes.terminated | roles.one_step
    absent = np.flatnonzero(unused & np.isnan(next_states).all(axis=1))
    next_states[absent] = states[absent]
    return states, next_states


def _in_order(states: Floats, episodes: Episodes) -> Floats:
    return (
        states if episodes.order is None else np.take(states, episodes.order, axis=0)
    )  # np.take is twice as fast as indexing


def _rewards(roles: Roles, table: Table, episodes: Episodes) -> Floats:
    name = str(roles.reward if roles.cost is None else roles.cost)
    rewards = numbers(name, table)[episodes.rows]
    rule = "must be a finite number where a decision was taken"
    advice = LATE_ADVICE if _only_at_the_end(rewards, episodes) else advice_on_gaps(roles)
    table.check(np.isfinite(rewards), name, rule, episodes.rows, advice)
    return rewards if roles.cost is None else 0.0 - rewards  # 0 stays 0, and does not become -0


def _only_at_the_end(rewards: Floats, episodes: Episodes) -> bool:
    """Whether the known rewards are those of last rows, and the missing ones are not."""
    known = ~np.isnan(rewards)
    if episodes.episode is None or not known.any() or known.all():
        return False
    last = np.append(episodes.episode[1:] != episodes.episode[:-1], True)
    return bool(last[known].mean() >= LATE and last[~known].mean() <= 1 - LATE)


def _propensities(name: str | None, table: Table, episodes: Episodes) -> Floats | None:
    if name is None:
        return None
    propensity = numbers(name, table)[episodes.rows]
    advice = " It is the probability of the action that was taken."
    table.check((propensity > 0) & (propensity <= 1), name, "must lie in (0, 1]", episodes.rows, advice)
    return propensity


def _weights(name: str | None, table: Table, episodes: Episodes, whole: bool) -> Floats | None:
    if name is None:
        return None
    weight = numbers(name, table)[episodes.rows]
    table.check((weight >= 0) & np.isfinite(weight), name, "must be a finite number, at least 0", episodes.rows)
    if whole and not weight.any():
        raise table.rejection(name, "must be positive in some rows; all are 0")
    return weight
