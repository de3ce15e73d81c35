"""Run a learner on a table, save its progress, and resume after an interruption."""

from __future__ import annotations

import csv
import hashlib
import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from capi.data.transitions import Transitions
from capi.errors import CapiError, InvalidInputError
from capi.files.archive import write_archive
from capi.files.atomic import encode_text, result_folder, write_text, written_together
from capi.files.lock import locked
from capi.files.policy_file import load_policy, save_policy
from capi.learning.iteration import Iteration
from capi.learning.learner import training_of
from capi.plotting.history import draw_history
from capi.policies import described
from capi.policy_spaces.constrained import ConstrainedPolicy
from capi.policy_spaces.imitation import ReadByImitation
from capi.runs.checkpoint import Kept, read_checkpoint, write_checkpoint
from capi.runs.settings import CANDIDATES, RunSettings, score_of
from capi.types import Policy

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SETTINGS, POLICY, HISTORY, VALUES, EVALUATION, CHECKPOINT, LOCK = (
    "settings.toml",
    "policy.capi",
    "history.csv",
    "values.zip",
    "evaluation.json",
    "checkpoint.zip",
    ".lock",
)
HISTORY_COLUMNS = ("k", "loss", "changed", "value", "score")  # only numbers that do not depend on the machine
VALUES_FORMAT = "capi values"
SHARE = 0.05  # of the running time that checkpoints may take
READ_AT_ONCE = 2**20


@dataclass(frozen=True)
class RunResult:
    """A finished run."""

    folder: Path
    settings: RunSettings
    policy: Policy
    history: list[dict[str, float]]

    def plot_history(self) -> Figure:
        """Return a figure of loss, changed decisions and estimated value by iteration."""
        return draw_history(self.history)

    def rules(self) -> str:
        """Return the policy as text; a policy too large to print is imitated on the states of the table."""
        policy: Any = self.policy
        printed = policy.policy if isinstance(policy, ConstrainedPolicy) else policy
        if isinstance(printed, ReadByImitation):
            batch = self.settings.batch()
            return str(policy.rules(batch.states, batch.allowed))
        return str(policy.rules()) if hasattr(policy, "rules") else str(policy)


def fit_run(
    settings: RunSettings | None,
    out: str | Path,
    *,
    resume: bool = False,
    shown: Callable[[Iterator[Iteration], int, int], Iterator[Iteration]] = lambda rounds, done, total: rounds,  # noqa: ARG005
) -> RunResult:
    """Learn a policy as described by ``settings``, and write the run to the folder ``out``.

    Parameters
    ----------
    settings : RunSettings, optional
        None with ``resume``, which uses the settings in the folder.
    out : str or Path
    resume : bool
        Resume the run in the folder. It ends with the same policy as without the interruption.
    shown : callable
        Wraps the iterations, for a progress bar: (iterations, number done, total number) -> iterations.
    """
    if resume and not (Path(out) / SETTINGS).is_file():
        raise InvalidInputError(f"{out} has no run: {SETTINGS} is missing.")
    folder = result_folder(out)
    with locked(folder / LOCK, lambda holder: f"another process (id {holder}) is using {folder}. Wait for it."):
        if resume:
            settings = _settings_of(folder)
        elif settings is None:
            raise InvalidInputError("settings must be given for a new run.")
        elif (folder / SETTINGS).exists():
            raise InvalidInputError(f"{folder} already has a run. Resume it with --resume, or choose another folder.")
        if (folder / POLICY).is_file():
            return load_run(folder)
        batch = settings.batch()  # before anything is written: an unreadable table must not leave a run behind
        batch.schema.to_dict()  # nor must names or labels that cannot be saved
        if not resume:
            write_text(folder / SETTINGS, settings.to_toml())
        try:
            return _run(settings, batch, folder, shown)
        except CapiError:
            if not resume and not (folder / CHECKPOINT).exists():
                (folder / SETTINGS).unlink(missing_ok=True)  # nothing to resume: free the folder again
            raise


def load_run(folder: str | Path) -> RunResult:
    """Return a finished run."""
    path = Path(folder)
    if not (path / POLICY).is_file():
        hint = " The run is not finished: resume it with capi fit --resume." if (path / SETTINGS).is_file() else ""
        raise InvalidInputError(f"{path} has no {POLICY}.{hint}")
    try:
        with (path / HISTORY).open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
            history = [{name: float(value) for name, value in row.items() if value != ""} for row in rows]
    except (OSError, ValueError, TypeError) as error:
        raise InvalidInputError(f"{path / HISTORY} cannot be read: {error}.") from error
    return RunResult(path, _settings_of(path), load_policy(path / POLICY), history)


def _run(settings: RunSettings, batch: Transitions, folder: Path, shown: Any) -> RunResult:
    learner = settings.learner()
    table = digest(settings.table)
    origin = _origin(settings.to_toml(), table)
    after: Iteration | None = None
    kept: Kept | None = None  # the best so far, if the settings ask for it
    history: list[dict[str, float]] = []
    if (folder / CHECKPOINT).is_file():
        written_then = _origin((folder / SETTINGS).read_text(encoding="utf-8"), table)  # perhaps in an older layout
        origins = (origin, written_then)
        after, history, kept = read_checkpoint(
            folder / CHECKPOINT, origins, batch, learner.evaluator, settings.random_state
        )
    done, written, cost = 0 if after is None else after.k + 1, perf_counter(), 0.0
    for iteration in shown(learner.iterate(batch, after=after), done, settings.n_iterations):
        after = iteration
        history.append(iteration.numbers())
        if settings.keep == "best" and settings.n_iterations - iteration.k <= CANDIDATES:
            candidate = _kept(
                iteration, batch, score_of(iteration.policy, batch, settings.discount, settings.random_state)
            )
            history[-1]["score"] = candidate.score
            kept = candidate if kept is None or candidate.score > kept.score else kept
        if perf_counter() - written >= cost / SHARE and iteration.k + 1 < settings.n_iterations:
            started = perf_counter()
            write_checkpoint(folder / CHECKPOINT, iteration, history, origin, kept)
            written, cost = perf_counter(), perf_counter() - started
    if after is None:
        raise InvalidInputError("the run has no iterations.")
    kept = _kept(after, batch, 0.0) if kept is None else kept
    policy = described(kept.policy, batch.schema, training_of(batch, settings.discount, kept.k + 1))
    with written_together(folder, [HISTORY, VALUES]) as places:
        encode_text(places[HISTORY], _csv(history))
        write_archive(places[VALUES], {"format": VALUES_FORMAT, "table": table}, {"values": kept.values})
    (folder / EVALUATION).unlink(missing_ok=True)  # of an earlier policy
    save_policy(policy, folder / POLICY)
    (folder / CHECKPOINT).unlink(missing_ok=True)
    return RunResult(folder, settings, policy, history)


def _origin(settings: str, table: str) -> str:
    """Return a fingerprint of the text of a run's settings and the digest of its table."""
    return hashlib.sha256(settings.encode() + table.encode()).hexdigest()


def _kept(iteration: Iteration, batch: Transitions, score: float) -> Kept:
    return Kept(iteration.k, iteration.policy, iteration.q.values(batch.states).astype(np.float32), score)


def _settings_of(folder: Path) -> RunSettings:
    if not (folder / SETTINGS).is_file():
        raise InvalidInputError(f"{folder} has no run: {SETTINGS} is missing.")
    return RunSettings.from_toml(folder / SETTINGS)


def _csv(history: list[dict[str, float]]) -> str:
    text = io.StringIO()
    columns = [name for name in HISTORY_COLUMNS if any(name in row for row in history)]
    writer = csv.DictWriter(text, fieldnames=columns, restval="", lineterminator="\n", extrasaction="ignore")
    writer.writeheader()
    writer.writerows(history)
    return text.getvalue()


def digest(path: str | Path) -> str:
    """Return the SHA-256 digest of a file, or of all files in a folder."""
    place, found = Path(path), hashlib.sha256()
    for part in sorted(place.rglob("*")) if place.is_dir() else [place]:
        if part.is_file():
            with part.open("rb") as file:
                while block := file.read(READ_AT_ONCE):
                    found.update(block)
    return found.hexdigest()
