"""What a batch remembers of the table that it was read from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from numpy.typing import NDArray

Ends: TypeAlias = Literal["assumed", "terminated", "truncated", "both"]


@dataclass(frozen=True, eq=False)
class Origin:
    """Where a batch was read from, and how the ends of its episodes were found; a part of the batch keeps it as it is.

    Parameters
    ----------
    name : str
        The file, or "the table".
    n_rows : int
        Rows of the table.
    ends : "assumed", "terminated", "truncated" or "both"
        Which flag columns there were. Assumed: none, so that the last row of an episode counts as terminated.
    n_only_next : int
        Rows that serve only as next state: the last ones of truncated episodes.
    episode_ids : array of shape (E,), optional
        What the table calls episode 0, 1, ...; None if the numbers of the batch are those of the table.

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
