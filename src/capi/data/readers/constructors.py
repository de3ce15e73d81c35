"""The readers of `Transitions`: from tables, files, arrays and Minari data sets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, Unpack

from numpy.typing import ArrayLike

from capi._utils.renamed import renamed
from capi._utils.suggestions import did_you_mean
from capi._utils.validation import as_names, as_states
from capi.data.readers.arrow import csv_table, parquet_table, table_of
from capi.data.readers.minari import arrays_of
from capi.data.readers.read import Read, read
from capi.data.readers.roles import RoleNames, Roles
from capi.errors import LEAST_SHOWN, InvalidInputError

if TYPE_CHECKING:
    from capi.data.schema import Schema

ROLES_OF_ARRAYS = {
    "actions": "action",
    "rewards": "reward",
    "episodes": "episode",
    "time": "time",
    "terminated": "terminated",
    "truncated": "truncated",
    "propensities": "propensity",
    "allowed": "allowed",
    "weights": "weight",
}


class Readers:
    """Class methods that build batches from tables; `Transitions` inherits them."""

    @classmethod
    def from_frame(
        cls,
        frame: Any,
        *,
        state: str | Sequence[str],
        action: str,
        reward: str | None = None,
        cost: str | None = None,
        episode: str | None = None,
        time: str | None = None,
        terminated: str | None = None,
        truncated: str | None = None,
        propensity: str | None = None,
        next_state: str | Sequence[str] | None = None,
        allowed: str | Mapping[Any, str] | None = None,
        weight: str | None = None,
        discount: float | None = None,
        discount_per: float | str | None = None,
        action_labels: Sequence[Any] | None = None,
        schema: Schema | None = None,
        min_category_rows: int = LEAST_SHOWN,
        ordered: Mapping[str, Sequence[str]] | None = None,
    ) -> Self:
        """Return the decisions of a table, one per row.

        Rows are sorted by episode and time. The next state is the state of the following row, unless ``next_state`` names columns
        for it. Columns are encoded, and ``schema`` records how: booleans become 0 and 1, dates become days since the start of the
        first year, strings and categories become one 0/1 feature per value or, with more than 20 values, codes in their order.
        Ordered categories become codes in their order. Categories with few rows become one, "other", to which values that did not
        occur belong, too. Intervals (``pandas.cut``) and UUIDs are read as their text, intervals in their order. Missing values
        become NaN.

        Parameters
        ----------
        frame : pandas, polars or Arrow table, DuckDB relation, anything with Arrow's PyCapsule interface, or mapping from names to columns
        state : str or sequence of str
            The columns that were known when the decision was taken.
        action : str
            The action that was taken: labels of any kind.
        reward : str
            The reward of the row's own action; larger is better.
        cost : str, optional
            Instead of ``reward``: what the row's own action cost; smaller is better. The reward is its negative.
        episode : str, optional
            The patient or other unit that the row belongs to: any ids. Without it each row is its own episode.
        time : str, optional
            Orders the rows of an episode: numbers or dates, all distinct. Without it rows keep the order of the table.
        terminated : str, optional
            Flags the rows with which the process ended, so that nothing follows. An episode that does not end in one is truncated.
            Without ``terminated`` and ``truncated`` the last row of each episode counts as terminated.
        truncated : str, optional
            Flags the rows after which recording stopped although the process continued; rows with both flags are terminated.
            The last row of a truncated episode serves only as next state, unless there is ``next_state`` or ``discount`` is 0.
            Without ``terminated``, episodes that do not end in such a row count as terminated.
        propensity : str, optional
            The probability with which the action was taken.
        next_state : str or sequence of str, optional
            The columns of the next state, one for each of ``state``.
        allowed : str or mapping, optional
            The actions that could be taken: a column with lists of labels, or with strings of labels separated by ``,``, ``;`` or
            ``|``; or a mapping from labels to columns of flags, where labels without a column are always allowed.
        weight : str, optional
            The weight of each row.
        discount : float, optional
            Only 0 matters here: then only the row's own reward counts, and no row is used only as a next state.
        discount_per : float or str, optional
            Discount by elapsed time: the time that one factor of the discount refers to, as a number in the units of ``time`` or, for
            dates, as text in seconds, minutes, hours, days or weeks ("7 days"). A row whose next row follows after twice that
            time is discounted twice. The time after the last row of a truncated episode, which matters with ``next_state``, is not
            known: the median step of its episode is used or, if it has one row, that of the table. By default each row is one step.
        action_labels : sequence, optional
            All actions, in the order of their codes; by default those found, sorted.
        schema : Schema, optional
            Encodings and actions of an earlier batch, so that both have the same features: ``schema=train.schema``.
        min_category_rows : int
            Categories with fewer rows become one, because names are saved with policies, and a rare name can identify a person. 1 keeps
            all names.
        ordered : mapping, optional
            State columns that are ordered categories, such as age bands, and their values from lowest to highest:
            ``{"age": ["<18", "18-64", "65+"]}``. Ordered categories of pandas and Arrow need no declaration.

        Examples
        --------
        >>> import pandas as pd
        >>> from capi import Transitions
        >>> table = pd.DataFrame({
        ...     "patient": ["ann", "ann", "bob"], "day": [2, 1, 1], "sex": ["f", "f", "m"], "pulse": [64.0, 71.0, None],
        ...     "drug": ["none", "beta", "none"], "score": [1.0, 0.5, 0.0],
        ... })
        >>> batch = Transitions.from_frame(
        ...     table, episode="patient", time="day", state=["sex", "pulse"], action="drug", reward="score",
        ...     min_category_rows=1,
        ... )
        >>> batch.schema.feature_names, batch.schema.action_labels
        (('sex=f', 'sex=m', 'pulse'), ('beta', 'none'))
        >>> batch.states
        array([[ 1.,  0., 71.],
               [ 1.,  0., 64.],
               [ 0.,  1., nan]])
        >>> batch.terminated
        array([False,  True,  True])
        """
        roles = Roles(
            state=state,
            action=action,
            reward=reward,
            cost=cost,
            episode=episode,
            time=time,
            terminated=terminated,
            truncated=truncated,
            propensity=propensity,
            next_state=next_state,
            allowed=allowed,
            weight=weight,
            discount=discount,
            discount_per=discount_per,
            action_labels=action_labels,
            schema=schema,
            min_category_rows=min_category_rows,
            ordered=ordered,
        )
        return cls._of(read(table_of(frame), roles))

    @classmethod
    def from_csv(cls, path: str | Path, *, delimiter: str | None = None, **roles: Unpack[RoleNames]) -> Self:
        r"""Return the decisions of a CSV file with a header.

        Parameters
        ----------
        path : str or Path
            Compressed files (``.gz``, ``.bz2``, ...) are read as well. Empty fields, ``NA``, ``NaN`` and ``null`` are missing;
            numbers, booleans (``true``, ``false``) and dates such as 2024-12-31 and 31.12.2024 are recognised. Dates with slashes are
            text, because the month may come first.
        delimiter : str, optional
            The field separator. By default the first lines show whether it is a comma, a semicolon, a tab or a vertical bar, and whether
            numbers have decimal commas.
        **roles
            As in `from_frame`. Errors count rows from 1, without the header.

        Examples
        --------
        >>> import pathlib, tempfile
        >>> from capi import Transitions
        >>> file = pathlib.Path(tempfile.mkdtemp(), "trial.csv")
        >>> _ = file.write_text("age,arm,outcome\n40,drug,1.5\n52,placebo,0\n")
        >>> Transitions.from_csv(file, state="age", action="arm", reward="outcome", discount=0)
        Transitions: 2 rows, 1 feature, 2 actions
          features    age
          actions     drug 1 (50.0 %), placebo 1 (50.0 %)
          episodes    not given: each row counts as its own episode
          rewards     0 to 1.5, mean 0.75
          terminated  2 rows (100.0 %)
        """
        checked = Roles(**roles)
        return cls._of(read(csv_table(path, checked.columns, delimiter), checked))

    @classmethod
    def from_parquet(cls, path: str | Path, **roles: Unpack[RoleNames]) -> Self:
        """Return the decisions of a Parquet file; only the columns that have a role are read.

        Parameters
        ----------
        path : str or Path
            A file, or a folder of them.
        **roles
            As in `from_frame`. Errors count rows from 1.

        Examples
        --------
        >>> import pathlib, tempfile
        >>> import pandas as pd
        >>> from capi import Transitions
        >>> file = pathlib.Path(tempfile.mkdtemp(), "trial.parquet")
        >>> pd.DataFrame({"age": [40, 52], "arm": ["drug", "placebo"], "outcome": [1.5, 0.0]}).to_parquet(file)
        >>> len(Transitions.from_parquet(file, state="age", action="arm", reward="outcome", discount=0))
        2
        """
        checked = Roles(**roles)
        return cls._of(read(parquet_table(path, checked.columns), checked))

    @classmethod
    @renamed(episode="episodes", propensity="propensities", weight="weights")
    def from_arrays(
        cls,
        states: ArrayLike,
        actions: ArrayLike,
        rewards: ArrayLike,
        *,
        next_states: ArrayLike | None = None,
        feature_names: Sequence[str] | None = None,
        discount: float | None = None,
        discount_per: float | str | None = None,
        action_labels: Sequence[Any] | None = None,
        **columns: ArrayLike | None,
    ) -> Self:
        """Return the decisions of arrays by the rules of `from_frame`: any row order, any labels, next states from the next row.

        Parameters
        ----------
        states : array of shape (n, d)
        actions, rewards : array of shape (n,)
        next_states : array of shape (n, d), optional
        feature_names : sequence of str, optional
            By default x0, x1, ...
        discount : float, optional
        discount_per : float or str, optional
        action_labels : sequence, optional
        **columns : array of shape (n,), optional
            ``episodes``, ``time``, ``terminated``, ``truncated``, ``propensities``, ``allowed`` and ``weights``, as in `from_frame`.

        Examples
        --------
        >>> from capi import Transitions
        >>> batch = Transitions.from_arrays(
        ...     [[1.0], [2.0], [5.0]], ["a", "b", "a"], [0.0, 1.0, 2.0], episodes=["p", "p", "q"], terminated=[0, 1, 1]
        ... )
        >>> batch.next_states.ravel(), batch.actions
        (array([2., 2., 5.]), array([0, 1, 0]))
        """
        x = as_states(states)
        width = x.shape[1]
        names = as_names(feature_names or [f"x{j}" for j in range(width)], "feature_names", width)
        table: dict[Any, Any] = dict(zip(names, x.T, strict=True))
        roles: dict[str, Any] = {"state": names, "discount": discount, "action_labels": action_labels}
        roles["discount_per"] = discount_per
        if next_states is not None:
            following = as_states(next_states, "next_states", n_features=width)
            roles["next_state"] = [f"next {name}" for name in names]
            table.update(zip(roles["next_state"], following.T, strict=True))
        for name, column in {"actions": actions, "rewards": rewards, **columns}.items():
            if name not in ROLES_OF_ARRAYS:
                raise InvalidInputError(f"from_arrays has no argument {name!r}.{did_you_mean(name, ROLES_OF_ARRAYS)}")
            if column is None and name in ("actions", "rewards"):
                raise InvalidInputError(f"{name} must be an array with one entry per row of states; got None.")
            if column is not None:
                role = ROLES_OF_ARRAYS[name]
                roles[role] = f"({role})"
                table[roles[role]] = column
        return cls.from_frame(table, **roles)

    @classmethod
    def from_minari(cls, dataset: Any) -> Self:
        """Return the decisions of a Minari data set with finitely many actions.

        Parameters
        ----------
        dataset : str or minari.MinariDataset
            An id that ``minari.load_dataset`` knows, or the data set itself. Observations are flattened: boxes, finite states,
            and dictionaries or tuples of them. The last observation of an episode serves as next state.

        Examples
        --------
        >>> from capi import Transitions
        >>> batch = Transitions.from_minari("D4RL/door/human-v2")  # doctest: +SKIP
        """
        return cls(**arrays_of(dataset))

    if TYPE_CHECKING:  # defined by the batch itself

        def __init__(self, **columns: Any) -> None: ...

        @classmethod
        def _of(cls, batch: Read) -> Self: ...
