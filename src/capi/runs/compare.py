"""Compare the policies of several runs on the same episodes."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from capi._utils.validation import Bools, Floats, Ints
from capi.data.learned_episodes import KnownShare
from capi.data.partitions import PartitionedTransitions
from capi.data.schema import Schema
from capi.data.transitions import Transitions
from capi.errors import EvidenceWarning, InvalidInputError
from capi.offline import Comparison, compare
from capi.runs.evaluate import informed, learned_episodes
from capi.runs.fit import RunResult, digest, load_run
from capi.runs.select import returned_behaviour
from capi.runs.settings import RunSettings
from capi.types import Policy


@dataclass(frozen=True)
class RunComparison:
    """The policies of several runs on the same episodes.

    Parameters
    ----------
    values : Comparison
        Their estimated values, with paired differences.
    same_decisions : mapping
        From pairs of runs to the share of the logged decisions in which both policies choose the same action.
    """

    values: Comparison
    same_decisions: Mapping[tuple[str, str], float]

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values that JSON can hold."""
        pairs = [{"runs": list(pair), "share": share} for pair, share in self.same_decisions.items()]
        return {**self.values.to_dict(), "same_decisions": pairs}

    def __str__(self) -> str:
        shares = [
            f"{one} and {two} decide alike in {100 * share:.1f} % of the rows."
            for (one, two), share in self.same_decisions.items()
        ]
        return "\n".join([str(self.values), *shares])


def compare_runs(runs: Sequence[str | Path], table: str | Path | None = None, **settings: Any) -> RunComparison:
    """Evaluate the policies of several runs on the same episodes, with the paired differences between them.

    Parameters
    ----------
    runs : sequence of str or Path
        Folders of finished runs. They may use different state columns, as long as they encode shared columns alike.
    table : str or Path, optional
        Other episodes. By default those that all runs held out, which must be the same: the same table, share and seed.
    settings : further keywords
        As in `capi.offline.compare`. Caveats are in the result; they are not issued as Python warnings.
    """
    results = {str(run): load_run(run) for run in runs}
    if len(results) < 2 or len(results) < len(runs):
        raise InvalidInputError(f"runs must be at least two different folders; got {', '.join(map(str, runs))}.")
    first = next(iter(results.values()))
    schemas = {name: _schema_of(name, result) for name, result in results.items()}
    schema = _joint(schemas)
    batch = _episodes(results, first, schema, table)
    policies: dict[str, Policy] = {
        name: _OnFeatures.of(_with_share(result, table), schemas[name], schema) for name, result in results.items()
    }
    some = batch.sample(random_state=0) if isinstance(batch, PartitionedTransitions) else batch
    decisions = {name: policy.act(some.states, some.allowed) for name, policy in policies.items()}
    names = list(policies)
    same = {
        (one, two): float(np.mean(decisions[one] == decisions[two]))
        for i, one in enumerate(names)
        for two in names[i + 1 :]
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EvidenceWarning)
        values = compare(policies, batch, **{"discount": _discount(results), **settings})
    is_cost = bool(first.settings.roles.get("cost"))
    values = replace(values, evidence={name: replace(e, is_cost=is_cost) for name, e in values.evidence.items()})
    if table is None:  # what was done in this log
        of_log = {name: returned_behaviour(result.folder) for name, result in results.items()}
        values = replace(
            values, evidence={name: replace(e, is_behaviour=of_log[name]) for name, e in values.evidence.items()}
        )
    return RunComparison(values, same)


def _schema_of(name: str, result: RunResult) -> Schema:
    schema = getattr(result.policy, "schema", None)
    if schema is None:
        raise InvalidInputError(
            f"{name}: the policy does not record its columns, so it cannot be compared. Learn it again."
        )
    found: Schema = schema
    return found


def _joint(schemas: Mapping[str, Schema]) -> Schema:
    """Return a schema with the columns of all; refuse different actions and different encodings of a column."""
    first = next(iter(schemas))
    labels = schemas[first].action_labels
    columns: dict[str, tuple[str, Any]] = {}
    for name, schema in schemas.items():
        if schema.action_labels != labels:
            raise InvalidInputError(
                f"runs must choose among the same actions; {first} has {list(labels)}, {name} has {list(schema.action_labels)}."
            )
        for column in schema.columns:
            owner, known = columns.setdefault(column.name, (name, column))
            if known != column:
                raise InvalidInputError(
                    f"runs must encode column {column.name!r} alike; {owner} and {name} do not. Learn both from the same table."
                )
    joint = tuple(column for _, column in columns.values())
    return Schema(tuple(name for column in joint for name in column.feature_names), labels, joint)


def _episodes(
    results: Mapping[str, RunResult], first: RunResult, schema: Schema, table: str | Path | None
) -> Transitions | PartitionedTransitions:
    mine = first.settings
    roles = {**mine.roles, "state": [column.name for column in schema.columns]}
    whole = RunSettings(
        str(table if table is not None else mine.table),
        roles,
        mine.discount,
        random_state=mine.random_state,
        hold_out=0.0 if table is not None else mine.hold_out,
        discount_per=mine.discount_per,
        min_category_rows=mine.min_category_rows,
        sample_rows=mine.sample_rows,
    )
    if table is not None:
        return whole.read_all(table, schema)
    for name, result in results.items():
        other = result.settings
        if not other.hold_out or _split_of(other) != _split_of(mine):
            raise InvalidInputError(
                f"runs must be compared on episodes that none of them learned from; {name} held out "
                f"{'other episodes than ' + str(first.folder) if other.hold_out else 'none'}. Give --table with other episodes, or fit "
                "the runs with the same table, --hold-out and --random-state."
            )
    return whole.all_held_out(schema)


def _split_of(settings: RunSettings) -> tuple[Any, ...]:
    """Return everything that the choice of held-out episodes depends on."""
    ordering = (settings.roles.get("episode"), settings.roles.get("time"))
    in_parts = settings.sample_rows is not None  # then episodes are drawn by their ids
    return digest(settings.table), settings.hold_out, settings.random_state, in_parts, *ordering


def _with_share(result: RunResult, table: str | Path | None) -> Policy:
    """Return the policy of a run, which knows the share of the episodes that it was learned from."""
    own = None if table is None else result.settings.read(table, getattr(result.policy, "schema", None))
    learned = learned_episodes(result, table, own)
    share = None if learned is None or own is None else learned.share_in(own)
    return informed(result, learned if share is None else KnownShare(share))


def _discount(results: Mapping[str, RunResult]) -> float | None:
    known = {result.settings.discount for result in results.values()}
    return known.pop() if len(known) == 1 else None


@dataclass(frozen=True, eq=False)
class _OnFeatures:
    """A policy that decides by some of the features."""

    policy: Policy
    features: Ints
    training: Any = None

    @classmethod
    def of(cls, policy: Policy, mine: Schema, joint: Schema) -> _OnFeatures:
        at = {name: i for i, name in enumerate(joint.feature_names)}
        features = np.array([at[name] for name in mine.feature_names])
        return cls(policy, features, getattr(policy, "training", None))

    @property
    def n_actions(self) -> int:
        return self.policy.n_actions

    def act(self, states: ArrayLike, allowed: Bools | None = None) -> Ints:
        return self.policy.act(np.asarray(states)[:, self.features], allowed)

    def probabilities(self, states: ArrayLike, allowed: Bools | None = None) -> Floats:
        return self.policy.probabilities(np.asarray(states)[:, self.features], allowed)
