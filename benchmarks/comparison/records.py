"""Records on disk, as capi.experiments.records has them, without capi: a compressed file of JSON lines per seed."""

import fcntl
import gzip
import json
import os
from pathlib import Path


class Records:
    """The records in a folder; a record is a dict with ``setting``, ``seed``, ``values``, ``results`` and ``run``."""

    def __init__(self, folder):
        self.folder = Path(folder)

    def __iter__(self):
        for path in sorted(self.folder.glob("seed-*.jsonl.gz")):
            yield from read(path)

    def has(self, values, seed):
        """Return whether there is a record of these values with this seed."""
        return any(record["values"] == values for record in read(self._path(seed)))

    def add(self, values, seed, results, run):
        """Add a record; the file is replaced as a whole."""
        path = self._path(seed)
        (self.folder / ".locks").mkdir(parents=True, exist_ok=True)
        with (self.folder / ".locks" / "peers.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            name = "/".join(str(value) for value in values.values() if value is not None)
            record = {"setting": name, "seed": seed, "values": values, "results": results, "run": run}
            others = [other for other in read(path) if other["values"] != values]
            ordered = sorted([*others, record], key=lambda one: one["setting"])
            text = "".join(json.dumps(one) + "\n" for one in ordered)
            new = path.with_suffix(".new")
            new.write_bytes(gzip.compress(text.encode(), mtime=0))
            os.replace(new, path)

    def _path(self, seed):
        return self.folder / f"seed-{seed:03d}.jsonl.gz"


def read(path):
    """Return the records of a file, none if it is not there."""
    if not path.exists():
        return []
    with gzip.open(path, "rt") as file:
        return [json.loads(line) for line in file]
