"""What a report is made from: the run, its table, the decisions of its policy, and the small tree that tells them."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from capi._utils.validation import Bools, Floats, Ints
from capi.data.schema import Schema
from capi.data.sketch import sketch
from capi.data.transitions import Transitions
from capi.errors import InvalidInputError
from capi.files.archive import read_archive
from capi.files.exports.program import Program, program_of
from capi.policy_spaces.imitation import imitating_tree
from capi.policy_spaces.trees.forests import ForestPolicy
from capi.report.columns import rare_renamed, without_rare_words
from capi.report.evaluation import checked_evaluation
from capi.report.flat import FlatTree
from capi.report.wording import FEW, TINY, label_texts
from capi.runs.fit import EVALUATION, POLICY, VALUES, RunResult, digest, load_run

MOST_BYTES = 2**36  # our own files, as large as their tables
DRAWN_DEPTH = 4  # of a tree that is drawn; a larger one is told by a smaller one
MOST_NODES = 400_000  # of a forest that a page may hold


@dataclass(frozen=True, eq=False)
class Told:
    """The small tree that the page speaks of: the policy itself, or the tree that decides most like it."""

    program: Program
    tree: FlatTree
    own: bool
    fidelity: float
    leaf_of_row: Ints  # (n,) numbers of nodes


@dataclass(frozen=True, eq=False)
class Sources:
    """A finished run with everything that belongs to it."""

    result: RunResult
    batch: Transitions
    policy: Any
    decisions: Ints  # (n,) of the policy, in the states of the table
    values: Floats | None  # (n, A) estimated action values there; old runs have none
    evaluation: dict[str, Any] | None
    foreign: bool = False  # whether there is an evaluation, but of another policy

    @property
    def tiny(self) -> bool:
        """Whether the table has so few rows that no numbers of it are told."""
        return len(self.batch) < TINY

    @cached_property
    def schema(self) -> Schema:
        """The words of the table; a category of fewer than `FEW` rows, and such an action that is never chosen, has a number for a name."""
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
    def spoken(self) -> Schema:
        """The schema with categories as they stand in sentences: never empty, and not too long."""
        columns = [replace(column, values=tuple(label_texts(column.values))) for column in self.schema.columns]
        return Schema.of_columns(columns, self.schema.action_labels)

    def _chosen(self) -> list[int]:
        """Return the actions that the policy chooses: in the states of the table, and in the leaves of a single tree."""
        found = set(self.decisions.tolist())
        program = None if self._too_large else program_of(self.policy)
        if program is not None and len(program.trees) == 1:
            found |= {actions[0] for actions in FlatTree.of(program.trees[0]).actions if actions}
        return sorted(found)

    @property
    def _too_large(self) -> bool:
        """Whether the policy cannot be written down, or is too large for that."""
        inner = getattr(self.policy, "policy", self.policy)
        large = isinstance(inner, ForestPolicy) and sum(len(t.nodes) for t in inner.forest.trees) > MOST_NODES
        return self.masked or large

    @property
    def masked(self) -> bool:
        """Whether the policy cannot decide without being told what is allowed."""
        return bool(getattr(self.policy, "masked", False))

    @cached_property
    def with_missing(self) -> Bools:
        """Which features have missing values in the table (d,)."""
        return np.array([bool(np.isnan(column).any()) for column in self.batch.states.T])

    @cached_property
    def program(self) -> Program | None:
        """What the policy does, None if it can only be imitated."""
        found = None if self._too_large else program_of(self.policy)
        return None if found is None else replace(found, schema=self.schema)

    @cached_property
    def told(self) -> Told:
        """The small tree that tells what the policy does."""
        states = self.batch.states
        program = self.program
        if program is not None and len(program.trees) == 1 and program.depth <= DRAWN_DEPTH:
            tree = FlatTree.of(program.trees[0])
            return Told(program, tree, True, 1.0, tree.leaf_of(states))
        program = self._imitating()
        tree = FlatTree.of(program.trees[0])
        leaves = tree.leaf_of(states)
        decided = np.array([actions[0] if actions else -1 for actions in tree.actions])[leaves]
        return Told(program, tree, False, float(np.mean(decided == self.decisions)), leaves)

    def _imitating(self) -> Program:
        """Return the small tree that was grown to decide like the policy in the states of the table."""
        batch = self.batch
        tree = imitating_tree(batch.states, self.decisions, batch.n_actions, batch.allowed)
        found = program_of(
            replace(tree, schema=self.schema, masked=False)
        )  # a picture shows the first action of a leaf
        if found is None:
            raise InvalidInputError("the policy cannot be told by a tree.")
        return found


def read_sources(run: str | Path) -> Sources:
    """Return everything that belongs to the finished run in a folder, checked."""
    folder = Path(run)
    if not folder.is_dir():
        raise InvalidInputError(
            f"run must be the folder of a finished run (capi fit makes one); {folder} is no folder."
        )
    result = load_run(folder)
    batch = _batch(result)
    policy: Any = result.policy
    _check_fit(policy, batch, result.settings.table)
    if getattr(policy, "masked", False) and batch.allowed is None:
        raise InvalidInputError(
            f"the policy of {folder} was learned with masks of allowed actions, which its table does not hold: there is nothing to "
            "report on. State what is allowed as rules (Constrained) and learn again."
        )
    values = _values(folder, batch, result.settings.table, policy)
    decisions = policy.act(batch.states, batch.allowed)
    evaluation = _evaluation(folder)
    foreign = evaluation is not None and evaluation.get("policy") not in (None, digest(folder / POLICY))
    return Sources(result, batch, policy, decisions, values, None if foreign else evaluation, foreign)


def _batch(result: RunResult) -> Transitions:
    table = Path(result.settings.table)
    if not table.is_file():
        raise InvalidInputError(
            f"the table of the run, {table}, is not there. Put it back, or correct its name under [data] in "
            f"{result.folder / 'settings.toml'}."
        )
    return result.settings.batch()


def _check_fit(policy: Any, batch: Transitions, table: str) -> None:
    """Refuse a table that is not the one that the policy was learned from."""
    schema, training = getattr(policy, "schema", None), getattr(policy, "training", None)
    found = policy.n_actions, getattr(policy, "n_features", batch.n_features)
    if schema is not None:
        for what, then, now in (
            ("columns", schema.feature_names, batch.schema.feature_names),
            ("actions", schema.action_labels, batch.schema.action_labels),
        ):
            if tuple(then) != tuple(now):
                raise InvalidInputError(
                    f"{table} must be the table that the run was learned from: its {what} are {_listed(now)}, in the policy they "
                    f"are {_listed(then)}. Put the old table back, or learn again."
                )
    if found != (batch.n_actions, batch.n_features):
        raise InvalidInputError(
            f"{table} must be the table that the run was learned from: the policy has {found[0]} actions and {found[1]} features, "
            f"the table {batch.n_actions} and {batch.n_features}. Put the old table back, or learn again."
        )
    if training is not None and training.n_rows not in (None, len(batch)):
        raise InvalidInputError(
            f"{table} must be the table that the run was learned from: it has {len(batch)} decisions, the run had "
            f"{training.n_rows}. Put the old table back, or learn again."
        )


def _listed(names: Any) -> str:
    shown = ", ".join(str(name) for name in names[:10])
    return shown + (", ..." if len(names) > 10 else "")


def _check_same(table: str, batch: Transitions, policy: Any, then: Any) -> None:
    """Refuse a table whose content changed; ``then`` is its digest when it was learned from, if the run knows it."""
    episodes = getattr(getattr(policy, "training", None), "episodes", ())
    if isinstance(then, str):
        same = then == digest(table)
    else:
        same = not episodes or tuple(episodes) == sketch(batch.episode_hashes())
    if not same:
        raise InvalidInputError(f"{table} changed since the policy was learned: fit again, or restore it.")


def _values(folder: Path, batch: Transitions, table: str, policy: Any) -> Floats | None:
    """Return the estimated action values in the states of the table (n, A), None if the run kept none; refuse another table."""
    path = folder / VALUES
    if not path.exists():
        _check_same(table, batch, policy, None)
        return None
    try:
        header, arrays = read_archive(path, MOST_BYTES)
    except InvalidInputError as error:
        raise InvalidInputError(f"{path} cannot be read: {error} Delete it to have a report without it.") from error
    values = arrays.get("values")
    _check_same(table, batch, policy, header.get("table"))
    if header.get("format") != "capi values" or values is None or values.dtype.kind not in "fiu":
        raise InvalidInputError(
            f"{path} must hold action values (capi fit writes it). Delete it to have a report without it."
        )
    if values.shape != (len(batch), batch.n_actions):
        raise InvalidInputError(
            f"{path} must fit the table of the run: it has values of shape {values.shape}, the table {len(batch)} decisions and "
            f"{batch.n_actions} actions. The table has changed: put the old one back, or learn again."
        )
    if not np.isfinite(values).all():
        raise InvalidInputError(f"{path} must hold finite action values. Delete it to have a report without them.")
    return values.astype(np.float64)


def _evaluation(folder: Path) -> dict[str, Any] | None:
    """Return what ``capi evaluate`` found, None if nobody asked."""
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
