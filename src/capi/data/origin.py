"""The record of the table that a batch was read from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from numpy.typing import NDArray

Ends: TypeAlias = Literal["assumed", "terminated", "truncated", "both"]


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
