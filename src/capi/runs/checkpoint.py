"""Checkpoints: an iteration of the loop as JSON and arrays, from which the loop resumes to the same bytes."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from time import perf_counter
from typing import Any

from capi._utils.randomness import seed_sequence
from capi._utils.versions import versions
from capi.data.transitions import Transitions
from capi.errors import CheckpointWarning, InvalidInputError
from capi.evaluators.fitted_q import FittedQ
from capi.evaluators.fitted_values import FittedValues
from capi.evaluators.pessimistic import Pessimistic, PessimisticValues
from capi.evaluators.scoring_models import projections_of
from capi.files.archive import read_archive, write_archive
from capi.files.atomic import written_whole
from capi.files.codecs import from_arrays, to_arrays
from capi.files.packing import Packed
from capi.learning.iteration import Iteration, Yardstick
from capi.types import Policy

FORMAT = "capi checkpoint"
VISITS, TARGETS = "visits", "targets"
MOST_BYTES = 2**36  # checkpoints are our own files, and hold forests of any size
MOST_WAITING = 0.5  # seconds for another thread that writes a checkpoint
NUMBERS = ("k", "loss", "changed", "value", "seconds", "n_unchanged", "n_settled")


class Checkpoints:
    """Writes checkpoints while a run makes progress, in a limited share of its time, and the last iteration if it is interrupted.

    A checkpoint that cannot be written is a warning: the run goes on, and the next one may succeed.
    """

    def __init__(self, path: Path, origin: str, n_iterations: int, share: float) -> None:
        self.path, self.origin, self.n_iterations = path, origin, n_iterations
        self.share = share  # of the running time that checkpoints may take
        self._last: tuple[Iteration, list[dict[str, float]], dict[int, Policy]] | None = None  # not yet written
        self._written, self._cost = perf_counter(), 0.0
        self._lock = threading.Lock()  # an interrupted run may be saved by another thread

    def add(self, iteration: Iteration, history: list[dict[str, float]], candidates: dict[int, Policy]) -> None:
        """Remember an iteration, and write it if it is time and more iterations follow."""
        self._last = iteration, list(history), dict(candidates)
        if perf_counter() - self._written >= self._cost / self.share and iteration.k + 1 < self.n_iterations:
            started = perf_counter()
            self.write_last()
            self._written, self._cost = perf_counter(), perf_counter() - started

    def write_last(self) -> None:
        """Write the last iteration, unless it is written, or another thread is writing and does not come to an end."""
        if not self._lock.acquire(timeout=MOST_WAITING):
            return
        try:
            if self._last is None:
                return
            iteration, history, candidates = self._last
            try:
                write_checkpoint(self.path, iteration, history, self.origin, candidates)
            except (InvalidInputError, OSError) as error:
                warnings.warn(
                    f"the progress of the run cannot be saved: {error} The run continues; if it is interrupted, it resumes "
                    "from an earlier checkpoint or from the beginning. Free space on the disk, or check its permissions.",
                    CheckpointWarning,
                    stacklevel=2,
                )
            else:
                self._last = None
        finally:
            self._lock.release()

    def remove(self) -> None:
        """Remove the checkpoint of a finished run."""
        with self._lock:
            self._last = None
            with suppress(OSError):  # the policy is saved; what is in the way is not ours
                self.path.unlink(missing_ok=True)


def write_checkpoint(
    path: Path, iteration: Iteration, history: list[dict[str, float]], origin: str, candidates: dict[int, Policy]
) -> None:
    """Write everything that the loop needs to resume after ``iteration``.

    ``origin`` is the fingerprint of settings and table; ``candidates`` are the policies of earlier rounds that may be kept.
    """
    policy, arrays = to_arrays(iteration.policy).flat("policy.")
    q, q_arrays = to_arrays(iteration.q).flat("q.")
    arrays.update(q_arrays)
    earlier: list[dict[str, Any]] = []
    for k, candidate in candidates.items():
        packed, of_candidate = to_arrays(candidate).flat(f"candidate{k}.")
        earlier.append({"k": k, "policy": packed})
        arrays.update(of_candidate)
    if iteration.visits is not None:
        arrays[VISITS] = iteration.visits
    if iteration.yardstick is not None:
        arrays[TARGETS] = iteration.yardstick.targets
    header = {
        "format": FORMAT,
        "origin": origin,
        "versions": versions(),
        "numbers": {name: getattr(iteration, name) for name in NUMBERS},
        "sweeps": [getattr(iteration.q, name, 0) for name in ("age", "n_sweeps")],
        "history": history,
        "policy": policy,
        "q": q,
        "candidates": earlier,
        "yardstick": None if iteration.yardstick is None else iteration.yardstick.k,
    }
    with written_whole(path) as place:
        write_archive(place, header, arrays, compressed=False)


def read_checkpoint(
    path: Path, origins: Collection[str], batch: Transitions, evaluator: Any, seed: int
) -> tuple[Iteration, list[dict[str, float]], dict[int, Policy]]:
    """Return the iteration, history and candidates of a checkpoint made with the same settings, table and versions.

    ``origins`` are the accepted fingerprints of settings and table: as written now, and as written when the run started.
    """
    try:
        header, arrays = read_archive(path, MOST_BYTES)
        if header.get("format") != FORMAT:
            raise InvalidInputError("not a checkpoint.")
        for what, found, wanted in (
            ("settings or another table", header["origin"], origins),
            ("versions of libraries", header["versions"], [versions()]),
        ):
            if found not in wanted:
                raise InvalidInputError(f"it was made with other {what}. Start a new run.")
        if "sweeps" not in header or header.get(
            "best"
        ):  # what earlier versions kept as the best was scored in another way
            raise InvalidInputError("it was made by an earlier version of capi. Start a new run.")
        policy = from_arrays(Packed.from_flat(header["policy"], arrays, "policy."))
        q = from_arrays(Packed.from_flat(header["q"], arrays, "q."), decides=False)
        numbers = {"n_settled": 0, **header["numbers"]}  # which earlier versions do not have
        numbers = {name: numbers[name] for name in NUMBERS}
        sweeps = [int(number) for number in header["sweeps"]]
        candidates: dict[int, Policy] = {
            int(one["k"]): from_arrays(Packed.from_flat(one["policy"], arrays, f"candidate{one['k']}."))
            for one in header.get("candidates", ())
        }
        visits = arrays.get(VISITS)
        grown_in = header.get("yardstick")
        yardstick = None if grown_in is None else Yardstick(arrays[TARGETS], int(grown_in), projections_of(q))
    except (InvalidInputError, KeyError, TypeError) as error:
        raise InvalidInputError(f"{path} cannot be resumed: {error}") from error
    if isinstance(q, FittedValues) and isinstance(evaluator, FittedQ):
        q = evaluator.restored(q, batch, *sweeps)
    elif isinstance(q, PessimisticValues) and isinstance(evaluator, Pessimistic):
        q = evaluator.restored(q, batch)
    iteration = Iteration(
        q=q,
        policy=policy,
        seeds=seed_sequence(seed),
        schema=batch.schema,
        **numbers,
        visits=visits,
        yardstick=yardstick,
    )
    return iteration, header["history"], candidates
