"""Run a learner on a table, save its progress, and resume after an interruption."""

from __future__ import annotations

import csv
import hashlib
import io
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from glob import glob
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from capi._utils.late import late
from capi._utils.rescue import rescued_by
from capi._utils.validation import Floats
from capi.data.partitions import PartitionedTransitions
from capi.data.table_files import is_many
from capi.data.transitions import Transitions
from capi.errors import InvalidInputError, TableWarning
from capi.files.archive import write_archive
from capi.files.atomic import encode_text, result_folder, write_text, written_together
from capi.files.lock import HOLDER, locked
from capi.files.policy_file import load_policy, save_policy
from capi.learning.iteration import Iteration
from capi.learning.keeping import Best, Candidates
from capi.learning.leaf_rows import with_rows
from capi.learning.learner import supported, training_of
from capi.learning.rules import with_rules
from capi.plotting.history import draw_history
from capi.policies import described
from capi.policy_spaces.constrained import ConstrainedPolicy
from capi.policy_spaces.imitation import ReadByImitation
from capi.policy_spaces.supported import SupportedPolicy
from capi.runs.checkpoint import Checkpoints, read_checkpoint
from capi.runs.secret import SECRET, write_secret
from capi.runs.settings import RunSettings
from capi.runs.table import check_complete, check_several_actions
from capi.types import Policy

if TYPE_CHECKING:
    from matplotlib.figure import Figure

if TYPE_CHECKING:
    from capi.learning import partitioned
    from capi.runs import select
    from capi.selection import Selection
else:
    select = late("capi.runs.select")  # which builds on this module
    partitioned = late("capi.learning.partitioned")  # which needs the compiler

SETTINGS, TABLE, POLICY, HISTORY, VALUES, EVALUATION, CHECKPOINT, LOCK = (
    "settings.toml",
    "table.sha256",
    "policy.capi",
    "history.csv",
    "values.zip",
    "evaluation.json",
    "checkpoint.zip",
    ".lock",
)
HISTORY_COLUMNS = (
    "k",
    "loss",
    "changed",
    "value",
    "score",
    "careful_score",
    "kept",
    "effective_rows",
    "accepted",
    "cut_short",
    "remaining_gap",
    "loss_on_all_rows",
)  # only numbers that do not depend on the machine
COMPLETE = {"kernel-fitted-q", "linear", "thresholds"}  # parts that need tables without missing values
VALUES_FORMAT = "capi values"
COUNTED = re.compile(r"\(\d+ states?(?P<regret>, regret )?")
SHARE = 0.05  # of the running time that checkpoints may take
READ_AT_ONCE = 2**20
FITS = "selection-fits.json"  # finished fits of a selection


@dataclass(frozen=True)
class RunResult:
    """A finished run."""

    folder: Path
    settings: RunSettings
    policy: Policy
    history: list[dict[str, float]]
    selection: Selection | None = None  # what was tried and chosen, of a run that has just selected

    def batch(self) -> Transitions:
        """Return the decisions that the run learned from, encoded as its policy reads them."""
        return self.settings.batch(getattr(self.policy, "schema", None))

    def plot_history(self) -> Figure:
        """Return a figure of loss, changed decisions and estimated value by iteration."""
        return draw_history(self.history)

    def rules(self) -> str:
        """Return the policy as text; a policy too large to print is imitated on the states of the table."""
        policy: Any = self.policy
        printed = policy.policy if isinstance(policy, ConstrainedPolicy | SupportedPolicy) else policy
        if isinstance(printed, ReadByImitation):
            batch = self.batch()
            return str(policy.rules(batch.states, batch.allowed))
        if isinstance(policy, SupportedPolicy) and policy.tree is not None:
            return self._explained(policy.rules_on(self.batch().states))
        return self._explained(str(policy.rules())) if hasattr(policy, "rules") else str(policy)

    @property
    def learned_from_all_rows(self) -> bool:
        """Whether no part of the run saw only a sample of its learning rows."""
        wanted, training = self.settings.sample_rows, getattr(self.policy, "training", None)
        if wanted is None:
            return True
        n_rows = None if training is None else training.n_rows
        return n_rows is not None and n_rows <= wanted and not self.settings.select

    def _explained(self, text: str) -> str:
        """Return the rules of the policy, with a line on the numbers of its leaves if they have some."""
        counted, table = COUNTED.search(text), getattr(self.policy, "training", None)
        if counted is None or table is None or table.n_rows is None:
            return text
        of_all = self.learned_from_all_rows or any("loss_on_all_rows" in row for row in self.history)
        rows = "rows of the learning table" if of_all else "rows of a sample of the learning table"
        regret = (
            "; regret: what its action loses there in total, by the learner's values, to the best action of each row"
        )
        lost = regret if counted["regret"] else ""
        return f"{text}\n(states: {rows} that reach the leaf{lost})"


def fit_run(
    settings: RunSettings | None,
    out: str | Path,
    *,
    resume: bool = False,
    executor: Any = None,
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
    executor : dask.distributed.Client, optional
        The cluster that reads the table part by part, if it has more than a million rows or ``sample_rows`` is set, and fits the candidates of a
        selection. Every worker must see the table under the same name. The result does not depend on it.
    shown : callable
        Wraps the iterations, for a progress bar: (iterations, number done, total number) -> iterations.
    """
    if resume and not (Path(out) / SETTINGS).is_file():
        raise InvalidInputError(f"{out} has no run: {SETTINGS} is missing.")
    created = _missing_folders(Path(out))
    folder = result_folder(out)

    def free() -> str:
        for name in (LOCK, LOCK + HOLDER):
            (folder / name).unlink(missing_ok=True)
        _remove_empty(created)
        return state_of_interrupted(folder)

    try:
        with (
            rescued_by(free),
            locked(folder / LOCK, lambda holder: f"another process (id {holder}) is using {folder}. Wait for it."),
        ):
            return _locked_run(settings, folder, resume, executor, shown)
    except BaseException:
        _remove_empty(created)
        raise


def _locked_run(settings: RunSettings | None, folder: Path, resume: bool, executor: Any, shown: Any) -> RunResult:
    """Begin or resume the run in a folder that no other process uses."""
    _remove_leftovers(folder)
    if resume:
        settings = _settings_of(folder)
    elif settings is None:
        raise InvalidInputError("settings must be given for a new run.")
    elif (folder / SETTINGS).exists():
        raise InvalidInputError(f"{folder} already has a run. Resume it with --resume, or choose another folder.")
    if (folder / POLICY).is_file():
        return load_run(folder)
    settings.check_can_be_saved()
    settings, read = settings.with_batch(
        executor
    )  # before anything is written: an unreadable table must not leave a run behind
    local: Any = None
    if isinstance(read, PartitionedTransitions):
        local = partitioned.localised(settings.learner().loop(), read, None)
    batch: Any = read if local is None else local.batch
    test: Transitions | None = None
    if settings.select:
        test = settings.held_out(batch.schema)
        select.check_episodes(batch, test)
    check_several_actions(batch)
    for kind in {settings.evaluator, settings.space} & COMPLETE:
        check_complete(batch if local is None else read, kind)
    batch.schema.to_dict()  # nor must names or labels that cannot be saved
    if not settings.select:
        settings = settings.with_rules(batch, None if local is None else partitioned.rows_of_rule(local.survey))
    table = digest(settings.table)
    if resume:
        _check_table(settings.table, table, folder)
    else:
        _warn_about(batch)
        write_text(folder / TABLE, table + "\n")
        write_text(folder / SETTINGS, settings.to_toml())
    if test is not None:
        return select.selected_run(settings, batch, test, table, folder, shown, resume=resume, executor=executor)
    checkpoints = Checkpoints(folder / CHECKPOINT, _origin(settings.to_toml(), table), _rounds(settings), SHARE)

    def leave() -> str | None:
        """Save the last iteration; without one, there is nothing to resume, so free the folder again."""
        checkpoints.write_last()
        if not resume and not (folder / CHECKPOINT).exists() and not (folder / POLICY).exists():
            for name in (SETTINGS, TABLE):
                (folder / name).unlink(missing_ok=True)
            _remove_leftovers(folder)
        return state_of_interrupted(folder)

    with rescued_by(leave):
        try:
            return _run(settings, batch, table, folder, checkpoints, shown, local)
        except BaseException:
            leave()
            raise


def state_of_interrupted(folder: str | Path) -> str:
    """Return a sentence about what an interrupted run left behind, and how to go on."""
    path = Path(folder)
    if (path / POLICY).is_file():
        return f"stopped; the run in {path} is finished."
    if (path / CHECKPOINT).is_file() or (path / FITS).is_file():
        return f"stopped; capi fit --resume --out {path} resumes from this point."
    if (path / SETTINGS).is_file():
        return f"stopped before an iteration was saved; capi fit --resume --out {path} starts from the beginning."
    return "stopped before the first iteration was finished; nothing was saved."


def _warn_about(batch: Transitions) -> None:
    """Warn about what makes a policy wrong that is learned from a batch; `capi describe` and the report have all warnings."""
    for caveat in batch.describe().warnings:
        if caveat.severity == "severe":
            warnings.warn(
                f"{caveat.text}. capi describe lists everything that looks wrong.", TableWarning, stacklevel=2
            )


def _missing_folders(path: Path) -> list[Path]:
    """Return the folders that must be created for ``path`` to exist, the innermost first."""
    return [folder for folder in (path, *path.parents) if not folder.exists()]


def _remove_empty(folders: list[Path]) -> None:
    with suppress(OSError):  # one that is not empty, nor are its parents
        for folder in folders:
            folder.rmdir()


def _remove_leftovers(folder: Path) -> None:
    """Remove temporary files that killed processes left behind; the lock is held, so no process is writing them."""
    for name in (SETTINGS, TABLE, POLICY, HISTORY, VALUES, CHECKPOINT):
        for leftover in folder.glob(f".{name}.*.part"):
            with suppress(OSError):
                leftover.unlink()


def _check_table(path: str, found: str, folder: Path) -> None:
    """Refuse a table that has changed since the run began; a checkpoint has its own digest, and so do earlier versions' runs."""
    if (folder / CHECKPOINT).is_file() or not (folder / TABLE).is_file():
        return
    if (folder / TABLE).read_text(encoding="utf-8").strip() != found:
        raise InvalidInputError(
            f"{path} has changed since the run in {folder} began. Restore the table, or start a new run in another folder."
        )


def load_run(folder: str | Path) -> RunResult:
    """Return a finished run."""
    path = Path(folder)
    if not path.is_dir():
        raise InvalidInputError(
            f"run must be the folder of a finished run (capi fit makes one); {path} is not a folder."
        )
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


def _run(
    settings: RunSettings,
    batch: Transitions,
    table: str,
    folder: Path,
    checkpoints: Checkpoints,
    shown: Any,
    local: Any = None,  # the loop on the sample of a partitioned batch
) -> RunResult:
    learner, n_rounds = settings.learner(), _rounds(settings)
    evaluator: Any = learner.evaluator
    if local is not None:  # with the rules' settings, which the batch decided
        local = partitioned.relocalised(learner.loop(), local)
        evaluator = getattr(local.loop.evaluator, "on_sample", evaluator)
    batch, support = supported(learner.loop(), batch)
    learner.set_params(support=None)  # the batch has its masks
    after: Iteration | None = None
    loop, states = (learner.loop(), None) if local is None else (local.loop, local.states)
    candidates = Candidates(n_rounds, with_rules(loop, batch, states).n_from_log)
    history: list[dict[str, float]] = []
    if (folder / CHECKPOINT).is_file():
        written_then = _origin((folder / SETTINGS).read_text(encoding="utf-8"), table)  # perhaps in an older layout
        origins = (checkpoints.origin, written_then)
        after, history, candidates.policies = read_checkpoint(
            folder / CHECKPOINT, origins, batch, evaluator, settings.random_state
        )
    done = 0 if after is None else after.k + 1
    rounds = (
        learner.iterate(batch, after=after)
        if local is None
        else learner._rounds(local.loop, batch, local.states, None, after)
    )
    for iteration in shown(rounds, done, n_rounds):
        after = iteration
        history.append(
            iteration.numbers() | ({"cut_short": 1.0} if getattr(iteration.policy, "stopped_by", None) else {})
        )
        if settings.keep == "best":
            candidates.add(iteration)
        checkpoints.add(iteration, history, candidates.policies)
    if after is None:
        raise InvalidInputError("the run has no iterations.")
    chosen = Best(with_rows(after.policy, after.q, batch, after, evaluator), after.q, after.k, {})
    if settings.keep == "best":
        chosen = candidates.best(after, batch, settings.discount, evaluator, None)
        chosen.mark(history)
    kept = chosen.policy if support is None else support.restrict(chosen.policy)
    training = training_of(batch, settings.discount, chosen.k + 1)
    if local is not None:
        kept = local.finished(kept, chosen.q, history[chosen.k], is_last=chosen.k == after.k)
        training = replace(training, n_rows=local.survey.n_rows)
    policy = described(kept, batch.schema, training)
    result = finished(settings, batch, table, folder, policy, chosen.q.values(batch.states), history)
    checkpoints.remove()
    return result


def finished(
    settings: RunSettings,
    batch: Transitions,
    table: str,
    folder: Path,
    policy: Any,
    q_values: Floats,
    history: list[dict[str, float]],
) -> RunResult:
    """Write the results of a run, the policy last."""
    values = q_values.astype(np.float32)
    with written_together(folder, [HISTORY, VALUES, SECRET]) as places:
        encode_text(places[HISTORY], _csv(history))
        write_secret(places[SECRET], batch, table)
        write_archive(places[VALUES], {"format": VALUES_FORMAT, "table": table}, {"values": values})
    (folder / EVALUATION).unlink(missing_ok=True)  # of an earlier policy
    save_policy(policy, folder / POLICY, with_states=settings.with_states)
    (folder / TABLE).unlink(missing_ok=True)
    saved: Any = load_policy(folder / POLICY)  # without the counts of small leaves, which the file does not give
    return RunResult(folder, settings, described(saved, batch.schema, policy.training), history)


def _origin(settings: str, table: str) -> str:
    """Return a fingerprint of the text of a run's settings and the digest of its table."""
    return hashlib.sha256(settings.encode() + table.encode()).hexdigest()


def _rounds(settings: RunSettings) -> int:
    """Return the number of iterations, which a rule has filled in."""
    if settings.n_iterations is None:
        raise InvalidInputError("n_iterations must be given.")
    return settings.n_iterations


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
    """Return the SHA-256 digest of a file, or of all files of a pattern, or of the Parquet files in a folder."""
    place, found = Path(path), hashlib.sha256()
    parts = sorted(place.rglob("*.parquet")) if place.is_dir() else [place]
    if is_many(path) and not place.is_dir():
        parts = sorted(map(Path, glob(str(path), recursive=True)))
    for part in parts:
        if part.is_file():
            with part.open("rb") as file:
                while block := file.read(READ_AT_ONCE):
                    found.update(block)
    return found.hexdigest()
