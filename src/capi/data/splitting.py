"""Cross-validation over whole episodes, for scikit-learn's searches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from capi._utils.randomness import RandomState, shuffled_folds
from capi._utils.validation import Ints, as_int
from capi.data.transitions import Transitions
from capi.errors import InvalidInputError


@dataclass(frozen=True)
class EpisodeKFold:
    """K folds that never cut an episode in two: rows within an episode are dependent, so a fold of rows would flatter.

    A splitter of scikit-learn, for ``GridSearchCV(learner, grid, cv=EpisodeKFold(5)).fit(batch)``. Without episode numbers every
    row is an episode. For a table instead of a batch use scikit-learn's ``GroupKFold`` with the episode column as groups.

    Parameters
    ----------
    n_splits : int
        Number of folds, at least 2 and at most the number of episodes.
    shuffle : bool
        Draw the episodes of each fold at random. By default each fold is a block of consecutive episodes.
    random_state : int, Generator or None
        With ``shuffle``: the same int gives the same folds, those of `Transitions.folds`.

    Examples
    --------
    >>> from capi import Transitions
    >>> batch = Transitions([[0.0]] * 5, [0, 1, 0, 1, 0], [0.0] * 5, [[0.0]] * 5, [False] * 5, episodes=[3, 3, 4, 5, 5])
    >>> for train, test in EpisodeKFold(3).split(batch):
    ...     print(train, test)
    [2 3 4] [0 1]
    [0 1 3 4] [2]
    [0 1 2] [3 4]
    """

    n_splits: int = 5
    shuffle: bool = False
    random_state: RandomState = None

    def __post_init__(self) -> None:
        as_int(self.n_splits, "n_splits", minimum=2)
        if not isinstance(self.shuffle, bool):
            raise InvalidInputError(f"shuffle must be True or False; got {self.shuffle!r}.")
        if self.random_state is not None and not self.shuffle:
            raise InvalidInputError(
                "random_state has no effect without shuffle. Pass shuffle=True, or leave random_state out."
            )

    def split(self, X: Transitions, y: Any = None, groups: Any = None) -> Iterator[tuple[Ints, Ints]]:  # noqa: ARG002
        """Yield the row numbers outside and inside each fold.

        Parameters
        ----------
        X : Transitions
        y, groups : optional
            Ignored: a batch knows its episodes.
        """
        if not isinstance(X, Transitions):
            raise InvalidInputError(
                f"X must be Transitions, which know their episodes; got a {type(X).__name__}. Make a batch of a table with "
                "Transitions.from_frame, or split the table with sklearn.model_selection.GroupKFold and groups=."
            )
        n_episodes = X.n_episodes
        if self.n_splits > n_episodes:
            raise InvalidInputError(
                f"n_splits must be at most the number of episodes, {n_episodes}; got {self.n_splits}."
            )
        fold_of_row = np.repeat(self._fold_of_episode(n_episodes), X.episode_lengths)  # (n,)
        for k in range(self.n_splits):
            yield np.flatnonzero(fold_of_row != k), np.flatnonzero(fold_of_row == k)

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None) -> int:  # noqa: ARG002
        """Return the number of folds; the arguments are ignored."""
        return self.n_splits

    def _fold_of_episode(self, n_episodes: int) -> Ints:
        if self.shuffle:
            return shuffled_folds(n_episodes, self.n_splits, self.random_state)
        return np.arange(n_episodes) * self.n_splits // n_episodes
