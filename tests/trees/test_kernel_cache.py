"""Machine code on disk is used again if nothing changed, and never if anything that it is made from did."""

import ast
import os
import re
import shutil
import subprocess
import sys
from collections import namedtuple
from pathlib import Path

import numba
import numpy as np
import pytest

import capi
from capi._utils import kernel_cache, sources

PACKAGE = Path(capi.__file__).parent
FILES = [path for path in PACKAGE.rglob("*.py") if "capi._utils.compile" in path.read_text()]
RUN = """
import numpy as np
from capi.trees._kernels import route

codes = np.zeros((3, 1), dtype=np.uint32)
states, cuts = np.array([[1.5], [9.0], [np.nan]]), np.array([1.0, 2.0, 3.0] + 8 * [np.inf])
grid = np.array([[0, 3]], dtype=np.int32)
route.encode_states(states, cuts, np.array([0, 11]), grid, np.array([0.4]), codes)
print(*codes[:, 0], sum(route.encode_states.stats.cache_hits.values()), route.encode_states.stats.cache_path)
"""


@pytest.fixture
def copy(tmp_path):
    ignored = shutil.ignore_patterns("__pycache__", "*.parquet")
    return Path(shutil.copytree(PACKAGE, tmp_path / "site-packages" / "capi", ignore=ignored))


def run(copy, **variables):
    """Return the codes that a kernel of the copy computes, how often its machine code came from the disk, and where that is kept."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("NUMBA_", "CAPI_"))}
    environment |= {"PYTHONPATH": str(copy.parent), **variables}
    done = subprocess.run([sys.executable, "-c", RUN], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    *codes, hits, place = done.stdout.split()
    return [int(code) for code in codes], int(hits), Path(place)


def change(file, old, new):
    """Change a file, and leave its size and its time of modification as they are: contents alone must do."""
    text, times = file.read_text(), file.stat()
    assert text.count(old) == 1
    assert len(old) == len(new)
    file.write_text(text.replace(old, new))
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
    for bytecode in (file.parent / "__pycache__").glob(f"{file.stem}.*.pyc"):
        bytecode.unlink()  # Python itself does compare times


@pytest.mark.compiled
def test_machine_code_is_used_again_until_something_that_it_is_made_from_changes(copy):
    assert run(copy) == ([1, 3, 2**24 - 1], 0, copy / "trees" / "_kernels" / "__pycache__")
    assert run(copy)[:2] == ([1, 3, 2**24 - 1], 1)
    change(
        copy / "trees" / "_kernels" / "ranks.py", "    n_below = np.int64(WINDOW)\n", "    return np.int64(WINDOW)   \n"
    )
    assert run(copy)[:2] == ([8, 3, 2**24 - 1], 0), "a kernel that it calls, in another file"
    change(copy / "trees" / "_kernels" / "plain.py", "MISSING = 2**24 - 1", "MISSING = 2**24 - 2")
    assert run(copy)[:2] == ([8, 3, 2**24 - 2], 0), "a constant, two imports away"
    for index in copy.rglob("*.nbi"):
        index.write_bytes(index.read_bytes()[:50])
    assert run(copy)[:2] == ([8, 3, 2**24 - 2], 0), "an index that cannot be read"


@pytest.mark.compiled
def test_both_variants_are_kept_side_by_side(copy):
    for _ in range(2):
        hits = [run(copy, CAPI_SIMD=simd)[1] for simd in "01"]
    assert hits == [1, 1]


@pytest.mark.compiled
def test_where_the_package_cannot_be_written_to_the_users_cache_serves(copy, tmp_path):
    (copy / "trees" / "_kernels" / "__pycache__").write_text(
        "a file where the folder would be: root may write to any folder"
    )
    cache = tmp_path / "cache"
    home = {"XDG_CACHE_HOME": str(cache), "HOME": str(tmp_path)}
    assert [run(copy, **home)[1] for _ in range(2)] == [0, 1]
    assert tmp_path in run(copy, **home)[2].parents
    assert copy not in run(copy, **home)[2].parents


def module_of(path):
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported(path):
    """Yield the modules of the package that a file imports, found by Python's own parser."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} has a relative import, which the stamps do not follow"
            inside = [f"{node.module}.{alias.name}" for alias in node.names]
            modules = [name for name in inside if sources.file_of(name)]
            yield from modules
            if len(modules) < len(inside):
                yield node.module


@pytest.mark.parametrize("path", FILES, ids=module_of)
def test_the_stamp_of_a_kernel_covers_all_that_its_file_imports(path):
    covered = sources.sources_of(module_of(path))
    for name in covered:
        found = {module for module in imported(Path(sources.file_of(name))) if module.split(".")[0] == "capi"}
        assert found <= covered


def test_fields_of_named_tuples_are_part_of_the_key():
    """numba reads a field by its place: the same types in another order are other code."""
    one, other = namedtuple("Pair", ["low", "high"]), namedtuple("Pair", ["high", "low"])
    low_first, high_first = (numba.typeof(kind(np.zeros(1), np.zeros(1))) for kind in (one, other))
    nested = numba.typeof(namedtuple("Work", ["pair"])(one(np.zeros(1), np.zeros(1))))
    keys = {kernel_cache._fields_of((numba.int64, kind)) for kind in (low_first, high_first, nested)}
    assert len(keys) == 3


def test_kernels_are_declared_in_one_way():
    """No file but one imports numba's decorators; intrinsics are not kernels."""
    decorators = re.compile(
        r"^from numba import .*\b(n?jit|vectorize|guvectorize|cfunc|stencil)\b|@(numba\.)?n?jit", re.M
    )
    assert [path.name for path in PACKAGE.rglob("*.py") if decorators.search(path.read_text())] == ["compile.py"]
