"""Runs that choose their learner among candidates."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from capi._utils.rescue import rescued_by
from capi.data.transitions import Transitions
from capi.errors import InvalidInputError
from capi.files.atomic import write_text
from capi.files.policy_file import check_can_be_saved
from capi.learning import rules
from capi.policy_spaces import Neighbors
from capi.runs.fit import FITS, SETTINGS, TABLE, RunResult, finished, state_of_interrupted
from capi.runs.settings import RunSettings
from capi.selection import choose, default_candidates, selecting
from capi.selection.result import BEHAVIOUR

SELECTION = "selection.json"
FORMAT = "capi selection"


def selected_run(
    settings: RunSettings,
    batch: Transitions,
    test: Transitions,
    table: str,
    folder: Path,
    shown: Any,
    *,
    resume: bool,
    executor: Any = None,
) -> RunResult:
    """Choose and learn as `capi.selection.choose` does, and write the results; finished fits are kept if the run is interrupted."""

    def leave() -> str:
        """Without a finished fit there is nothing to resume, so free the folder again."""
        if not resume and not (folder / FITS).exists():
            for name in (SETTINGS, TABLE):
                (folder / name).unlink(missing_ok=True)
        return state_of_interrupted(folder)

    candidates = default_candidates(batch, settings.discount, random_state=settings.random_state)
    if not settings.with_states:  # whose file would hold rows of the table
        candidates = [c for c in candidates if not isinstance(c.learner.space, Neighbors)]
    with rescued_by(leave):
        try:
            learner = choose(
                batch,
                settings.discount,
                candidates=candidates,
                test=test,
                usable=None if settings.with_states else check_can_be_saved,
                always_learn=settings.always_learn,
                budget=None if settings.budget is None else 60 * settings.budget,
                folder=folder,
                random_state=settings.random_state,
                executor=executor,
                shown=lambda tasks: shown(iter(tasks), 0, len(tasks)),
            )
        except BaseException:
            leave()
            raise
    policy, found = learner.policy_, learner.selection_
    if hasattr(learner, "q_"):
        q = learner.q_
    else:
        q = rules.default_evaluator(batch, settings.discount).evaluate(policy, batch, discount=settings.discount)
    history = getattr(learner, "history_", [{"k": 0.0}])
    write_text(folder / SELECTION, json.dumps({"format": FORMAT, **found.to_dict()}, indent=1))
    result = finished(settings, batch, table, folder, policy, q.values(batch.states), history)
    with suppress(OSError):
        (folder / FITS).unlink(missing_ok=True)
    return replace(result, selection=replace(found, is_cost=bool(settings.roles.get("cost"))))


def check_episodes(learning: Transitions, test: Transitions) -> None:
    """Refuse a table with too few episodes to learn from, to compare on, or to test with."""
    selecting.check_episodes(learning, test)


def returned_behaviour(folder: Path) -> bool:
    """Return whether a run's selection returned what was done."""
    found = read_selection(folder)
    return found is not None and found.get("returned") == BEHAVIOUR


def read_selection(folder: Path) -> dict[str, Any] | None:
    """Return what a run tried, or None if it did not select."""
    path = folder / SELECTION
    if not path.exists():
        return None
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InvalidInputError(
            f"{path} cannot be read: {error}. Delete it, or run capi fit --select again."
        ) from error
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise InvalidInputError(f"{path} must be a file written by capi fit --select. Delete it.")
    return found
