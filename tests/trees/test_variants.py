"""Compiled with vector types, compiled without, not compiled at all: three ways to the same bytes."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numba import njit, types
from numba.core.dispatcher import Dispatcher

import capi
from capi._utils.compile import COUNTS_REFERENCES
from capi.trees._kernels import grow, node, plain, ranks, simd, split
from trees import forest_digest

SCRIPT = Path(__file__).with_name("forest_digest.py")
SOURCES = str(Path(capi.__file__).parent.parent)


def digest_with(**variables):
    environment = {**os.environ, "PYTHONPATH": SOURCES, **variables}
    finished = subprocess.run([sys.executable, str(SCRIPT)], env=environment, capture_output=True, text=True)
    assert finished.returncode == 0, finished.stderr
    return finished.stdout.strip()


@pytest.mark.parametrize(
    "variables",
    [
        pytest.param({"NUMBA_DISABLE_JIT": "1", "CAPI_SIMD": "1"}, id="not compiled"),
        pytest.param({"NUMBA_DISABLE_JIT": "0", "CAPI_SIMD": "0"}, id="no vector types"),
        pytest.param({"NUMBA_DISABLE_JIT": "0", "CAPI_SIMD": "1"}, id="vector types"),
    ],
)
@pytest.mark.compiled
def test_forests_have_the_same_bytes_in_all_variants(variables):
    assert digest_with(**variables) == forest_digest.digest()


def test_the_variable_is_zero_or_one():
    environment = {**os.environ, "PYTHONPATH": SOURCES, "CAPI_SIMD": "off", "NUMBA_DISABLE_JIT": "0"}
    command = [sys.executable, "-c", "import capi.trees.forest"]
    finished = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert "CAPI_SIMD must be 0 or 1; got 'off'. Correct it or unset it." in finished.stderr


VECTOR_SUM = simd._sum_of()
VECTOR_SUMS = {16: simd._sums_of(16), 32: simd._sums_of(32)}
PLAIN_SUMS = {16: plain.sums_of_16, 32: plain.sums_of_32}


def called(kernel):
    @njit
    def call(*arguments):
        return kernel(*arguments)

    return call


@pytest.mark.compiled
@pytest.mark.parametrize("n", [1, 3, 4, 7, 50])
@pytest.mark.parametrize("bits", [16, 32])
def test_plain_loops_add_in_the_order_of_the_vector_loops(n, bits):
    """Numbers of very different size: another order of additions gives another sum."""
    rng = np.random.default_rng(n)
    codes = rng.integers(0, 2**bits, size=(n, 8)).astype(np.uint16 if bits == 16 else np.uint32)
    outputs = rng.normal(size=(n, 1)) * 10.0 ** rng.integers(-9, 9, size=(n, 1))
    records = np.column_stack([codes.view(np.uint64), outputs.view(np.uint64)])
    rows, size, y = records.ctypes.data, 8 * records.shape[1], 8 * (records.shape[1] - 1)
    assert called(VECTOR_SUM)(rows + y, n, size) == called(plain.sum_of)(rows + y, n, size)
    cut, results = rng.integers(0, 2**bits, size=8, dtype=np.uint64), []
    for sums_of in (VECTOR_SUMS[bits], PLAIN_SUMS[bits]):
        sums, counts = np.zeros(8), np.zeros(8, dtype=np.int64)
        called(sums_of)(rows, n, size, y, cut.ctypes.data, sums.ctypes.data, counts.ctypes.data)
        results.append((sums.tolist(), counts.tolist()))
    assert results[0] == results[1]


def holds_array(kind):
    return isinstance(kind, types.Array) or (isinstance(kind, types.BaseTuple) and any(map(holds_array, kind.types)))


@pytest.mark.compiled
@pytest.mark.skipif(COUNTS_REFERENCES, reason="kernels count references")
def test_no_kernel_that_counts_no_references_returns_an_array():
    """The reference would be missing, and the array freed while it is used."""
    forest_digest.digest()
    kernels = {
        thing
        for module in (grow, node, ranks, split)
        for thing in vars(module).values()
        if isinstance(thing, Dispatcher) and thing.targetoptions.get("_nrt") is False
    }
    assert {"grow_tree", "known_extremes", "best_cut_of", "rank"} <= {kernel.py_func.__name__ for kernel in kernels}
    for kernel in kernels:
        for key in kernel._cache._cache_file._load_index():  # what callers that came from the disk did not load
            kernel.compile(key[0])
        assert kernel.nopython_signatures, f"{kernel.py_func.__name__} was never called: extend forest_digest"
        for signature in kernel.nopython_signatures:
            assert not holds_array(signature.return_type), f"{kernel.py_func.__name__} returns {signature.return_type}"
