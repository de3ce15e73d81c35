"""Policy files: one zip with JSON and arrays, which opens anywhere and runs nothing.

``header.json`` has the format and its version, the versions of the libraries that wrote it, free settings, and the policy: its kind,
its settings, its words of the table and its origin, the names of its arrays, and the same for what it is made of. Golden files of each version
are in the tests, and open for ever.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from capi._utils import registry
from capi._utils.versions import __version__, versions
from capi.errors import InvalidInputError
from capi.files.archive import MOST_BYTES, read_archive, write_archive
from capi.files.atomic import written_whole
from capi.files.codecs import from_arrays, to_arrays
from capi.files.packing import Packed, json_value
from capi.types import Policy

FORMAT = "capi policy"
VERSION = 1
KEYS = {"format", "version", "libraries", "settings", "policy"}


@registry.save_policy.fill
def save_policy(policy: Policy, path: str | Path, *, settings: Mapping[str, Any] | None = None) -> None:
    """Write a policy to a file, which appears whole or not at all.

    The same policy gives the same bytes. What is a function or somebody's own object is refused: files hold no code. Of the data
    that a policy was learned from only what it decides by is kept: the sample of `Neighbors` and `LocalAverages`, nothing else.

    Parameters
    ----------
    policy : Policy
        One of the library's; `capi.files.codecs` lists them.
    path : str or Path
        Where to write; by custom ``NAME.capi``. What is there is replaced.
    settings : mapping, optional
        What its readers should know besides, as JSON; `read_header` returns it.

    Examples
    --------
    >>> import numpy as np, tempfile
    >>> from capi.policies import Constant
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_policy(Constant(1, n_actions=2), f"{folder}/always.capi")
    ...     load_policy(f"{folder}/always.capi").act(np.zeros((2, 1)))
    array([1, 1])
    """
    target = Path(path)
    if not str(path) or not target.name:
        raise InvalidInputError(f"path must name a file; got {str(path)!r}.")
    shown, arrays = to_arrays(policy).flat()
    notes = json_value({} if settings is None else dict(settings), "settings")
    header = {"format": FORMAT, "version": VERSION, "libraries": versions(), "settings": notes, "policy": shown}
    with written_whole(target) as place:
        write_archive(place, header, arrays)
        size = sum(array.nbytes for array in arrays.values())
        _loaded(place, max(MOST_BYTES, 2 * size))  # what cannot be opened is not worth a name


def load_policy(path: str | Path, *, max_bytes: int = MOST_BYTES) -> Policy:
    """Open a policy file: every part of it is checked, and nothing in it is run.

    Parameters
    ----------
    path : str or Path
        A file of `save_policy`, by this version of the library or an older one.
    max_bytes : int
        What its parts may take together, unpacked.

    Returns
    -------
    Policy
        It decides as the one that was saved, bit for bit.
    """
    policy: Policy = _named(path, lambda file: _loaded(file, max_bytes))
    return policy


def read_header(path: str | Path, *, max_bytes: int = MOST_BYTES) -> dict[str, Any]:
    """Return what a policy file says of itself: format, libraries, settings, and the policy but for its arrays."""
    header: dict[str, Any] = _named(path, lambda file: _checked(read_archive(file, max_bytes)[0]))
    return header


def _named(path: str | Path, read: Any) -> Any:
    try:
        return read(Path(path))
    except InvalidInputError as error:
        raise InvalidInputError(f"{path} cannot be opened as a policy: {error}") from error


def _loaded(path: Path, max_bytes: int) -> Any:
    header, arrays = read_archive(path, max_bytes)
    packed = Packed.from_flat(_checked(header)["policy"], arrays)
    if arrays:
        raise InvalidInputError(f"the array {min(arrays)[:100]} belongs to nothing.")
    return from_arrays(packed)


def _checked(header: dict[str, Any]) -> dict[str, Any]:
    """Return the header if this version of the library can read the rest."""
    version = header.get("version")
    if header.get("format") != FORMAT or type(version) is not int or version < 1:
        raise InvalidInputError("it does not say that it is a policy file.")
    if version > VERSION:
        raise InvalidInputError(
            f"it has format version {version}, and capi {__version__} reads up to version {VERSION}. Install a newer capi."
        )
    if set(header) != KEYS or not isinstance(header["libraries"], dict) or not isinstance(header["settings"], dict):
        raise InvalidInputError(f"its header must have {', '.join(sorted(KEYS))}.")
    return header
