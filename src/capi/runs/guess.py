"""Guess the roles of a table's columns, from their names, types and distinct values."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from capi._utils.validation import Bools
from capi.data.readers.arrow import header_of
from capi.errors import InvalidInputError
from capi.runs.column_profiles import (
    CLEAR,
    FEW_ROWS,
    FIRST,
    LATER,
    VAGUE,
    Profile,
    distinct_pairs,
    increases,
    is_amount,
    is_clock,
    is_probability,
    last_rows,
    probable,
    profiles_of,
    same,
    same_order,
    unread_form,
)
from capi.runs.table import split_at_commas
from capi.runs.table_faults import (
    about_gaps,
    about_late_rewards,
    about_probabilities,
    about_repeats,
    counted,
    repeats_of,
    why_no_action,
    why_no_reward,
)

MOST_ACTIONS = 50  # a column with more values is not a choice among a few actions
FEW_ACTIONS = 12  # values of a column that may be the action although its name says nothing
RARE = 0.1  # rows of an action, relative to the most frequent one
MOST_STAGES = 20  # rows of episodes that end on schedule
FREE_TEXT = 0.5  # share of distinct values in the rows above which text is not a category
MOST_FAULTS = 0.5  # share of the rows that may break the rule of a role that the name of a column clearly says
MOST_GAPS = 0.25  # share of the rows that may have no episode
NEARLY_ALL = 0.9  # share of distinct values above which rows that repeat one agree by chance
OPTIONAL = ("episode", "time", "terminated", "truncated", "propensity", "weight")


@dataclass(frozen=True)
class GuessedRoles:
    """The roles of a table's columns, as far as they can be guessed.

    Parameters
    ----------
    roles : mapping
        From roles to columns; ``state`` is a list.
    reasons : mapping
        From roles to what the column holds, in a few words.
    unsure : mapping
        From roles to the columns that they could be: the guess, if there is one, comes first.
    left_out : mapping
        From columns without a role to the reason.
    notes : sequence of str
        What the form of the table suggests to check.
    rare : mapping
        From actions that are rare beside the most frequent one to their rows.
    n_rows, n_episodes : int
    unfit : mapping
        From roles to why the column whose name says so cannot have them; such a role has no guess.
    """

    roles: Mapping[str, Any]
    reasons: Mapping[str, str]
    unsure: Mapping[str, tuple[str, ...]]
    left_out: Mapping[str, str]
    notes: Sequence[str]
    rare: Mapping[str, int]
    n_rows: int
    n_episodes: int
    unfit: Mapping[str, str] = field(default_factory=dict)

    @property
    def one_step(self) -> bool:
        """Whether each episode is a single decision."""
        return self.n_episodes == self.n_rows


def guess_roles(table: str | Path, given: Mapping[str, Any] | None = None) -> GuessedRoles:
    """Guess which column of a CSV or Parquet file is the episode, the time, the action, the reward, and which are states.

    Parameters
    ----------
    table : str or Path
    given : mapping, optional
        Roles that are known, as in `RunSettings`; None as a column means that no column has this role.
    """
    known = dict(given or {})
    header = header_of(table)
    if state := known.get("state"):
        known["state"] = split_at_commas([state] if isinstance(state, str) else state, header.names)
    names = [
        name for role, column in known.items() if column for name in ([column] if isinstance(column, str) else column)
    ]
    header.check_names(names)
    columns = profiles_of(table, header.names)
    if not columns or not columns[0].n_rows:
        raise InvalidInputError(f"{table}: the table must have at least one row and one column; it has none.")
    return _Guesser(columns, known).result()


@dataclass
class _Guesser:
    """Assigns roles one by one; each takes a column that no other has."""

    columns: Sequence[Profile]
    given: Mapping[str, Any]
    found: dict[str, Profile] = field(default_factory=dict)
    unsure: dict[str, tuple[str, ...]] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    unfit: dict[str, str] = field(default_factory=dict)

    def result(self) -> GuessedRoles:
        by_name = {column.name: column for column in self.columns}
        for role, name in self.given.items():
            if isinstance(name, str) and role != "state":
                self.found[role] = by_name[name]
        self._guess("action", self._is_action)
        self._guess_reward()
        self._guess("episode", self._is_episode)
        self._despite_faults("episode", self._is_episode_with_gaps)
        self._guess_time()
        for flag in ("terminated", "truncated"):
            self._guess(flag, self._is_last)
        self._guess("propensity", is_probability)
        self._despite_faults("propensity", lambda c: int(probable(c).sum()) >= MOST_FAULTS * c.n_rows)
        self._guess("weight", lambda column: column.is_number)
        self._without_a_name()
        states = list(self.given.get("state") or self._states())
        roles = {role: column.name for role, column in self.found.items()}
        episode = self.found.get("episode")
        n_rows = self.columns[0].n_rows
        return GuessedRoles(
            {
                **{role: roles[role] for role in (*OPTIONAL, "action", "reward", "cost") if role in roles},
                "state": states,
            },
            {role: _shown(role, column, episode) for role, column in self.found.items()},
            self.unsure,
            self.left_out,
            self._notes(),
            self._rare_actions(),
            n_rows,
            n_rows if episode is None else episode.n_distinct,
            self.unfit,
        )

    def _despite_faults(self, role: str, fits: Callable[[Profile], bool]) -> None:
        """Give a role to a column whose name says it although some rows break its rules, of which a note tells; better than no note."""
        if role not in self.found:
            self._guess(role, fits)

    def _guess(self, role: str, fits: Callable[[Profile], bool]) -> None:
        """Give a role to the column whose name says most, among those whose values fit."""
        if role in self.given:
            return
        said = [(column.says(role), column) for column in self._free() if not column.is_row_number]
        fitting = [(score, column) for score, column in said if score > 0 and fits(column)]
        if not fitting:
            return
        fitting.sort(key=lambda pair: -pair[0])
        best = fitting[0][0]
        self.found[role] = fitting[0][1]
        equals = [column for score, column in fitting if score == best]
        alike = role == "time" and all(same_order(self.found["episode"], equals[0], other) for other in equals[1:])
        if best < VAGUE or (len(equals) > 1 and not alike):
            self.unsure[role] = tuple(column.name for _, column in fitting)

    def _guess_reward(self) -> None:
        """Guess the reward or, if no name says reward, the cost; a table with names that say both is unsure unless one of them is clear."""
        if "cost" in self.given:
            return
        self._guess("reward", is_amount)
        if "reward" in self.given or ("reward" in self.found and self.found["reward"].says("reward") >= CLEAR):
            return
        reward = self.found.pop("reward", None)
        unsure = self.unsure.pop("reward", () if reward is None else (reward.name,))
        self._guess("cost", is_amount)
        cost = self.found.get("cost")
        if reward is None or (cost is not None and cost.says("cost") > reward.says("reward")):
            return
        self.found["reward"] = reward
        costs = self.unsure.pop("cost", () if cost is None else (cost.name,))
        self.found.pop("cost", None)
        if costs or len(unsure) > 1 or reward.says("reward") < VAGUE:
            self.unsure["reward"] = (*unsure, *costs)

    def _guess_time(self) -> None:
        """Guess the time by its name or, if no name says time, because it is the one date that orders the rows of each episode."""
        self._guess("time", self._is_time)
        if "time" in self.found or "time" in self.given:
            return
        dates = [column for column in self._free() if column.kind == "date" and self._is_time(column)]
        if dates:
            self.found["time"] = dates[0]
        if len(dates) > 1:
            self.unsure["time"] = tuple(column.name for column in dates)
        self._despite_faults("time", self._is_time_with_faults)

    def _without_a_name(self) -> None:
        """Guess from types and values alone what no name says; all of it is unsure."""
        if (name := self._unfit_action()) is not None:
            self.unfit["action"], self.unsure["action"] = why_no_action(name, MOST_ACTIONS), ()
        elif "action" not in self.found and "action" not in self.given:
            others = ("time", "episode", "terminated", "truncated")
            few = [
                c
                for c in self._free()
                if 2 <= c.n_distinct <= FEW_ACTIONS
                and c.kind in ("text", "boolean", "integer")
                and not any(c.says(role) for role in others)
            ]
            few.sort(key=lambda c: (self._is_constant(c), self._is_last(c), c.kind != "text", c.n_distinct))
            self._maybe("action", few)
        if (reason := self._unfit_reward()) is not None:
            self.unfit["reward"], self.unsure["reward"] = reason, ()
        elif not {"reward", "cost"} & {*self.found, *self.given}:
            amounts = [c for c in reversed(self._free()) if is_amount(c) and c.complete and not c.is_row_number]
            amounts.sort(key=lambda column: column.is_flag)
            self._maybe("reward", amounts)
        if "episode" not in self.found and "episode" not in self.given:
            units = [c for c in self._free() if self._is_episode(c) and not self._repeats_by_chance(c)]
            self._maybe("episode", [c for c in units if self._has_a_time(c)])
            if "episode" in self.found:
                self._guess_time()

    def _unfit_action(self) -> Profile | None:
        """Return the column that cannot be the action although its name says so, unless another one is."""
        if "action" in self.found or "action" in self.given:
            return None
        named = (c for c in self._free() if c.says("action") and not self._is_action(c) and c.kind != "date")
        return next(named, None)

    def _unfit_reward(self) -> str | None:
        """Return why the column whose name says reward or cost cannot be it, unless another one is."""
        if {"reward", "cost"} & {*self.found, *self.given}:
            return None
        named = [c for c in self._free() if max(c.says("reward"), c.says("cost")) >= VAGUE and c.kind != "date"]
        return why_no_reward(named[0]) if named else None

    def _repeats_by_chance(self, column: Profile) -> bool:
        """Whether a column is no unit of rows: text that is a number, or values of which nearly all differ and none has more than two rows."""
        if column.kind == "text" and unread_form(column):
            return True
        rows = np.bincount(column.codes[column.codes >= 0])
        return bool(rows.max() <= 2) and column.n_distinct > NEARLY_ALL * column.n_rows

    def _maybe(self, role: str, columns: Sequence[Profile]) -> None:
        if columns:
            self.found[role] = columns[0]
        if columns or role not in OPTIONAL:
            self.unsure[role] = tuple(column.name for column in columns)

    def _has_a_time(self, unit: Profile) -> bool:
        """Whether some column orders the rows of each unit: by its name, or because it increases while the unit's rows follow each other."""
        others = [c for c in self._free() if c is not unit and c.complete and c.numbers is not None]
        return any(distinct_pairs(unit, c) if c.says("time") else increases(unit, c) for c in others)

    def _is_constant(self, column: Profile) -> bool:
        """Whether a column never changes within an episode."""
        episode = self.found.get("episode")
        if episode is None:
            return False
        pairs = (episode.codes + 1) * (column.n_distinct + 2) + column.codes + 1
        return len(np.unique(pairs)) == len(np.unique(episode.codes))

    def _notes(self) -> list[str]:
        found = (
            *self.unfit.values(),
            *self._about_faults(),
            self._about_rows(),
            self._about_missing(),
            self._about_rare_actions(),
        )
        return [note for note in found if note]

    def _about_faults(self) -> list[str | None]:
        """Return notes on rows that break the rules of a role."""
        episode, time, propensity = (self.found.get(role) for role in ("episode", "time", "propensity"))
        notes = [about_gaps(role, c) for role, c in (("episode", episode), ("time", time)) if c is not None]
        if episode is not None and time is not None:
            notes.append(about_repeats(episode, time, self.columns))
        if propensity is not None:
            notes.append(about_probabilities(propensity, self._decided()))
        return notes

    def _decided(self) -> Bools:
        """Return (n,) which rows must be complete: the last row of an episode may hold its last state alone."""
        episode = self.found.get("episode")
        if episode is None:
            return np.ones(self.columns[0].n_rows, dtype=bool)
        return ~last_rows(episode, self.found.get("time"))

    def _about_rows(self) -> str | None:
        """Return what may be wrong with which rows belong together, and in which order."""
        if self.found.get("episode") is not None:
            if "time" not in self.found and "time" not in self.given:
                return (
                    "no column orders the rows of an episode, so they keep the order of the table. If decisions do not affect later rows, "
                    "set discount = 0."
                )
            if self._has_a_schedule() and not self._ends_on_schedule() and not any(self._about_faults()):
                return (
                    "all episodes have the same number of rows. If they end on schedule, add a column with the number of the row (1, 2, ...) to the "
                    "states, because it says how many decisions remain."
                )
            return None
        if "episode" in self.given:
            return None
        stages = self.unsure.get("action", ())
        if len(stages) > 1 and len({re.sub(r"\d+", "", name) for name in stages}) == 1:
            return (
                f"{' and '.join(stages[:2])} look like decisions that followed each other. Write one row per decision instead of one per episode, "
                "with a column for the episode and one for the time."
            )
        times = [c.name for c in self.columns if (c.kind == "date" or c.says("time")) and is_clock(c)]
        if times:
            return (
                f"{times[0]} increases from row to row, but no column says which rows belong together, so each row counts as a decision of its own. "
                "If decisions affect later rows, name that column as the episode; divide one long series into days or weeks."
            )
        return None

    def _about_missing(self) -> str | None:
        """Return which of action and reward are missing in some decisions."""
        decided = self._decided()
        found = [self.found[role] for role in ("action", "reward", "cost") if role in self.found]
        lacking = {column.name: n for column in found if (n := int((decided & (column.codes < 0)).sum()))}
        listed = " and ".join(f"{name} is missing in {counted(n)}" for name, n in lacking.items())
        if not lacking:
            return None
        reward = self.found.get("reward", self.found.get("cost"))
        late = None if reward is None or list(lacking) != [reward.name] else about_late_rewards(reward, ~decided)
        units = "rows" if self.found.get("episode") is None else "episodes"
        return f"{listed}, which capi fit refuses. {late or f'Fill it in, or leave such {units} out.'}"

    def _about_rare_actions(self) -> str | None:
        rare = self._rare_actions()
        if not rare:
            return None
        listed = ", ".join(f"{_shortened(name)} ({n})" for name, n in list(rare.items())[:6])
        return (
            f"rare actions (rows): {listed}{', ...' if len(rare) > 6 else ''}. The settings restrict the policy to actions that are not rare in similar "
            "states (support). If some actions mean the same, merge them."
        )

    def _rare_actions(self) -> dict[str, int]:
        """Return the rows of the actions that are rare beside the most frequent one."""
        action = self.found.get("action")
        if action is None or action.n_distinct > FIRST:
            return {}
        counts = np.bincount(action.codes[action.codes >= 0], minlength=action.n_distinct)
        rare = np.flatnonzero(counts < RARE * counts.max())
        return {str(action.values[i]): int(counts[i]) for i in rare}

    def _free(self) -> list[Profile]:
        taken = {column.name for column in self.found.values()}
        taken |= set(self.given.get("state") or ())
        return [column for column in self.columns if column.name not in taken]

    def _is_action(self, column: Profile) -> bool:
        few = 2 <= column.n_distinct <= MOST_ACTIONS and 2 * column.n_distinct <= column.n_rows
        return few and column.kind != "date" and not column.says("propensity")

    def _is_episode(self, column: Profile) -> bool:
        return column.complete and column.kind in ("integer", "text") and 2 <= column.n_distinct < column.n_rows

    def _is_episode_with_gaps(self, column: Profile) -> bool:
        """Whether a column can be the episode except for a few rows; whole numbers become real ones where some are missing."""
        known = int((column.codes >= 0).sum())
        x = column.numbers
        whole = column.kind == "real" and x is not None and bool((np.isnan(x) | (x == np.floor(x))).all())
        several = 2 <= column.n_distinct < known and known >= (1 - MOST_GAPS) * column.n_rows
        return several and (whole or column.kind in ("integer", "text"))

    def _is_time(self, column: Profile) -> bool:
        episode = self.found.get("episode")
        return (
            episode is not None
            and column.kind in ("integer", "real", "date")
            and column.complete
            and (distinct_pairs(episode, column) or self._is_time_of_doubled_rows(episode, column))
        )

    def _is_time_of_doubled_rows(self, episode: Profile, column: Profile) -> bool:
        """Whether rows with the same episode and time are copies of each other."""
        if not self._is_time_with_faults(column):
            return False
        repeats = repeats_of(episode, column, self.columns)
        return repeats is not None and repeats.n == repeats.n_equal

    def _is_time_with_faults(self, column: Profile) -> bool:
        """Whether a column can be the time except for rows without one and rows that repeat an earlier one."""
        episode = self.found.get("episode")
        if episode is None or column.kind not in ("integer", "real", "date"):
            return False
        repeats = repeats_of(episode, column, [column])
        n_bad = int((column.codes < 0).sum()) + (0 if repeats is None else repeats.n)
        return n_bad <= MOST_FAULTS * column.n_rows

    def _is_last(self, column: Profile) -> bool:
        """Whether a flag is set only in the last rows of episodes."""
        episode = self.found.get("episode")
        if episode is None or not column.is_flag or column.numbers is None:
            return False
        set_in = np.nan_to_num(column.numbers) > 0
        return not bool((set_in & ~last_rows(episode, self.found.get("time")) & (episode.codes >= 0)).any())

    def _states(self) -> list[str]:
        for column in self._free():
            if reason := self._reason_against(column):
                self.left_out[column.name] = reason
        states = [column.name for column in self._free() if column.name not in self.left_out]
        return [self.found["time"].name, *states] if self._ends_on_schedule() else states

    def _ends_on_schedule(self) -> bool:
        """Whether all episodes have the same few rows, so that the time says how many decisions are still to come."""
        episode, time = self.found.get("episode"), self.found.get("time")
        if episode is None or time is None or time.kind == "date" or not self._has_a_schedule():
            return False
        return time.n_distinct * episode.n_distinct == episode.n_rows

    def _has_a_schedule(self) -> bool:
        """Whether all episodes have the same few rows, and none ends for a reason that is recorded."""
        episode = self.found.get("episode")
        if episode is None or "terminated" in self.found:
            return False
        lengths = np.bincount(episode.codes[episode.codes >= 0])
        return bool(2 <= lengths.min() == lengths.max() <= MOST_STAGES)

    def _reason_against(self, column: Profile) -> str | None:
        """Return why a column should not be a state, if so."""
        if column.n_distinct < 2:
            return "it has one value" if column.n_distinct else "it is empty"
        if column.kind == "other":
            return "its type is not a number, a date or text"
        if column.is_row_number or (column.says("episode") and column.n_distinct == column.n_rows):
            return "it numbers the rows"
        if column.words and column.words[0] in LATER:
            return "it is known only after the decision"
        if column.kind == "date":
            return "it is a date: add an age or a duration instead"
        if column.kind == "text" and (form := unread_form(column)):
            return form
        if column.kind == "text" and column.n_rows > FEW_ROWS and column.n_distinct > FREE_TEXT * column.n_rows:
            return "it is free text, different in most rows"
        if column.says("episode") >= CLEAR or (column.says("episode") and column.words[-1] == "id"):
            return "it is an identifier"
        if max(column.says("reward"), column.says("cost")) >= VAGUE and column.is_number:
            return "it may be an outcome, known only after the decision"
        if (column.is_flag or column.n_distinct == 2) and column.mentions("terminated", "truncated"):
            return "it may be known only after the decision"
        if column.says("propensity") or column.says("weight"):
            return "it describes how the data were collected"
        for role in ("action", "reward", "cost"):
            if role in self.found and same(column, self.found[role]):
                return f"it says the same as the {role}"
        return None


def _shortened(text: str, most: int = 40) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def _shown(role: str, column: Profile, episode: Profile | None) -> str:
    """Return what a column holds, in a few words."""
    if role == "episode":
        lengths = np.bincount(column.codes[column.codes >= 0])
        rows = f"{lengths.min()}" if lengths.min() == lengths.max() else f"{lengths.min()} to {lengths.max()}"
        return f"{column.n_distinct} values, {rows} rows each"
    if role == "action":
        counts = np.bincount(column.codes[column.codes >= 0], minlength=column.n_distinct)
        order = [i for i in np.argsort(-counts, kind="stable")[:6] if i < FIRST]
        listed = ", ".join(f"{_shortened(str(column.values[i]))} {counts[i]}" for i in order)
        return listed + (f", and {column.n_distinct - 6} more" if column.n_distinct > 6 else "")
    if role in ("terminated", "truncated") and column.numbers is not None and episode is not None:
        return f"set at the end of {int(np.nansum(column.numbers))} of {episode.n_distinct} episodes"
    if column.numbers is not None and column.kind != "date" and column.n_distinct:
        low, high = np.nanmin(column.numbers), np.nanmax(column.numbers)
        return f"{low:.4g} to {high:.4g}"
    return f"{column.n_distinct} values"
