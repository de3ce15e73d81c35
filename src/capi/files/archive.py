"""Zip archives with a JSON header and arrays: the same content gives the same bytes, and reading executes nothing.

Members are ``header.json`` and ``arrays/NAME.npy`` (numpy's format 1.0, no pickle). A reader first checks what the zip declares: the
number of members, their names and their unpacked sizes. Array headers are matched against the one form that is written, and are never
evaluated.
"""

from __future__ import annotations

import io
import json
import re
import stat
import zipfile
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from capi.errors import InvalidInputError

HEADER = "header.json"
MOST_BYTES = 2**30  # total of all members, unpacked
MOST_HEADER_BYTES = 2**24
MOST_MEMBERS = 2**16
LONGEST_NAME = 500
# The earliest time that a zip can hold, so that files do not depend on when they were written.
LONG_AGO = (1980, 1, 1, 0, 0, 0)
ARRAY_NAME = re.compile(r"arrays/([A-Za-z0-9_]+(?:\.[A-Za-z0-9_]+)*)\.npy")
ARRAY_HEADER = re.compile(
    rb"\{'descr': '(<f8|<f4|<i8|<i4|<i2|\|u1|\|b1)', 'fortran_order': (True|False), 'shape': \(((?:\d{1,18}, )*(?:\d{1,18},?)?)\), \} *\n"
)
MAGIC = b"\x93NUMPY\x01\x00"

Arrays = dict[str, NDArray[Any]]


def write_archive(
    path: Path, header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]], *, compressed: bool = True
) -> None:
    """Write ``header`` and ``arrays`` to a new zip at ``path``."""
    method = zipfile.ZIP_DEFLATED if compressed else zipfile.ZIP_STORED
    text = json.dumps(header, indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False)
    members = {HEADER: text.encode(), **{f"arrays/{name}.npy": _array_bytes(array) for name, array in arrays.items()}}
    with zipfile.ZipFile(path, "w") as archive:
        for name in sorted(members):
            info = zipfile.ZipInfo(name, LONG_AGO)
            info.compress_type, info.create_system, info.external_attr = method, 3, 0o644 << 16
            archive.writestr(info, members[name], compresslevel=1)  # higher levels take longer and save little


def read_archive(path: Path, max_bytes: int = MOST_BYTES) -> tuple[dict[str, Any], Arrays]:
    """Return the header and the arrays of the zip at ``path``; refuse a file that is not valid."""
    _check_is_file(path)
    try:
        with zipfile.ZipFile(path) as archive:
            members = _members(archive, max_bytes)
            contents = {info.filename: _unpacked(archive, info) for info in members}
    except InvalidInputError:
        raise
    except OSError as error:
        raise InvalidInputError(f"it cannot be read: {error.strerror or error}.") from error
    except Exception as error:  # any error of zipfile and zlib
        raise InvalidInputError(
            f"it is not a valid zip file ({error or type(error).__name__}). It may be truncated."
        ) from error
    header = _header(contents.pop(HEADER))
    return header, {_array_name(name): _array(name, data) for name, data in contents.items()}


def _check_is_file(path: Path) -> None:
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError) as error:
        raise InvalidInputError("there is no such file.") from error
    if not stat.S_ISREG(mode):
        raise InvalidInputError("it is not a regular file.")


def _members(archive: zipfile.ZipFile, max_bytes: int) -> list[zipfile.ZipInfo]:
    """Return the members of the archive; refuse any that a policy file cannot have."""
    members = archive.infolist()
    if len(members) > MOST_MEMBERS:
        raise InvalidInputError(f"it has {len(members)} members; at most {MOST_MEMBERS} are allowed.")
    names = [info.filename for info in members]
    for info in members:
        if info.filename != HEADER and (
            len(info.filename) > LONGEST_NAME or not ARRAY_NAME.fullmatch(info.orig_filename)
        ):
            raise InvalidInputError(f"it has an unexpected member: {info.filename[:100]!r}.")
        if info.flag_bits & 1 or info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise InvalidInputError(
                f"{info.filename!r} is encrypted, or compressed in a way that policy files do not use."
            )
    if len(set(names)) < len(names):
        raise InvalidInputError("it has two members with the same name.")
    if HEADER not in names:
        raise InvalidInputError(f"it has no {HEADER}, so it is not a policy file.")
    size = sum(info.file_size for info in members)
    if size > max_bytes or archive.getinfo(HEADER).file_size > MOST_HEADER_BYTES:
        raise InvalidInputError(
            f"it would take {size} bytes unpacked; at most {max_bytes} (header: {MOST_HEADER_BYTES}) are allowed. "
            "If you trust it, pass a larger max_bytes."
        )
    return members


def _unpacked(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> bytes:
    with archive.open(info) as member:  # returns at most the size that was checked
        data = member.read(info.file_size + 1)
    if len(data) != info.file_size:
        raise InvalidInputError(f"{info.filename!r} does not have the size that the zip declares.")
    return data


def _header(data: bytes) -> dict[str, Any]:
    try:
        header = json.loads(data.decode(), object_pairs_hook=_without_repeats, parse_constant=_no_constant)
    except InvalidInputError:
        raise
    except (ValueError, RecursionError) as error:
        raise InvalidInputError(f"its {HEADER} is not valid JSON ({error}).") from error
    if not isinstance(header, dict):
        raise InvalidInputError(f"its {HEADER} is not a JSON object.")
    return header


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise InvalidInputError(f"its {HEADER} has a duplicate key.")
    return found


def _no_constant(name: str) -> None:
    raise InvalidInputError(f"its {HEADER} contains {name}, which is not valid JSON.")


def _array_name(member: str) -> str:
    return member.removeprefix("arrays/").removesuffix(".npy")


def _array_bytes(array: NDArray[Any]) -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array(file, array, version=(1, 0), allow_pickle=False)
    return file.getvalue()


def _array(member: str, data: bytes) -> NDArray[Any]:
    length = int.from_bytes(data[8:10], "little")
    found = ARRAY_HEADER.fullmatch(data, 10, 10 + length) if data[:8] == MAGIC else None
    if found is None or len(data) < 10 + length:
        raise InvalidInputError(f"{member!r} is not an array in the format of policy files.")
    dtype = np.dtype(found[1].decode())
    shape = tuple(int(part) for part in found[3].decode().replace(" ", "").split(",") if part)
    fits = (
        prod(max(n, 1) for n in shape) <= MOST_BYTES or 0 not in shape
    )  # NumPy refuses empty arrays that are huge otherwise
    if prod(shape) * dtype.itemsize != len(data) - 10 - length or len(shape) > 4 or not fits:
        raise InvalidInputError(f"{member!r} does not have the size that its shape {shape} requires.")
    if dtype == np.bool_ and (np.frombuffer(data, np.uint8, offset=10 + length) > 1).any():
        raise InvalidInputError(f"{member!r} must contain only booleans.")
    array: NDArray[Any] = np.frombuffer(data, dtype, offset=10 + length).copy()
    return array.reshape(shape, order="F" if found[2] == b"True" else "C")
