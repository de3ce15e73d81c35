"""A first settings file: the roles of a table's columns, with comments."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import tomli_w

from capi.errors import InvalidInputError
from capi.files.atomic import write_text
from capi.runs.guess import RARE, GuessedRoles
from capi.runs.settings import RunSettings

HOLD_OUT = 0.3
DISCOUNT = 0.99

MEANING = {
    "episode": "rows with the same value belong together, in order of time",
    "time": "orders the rows of an episode",
    "action": "what was chosen",
    "reward": "larger is better; for a cost, write cost instead of reward",
    "cost": "smaller is better; if larger is better, write reward instead of cost",
    "terminated": "the process ended with this row",
    "truncated": "only the recording ended with this row",
    "propensity": "probability with which the action was chosen",
    "weight": "weight of the row",
}
OTHERS = {
    "episode": "the column that says which rows belong to the same patient, machine or customer",
    "time": "the column that orders the rows of an episode; without it they keep the order of the table",
    "terminated": "true where the process ended; without it the last row of each episode counts as the end",
    "propensity": "the probability of the action that was taken, if it is known",
}


def settings_text(table: str | Path, guess: GuessedRoles) -> str:
    """Return a commented settings file for a table; `RunSettings.from_toml` reads it."""
    roles = guess.roles
    if not roles["state"]:
        why = "".join(f" Left out: {name}, because {reason}." for name, reason in list(guess.left_out.items())[:3])
        raise InvalidInputError(f"{table} has no column left for the state. Name one: --state COL.{why}")
    RunSettings(str(table), roles)  # which checks the roles
    lines = [
        "# Settings for capi. The roles of the columns were guessed: check them, then run: capi fit",
        "# Options on the command line, such as capi fit --max-depth 2, take precedence.",
        "",
        "[data]",
        f"{_entry('table', str(table))}  # relative to the folder in which capi runs or, if it is not there, to this file",
    ]
    lines += [
        f"{_entry(role, name)}  # {MEANING[role]}: {_one_line(guess.reasons[role])}" for role, name in _single(guess)
    ]
    lines += [f'# {role} = "..."  # {meaning}' for role, meaning in OTHERS.items() if role not in roles]
    lines += ["", "# What was known when the decision was taken. Remove columns that were recorded later."]
    lines += ["state = [", *(f"    {json.dumps(name, ensure_ascii=True)}," for name in roles["state"]), "]"]
    if roles.get("time") in roles["state"]:
        lines += [
            "# The time is a state, too, because all episodes have the same length: it says how many decisions remain."
        ]
    lines += [f"# Note: {_one_line(note)}" for note in guess.notes]
    if guess.left_out:
        lines += ["# Left out:", *(f"#   {json.dumps(name)}: {reason}" for name, reason in guess.left_out.items())]
    lines += ["", "[learning]", *_learning(guess)]
    lines += [
        "",
        "# The form of the policy: by default the best tree of depth 3.",
        "# [space]",
        '# kind = "optimal-trees"  # or trees, forests, thresholds, linear, neighbors, reweighted',
        "# max_depth = 3",
    ]
    return "\n".join(lines) + "\n"


def write_settings(path: str | Path, table: str | Path, guess: GuessedRoles, *, force: bool = False) -> None:
    """Write the first settings file of a table; an existing file is replaced only with ``force``."""
    if Path(path).exists() and not force:
        raise InvalidInputError(
            f"{path} exists already. Edit it, choose another file with --out, or replace it with --force."
        )
    write_text(path, settings_text(table, guess))


def _single(guess: GuessedRoles) -> list[tuple[str, str]]:
    return [(role, name) for role, name in guess.roles.items() if role != "state"]


def _learning(guess: GuessedRoles) -> list[str]:
    if guess.one_step:
        discount = ["discount = 0.0  # each row is an episode of its own, so only its own reward counts"]
    else:
        discount = [
            f"discount = {DISCOUNT}  # how much the reward of the next row counts, relative to this one; 0 for none of it"
        ]
    support = [
        f"support = {RARE}  # choose only among actions that the table takes at least this many times as often as the most frequent one in similar states",
        "support_depth = 3  # a tree of this depth says which actions these are",
    ]
    if not guess.rare:
        support = [f"# {line}" for line in support[:1]]
    return [
        *discount,
        f"hold_out = {HOLD_OUT}  # share of the episodes that only evaluate the policy: capi evaluate run",
        *support,
        "random_state = 0  # the same seed gives the same policy",
        "# select = true  # try several learners, and keep what was done unless the result is better (takes longer; support and [space] have no effect then)",
    ]


def _entry(key: str, value: Any) -> str:
    return tomli_w.dumps({key: value}).strip()


def _one_line(text: str) -> str:
    """Return text for a comment, which ends with the line and holds no control characters."""
    return "".join(c if c.isprintable() else " " for c in text)
