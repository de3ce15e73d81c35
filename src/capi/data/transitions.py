"""The batch: logged decisions, checked once and immutable."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from capi._utils import registry
from capi._utils.randomness import RandomState, as_generator, shuffled_folds
from capi._utils.renamed import renamed
from capi._utils.validation import (
    Bools,
    Floats,
    Ints,
    as_array,
    as_flags,
    as_floats,
    as_int,
    as_integers,
    as_states,
    as_weights,
    check_actions,
    check_rows,
    check_shape,
    is_real,
    sequence_of_names,
)
from capi.data._optional_columns import (
    check_distinct_episodes,
    checked_allowed,
    checked_elapsed,
    checked_episodes,
    checked_next_allowed,
    checked_propensities,
    run_starts,
)
from capi.data.elapsed import discount_unit
from capi.data.learned_episodes import Digests, episode_digests
from capi.data.origin import Origin
from capi.data.readers.constructors import Readers
from capi.data.schema import Schema
from capi.data.summary.description import Description, describe
from capi.errors import InvalidInputError

if TYPE_CHECKING:
    from capi.data.readers.read import Read

MOST_ACTIONS = 100_000  # more are probably ids, not actions


@renamed(episode="episodes", propensity="propensities", weight="weights")
@dataclass(frozen=True, init=False, eq=False, repr=False)
class Transitions(Readers):
    """A fixed batch of logged decisions (x, a, r, x').

    All arrays are read-only copies of the arguments. Rows of an episode are contiguous and in the
    order of time. Missing values in states are NaN; all other values must be finite.

    Parameters
    ----------
    states : array of shape (n, d)
        The state in which each decision was taken. A finite state is one column with its index from 0.
    actions : array of shape (n,)
        The action taken, in ``0 .. n_actions - 1``.
    rewards : array of shape (n,)
        The reward of the decision.
    next_states : array of shape (n, d)
        The state that followed the decision.
    terminated : array of shape (n,)
        True where the process ended with this row, so that nothing follows. Reaching a time limit is
        not an end: such a row is False, and its next state is used for bootstrapping.
    n_actions : int, optional
        Number of actions. By default the number of ``action_labels``, otherwise the largest action + 1.
    allowed, next_allowed : array of shape (n, A), optional
        The actions available in the state and in the next state.
    episodes : array of shape (n,), optional
        Whole numbers that identify the episode of each row. Without them each row counts as its own episode.
    propensities : array of shape (n,), optional
        Probability with which the behaviour policy took the logged action.
    weights : array of shape (n,), optional
        Weight of each row.
    elapsed : array of shape (n,), optional
        Time to the next state, in the unit of time that the discount refers to: the discount of the row is ``discount ** elapsed``.
        Without it every step lasts one unit. Ignored where the process terminated.
    feature_names, action_labels : sequence, optional
        Names and labels of the table, used wherever a policy is printed or predicts.

    Examples
    --------
    >>> batch = Transitions(
    ...     states=[[0.0], [1.0], [0.0]], actions=[1, 0, 1], rewards=[0.0, 1.0, 0.0],
    ...     next_states=[[1.0], [1.0], [1.0]], terminated=[False, True, False],
    ...     episodes=[7, 7, 8], action_labels=["stay", "go"],
    ... )
    >>> batch
    Transitions: 3 rows, 1 feature, 2 actions
      features    x0
      actions     stay 1 (33.3 %), go 2 (66.7 %)
      episodes    2, lengths 1 to 2, median 1.5
      rewards     0 to 1, mean 0.3333
      terminated  1 row (33.3 %)
    >>> train, test = batch.split(0.5, random_state=0)
    >>> len(train) + len(test)
    3
    """

    states: Floats  # (n, d)
    actions: Ints  # (n,)
    rewards: Floats  # (n,)
    next_states: Floats  # (n, d)
    terminated: Bools  # (n,)
    n_actions: int
    allowed: Bools | None  # (n, A)
    next_allowed: Bools | None  # (n, A)
    episodes: Ints | None  # (n,)
    propensities: Floats | None  # (n,)
    weights: Floats | None  # (n,)
    schema: Schema
    origin: Origin | None = field(compare=False)  # the table that the batch was read from
    elapsed: Floats | None = None  # (n,); the default is for batches pickled without it

    def __init__(
        self,
        states: ArrayLike,
        actions: ArrayLike,
        rewards: ArrayLike,
        next_states: ArrayLike,
        terminated: ArrayLike,
        *,
        n_actions: int | None = None,
        allowed: ArrayLike | None = None,
        next_allowed: ArrayLike | None = None,
        episodes: ArrayLike | None = None,
        propensities: ArrayLike | None = None,
        weights: ArrayLike | None = None,
        elapsed: ArrayLike | None = None,
        feature_names: Sequence[str] | None = None,
        action_labels: Sequence[Any] | None = None,
    ) -> None:
        x = as_states(states)
        n, d = x.shape
        a = as_integers(actions, "actions")
        check_shape(a, "actions", (n,), "states")
        r = as_floats(rewards, "rewards", ndim=1)
        check_shape(r, "rewards", (n,), "states")
        following = as_states(next_states, "next_states", n_features=d)
        check_shape(following, "next_states", (n, d), "states")
        ends = as_flags(terminated, "terminated", shape=(n,), rows_of="states")
        if n_actions is None:
            labels = None if action_labels is None else sequence_of_names(action_labels, "action_labels")
            n_actions = max(int(a.max()), 0) + 1 if labels is None else len(labels)
        n_actions = as_int(n_actions, "n_actions", minimum=1)
        check_actions(a, n_actions)
        if n_actions > MOST_ACTIONS:
            raise InvalidInputError(
                f"actions must be coded 0, 1, ...: {n_actions} actions are more than {MOST_ACTIONS}, "
                f"actions[{a.argmax()}] = {a.max()}. Number the distinct actions from 0 and pass them as action_labels."
            )
        values = {
            "states": x,
            "actions": a,
            "rewards": r,
            "next_states": following,
            "terminated": ends,
            "n_actions": n_actions,
            "allowed": checked_allowed(allowed, a, n_actions),
            "next_allowed": checked_next_allowed(next_allowed, ends, n_actions),
            "episodes": checked_episodes(episodes, ends),
            "propensities": checked_propensities(propensities, n),
            "weights": as_weights(weights, "weights", n, "states"),
            "elapsed": checked_elapsed(elapsed, ends),
            "schema": Schema.of(d, n_actions, feature_names, action_labels),
            "origin": None,
        }
        self.__setstate__({name: np.array(v) if isinstance(v, np.ndarray) else v for name, v in values.items()})

    def __setstate__(self, values: dict[str, Any]) -> None:
        """Set ``values`` as they are, and make their arrays read-only; copying and unpickling use this, too."""
        for name, value in values.items():
            if isinstance(value, np.ndarray):
                value = (
                    np.array(value, order="C") if value.base is not None else value
                )  # its owner could still be changed
                value.flags.writeable = False
            object.__setattr__(self, name, value)

    def __len__(self) -> int:
        return len(self.actions)

    def __getitem__(self, rows: Any) -> Transitions:
        """Return the chosen rows as a new batch, if they are whole episodes; `subset` takes any rows.

        Parameters
        ----------
        rows : slice, array of shape (n,) of bool, or of row numbers
            Or such rows and an ellipsis, as scikit-learn indexes what has a shape.
        """
        if isinstance(rows, tuple) and len(rows) == 2 and rows[1] is ...:
            rows = rows[0]
        chosen = self._row_numbers(np.arange(len(self))[rows] if isinstance(rows, slice) else rows)
        self._check_whole_episodes(chosen)
        return self.subset(chosen)

    __iter__ = None  # with len and indexing Python would otherwise take a batch for a sequence of its rows

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        """Return the batch as one object: it is not an array of its rows."""
        single = np.empty((), dtype=object)
        single[()] = self
        return single

    def __eq__(self, other: object) -> bool:
        """Whether all arrays, the number of actions and the schema are equal (NaN equals NaN)."""
        if not isinstance(other, Transitions):
            return NotImplemented
        compared = [part.name for part in fields(self) if part.compare]
        return all(_same(getattr(self, name), getattr(other, name)) for name in compared)

    __hash__ = None  # type: ignore[assignment]

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and state columns, (n, d)."""
        return len(self), self.n_features

    @property
    def n_features(self) -> int:
        """Number of state columns, d."""
        return self.states.shape[1]

    @property
    def n_episodes(self) -> int:
        """Number of episodes; without episode numbers each row is one."""
        return len(self) if self.episodes is None else len(run_starts(self.episodes))

    @property
    def episode_lengths(self) -> Ints:
        """Number of rows of each episode, in order (E,)."""
        if self.episodes is None:
            return np.ones(len(self), dtype=np.int64)
        return np.diff(run_starts(self.episodes), append=len(self))

    @property
    def episode_starts(self) -> Ints:
        """First row of each episode (E,)."""
        return np.arange(len(self)) if self.episodes is None else run_starts(self.episodes)

    def episode_digests(self) -> Digests:
        """Return a digest of the content of each episode (E,), by which it can be recognised: anyone can try rows, so keep it private."""
        return episode_digests(self.states, self.actions, self.rewards, self.episode_starts)

    def next_masks(self) -> Bools | None:
        """Return the actions that the next states allow (n, A); after the end nothing is decided, so all are allowed."""
        if self.next_allowed is None:
            if self.allowed is not None:
                raise InvalidInputError(
                    "next_allowed must be given with allowed: the policy also decides in the next states."
                )
            return None
        return self.next_allowed | self.terminated[:, None]

    def check_actions_taken(self, advice: str = "") -> None:
        """Refuse a batch in which an action is never taken (or only in rows without weight): its value cannot be estimated."""
        counts = np.bincount(self.actions, weights=self.weights, minlength=self.n_actions)
        if not counts.all():
            a = int(np.argmin(counts))
            raise InvalidInputError(
                f"each action must be taken in the batch; action {a} ({self.schema.action_labels[a]!r}) never is, so its "
                f"value cannot be estimated. Leave it out{advice or '.'}"
            )

    def subset(self, rows: ArrayLike) -> Transitions:
        """Return the chosen rows as a new batch.

        Parameters
        ----------
        rows : array of shape (n,) of bool, or of row numbers
            In a batch with episodes the numbers must increase, to keep the order of time.
        """
        chosen = self._row_numbers(rows)
        if self.episodes is not None:
            in_order = np.append(True, chosen[1:] > chosen[:-1])
            check_rows(
                in_order, chosen, "rows", "must increase in a batch with episodes", " Sort them and drop duplicates."
            )
        return self._with({name: getattr(self, name)[chosen] for name in self._columns()})

    def split(self, share: float = 0.7, *, random_state: RandomState = None) -> tuple[Transitions, Transitions]:
        """Return two batches that share no episode: about ``share`` of the episodes, and the rest.

        Episodes are drawn at random and keep their order. Without episode numbers rows are drawn.
        """
        if not is_real(share) or not 0 < share < 1:
            raise InvalidInputError(f"share must lie strictly between 0 and 1; got {share!r}.")
        n_episodes = self.n_episodes
        if n_episodes < 2:
            raise InvalidInputError(
                "split needs at least two episodes; this batch has one. Split it by rows with subset."
            )
        n_first = min(max(round(share * n_episodes), 1), n_episodes - 1)
        chosen = np.zeros(n_episodes, dtype=bool)
        chosen[as_generator(random_state).permutation(n_episodes)[:n_first]] = True
        rows = np.repeat(chosen, self.episode_lengths)  # (n,)
        return self.subset(rows), self.subset(~rows)

    def folds(self, n_folds: int = 5, *, random_state: RandomState = None) -> Iterator[tuple[Transitions, Transitions]]:
        """Yield, for each of ``n_folds`` folds, the batch without the fold and the fold itself; they share no episode.

        Parameters
        ----------
        n_folds : int
            At least 2, and at most the number of episodes. Each episode is in exactly one fold.
        random_state : int, Generator or None
            The same int gives the same folds. Without episode numbers rows are drawn.

        Examples
        --------
        >>> batch = Transitions([[0.0]] * 4, [0, 1, 0, 1], [0.0] * 4, [[0.0]] * 4, [True] * 4)
        >>> [(len(rest), len(fold)) for rest, fold in batch.folds(2, random_state=0)]
        [(2, 2), (2, 2)]
        """
        n_episodes = self.n_episodes
        if as_int(n_folds, "n_folds", minimum=2) > n_episodes:
            raise InvalidInputError(f"n_folds must be at most the number of episodes, {n_episodes}; got {n_folds}.")
        fold_of_row = np.repeat(shuffled_folds(n_episodes, n_folds, random_state), self.episode_lengths)  # (n,)
        return ((self.subset(fold_of_row != k), self.subset(fold_of_row == k)) for k in range(n_folds))

    def describe(self) -> Description:
        """Return a summary of the batch: its size, how well each action covers the states, and possible problems.

        Examples
        --------
        >>> batch = Transitions([[0.0]] * 4, [0, 1, 0, 1], [0.0] * 4, [[0.0]] * 4, [True] * 4)
        >>> [caveat.kind for caveat in batch.describe().warnings]
        ['small-effective-sample', 'small-effective-sample', 'constant-column', 'repeated-rows']
        """
        return describe(self)

    @staticmethod
    def concat(batches: Sequence[Transitions], *, renumber_episodes: bool = False) -> Transitions:
        """Return the rows of all ``batches``, concatenated.

        Parameters
        ----------
        batches : sequence of Transitions
            With the same features, actions and optional columns.
        renumber_episodes : bool
            Renumber the episodes 0, 1, ...: needed when two batches use the same numbers for
            different episodes.
        """
        if not isinstance(batches, Sequence):
            raise InvalidInputError(f"concat takes a sequence of Transitions; got a {type(batches).__name__}.")
        if not batches:
            raise InvalidInputError("concat needs at least one batch; got none.")
        first = batches[0]
        for i, batch in enumerate(batches):
            _check_same_kind(first, batch, i)
        columns: dict[str, Any] = {
            name: np.concatenate([getattr(batch, name) for batch in batches]) for name in first._columns()
        }
        if first.episodes is not None:
            if renumber_episodes:
                lengths = np.concatenate([batch.episode_lengths for batch in batches])
                columns["episodes"] = np.repeat(np.arange(len(lengths)), lengths)
            else:
                check_distinct_episodes([batch.episodes for batch in batches])
        same = all(batch.origin is first.origin for batch in batches)
        return first._with({**columns, "origin": first.origin if same and not renumber_episodes else None})

    def _repr_html_(self) -> str:
        return registry.batch_html(self)

    def __repr__(self) -> str:
        return "\n  ".join([self._headline(), *(f"{name:<11} {text}" for name, text in self._facts())])

    def _headline(self) -> str:
        n, d, a = len(self), self.n_features, self.n_actions
        return f"Transitions: {_count(n, 'row')}, {_count(d, 'feature')}, {_count(a, 'action')}"

    def _facts(self) -> list[tuple[str, str]]:
        n, labels = len(self), self.schema.action_labels
        counts = np.bincount(self.actions, minlength=self.n_actions)
        shares = [f"{label} {count} ({count / n:.1%})" for label, count in zip(labels, counts, strict=True)]
        ends = int(self.terminated.sum())
        facts = [
            ("features", _listed(self.schema.feature_names)),
            ("actions", _listed([share.replace("%", " %") for share in shares])),
            ("episodes", self._episode_fact()),
            ("rewards", _range(self.rewards)),
            ("terminated", f"{_count(ends, 'row')} ({ends / n:.1%})".replace("%", " %")),
        ]
        missing = int(np.isnan(self.states).any(axis=1).sum())
        if missing:
            facts.append(("missing", f"{_count(missing, 'row')} with NaN in the state"))
        optional = ("allowed", "next_allowed", "propensities", "weights", "elapsed")
        extra = [name for name in optional if getattr(self, name) is not None]
        if extra:
            facts.append(("also", ", ".join(extra)))
        return facts

    def _episode_fact(self) -> str:
        if self.episodes is None:
            return "not given: each row counts as its own episode"
        lengths = self.episode_lengths
        low, high = int(lengths.min()), int(lengths.max())
        if low == high:
            return f"{len(lengths)}, each of {_count(low, 'row')}"
        return f"{len(lengths)}, lengths {low} to {high}, median {np.median(lengths):.4g}"

    def _row_numbers(self, rows: ArrayLike) -> NDArray[Any]:
        array = as_array(rows, "rows")
        if array.dtype == np.bool_:
            check_shape(array, "rows", (len(self),))
            array = np.flatnonzero(array)
        else:
            array = as_integers(rows, "rows")
            check_rows((array >= 0) & (array < len(self)), array, "rows", f"must lie in 0..{len(self) - 1}")
        if not len(array):
            raise InvalidInputError("rows must select at least one row; they select none.")
        return array

    def _check_whole_episodes(self, rows: Ints) -> None:
        """Refuse row numbers that hold only a part of an episode."""
        lengths = self.episode_lengths
        episode_of_row = np.repeat(np.arange(len(lengths)), lengths)  # (n,)
        chosen = np.bincount(episode_of_row[np.unique(rows)], minlength=len(lengths))  # (E,)
        cut = np.flatnonzero((chosen > 0) & (chosen < lengths))
        if len(cut) and self.episodes is not None:
            e = int(cut[0])
            name = self.episodes[self.episode_starts[e]]
            raise InvalidInputError(
                f"rows must hold whole episodes; of episode {name} they hold {chosen[e]} of {lengths[e]} rows. "
                "Split by episodes, with capi.EpisodeKFold or split; subset takes any rows."
            )

    def _columns(self) -> list[str]:
        """Names of the array columns that are present."""
        return [part.name for part in fields(self) if isinstance(getattr(self, part.name), np.ndarray)]

    @classmethod
    def _of(cls, batch: Read) -> Self:
        """Return the batch of a table that was read; its arrays are checked and not shared."""
        made = object.__new__(cls)
        schema = Schema.of_columns(batch.columns, batch.action_labels)
        others = {"n_actions": len(schema.action_labels), "schema": schema, "origin": batch.origin}
        made.__setstate__({**batch.arrays, **others})
        return made

    def with_masks(self, allowed: ArrayLike, next_allowed: ArrayLike) -> Transitions:
        """Return the batch with other actions to choose from, here and in the next states; both (n, A)."""
        masks = checked_allowed(allowed, self.actions, self.n_actions)
        following = checked_next_allowed(next_allowed, self.terminated, self.n_actions)
        return self._with({"allowed": masks, "next_allowed": following})

    def _with(self, columns: dict[str, Any]) -> Transitions:
        """Return a batch of the same kind with other ``columns``, which are valid and not shared."""
        batch = object.__new__(Transitions)
        absent = {part.name: getattr(self, part.name) for part in fields(self)}
        batch.__setstate__({**absent, **columns})
        return batch


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return np.array_equal(a, b, equal_nan=a.dtype.kind == "f" and b.dtype.kind == "f")
    return type(a) is type(b) and bool(a == b)


def _check_same_kind(first: Transitions, batch: Transitions, i: int) -> None:
    if not isinstance(batch, Transitions):
        raise InvalidInputError(f"concat takes Transitions; batches[{i}] is a {type(batch).__name__}.")
    if batch.schema != first.schema:
        raise InvalidInputError(f"batches must have the same features and actions; batches[{i}] has {batch.schema}.")
    if batch._columns() != first._columns():
        raise InvalidInputError(
            f"batches must have the same columns; batches[0] has {first._columns()}, batches[{i}] {batch._columns()}."
        )
    if (unit := discount_unit(batch)) != discount_unit(first):
        raise InvalidInputError(f"batches must have the same discount_per; batches[{i}] has {unit}.")


def _range(values: Floats) -> str:
    mean = (values / len(values)).sum()  # the sum of the values themselves may overflow
    low, high, mean = (float(x) + 0.0 for x in (values.min(), values.max(), mean))  # turns -0 into 0
    return f"{low:.4g} to {high:.4g}, mean {mean:.4g}"


def _count(n: int, noun: str) -> str:
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"


def _listed(items: Sequence[str], most: int = 8) -> str:
    shown = ", ".join(items[:most])
    return f"{shown}, ... ({len(items)} in all)" if len(items) > most else shown
