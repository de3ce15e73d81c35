"""The description of a batch, as numbers and as text."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from capi.data.columns import Column
from capi.data.elapsed import discount_unit
from capi.data.summary.coverage import SimilarStates, covered_shares, effective_rows
from capi.data.summary.tallies import Tally, tally
from capi.data.summary.warnings import table_caveats
from capi.errors import Caveat

if TYPE_CHECKING:
    from capi.data.transitions import Transitions

MOST_SHOWN = 20  # actions, and columns with missing values, that the text lists
ASSUMED = {
    "assumed": "the table has no flag column: the last row of each episode was taken as the end of the process",
    "truncated": "no column flags terminated rows: episodes that were not truncated were taken to end with the process",
}
READ_AS = {"number": "number", "boolean": "yes/no", "date": "date", "one-hot": "category", "codes": "category"}


@dataclass(frozen=True)
class Coverage:
    """How often an action was taken, and how evenly over the states.

    Parameters
    ----------
    action : label
    rows : int
        Number of rows in which it was taken.
    share : float
        The same as a share of all rows.
    effective : float
        Kish's effective sample size of its rows in the leaves of a shallow tree that predicts the action, each row weighted by
        one over the action's share in the leaf. It equals ``rows`` for an action taken evenly everywhere, and is small for
        one that was rarely taken in some of the states.
    covered : float
        The share of all rows in leaves in which it was taken at all.
    """

    action: Any
    rows: int
    share: float
    effective: float
    covered: float


@dataclass(frozen=True)
class ReadColumn:
    """How a state column of the table was read.

    Parameters
    ----------
    name : str
    read_as : "number", "yes/no", "date", "category" or "ordered category"
    levels : int or None
        Number of categories; None for columns that are not categories.
    n_features : int
        Number of features that encode it: one per level, or one for everything else.
    missing : int
        Number of rows in which it is missing.
    """

    name: str
    read_as: str
    levels: int | None
    n_features: int
    missing: int

    def __str__(self) -> str:
        if self.levels is None:
            return self.read_as
        as_codes = ", as codes" if self.n_features < self.levels and self.read_as == "category" else ""
        return f"{self.read_as}, {self.levels:,} level{'' if self.levels == 1 else 's'}{as_codes}"


@dataclass(frozen=True)
class Description:
    """The description of a batch; print it, or use its fields.

    Parameters
    ----------
    source : str
        The file or table that it was read from, or "arrays".
    n_rows, n_only_next : int
        Number of decisions, and of rows of the table that served only as next state.
    n_features : int
    n_episodes : int or None
        None without episodes: each row counts as its own episode.
    lengths : dict
        Smallest, median and largest length of the episodes.
    n_terminated, n_truncated : int
        Number of episodes that end in each way.
    assumed : str
        The assumption made about the ends; empty if there was none.
    rewards : dict
        Smallest, mean and largest reward, and the standard deviation.
    missing : dict
        Number of rows with a missing value, for each column that has some.
    actions : tuple of Coverage
    warnings : tuple of Caveat
        Possible problems.
    elapsed : dict or None
        Smallest, median and largest time to the next state, in the unit of time that the discount refers to, and that unit; None if
        every step counts the same.
    columns : tuple of ReadColumn
        How each state column was read.
    sample_rows : int or None
        Of a batch in parts: the number of rows of the sample of whole episodes in which problems are looked for and by which the groups of
        similar states for ``effective`` and ``covered`` are found; all other numbers are those of all rows. None if it has all rows.
    """

    source: str
    n_rows: int
    n_only_next: int
    n_features: int
    n_episodes: int | None
    lengths: dict[str, float]
    n_terminated: int
    n_truncated: int
    assumed: str
    rewards: dict[str, float]
    missing: dict[str, int]
    actions: tuple[Coverage, ...]
    warnings: tuple[Caveat, ...]
    elapsed: dict[str, Any] | None = None
    columns: tuple[ReadColumn, ...] = ()
    sample_rows: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return all fields as plain JSON values; labels of other types become strings, and optional fields are left out if None."""
        plain = asdict(self)
        for name in ("elapsed", "sample_rows"):
            if plain[name] is None:
                del plain[name]
        for action in plain["actions"]:
            if not isinstance(action["action"], str | int | float | bool | None):
                action["action"] = str(action["action"])
        return {**plain, **{name: list(plain[name]) for name in ("actions", "warnings", "columns")}}

    def __str__(self) -> str:
        sizes = ((self.n_rows, "decision"), (self.n_features, "feature"), (len(self.actions), "action"))
        lines = [f"{self.source}: " + ", ".join(f"{n} {noun}{'' if n == 1 else 's'}" for n, noun in sizes)]
        lines += [f"  {name:<10} {text}" for name, text in self._facts()]
        lines += self._columns_as_lines()
        lines += ["", f"  {'action':<24}{'rows':>10}{'share':>9}{'effective':>11}{'covered':>10}"]
        for action in self.actions[:MOST_SHOWN]:
            name = str(action.action)[:23]
            shares = f"{action.share:>8.1%}{action.effective:>11.4g}{action.covered:>9.1%}".replace("%", " %")
            lines.append(f"  {name:<24}{action.rows:>10}{shares}")
        if len(self.actions) > MOST_SHOWN:
            lines.append(f"  ... ({len(self.actions)} in all)")
        if self.warnings:
            lines += ["", "  warnings", *(f"  - {warning}" for warning in self.warnings)]
        if self.sample_rows is not None:
            lines += [
                "",
                f"  all numbers are those of all {self.n_rows:,} rows; warnings, and the groups of similar states behind effective and "
                f"covered, rest on a sample of {self.sample_rows:,} rows",
            ]
        return "\n".join(lines)

    def _facts(self) -> list[tuple[str, str]]:
        rewards = "{least:.4g} to {greatest:.4g}, mean {mean:.4g}, standard deviation {deviation:.4g}".format(
            **self.rewards
        )
        ends = f"{self.n_terminated} terminated, {self.n_truncated} truncated"
        facts = [("episodes", self._episodes()), ("ends", ends)]
        if self.assumed:
            facts.append(("assumed", self.assumed))
        if self.n_only_next:
            facts.append(
                ("left out", f"{self.n_only_next} rows of the table, which contain only the last state of an episode")
            )
        if self.elapsed:
            facts.append(
                ("steps", "{least:.4g} to {greatest:.4g} times {unit}, median {median:.4g}".format(**self.elapsed))
            )
        facts.append(("rewards", rewards))
        if self.missing:
            shown = [f"{name} {count}" for name, count in list(self.missing.items())[:MOST_SHOWN]]
            more = ", ..." if len(self.missing) > MOST_SHOWN else ""
            facts.append(("missing", ", ".join(shown) + more))
        return facts

    def _columns_as_lines(self) -> list[str]:
        lines = ["", f"  {'column':<24}{'missing':>10}  read as"]
        lines += [f"  {column.name[:23]:<24}{column.missing:>10}  {column}" for column in self.columns[:MOST_SHOWN]]
        if len(self.columns) > MOST_SHOWN:
            lines.append(f"  ... ({len(self.columns)} in all)")
        return lines if self.columns else []

    def _episodes(self) -> str:
        if self.n_episodes is None:
            return "not given: each row counts as its own episode"
        least, median, greatest = (self.lengths[key] for key in ("least", "median", "greatest"))
        return f"{self.n_episodes}, of {least:g} to {greatest:g} decisions, median {median:g}"


def describe(batch: Transitions) -> Description:
    """Return a summary of a batch: its size, how well each action covers the states, and possible problems.

    Parameters
    ----------
    batch : Transitions

    Examples
    --------
    >>> from capi import Transitions
    >>> table = {"dose": [0, 1, 1, 0], "age": [30, 40, 50, 60], "cured": [0, 1, 1, 0]}
    >>> batch = Transitions.from_frame(table, state="age", action="dose", reward="cured", action_labels=[0, 1, 2], discount=0)
    >>> print(describe(batch))
    the table: 4 decisions, 1 feature, 3 actions
      episodes   not given: each row counts as its own episode
      ends       4 terminated, 0 truncated
    ...
    """
    groups = SimilarStates.of(batch)
    return described(tally(batch, groups), batch)


def described(found: Tally, sample: Transitions, name: str | None = None) -> Description:
    """Return the description of a batch from the sums over its rows; possible problems are looked for in the rows of ``sample``.

    ``name`` is that of the table; by default that of the sample's.
    """
    schema, in_groups = sample.schema, found.in_groups[found.in_groups.sum(axis=1) > 0]
    effective = effective_rows(in_groups)
    per_action = zip(schema.action_labels, found.actions, effective, covered_shares(in_groups), strict=True)
    n, missing = found.n_rows, dict(zip((column.name for column in schema.columns), found.missing, strict=True))
    source = "arrays" if sample.origin is None else sample.origin.name
    return Description(
        source=source if name is None else name,
        n_rows=n,
        n_only_next=found.n_only_next,
        n_features=sample.n_features,
        n_episodes=None if sample.episodes is None else found.n_episodes,
        lengths=found.lengths.spread(),
        n_terminated=found.n_terminated,
        n_truncated=found.n_episodes - found.n_terminated,
        assumed="" if sample.episodes is None else ASSUMED.get(found.ends, ""),
        rewards=found.rewards.spread(),
        missing={column: int(count) for column, count in missing.items() if count},
        actions=tuple(Coverage(a, int(k), float(k) / n, float(e), float(c)) for a, k, e, c in per_action),
        warnings=tuple(table_caveats(sample, found.actions, effective, found.later)),
        elapsed=_elapsed(found, sample),
        columns=tuple(_read(column, int(missing[column.name])) for column in schema.columns),
        sample_rows=None if len(sample) == n else len(sample),
    )


def _elapsed(found: Tally, sample: Transitions) -> dict[str, Any] | None:
    """Return the spread of the steps that something follows, and the unit of time of the discount."""
    if found.steps is None:
        return None
    spread = found.steps.spread() if len(found.steps.values) else {"least": 1.0, "median": 1.0, "greatest": 1.0}
    return {**spread, "unit": discount_unit(sample)}


def _read(column: Column, missing: int) -> ReadColumn:
    read_as = "ordered category" if column.is_ordered else READ_AS[column.kind]
    return ReadColumn(column.name, read_as, len(column.values) or None, len(column.feature_names), missing)
