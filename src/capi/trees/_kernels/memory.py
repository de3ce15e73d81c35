"""Reading and writing numbers at memory addresses, for the loops of `capi.trees._kernels.plain`.

Compiled, each is a single instruction. Without a compiler, Python does the same through ctypes.
"""

import ctypes
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from capi._utils.compile import JIT, kernel


@kernel
def address_of(array):
    """Return the address at which an array's memory starts."""
    return np.int64(array.ctypes.data)


def _compiled_reader(kind: Any, bits: Any) -> Any:
    @intrinsic
    def read(typing: Any, address: Any) -> Any:  # noqa: ARG001
        def generate(context: Any, builder: ir.IRBuilder, _: Any, arguments: Any) -> Any:  # noqa: ARG001
            loaded = builder.load(builder.inttoptr(arguments[0], bits.as_pointer()))
            loaded.align = 1
            return loaded

        return kind(types.int64), generate

    return read


def _compiled_writer(kind: Any, bits: Any) -> Any:
    @intrinsic
    def write(typing: Any, address: Any, value: Any) -> Any:  # noqa: ARG001
        def generate(context: Any, builder: ir.IRBuilder, _: Any, arguments: Any) -> Any:
            address, value = arguments
            builder.store(value, builder.inttoptr(address, bits.as_pointer())).align = 1
            return context.get_dummy_value()

        return types.void(types.int64, kind), generate

    return write


def _python_reader(kind: Any, memory: Any) -> Any:
    def read(address: Any) -> Any:
        return kind(memory.from_address(int(address)).value)

    return read


def _python_writer(memory: Any) -> Any:
    def write(address: Any, value: Any) -> None:
        memory.from_address(int(address)).value = value.item()

    return write


if JIT:
    read_16 = _compiled_reader(types.uint16, ir.IntType(16))
    read_32 = _compiled_reader(types.uint32, ir.IntType(32))
    read_64 = _compiled_reader(types.uint64, ir.IntType(64))
    read_float = _compiled_reader(types.float64, ir.DoubleType())
    write_64 = _compiled_writer(types.uint64, ir.IntType(64))
    write_float = _compiled_writer(types.float64, ir.DoubleType())
else:
    read_16 = _python_reader(np.uint16, ctypes.c_uint16)
    read_32 = _python_reader(np.uint32, ctypes.c_uint32)
    read_64 = _python_reader(np.uint64, ctypes.c_uint64)
    read_float = _python_reader(np.float64, ctypes.c_double)
    write_64 = _python_writer(ctypes.c_uint64)
    write_float = _python_writer(ctypes.c_double)
