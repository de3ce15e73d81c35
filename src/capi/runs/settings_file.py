"""Settings files as sections of plain values: read and checked before anything slow is imported, and changed by options."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from capi._utils.renamed import translated
from capi._utils.suggestions import did_you_mean
from capi.data.table_files import is_there
from capi.errors import InvalidInputError

ROLES = ("episode", "time", "state", "action", "reward", "cost", "terminated", "truncated", "propensity", "weight")
ORDERED = "ordered"  # not a role: the ordered categories among the state columns
EXCEPT = "except"  # not a role: the columns that "*" leaves out
ALL_OTHERS = "*"
NO_LIMIT = "none"
SECTIONS = ("data", "learning", "evaluator", "space")
DEFAULT_KINDS = {"evaluator": "fitted-q", "space": "optimal-trees"}
LEARNING = (
    "discount",
    "n_iterations",
    "until_settled",
    "random_state",
    "hold_out",
    "keep",
    "discount_per",
    "with_states",
    "min_category_rows",
    "state_weights",
    "accept",
    "support",
    "support_depth",
    "select",
    "budget",
    "always_learn",
    "sample_rows",
)
OF_SELECTION = ("select", "budget", "always_learn")
CHOSEN = (
    "n_iterations",
    "until_settled",
    "keep",
    "state_weights",
    "accept",
    "support",
    "support_depth",
)  # by a selection
CHOSEN_DEFAULTS = {"accept": "any"}  # which the files of all runs list
Sections = dict[str, dict[str, Any]]
OLD_NAMES = {"iterations": "n_iterations", "seed": "random_state"}


class _Old:
    _renamed = OLD_NAMES


def read_sections(path: str | Path) -> Sections:
    """Return the sections of a settings file, with today's names of the settings; refuse unknown names.

    The names of the evaluator's and the space's own options are checked later, because their classes need the compiler.
    """
    try:
        found = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InvalidInputError(f"{path} cannot be read as settings: {error}.") from error
    if unknown := sorted(set(found) - set(SECTIONS)):
        raise InvalidInputError(
            f"{path} must have the sections data, learning, evaluator and space; got {sorted(found)}."
            f"{did_you_mean(unknown[0], SECTIONS)}"
        )
    for name, part in found.items():
        if not isinstance(part, dict):
            raise InvalidInputError(f"{path}: {name} must be a section, written [{name}]; got {part!r}.")
    try:
        found["learning"] = translated(_Old, found.get("learning", {}))
        if unknown := sorted(set(found["learning"]) - set(LEARNING)):
            guess = did_you_mean(unknown[0], LEARNING)
            raise InvalidInputError(f"learning takes {', '.join(LEARNING)}; got {sorted(found['learning'])}.{guess}")
        roles = ("table", *ROLES, EXCEPT, ORDERED)
        if unknown := sorted(set(found.get("data", {})) - set(roles)):
            raise InvalidInputError(
                f"data takes {', '.join(roles)}; got {unknown[0]!r}.{did_you_mean(unknown[0], roles)}"
            )
    except InvalidInputError as error:
        raise InvalidInputError(f"{path}: {error}") from error
    return found


def located(table: Any, path: str | Path) -> Any:
    """Return where the table of the settings file ``path`` is: as named or, if nothing is there, next to the file."""
    beside = Path(path).parent / table if isinstance(table, str) and table else None
    return str(beside) if beside is not None and not is_there(table) and is_there(beside) else table


def changed(found: Mapping[str, Any], changes: Mapping[str, Any]) -> Sections:
    """Return the sections of a settings file with the entries of ``changes``, sections as well, in place of its own.

    Another evaluator or space replaces its whole section; so do a reward the cost, and a cost the reward.
    """
    sections = {name: dict(found.get(name, {})) for name in SECTIONS}
    new: Sections = {name: dict(changes.get(name, {})) for name in SECTIONS}
    data, roles = sections["data"], new["data"]
    for role, other in (("reward", "cost"), ("cost", "reward")):
        if role in roles:
            data.pop(other, None)
    if "state" in roles and ALL_OTHERS not in (names := _names(roles["state"])):
        data.pop(EXCEPT, None)
        orders = data.pop(ORDERED, None)
        kept = {name: values for name, values in (orders or {}).items() if name in names}
        if kept:
            data[ORDERED] = kept
    if ORDERED in data and ORDERED in roles:
        roles[ORDERED] = {**data[ORDERED], **roles[ORDERED]}
    for part, default in DEFAULT_KINDS.items():
        if "kind" in new[part] and new[part]["kind"] != sections[part].get("kind", default):
            sections[part] = {}
    if "work_limit" in new["space"]:
        sections["space"].pop("late_work_limit", None)  # then it is that of all rounds
        if new["space"].get("kind", sections["space"].get("kind", "optimal-trees")) != "optimal-trees":
            del new["space"]["work_limit"]  # other spaces search nothing
    if "n_iterations" in new["learning"]:
        sections["learning"].pop("until_settled", None)  # which belongs to a number of rounds by rule
    if new["learning"].get("select") is False:
        for name in OF_SELECTION:
            sections["learning"].pop(name, None)
    return {name: {**sections[name], **new[name]} for name in SECTIONS}


def without_chosen(sections: Sections, changes: Mapping[str, Any]) -> tuple[Sections, list[str]]:
    """Return sections without what a selection chooses, and the names of what was left out; ``changes`` remain."""
    learning = sections["learning"]
    if learning.get("select") is not True:
        return sections, []
    given = {name: changes.get(name, {}) for name in SECTIONS}
    ignored = [
        name
        for name in CHOSEN
        if name in learning and name not in given["learning"] and learning[name] != CHOSEN_DEFAULTS.get(name)
    ]
    kept: Sections = {**sections, "learning": {name: v for name, v in learning.items() if name not in ignored}}
    for part in DEFAULT_KINDS:
        if set(sections[part]) - set(given[part]):
            ignored.append(f"[{part}]")
        kept[part] = dict(given[part])
    return kept, ignored


def _names(state: Any) -> list[str]:
    """Return the names in a state: one text, or several, with names between commas."""
    texts: Sequence[Any] = [state] if isinstance(state, str) else state
    return [name.strip() for text in texts for name in (str(text), *str(text).split(","))]
