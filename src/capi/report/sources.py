"""Inputs of a report: the run, its table, the decisions of its policy, and the small tree that shows them."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from capi._utils.row_ops import chosen_entries
from capi._utils.validation import Bools, Floats, Ints
from capi.data.partitions import PartitionedTransitions
from capi.data.schema import Schema
from capi.data.summary.description import Description
from capi.data.table_files import is_there
from capi.data.transitions import Transitions
from capi.errors import InvalidInputError
from capi.files.archive import read_archive
from capi.files.exports.flat_tree import FlatTree
from capi.files.exports.program import Program, program_of
from capi.learning.support import rarely_taken
from capi.policy_spaces.imitation import imitating_tree
from capi.policy_spaces.trees.forests import ForestPolicy
from capi.report.columns import rare_renamed, without_rare_words
from capi.report.evaluation import checked_evaluation
from capi.report.wording import FEW, TINY, label_texts
from capi.runs.fit import EVALUATION, POLICY, VALUES, RunResult, digest, load_run
from capi.runs.secret import read_secret

MOST_BYTES = 2**36  # files of capi fit, as large as their tables
DRAWN_DEPTH = 6  # of a tree that is shown as it is; deeper ones are replaced by an imitating tree
MOST_NODES = 400_000  # of a forest that a page can hold
MOST_COMPARED = 20_000  # rows whose decisions are compared with a model of what was done


@dataclass(frozen=True, eq=False)
class ShownTree:
    """The small tree that the page shows: the policy itself, or a tree that imitates it."""

    program: Program
    own: bool
    fidelity: float
    leaf_of_row: Ints  # (n,) indices of nodes

    @property
    def tree(self) -> FlatTree:
        """The only tree of the program."""
        return self.program.trees[0]


@dataclass(frozen=True, eq=False)
class Sources:
    """A finished run and everything that its report needs."""

    result: RunResult
    batch: Transitions
    policy: Any
    decisions: Ints  # (n,) of the policy, in the states of the table
    values: Floats | None  # (n, A) estimated action values there; old runs have none
    evaluation: dict[str, Any] | None
    foreign: bool = False  # whether the folder has an evaluation of another policy
    partitions: PartitionedTransitions | None = None  # all rows of a large table, of which ``batch`` is a sample

    @property
    def tiny(self) -> bool:
        """Whether the table has so few rows that none of its numbers are shown."""
        return len(self.batch) < TINY

    @property
    def is_cost(self) -> bool:
        """Whether rewards are negative costs."""
        return bool(self.result.settings.roles.get("cost"))

    @cached_property
    def described(self) -> Description:
        """The description of the data that the policy was learned from, with names and labels that may be shown."""
        if self.partitions is not None:
            return self.partitions.describe(self.schema)
        return self.batch._with({"schema": self.schema}).describe()

    @cached_property
    def schema(self) -> Schema:
        """The names and labels of the table; categories of fewer than `FEW` rows, and such actions that the policy never chooses, get numbered names."""
        columns, start = [], 0
        for column in self.batch.schema.columns:
            width = len(column.feature_names)
            columns.append(without_rare_words(column, self.batch.states[:, start : start + width]))
            start += width
        labels = self.batch.schema.action_labels
        counts = np.bincount(self.batch.actions, minlength=len(labels))
        rare = (counts > 0) & (counts < FEW) & ~np.isin(np.arange(len(labels)), self._chosen())
        return Schema.of_columns(columns, rare_renamed(labels, rare, "rare action"))

    @cached_property
    def display_schema(self) -> Schema:
        """The schema with categories as the page displays them: never empty, and not too long."""
        columns = [replace(column, values=tuple(label_texts(column.values))) for column in self.schema.columns]
        return Schema.of_columns(columns, self.schema.action_labels)

    def _chosen(self) -> list[int]:
        """Return the actions that the policy chooses in the states of the table or in the leaves of a single tree."""
        found = set(self.decisions.tolist())
        program = None if self._only_imitated else program_of(self.policy)
        if program is not None and len(program.trees) == 1:
            found |= {actions[0] for actions in program.trees[0].actions if actions}
        return sorted(found)

    @property
    def _only_imitated(self) -> bool:
        """Whether the page cannot hold the policy as a program: it is too large, needs masks or combines columns."""
        inner = getattr(self.policy, "policy", self.policy)
        if not isinstance(inner, ForestPolicy):
            return self.masked
        large = sum(len(t.nodes) for t in inner.forest.trees) > MOST_NODES
        return self.masked or large or inner.forest.projections is not None

    @property
    def masked(self) -> bool:
        """Whether the policy needs a mask of allowed actions to decide."""
        return bool(getattr(self.policy, "masked", False))

    @cached_property
    def leaving(self) -> tuple[Ints, Bools] | None:
        """Rows (m,), and which of their decisions the log rarely takes in similar states (m,); of a large table a sample of episodes.

        None if one action or one episode leaves nothing to compare.
        """
        batch = self.batch
        if batch.n_actions < 2 or batch.n_episodes < 2:
            return None
        order = np.random.default_rng(0).permutation(batch.n_episodes)
        n_episodes = max(2, int((np.cumsum(batch.episode_lengths[order]) <= MOST_COMPARED).sum()))
        looked_at = np.zeros(batch.n_episodes, dtype=bool)
        looked_at[order[:n_episodes]] = True
        rows = np.flatnonzero(np.repeat(looked_at, batch.episode_lengths))
        rare = rarely_taken(batch if len(rows) == len(batch) else batch.subset(rows))
        return rows, np.asarray(chosen_entries(rare, self.decisions[rows]))

    @cached_property
    def with_missing(self) -> Bools:
        """Which features have missing values in the table (d,)."""
        return np.array([bool(np.isnan(column).any()) for column in self.batch.states.T])

    @cached_property
    def program(self) -> Program | None:
        """The policy as a program, or None if it can only be imitated."""
        found = None if self._only_imitated else program_of(self.policy)
        return None if found is None else replace(found, schema=self.schema)

    @cached_property
    def shown(self) -> ShownTree:
        """The small tree that shows what the policy does."""
        states = self.batch.states
        program = self.program
        if program is not None and len(program.trees) == 1 and program.depth <= DRAWN_DEPTH:
            return ShownTree(program, True, 1.0, program.trees[0].leaf_of(states))
        program = self._imitating()
        tree = program.trees[0]
        leaves = tree.leaf_of(states)
        decided = np.array([actions[0] if actions else -1 for actions in tree.actions])[leaves]
        return ShownTree(program, False, float(np.mean(decided == self.decisions)), leaves)

    def _imitating(self) -> Program:
        """Return a small tree grown to imitate the policy in the states of the table."""
        batch = self.batch
        tree = imitating_tree(batch.states, self.decisions, batch.n_actions, batch.allowed)
        found = program_of(
            replace(tree, schema=self.schema, masked=False)
        )  # a picture shows the first action of a leaf
        if found is None:
            raise InvalidInputError("the policy must be one that a tree can imitate; it is not.")
        return found


def read_sources(run: str | Path) -> Sources:
    """Return the checked inputs of a report on the finished run in a folder."""
    folder = Path(run)
    result = load_run(folder)
    batch = _batch(result)
    policy: Any = result.policy
    _check_fit(policy, batch, result.settings.table, sampled=result.settings.sample_rows is not None)
    if getattr(policy, "masked", False) and batch.allowed is None:
        raise InvalidInputError(
            f"the table must hold the masks of allowed actions that the policy of {folder} was learned with; it does not. "
            "State what is allowed as rules (Constrained) and fit again."
        )
    values = _values(folder, batch, result.settings.table)
    decisions = policy.act(batch.states, batch.allowed)
    evaluation = _evaluation(folder)
    foreign = evaluation is not None and evaluation.get("policy") not in (None, digest(folder / POLICY))
    partitions = result.settings.partitions(getattr(policy, "schema", None))
    return Sources(result, batch, policy, decisions, values, None if foreign else evaluation, foreign, partitions)


def _batch(result: RunResult) -> Transitions:
    table = Path(result.settings.table)
    if not is_there(table):
        raise InvalidInputError(
            f"the table of the run, {table}, does not exist. Restore it, or correct its path under [data] in "
            f"{result.folder / 'settings.toml'}."
        )
    is_old = read_secret(result.folder) is None  # and may have been encoded differently
    return result.batch() if is_old else result.settings.batch()


def _check_fit(policy: Any, batch: Transitions, table: str, *, sampled: bool) -> None:
    """Refuse a table other than the one that the policy was learned from."""
    schema, training = getattr(policy, "schema", None), getattr(policy, "training", None)
    found = policy.n_actions, getattr(policy, "n_features", batch.n_features)
    if training is not None and not sampled and training.n_rows not in (None, len(batch)):
        raise InvalidInputError(
            f"{table} must be the table that the run was learned from: it has {len(batch)} decisions, the run had "
            f"{training.n_rows}. Restore the original table, or fit again."
        )
    if schema is not None:
        for what, then, now in (
            ("columns", schema.feature_names, batch.schema.feature_names),
            ("actions", schema.action_labels, batch.schema.action_labels),
        ):
            if tuple(then) != tuple(now):
                raise InvalidInputError(
                    f"{table} must be the table that the run was learned from: its {what} are {_listed(now)}; those of the "
                    f"policy are {_listed(then)}. Restore the original table, or fit again."
                )
    if found != (batch.n_actions, batch.n_features):
        raise InvalidInputError(
            f"{table} must be the table that the run was learned from: the policy has {found[0]} actions and {found[1]} features, "
            f"the table {batch.n_actions} and {batch.n_features}. Restore the original table, or fit again."
        )


def _listed(names: Any) -> str:
    shown = ", ".join(str(name) for name in names[:10])
    return shown + (", ..." if len(names) > 10 else "")


def _check_same(table: str, then: Any) -> None:
    """Refuse a table whose content has changed; ``then`` is its digest at the time of learning, if the run has it."""
    if isinstance(then, str) and then != digest(table):
        raise InvalidInputError(f"{table} has changed since the policy was learned. Restore it, or fit again.")


def _values(folder: Path, batch: Transitions, table: str) -> Floats | None:
    """Return the estimated action values in the states of the table (n, A), or None if the run kept none; refuse another table."""
    path, secret = folder / VALUES, read_secret(folder)
    _check_same(table, None if secret is None else secret.table)
    if not path.exists():
        return None
    try:
        header, arrays = read_archive(path, MOST_BYTES)
    except InvalidInputError as error:
        raise InvalidInputError(f"{path} cannot be read: {error} Delete it to get a report without it.") from error
    values = arrays.get("values")
    _check_same(table, header.get("table"))
    if header.get("format") != "capi values" or values is None or values.dtype.kind not in "fiu":
        raise InvalidInputError(
            f"{path} must hold action values, as written by capi fit. Delete it to get a report without them."
        )
    if values.shape != (len(batch), batch.n_actions):
        raise InvalidInputError(
            f"{path} must match the table of the run: its values have shape {values.shape}, but the table has {len(batch)} decisions and "
            f"{batch.n_actions} actions. The table has changed: restore it, or fit again."
        )
    if not np.isfinite(values).all():
        raise InvalidInputError(f"{path} must hold finite action values. Delete it to get a report without them.")
    return values.astype(np.float64)


def _evaluation(folder: Path) -> dict[str, Any] | None:
    """Return the result of ``capi evaluate``, or None if the run was not evaluated."""
    path = folder / EVALUATION
    if not path.exists():
        return None
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InvalidInputError(f"{path} cannot be read: {error}. Run capi evaluate again, or delete it.") from error
    try:
        return checked_evaluation(found)
    except InvalidInputError as error:
        raise InvalidInputError(f"{path} {error} Run capi evaluate again, or delete it.") from error
