"""The settings of a run, stored as one TOML file."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import tomli_w

from capi import evaluators, policy_spaces
from capi._utils.late import late
from capi._utils.parameters import at_least, check_options, check_parameters, one_of, optional, strictly_between
from capi._utils.randomness import seed_sequence
from capi._utils.renamed import refuse_old_names, renamed, translated
from capi._utils.suggestions import did_you_mean
from capi._utils.validation import as_discount, as_share, is_real
from capi.data.elapsed import TimeUnit, check_discount_per
from capi.data.partitions import SAMPLE_ROWS, PartitionedTransitions
from capi.data.schema import Schema
from capi.data.table_files import format_of
from capi.data.transitions import Transitions
from capi.errors import LEAST_SHOWN, InvalidInputError, SettingsWarning
from capi.learning.capi import CAPI
from capi.runs.settings_file import (
    CHOSEN,
    DEFAULT_KINDS,
    LEARNING,
    NO_LIMIT,
    OF_SELECTION,
    OLD_NAMES,
    changed,
    located,
    read_sections,
    without_chosen,
)
from capi.runs.table import is_large, read_all, read_decisions, read_partitions, resolved_roles
from capi.types import PolicyEvaluator, PolicySpace

if TYPE_CHECKING:
    from capi.learning import rules
    from capi.learning import support as supports
else:  # they need the compiler
    rules, supports = late("capi.learning.rules"), late("capi.learning.support")

EVALUATORS = {"fitted-q": "FittedQ", "kernel-fitted-q": "KernelFittedQ"}
SPACES = {
    "optimal-trees": "OptimalTrees",
    "trees": "Trees",
    "forests": "Forests",
    "thresholds": "Thresholds",
    "linear": "Linear",
    "neighbors": "Neighbors",
    "reweighted": "Reweighted",
}
NOT_IN_FILES = {"regressor", "kernel", "features", "metric_params", "monotone", "behaviour"}
WRITTEN_BEFORE = {"min_samples_split", "min_samples_leaf"}  # options of trees in all files from before they had a depth
# What all files of runs list; without weights of states, they are from before those existed.
ALWAYS_WRITTEN = {"discount", "n_iterations", "random_state", "hold_out", "keep"}
HOLD_STATES = {"neighbors"}  # spaces whose policies decide by states of the table
BY_RULE = ("n_thresholds", "min_samples_leaf", "work_limit", "late_work_limit")  # of optimal trees
TESTED = 0.3  # share of the episodes that only test the result of a selection
FILLED_IN = ("projections", "min_samples_leaf")  # of fitted Q


class Parts(NamedTuple):
    """The evaluator and the policy space of a run."""

    evaluator: PolicyEvaluator
    space: PolicySpace


def _share(value: Any, name: str) -> None:
    if not is_real(value) or not 0 <= value < 1:
        raise InvalidInputError(f"{name} must lie in [0, 1); got {value!r}.")


@renamed(**OLD_NAMES)
@dataclass(frozen=True)
class RunSettings:
    """The table of a run, the roles of its columns, and how to learn from it.

    Parameters
    ----------
    table : str
        A CSV or Parquet file.
    roles : mapping
        From roles (episode, time, state, action, reward or cost, terminated, truncated, propensity, weight) to column names; state may be a
        list, a text such as "age,sex", or "*" for all columns without another role except those of the entry "except".
    discount : float in [0, 1)
    n_iterations : int, optional
        By default a rule chooses rounds and sweeps, from the discount and the episodes (`capi.learning.rules`).
    until_settled : bool, optional
        Stop when neither decisions nor values move, as in `CAPI`; by default only if ``n_iterations`` is left open.
    random_state : int
    evaluator, space : str
        Names from `EVALUATORS` and `SPACES`.
    evaluator_options, space_options : mapping
        Their parameters; omitted ones have their defaults.
    hold_out : float in [0, 1)
        Share of episodes held out for evaluation.
    keep : "last" or "best", optional
        The policy that the run ends with: that of the last iteration, or the best of up to twenty in simulated episodes, made of
        the steps of the learning data. With small policies, iterations can oscillate between good and bad ones. By default "best" with the evaluator
        "fitted-q", otherwise "last".
    discount_per : float or str, optional
        Discount by elapsed time: the time that the discount refers to, in the units of the time column or, for dates, such as
        "7 days". Learning and evaluation both use it. By default each row is one step.
    with_states : bool
        Whether the policy file may hold states of the table; the space "neighbors" needs it. Everyone who gets the file gets them.
    min_category_rows : int
        Categories with fewer rows become one, "other"; 1 keeps all names, and the policy file holds them.
    state_weights : "batch", "occupancy" or "mixture", optional
        The states on which policies are improved, as in `CAPI`.
    accept : "any" or "improving"
        As in `CAPI`.
    support : float in [0, 1], optional
        Only actions that the log takes at least this many times as often as the most frequent one in similar states (`capi.Support`). By
        default all actions that the log takes more than a few times.
    support_depth : int, optional
        Depth of a single tree that says which actions these are, so that the policy remains one tree. By default many deep trees.
    select : bool
        Choose evaluator, space and sizes, and return what was done unless the result is better on held-out episodes (`capi.selection.choose`);
        ``hold_out`` is then 0.3 if it is not given.
    budget : float, optional
        With ``select``: minutes; candidates that do not fit into them are not tried.
    always_learn : bool
        With ``select``: return the chosen policy whatever its test says.
    sample_rows : int, optional
        Learn from the table part by part, and grow trees on a sample of episodes with about so many rows (`capi.data.PartitionedTransitions`). By
        default tables with more than a million rows are learned from in this way, with 100,000.
    """

    table: str
    roles: Mapping[str, Any]
    discount: float = 0.99
    n_iterations: int | None = None
    until_settled: bool | None = None
    random_state: int = 0
    evaluator: str = "fitted-q"
    space: str = "optimal-trees"
    evaluator_options: Mapping[str, Any] = field(default_factory=dict)
    space_options: Mapping[str, Any] = field(default_factory=dict)
    hold_out: float = 0.0
    keep: str | None = None
    discount_per: float | str | None = None
    with_states: bool = False
    min_category_rows: int = LEAST_SHOWN
    state_weights: str | None = None
    accept: str = "any"
    support: float | None = None
    support_depth: int | None = None
    select: bool = False
    budget: float | None = None
    always_learn: bool = False
    sample_rows: int | None = None

    _constraints = {  # noqa: RUF012  frozen settings
        "discount": lambda value, _: as_discount(value),
        "n_iterations": optional(at_least(1)),
        "until_settled": optional(one_of(True, False)),
        "random_state": at_least(0),
        "hold_out": _share,
        "keep": optional(one_of("last", "best")),
        "state_weights": optional(one_of("batch", "occupancy", "mixture")),
        "accept": one_of("any", "improving"),
        "support": optional(lambda value, name: as_share(value, name)),
        "support_depth": optional(at_least(1)),
        "select": one_of(True, False),
        "budget": optional(strictly_between(0.0, math.inf)),
        "always_learn": one_of(True, False),
        "sample_rows": optional(at_least(1)),
        "with_states": one_of(True, False),
        "min_category_rows": at_least(1),
        "evaluator": one_of(*EVALUATORS),
        "space": one_of(*SPACES),
    }

    def __post_init__(self) -> None:
        check_parameters(self)
        check_discount_per(self.discount_per, self.roles.get("time"))
        if self.discount_per is not None:
            object.__setattr__(self, "discount_per", TimeUnit.of(self.discount_per).plain)
        if self.support_depth is not None and self.support is None:
            raise InvalidInputError("support_depth must come with support, the share that actions must have.")
        self._check_selection()
        format_of(self.table)
        object.__setattr__(self, "roles", resolved_roles(self.table, self.roles))
        _check_options(self._kinds.evaluator, self.evaluator_options, "evaluator")
        _check_options(self._kinds.space, self.space_options, "space")
        _ = self.parts  # building them checks rules that relate several options

    def _check_selection(self) -> None:
        """Refuse options that select chooses, and options of select without it."""
        if not self.select:
            for name in ("budget", "always_learn"):
                if getattr(self, name):
                    raise InvalidInputError(f"{name} must come with select.")
            return
        defaults = {f.name: f.default for f in fields(self)}
        given = [name for name in ("evaluator", "space", *CHOSEN) if getattr(self, name) != defaults[name]]
        given += [f"{next(iter(options))}" for options in (self.evaluator_options, self.space_options) if options]
        object.__setattr__(self, "hold_out", self.hold_out or TESTED)
        if given:
            raise InvalidInputError(f"{given[0]} must not be given with select, which chooses it. Omit one of them.")

    @property
    def _kinds(self) -> Any:
        return Parts(getattr(evaluators, EVALUATORS[self.evaluator]), getattr(policy_spaces, SPACES[self.space]))

    @cached_property
    def parts(self) -> Parts:
        """The evaluator and the space that these settings describe."""
        kinds = self._kinds
        return Parts(_made(kinds.evaluator, self.evaluator_options), _made(kinds.space, self.space_options))

    def check_can_be_saved(self) -> None:
        """Refuse a space whose policies hold values of single rows of the table, unless that is intended."""
        if self.with_states:
            return
        if self.space in HOLD_STATES:
            what = f"policies of the space {self.space!r} decide by rows of the table"
        elif getattr(self.parts.space, "scale", None) == "range":
            what = 'with the scale "range" policies hold the smallest and the largest value of each column'
        else:
            return
        raise InvalidInputError(
            f"{what}, so the policy file would hold them, and everyone who gets it would get these rows. "
            "Pass --with-states (with_states=True) if that is intended, or choose another space, such as optimal-trees."
        )

    def learner(self) -> CAPI:
        """Return a learner with these settings."""
        if self.select:
            raise InvalidInputError(
                "this run chose its learner among candidates, so there are no settings to refit it with. Evaluate it on the episodes that it held out."
            )
        settings: dict[str, Any] = {
            "discount": self.discount,
            "n_iterations": self.n_iterations,
            "until_settled": self.until_settled,
            "random_state": self.random_state,
            "keep": self.keep,
            "state_weights": self.state_weights,
            "accept": self.accept,
            "support": None if self.support is None else supports.Support(self.support, self.support_depth),
        }
        return CAPI(*self.parts, **settings)

    def with_rules(self, batch: Transitions, n_searched: int | None = None) -> RunSettings:
        """Return the settings with everything filled in that follows from the batch, so that the run's file is complete.

        ``n_searched`` is the number of rows on which policies are improved if all states count alike, by default those of the batch.
        """
        evaluator_options = dict(self.evaluator_options)
        if self.evaluator == "fitted-q":
            by_rule = rules.default_evaluator(batch, self.discount)
            by_rule_too = {"n_sweeps": by_rule.n_sweeps, "projections": by_rule.projections}
            if self.space == "reweighted":  # its policy holds the values, and files give none of fewer rows
                by_rule_too["min_samples_leaf"] = LEAST_SHOWN
            evaluator_options = {**by_rule_too, **evaluator_options}
        chosen = replace(self, evaluator_options=evaluator_options)
        loop: Any = rules.with_rules(chosen.learner().loop(), batch, None)
        found = {name: getattr(loop, name) for name in ("n_iterations", "until_settled", "keep", "state_weights")}
        chosen, space_options = replace(chosen, **found), dict(self.space_options)
        if self.space == "optimal-trees":
            n_rows = len(batch) if n_searched is None or chosen.state_weights != "batch" else n_searched
            sizes = _options(rules.default_space(n_rows))
            if "work_limit" in space_options:  # then it is that of all rounds
                sizes.pop("late_work_limit", None)
            space_options = {name: sizes[name] for name in BY_RULE if name in sizes} | space_options
        return replace(chosen, space_options=space_options)

    def with_batch(self, executor: Any = None) -> tuple[RunSettings, Transitions | PartitionedTransitions]:
        """Return the decisions to learn from, partitioned if they are many, and settings that say so; the ``executor`` reads the parts."""
        if self.sample_rows is None and not is_large(self.table):
            return self, self.batch()
        chosen = replace(self, sample_rows=self.sample_rows or SAMPLE_ROWS)
        partitions = chosen._partitions(executor=executor)[0]
        if chosen.select:
            return chosen, chosen._sampled(partitions)
        return chosen, partitions

    def batch(self, schema: Schema | None = None) -> Transitions:
        """Return the decisions to learn from: the whole table, or the sample of it, without the held-out episodes."""
        if self.sample_rows is not None:
            return self._sampled(self._partitions(schema)[0])
        whole = self.read(self.table, schema)
        return self._split(whole)[0] if self.hold_out else whole

    def held_out(self, schema: Schema | None = None) -> Transitions:
        """Return the decisions of the held-out episodes, or a sample of them."""
        found = self.all_held_out(schema)
        return self._sampled(found) if isinstance(found, PartitionedTransitions) else found

    def all_held_out(self, schema: Schema | None = None, executor: Any = None) -> Transitions | PartitionedTransitions:
        """Return the decisions of all held-out episodes, in parts if the run learned from the table part by part."""
        if not self.hold_out:
            raise InvalidInputError("the run learned from its whole table; no episodes were held out.")
        if self.sample_rows is None:
            return self._split(self.read(self.table, schema))[1]
        held_out = self._partitions(schema, executor)[1]
        assert held_out is not None  # noqa: S101  with a share that is held out
        return held_out

    def partitions(self, schema: Schema | None = None, executor: Any = None) -> PartitionedTransitions | None:
        """Return all decisions that the run learned from, in parts; None if `batch` has all of them."""
        return None if self.sample_rows is None or self.select else self._partitions(schema, executor)[0]

    def _partitions(
        self, schema: Schema | None = None, executor: Any = None
    ) -> tuple[PartitionedTransitions, PartitionedTransitions | None]:
        """Return the decisions to learn from and those that are held out, if any, in parts."""
        whole = read_partitions(self.table, self.sample_rows, executor, **self._reading(schema))
        return whole.split(1 - self.hold_out, random_state=self.random_state) if self.hold_out else (whole, None)

    def _sampled(self, partitions: PartitionedTransitions) -> Transitions:
        return partitions.sample(random_state=seed_sequence(self.random_state))

    def n_learned(self, whole: Transitions) -> int:
        """Return the number of episodes to learn from, of those of the whole table."""
        return self._split(whole)[0].n_episodes if self.hold_out else whole.n_episodes

    def read(self, table: str | Path, schema: Schema | None = None) -> Transitions:
        """Read another table with the same column roles; ``schema`` holds the encodings and actions of an earlier table.

        Of a table with more than a million rows, a sample of the episodes is returned.
        """
        if is_large(table):
            whole = read_partitions(table, self.sample_rows or SAMPLE_ROWS, None, **self._reading(schema))
            return self._sampled(whole)
        return read_decisions(table, **self._reading(schema))

    def read_all(
        self, table: str | Path, schema: Schema | None = None, executor: Any = None
    ) -> Transitions | PartitionedTransitions:
        """Read another table with the same column roles, in parts, which the ``executor`` reads, if it has more than a million rows."""
        return read_all(table, executor, sample_rows=self.sample_rows, **self._reading(schema))

    def _reading(self, schema: Schema | None) -> dict[str, Any]:
        return {
            "roles": self.roles,
            "discount": self.discount,
            "schema": schema,
            "discount_per": self.discount_per,
            "min_category_rows": self.min_category_rows,
        }

    def _split(self, whole: Transitions) -> tuple[Transitions, Transitions]:
        if whole.n_episodes < 2:
            option = "--select" if self.select else "--hold-out"
            raise InvalidInputError(
                f"{option} needs at least two episodes; the table has one. Check --episode, or omit {option}."
            )
        return whole.split(1 - self.hold_out, random_state=self.random_state)

    def to_toml(self) -> str:
        """Return the settings as TOML, with all defaults written out, so that a later change of defaults has no effect."""
        sections = {
            "data": {"table": self.table, **{role: name for role, name in self.roles.items() if name is not None}},
            "learning": {
                name: value
                for name in LEARNING
                if (value := getattr(self, name)) is not None and (name not in OF_SELECTION or self.select)
            },
        }
        if not self.select:
            sections |= {
                "evaluator": {"kind": self.evaluator, **self._options_of_evaluator()},
                "space": {"kind": self.space, **_options(self.parts.space), **self._unlimited()},
            }
        return tomli_w.dumps(sections)

    def _unlimited(self) -> dict[str, Any]:
        """Return the limits of the space that were lifted, so that no rule fills them in when the file is read."""
        return {name: value for name, value in self.space_options.items() if name in BY_RULE and value == NO_LIMIT}

    def _options_of_evaluator(self) -> dict[str, Any]:
        """Return the options of the evaluator, without those that a rule will fill in."""
        options = _options(self.parts.evaluator)
        by_rule = () if self.evaluator != "fitted-q" else FILLED_IN
        return {name: v for name, v in options.items() if name not in by_rule or name in self.evaluator_options}

    @classmethod
    def from_toml(cls, path: str | Path, changes: Mapping[str, Any] | None = None) -> RunSettings:
        """Return the settings of a file; old option names are translated.

        Parameters
        ----------
        path : str or Path
            Its table is relative to the current folder or, if nothing is there, to the file.
        changes : mapping, optional
            Sections like those of the file; their entries take precedence. Another evaluator or space replaces its whole section.
        """
        found, changes = read_sections(path), changes or {}
        learning, data = found["learning"], dict(found.get("data", {}))
        try:
            written_by_run = set(learning) >= ALWAYS_WRITTEN
            if written_by_run and "state_weights" not in learning:
                learning = {**learning, "state_weights": "batch"}
            parts = {
                "evaluator": _part("evaluator", found, evaluators, EVALUATORS),
                "space": _part("space", found, policy_spaces, SPACES),
            }
            if (
                written_by_run and parts["evaluator"].get("kind") == "fitted-q"
            ):  # before combinations of columns existed
                parts["evaluator"] = {"projections": 0, **parts["evaluator"]}
            data["table"] = located(data.get("table", ""), path)
            sections = changed({"data": data, "learning": learning, **parts}, changes)
            sections, ignored = without_chosen(sections, changes)
            result = cls.from_sections(sections)
        except InvalidInputError as error:
            with_options = " with the given options" if any(changes.values()) else ""
            raise InvalidInputError(f"{path}{with_options}: {error}") from error
        if ignored:
            warnings.warn(
                f"{path}: {', '.join(ignored)} {'has' if len(ignored) == 1 else 'have'} no effect, because select chooses "
                f"{'it' if len(ignored) == 1 else 'them'}.",
                SettingsWarning,
                stacklevel=2,
            )
        return result

    @classmethod
    def from_sections(cls, sections: Mapping[str, Mapping[str, Any]]) -> RunSettings:
        """Return the settings in the sections data, learning, evaluator and space, as in a settings file."""
        data = dict(sections.get("data", {}))
        parts: dict[str, Any] = {}
        for name, default in DEFAULT_KINDS.items():
            if options := dict(sections.get(name, {})):
                parts |= {name: options.pop("kind", default), f"{name}_options": options}
        return cls(data.pop("table", ""), data, **sections.get("learning", {}), **parts)


def _part(name: str, found: Mapping[str, Any], home: Any, kinds: Mapping[str, str]) -> dict[str, Any]:
    """Return the section of the evaluator or the space in a settings file, with today's names and defaults."""
    options = dict(found.get(name, {}))
    if not options:
        return {}
    kind = options.pop("kind", DEFAULT_KINDS[name])
    made = (
        getattr(home, kinds[kind]) if isinstance(kind, str) and kind in kinds else None
    )  # unknown kinds are refused later
    return {"kind": kind, **_with_old_defaults(kind, translated(made, options))}


def _with_old_defaults(kind: Any, options: dict[str, Any]) -> dict[str, Any]:
    """Return the options of a settings file, with the depth of trees before they had a limit by default.

    Such files list every option that is not None, and thus both sizes of nodes but no depth.
    """
    unlimited = kind == "trees" and "max_depth" not in options and set(options) >= WRITTEN_BEFORE
    return {**options, "max_depth": NO_LIMIT} if unlimited else options


def _check_options(kind: Any, options: Mapping[str, Any], part: str) -> None:
    """Refuse options that ``kind`` does not have or whose values break its constraints, without building one."""
    known = _known(kind)
    refuse_old_names(kind, options)
    if unknown := set(options) - known:
        raise InvalidInputError(
            f"{kind.__name__} has no option {min(unknown)!r} in run settings; the {part} takes {', '.join(sorted(known))}."
            f"{did_you_mean(min(unknown), known)}"
        )
    if hasattr(kind, "_constraints"):
        check_options(kind, _given(options))


def _made(kind: Any, options: Mapping[str, Any]) -> Any:
    """Build an evaluator or a space with ``options``."""
    threads = (
        {"n_jobs": -1} if "n_jobs" in _known(kind) else {}
    )  # all cores; the result does not depend on their number
    return kind(**{**threads, **_given(options)})


def _known(kind: Any) -> set[str]:
    return {f.name for f in fields(kind)} - NOT_IN_FILES


def _given(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options with tuples in place of a file's lists, and None for `NO_LIMIT`, because TOML has no None."""
    return {name: None if value == NO_LIMIT else _as_tuple(value) for name, value in options.items()}


def _as_tuple(value: Any) -> Any:
    return tuple(map(_as_tuple, value)) if isinstance(value, list) else value


def _options(part: Any) -> dict[str, Any]:
    """Return the options of an evaluator or space that a file can hold; None is left out where it is the default."""
    kept = [f for f in fields(part) if f.name not in NOT_IN_FILES]
    values = {f.name: getattr(part, f.name) for f in kept}
    values |= {f.name: NO_LIMIT for f in kept if values[f.name] is None and f.default is not None}
    return {name: value for name, value in values.items() if isinstance(value, bool | int | float | str | tuple)}
