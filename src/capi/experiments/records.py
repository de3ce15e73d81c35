"""Records on disk: what a setting gave with a seed, or why it failed, one compressed file per seed.

A file holds one JSON object per line, sorted by setting, and is only ever replaced as a whole. Several processes may add
records to a folder at the same time: a lock protects the files, and another one per run keeps two processes from computing
the same record. The system releases locks when a process ends, however it ends.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

from capi.errors import InvalidInputError
from capi.experiments.experiment import Record
from capi.experiments.setting import Setting
from capi.files.atomic import result_folder, written_whole
from capi.files.lock import acquire, locked

FOLDER = "records"  # in the folder of an experiment
FILE = "seed-{seed:03d}.jsonl.gz"
LOCKS = ".locks"
TIMING = "seconds"  # part of the name of every number that is a time


class Records:
    """The records of an experiment in a folder.

    A record is a dict with ``setting`` (its name), ``seed``, ``values`` (of the setting), ``run`` (versions, digest of the
    code, time), and either ``results`` or, if the run failed, ``error`` (a traceback). It belongs to a setting if the values
    agree, whatever the name.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    def __iter__(self) -> Iterator[Record]:
        for path in sorted(self.folder.glob(FILE.format(seed=0).replace("000", "*"))):
            yield from _read(path)

    def find(self, setting: Setting, seed: int) -> Record | None:
        """Return the record of a setting with a seed, or None if there is none."""
        key = key_of(setting.values)
        return next((record for record in _read(self._path(seed)) if key_of(record["values"]) == key), None)

    def add(self, record: Record) -> None:
        """Add a record in place of an earlier one of the same setting and seed."""
        path = self._path(record["seed"])
        locks = result_folder(self.folder / LOCKS)
        with locked(locks / "files.lock"):
            others = [other for other in _read(path) if key_of(other["values"]) != key_of(record["values"])]
            ordered = sorted([*others, record], key=lambda one: (one["setting"], key_of(one["values"])))
            with written_whole(path) as place:
                place.write_bytes(_compressed(ordered))

    def claim(self, setting: Setting, seed: int) -> Callable[[], None] | None:
        """Reserve a run for this process; return the function that ends that, or None if another process computes it now."""
        name = sha256(key_of(setting.values).encode()).hexdigest()[:16]
        return acquire(result_folder(self.folder / LOCKS) / f"{name}-{seed}.lock")

    def _path(self, seed: int) -> Path:
        return self.folder / FILE.format(seed=seed)


def is_finished(record: Record | None) -> bool:
    """Return whether there is a record, and its run did not fail."""
    return record is not None and "error" not in record


def key_of(values: Mapping[str, Any]) -> str:
    """Return what identifies a setting."""
    return json.dumps(values, sort_keys=True)


def flat(record: Record) -> Record:
    """Return the setting's name, its values, the seed, the results and the kind of processor in one dict, for tables, figures and claims."""
    processor = record.get("run", {}).get("processor", "")
    return {
        "setting": record["setting"],
        **record["values"],
        "seed": record["seed"],
        **record["results"],
        "processor": processor,
    }


def without_timings(record: Record) -> Record:
    """Return the setting's values, the seed and those results that the same code always gives."""
    return {name: value for name, value in flat(record).items() if TIMING not in name and name != "processor"}


def _compressed(records: Iterable[Record]) -> bytes:
    text = "".join(json.dumps(record, separators=(",", ":")) + "\n" for record in records)
    return gzip.compress(text.encode(), mtime=0)  # the same bytes at any time


def _read(path: Path) -> list[Record]:
    if not path.exists():
        return []
    try:
        records = [json.loads(line) for line in gzip.decompress(path.read_bytes()).decode().splitlines()]
        for record in records:
            if not (isinstance(record["values"], dict) and isinstance(record["seed"], int) and "run" in record):
                raise ValueError(f"a line begins with {str(record)[:60]}")
            record["setting"], record["error" if "error" in record else "results"]
    except (OSError, EOFError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InvalidInputError(
            f"{path} must contain one record per line, compressed by gzip; reading it failed: {error}. "
            "Restore the file, or delete it to compute its runs again."
        ) from error
    return records
