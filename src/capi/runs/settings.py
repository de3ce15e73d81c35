"""What a run depends on, as one TOML file."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from importlib import import_module
from pathlib import Path
from typing import Any, Self

import numpy as np

from capi._utils.validation import as_discount, as_int, check_choice, is_real
from capi.data.schema import Schema
from capi.data.transitions import Transitions
from capi.errors import InvalidInput
from capi.learning.iteration import Iteration
from capi.learning.learner import CAPI
from capi.offline import fitted_value
from capi.types import Policy

EVALUATORS = {"fitted-q": ("fitted", "FittedQ"), "kernel-fitted-q": ("kernel", "KernelFittedQ")}
SPACES = {
    "optimal-trees": ("optimal_trees", "OptimalTrees"),
    "trees": ("trees", "Trees"),
    "forests": ("forests", "Forests"),
    "thresholds": ("thresholds", "Thresholds"),
    "linear": ("linear", "Linear"),
    "neighbors": ("neighbors", "Neighbors"),
}
NOT_IN_FILES = {"regressor", "kernel", "features", "metric_params", "monotone"}
ROLES = ("episode", "time", "state", "action", "reward", "terminated", "truncated", "propensity", "weight")
CANDIDATES = 10  # last rounds among which the best is sought
LEARNING = ("discount", "iterations", "seed", "hold_out", "keep")
READERS = {".csv": "from_csv", ".parquet": "from_parquet", ".pq": "from_parquet"}


class KeepsBest(CAPI):
    """The learner that ends with the best of its last rounds, by fitted Q evaluation on what it learns from."""

    def fit(self, transitions: Any = None, **settings: Any) -> Self:
        """Run the loop and keep its best policy; ``transitions`` is a batch."""

        def score(iteration: Iteration) -> float:
            early = self.n_iterations - iteration.k > CANDIDATES
            return -np.inf if early else score_of(iteration.policy, transitions, self.discount, self.random_state)

        asked, self.keep = self.keep, score
        try:
            return super().fit(transitions, **settings)
        finally:
            self.keep = asked


def score_of(policy: Policy, batch: Transitions, discount: float, seed: Any) -> float:
    """Return the number by which runs compare the policies of their last rounds."""
    return fitted_value(policy, batch, discount=discount, random_state=seed, n_jobs=-1)


@dataclass(frozen=True)
class RunSettings:
    """Table, roles of its columns, and how to learn from it.

    Parameters
    ----------
    table : str
        A CSV or Parquet file.
    roles : mapping
        From episode, time, state (a list), action, reward, terminated, truncated, propensity, weight to names of columns.
    discount : float in [0, 1)
    iterations : int
    seed : int
    evaluator, space : str
        Their kinds: see `EVALUATORS` and `SPACES`.
    evaluator_options, space_options : mapping
        Their parameters; what is not there has its default.
    hold_out : float in [0, 1)
        The share of the episodes that are not learned from, so that the policy can be evaluated on them.
    keep : "last" or "best"
        Which policy the run ends with: that of the last iteration, or the best of the last ten by fitted Q evaluation on what was learned from.
        Small policies make the iterations take turns between good and bad.
    """

    table: str
    roles: Mapping[str, Any]
    discount: float = 0.99
    iterations: int = 50
    seed: int = 0
    evaluator: str = "fitted-q"
    space: str = "optimal-trees"
    evaluator_options: Mapping[str, Any] = field(default_factory=lambda: {"sweeps": 5})
    space_options: Mapping[str, Any] = field(default_factory=dict)
    hold_out: float = 0.0
    keep: str = "last"

    def __post_init__(self) -> None:
        as_discount(self.discount)
        as_int(self.iterations, "iterations", minimum=1)
        as_int(self.seed, "seed", minimum=0)
        if not is_real(self.hold_out) or not 0 <= self.hold_out < 1:
            raise InvalidInput(f"hold_out must lie in [0, 1); got {self.hold_out!r}.")
        check_choice(self.keep, "keep", ("last", "best"))
        check_choice(self.evaluator, "evaluator", EVALUATORS)
        check_choice(self.space, "space", SPACES)
        for role in self.roles:
            check_choice(role, "a role", ROLES)
        for role in ("state", "action", "reward"):
            if not self.roles.get(role):
                raise InvalidInput(f"the {role} column{'s' if role == 'state' else ''} must be named: --{role} COL.")
        if Path(self.table).suffix.lower() not in READERS:
            raise InvalidInput(f"table must be a .csv or .parquet file; got {self.table!r}.")
        self.learner()

    def learner(self) -> CAPI:
        """Return the learner that these settings describe."""
        kind = KeepsBest if self.keep == "best" else CAPI
        return kind(
            evaluator=_made("capi.evaluators", EVALUATORS[self.evaluator], self.evaluator_options, "evaluator"),
            space=_made("capi.policy_spaces", SPACES[self.space], self.space_options, "space"),
            discount=self.discount,
            n_iterations=self.iterations,
            random_state=self.seed,
        )

    def batch(self) -> Transitions:
        """Return the decisions that are learned from: all of the table, but for the episodes that are held out."""
        whole = self.read(self.table)
        return self._split(whole)[0] if self.hold_out else whole

    def held_out(self) -> Transitions:
        """Return the decisions of the episodes that are not learned from."""
        if not self.hold_out:
            raise InvalidInput("the run learned from all of its table; nothing was held out.")
        return self._split(self.read(self.table))[1]

    def read(self, table: str | Path, schema: Schema | None = None) -> Transitions:
        """Return a table as transitions, its columns in the same roles; ``schema`` has encodings and actions of an earlier one."""
        if Path(table).suffix.lower() not in READERS:
            raise InvalidInput(f"table must be a .csv or .parquet file; got {str(table)!r}.")
        reader = getattr(Transitions, READERS[Path(table).suffix.lower()])
        roles = {role: list(name) if role == "state" else name for role, name in self.roles.items()}
        batch: Transitions = reader(table, **roles, discount=self.discount, schema=schema)
        return batch

    def _split(self, whole: Transitions) -> tuple[Transitions, Transitions]:
        return whole.split(1 - self.hold_out, random_state=self.seed)

    def to_toml(self) -> str:
        """Return the settings as text, complete: defaults of today are written down, so that tomorrow's change nothing."""
        learner = self.learner()
        parts = {
            "data": {"table": self.table, **self.roles},
            "learning": {name: getattr(self, name) for name in LEARNING},
            "evaluator": {"kind": self.evaluator, **_options(learner.evaluator)},
            "space": {"kind": self.space, **_options(learner.space)},
        }
        return "\n".join(line for name, values in parts.items() for line in _section(name, values)).strip() + "\n"

    @classmethod
    def from_toml(cls, path: str | Path) -> RunSettings:
        """Return the settings of a file."""
        try:
            found = tomllib.loads(Path(path).read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise InvalidInput(f"{path} cannot be read as settings: {error}.") from error
        unknown = set(found) - {"data", "learning", "evaluator", "space"}
        if unknown or not all(isinstance(part, dict) for part in found.values()):
            raise InvalidInput(
                f"{path} must have the sections data, learning, evaluator and space; got {sorted(found)}."
            )
        data, learning = dict(found.get("data", {})), dict(found.get("learning", {}))
        evaluator, space = dict(found.get("evaluator", {})), dict(found.get("space", {}))
        kinds: dict[str, Any] = {}
        if "kind" in evaluator:
            kinds |= {"evaluator": evaluator.pop("kind"), "evaluator_options": evaluator}
        if "kind" in space:
            kinds |= {"space": space.pop("kind"), "space_options": space}
        if set(learning) - set(LEARNING):
            raise InvalidInput(f"{path}: learning has {', '.join(LEARNING)}; got {sorted(learning)}.")
        return cls(str(data.pop("table", "")), data, **learning, **kinds)


def _made(package: str, home: tuple[str, str], options: Mapping[str, Any], what: str) -> Any:
    """Return an evaluator or a space with ``options``."""
    made = getattr(import_module(f"{package}.{home[0]}"), home[1])
    known = {f.name for f in fields(made)} - NOT_IN_FILES
    unknown = set(options) - known
    if unknown:
        raise InvalidInput(
            f"{home[1]} has no option {min(unknown)!r} in a file; the {what} takes {', '.join(sorted(known))}."
        )
    threads = {"n_jobs": -1} if "n_jobs" in known else {}  # all cores; the result does not depend on it
    given = {name: tuple(map(tuple, v)) if isinstance(v, list) else v for name, v in options.items()}
    return made(**{**threads, **given})


def _options(part: Any) -> dict[str, Any]:
    """Return the settings of an evaluator or space that a file can hold; None is left out, it is the default."""
    values = {f.name: getattr(part, f.name) for f in fields(part) if f.name not in NOT_IN_FILES}
    return {name: value for name, value in values.items() if isinstance(value, bool | int | float | str | tuple)}


def _section(name: str, values: Mapping[str, Any]) -> list[str]:
    return [f"[{name}]", *(f"{key} = {_toml(value)}" for key, value in values.items() if value is not None), ""]


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_toml, value))}]"
    escaped = "".join(
        c if c.isprintable() and c not in '"\\' else f"\\u{ord(c):04x}" if ord(c) < 2**16 else f"\\U{ord(c):08x}"
        for c in str(value)
    )
    return f'"{escaped}"'
