"""Borders between the pieces of a table, such that no episode is divided.

Where an episode crosses a border, the border moves; where one comes back later, its pieces are put together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from capi.data.readers.looking import Found
from capi.errors import InvalidInputError

MOST_TOGETHER = 8  # pieces that may become one because an episode is in all of them


@dataclass
class _Borders:
    """The pieces while their borders move."""

    pieces: list[Any]
    found: list[Found]
    notes: list[str] = field(default_factory=list)

    def moved(self) -> None:
        """Give the rows of an episode that crosses a border to the piece in which it begins."""
        kept: list[tuple[Any, Found]] = []
        for piece, found in zip(self.pieces, self.found, strict=True):
            if kept and found.n_rows and kept[-1][1].last == found.first:
                before, earlier = kept[-1]
                head, piece = piece.divided(found.head, found.n_rows)
                kept[-1] = (before.joined(head), replace(earlier, n_rows=earlier.n_rows + found.head))
                if found.head == found.n_rows:
                    continue
                rest = found.episodes if found.returns else found.episodes[found.episodes != found.first]
                found = replace(
                    found,
                    n_rows=found.n_rows - found.head,
                    episodes=rest,
                    first=None,  # of which nothing before is the beginning
                    head=0,
                    returns=False,
                )
            kept.append((piece, found))
        self.pieces, self.found = [piece for piece, _ in kept], [found for _, found in kept]

    def joined(self) -> None:
        """Put pieces together that share an episode."""
        owner = list(range(len(self.pieces)))

        def root(i: int) -> int:
            while owner[i] != i:
                i = owner[i]
            return i

        ids = np.concatenate([found.episodes for found in self.found])
        of_piece = np.repeat(np.arange(len(self.found)), [len(found.episodes) for found in self.found])
        order = np.argsort(ids, kind="stable")
        again = np.flatnonzero(ids[order][1:] == ids[order][:-1])
        for k in again.tolist():
            a, b = root(int(of_piece[order[k]])), root(int(of_piece[order[k + 1]]))
            owner[max(a, b)] = min(a, b)
        groups: dict[int, list[int]] = {}
        for i in range(len(owner)):
            groups.setdefault(root(i), []).append(i)
        largest = max(groups.values(), key=len)
        if len(largest) > MOST_TOGETHER:
            raise InvalidInputError(
                f"{self.pieces[largest[0]].name}: episodes must lie in few partitions; here some share {len(largest)} of them, which "
                "would have to be read as one. Sort the table by episode, or write one file per group of episodes."
            )
        joined = sum(len(group) > 1 for group in groups.values())
        if joined:
            self.notes.append(
                f"{joined} partitions were put together from up to {len(largest)}, because episodes come back in them: reading "
                "them takes as many times the memory."
            )
        self._put_together(list(groups.values()))

    def filled(self) -> None:
        """Put pieces without a decision, because all of their episodes are cut off in their only row, together with others."""
        groups: list[list[int]] = []
        for i, found in enumerate(self.found):
            lacks = found.n_rows <= found.n_cut
            before = [self.found[j] for j in groups[-1]] if groups else []
            wanted = sum(one.n_rows for one in before) <= sum(one.n_cut for one in before)
            if groups and (lacks or wanted) and len(groups[-1]) < MOST_TOGETHER:
                groups[-1].append(i)
            else:
                groups.append([i])
        self._put_together(groups)

    def _put_together(self, groups: Sequence[Sequence[int]]) -> None:
        pieces, found = [], []
        for group in groups:
            piece = self.pieces[group[0]]
            for i in group[1:]:
                piece = piece.joined(self.pieces[i])
            pieces.append(piece)
            of_group = [self.found[i] for i in group]
            found.append(
                replace(
                    of_group[0], n_rows=sum(one.n_rows for one in of_group), n_cut=sum(one.n_cut for one in of_group)
                )
            )
        self.pieces, self.found = pieces, found


def with_whole_episodes(
    pieces: Sequence[Any], found: Sequence[Found], episodes: bool
) -> tuple[list[Any], list[int], list[str]]:
    """Return pieces with the same rows such that no episode lies in two of them, their numbers of rows, and remarks on what that costs."""
    borders = _Borders(list(pieces), list(found))
    if episodes:
        borders.moved()
        borders.joined()
    borders.filled()
    return borders.pieces, [one.n_rows for one in borders.found], borders.notes
