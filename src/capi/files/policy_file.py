"""Policy files: one zip with JSON and arrays, which can be read anywhere and contains no code.

``header.json`` has the format and its version, the versions of the libraries that wrote it, free settings, and the policy: its kind,
its settings, the names and labels of its table, its training summary, the names of its arrays, and the same for each of its parts. Golden
files of each version are in the tests and must always open.
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
from capi.files.codecs import from_arrays, to_arrays, withhold
from capi.files.metadata import episodes_to_json, sealed_episodes
from capi.files.packing import Packed, json_value
from capi.types import Policy

FORMAT = "capi policy"
VERSION = 2  # version 1 held hashes of learning episodes, which are dropped when it is opened
KEYS = {"format", "version", "libraries", "settings", "policy"}


@registry.save_policy.fill
def save_policy(
    policy: Policy,
    path: str | Path,
    *,
    settings: Mapping[str, Any] | None = None,
    with_states: bool = False,
    with_episodes: bool = False,
) -> None:
    """Write a policy to a file; the file is written completely or not at all.

    The same policy gives the same bytes. Functions and objects of other libraries are refused, because files hold no code. Files travel,
    so a file holds nothing by which a row or an id of the learning data can be tested, unless you ask for it; ``docs/files.md`` lists
    what it holds.

    Parameters
    ----------
    policy : Policy
        One of the library's policies; `capi.files.codecs` lists them.
    path : str or Path
        The file to write, by convention ``NAME.capi``. An existing file is replaced.
    settings : mapping, optional
        Additional information for readers, as JSON values; `read_header` returns it.
    with_states : bool
        Whether the file may hold values of single rows of the learning data. Policies that decide by them (`Neighbors`, `LocalAverages`,
        `KernelPolicies`, features in units of a column's range, fitted values with leaves of fewer than five rows) cannot be saved
        otherwise: everyone who gets the file gets these values.
    with_episodes : bool
        Whether the file records the learning episodes, so that `capi.offline.evaluate` recognises them. They are recorded by digests that
        are slow to search, but whoever has the file can test whether an episode was learned from. Episodes of a single row are never
        recorded. A random key makes the bytes differ from file to file.

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
        raise InvalidInputError(f"path must name a file, such as policy.capi; got {str(path)!r}.")
    packed = to_arrays(policy)
    if not with_states:
        _check_no_states(packed, policy)
    withhold(packed)
    if with_episodes:
        sealed = sealed_episodes(getattr(policy, "training", None))
        packed.settings["training"]["episodes"] = episodes_to_json(sealed)
    shown, arrays = packed.flat()
    notes = json_value({} if settings is None else dict(settings), "settings")
    header = {"format": FORMAT, "version": VERSION, "libraries": versions(), "settings": notes, "policy": shown}
    with written_whole(target) as place:
        write_archive(place, header, arrays)
        size = sum(array.nbytes for array in arrays.values())
        _loaded(place, max(MOST_BYTES, 2 * size))  # a file that cannot be opened is not kept


def check_can_be_saved(policy: Policy) -> None:
    """Raise the error of `save_policy` if a file could not hold a policy, or only with values of single rows."""
    _check_no_states(to_arrays(policy), policy)


def load_policy(path: str | Path, *, max_bytes: int = MOST_BYTES) -> Policy:
    """Load a policy from a file; every part of the file is checked, and nothing in it is executed.

    Parameters
    ----------
    path : str or Path
        A file written by `save_policy` of this version of the library or an older one.
    max_bytes : int
        Largest total size of its parts, unpacked.

    Returns
    -------
    Policy
        Its decisions are bit for bit those of the saved policy.
    """
    policy: Policy = _named(path, lambda file: _loaded(file, max_bytes))
    return policy


def read_header(path: str | Path, *, max_bytes: int = MOST_BYTES) -> dict[str, Any]:
    """Return the header of a policy file: format, libraries, settings, and the policy without its arrays."""
    header: dict[str, Any] = _named(path, lambda file: _checked(read_archive(file, max_bytes)[0]))
    return header


def _check_no_states(packed: Packed, policy: Policy) -> None:
    part = next((part for part in packed.with_parts() if part.holds_states), None)
    if part is not None:
        raise InvalidInputError(
            f"{type(policy).__name__} cannot be saved without values of single rows of the learning data (kind {part.kind!r}): states, the "
            "smallest and largest values of columns, or averages of fewer than five rows. Everyone who gets the file gets them. "
            "Save it with with_states=True if that is intended, or learn another kind of policy, such as a tree."
        )


def _named(path: str | Path, read: Any) -> Any:
    try:
        return read(Path(path))
    except InvalidInputError as error:
        raise InvalidInputError(f"{path} cannot be opened as a policy: {error}") from error


def _loaded(path: Path, max_bytes: int) -> Any:
    header, arrays = read_archive(path, max_bytes)
    packed = Packed.from_flat(_checked(header)["policy"], arrays)
    if arrays:
        raise InvalidInputError(f"the array {min(arrays)[:100]} is not part of the policy.")
    return from_arrays(packed)


def _checked(header: dict[str, Any]) -> dict[str, Any]:
    """Return the header if this version of the library can read the file; otherwise refuse it."""
    version = header.get("version")
    if header.get("format") != FORMAT or type(version) is not int or version < 1:
        raise InvalidInputError("its header does not identify it as a policy file.")
    if version > VERSION:
        raise InvalidInputError(
            f"it has format version {version}, but capi {__version__} reads versions up to {VERSION}. Install a newer capi."
        )
    if set(header) != KEYS or not isinstance(header["libraries"], dict) or not isinstance(header["settings"], dict):
        raise InvalidInputError(f"its header must contain exactly {', '.join(sorted(KEYS))}.")
    return header
