"""The record of the table that a batch was read from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from numpy.typing import NDArray

Ends: TypeAlias = Literal["assumed", "terminated", "truncated", "both"]


@dataclass(frozen=True)
class TimeSteps:
    """The times from one row of an episode to the next.

    Parameters
    ----------
    column : str
        The time column.
    n : int
        Number of steps.
    n_unequal : int
        Number of steps that differ from the typical one by more than a fifth.
    least, typical, greatest : float
        The smallest, the median and the largest step.
    in_seconds : bool
        Whether the steps are in seconds, because the column holds dates; otherwise they are in the column's own unit.
    """

    column: str
    n: int
    n_unequal: int
    least: float
    typical: float
    greatest: float
    in_seconds: bool = False


@dataclass(frozen=True)
class CategoryLevels:
    """The distinct values of a column with many categories, as they are in the table.

    Parameters
    ----------
    n_rows : int
        Rows in which the column is known.
    n_levels, n_rare : int
        Number of distinct values, and how many of them have fewer than five rows.
    in_words : bool
        Whether most of the values consist of three words or more.
    """

    n_rows: int
    n_levels: int
    n_rare: int
    in_words: bool


@dataclass(frozen=True, eq=False)
class Origin:
    """Where a batch was read from, and how the ends of its episodes were found; subsets of the batch keep it unchanged.

    Parameters
    ----------
    name : str
        The file, or "the table".
    n_rows : int
        Number of rows of the table.
    ends : "assumed", "terminated", "truncated" or "both"
        The flag columns that there were. "assumed": none, so that the last row of an episode counts as terminated.
    n_only_next : int
        Rows that serve only as next state: the last rows of truncated episodes.
    episode_ids : array of shape (E,), optional
        The table's ids of episodes 0, 1, ...; None if the batch numbers episodes as the table does.
    discount_per : str, optional
        The time that the discount refers to, such as "7 days"; None if every step counts the same.
    steps : TimeSteps, optional
        The steps of the time column; None without one, or if only the row's own reward counts.
    later : mapping
        For each date column with dates after the row's time: the number of such rows, and of rows in which it is known.
    levels : mapping
        The levels of each column with many categories.

    Examples
    --------
    >>> Origin("trial.csv", 100, "assumed").ends
    'assumed'
    """

    name: str
    n_rows: int
    ends: Ends
    n_only_next: int = 0
    episode_ids: NDArray[Any] | None = field(default=None, repr=False)
    discount_per: str | None = None
    steps: TimeSteps | None = None
    later: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    levels: Mapping[str, CategoryLevels] = field(default_factory=dict, repr=False)
