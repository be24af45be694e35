"""Three things kernels need that Numba does not offer: moving bytes at any address, fetching ahead, and pointers.

`copy_8_bytes` and `copy_32_bytes` move that many bytes in one go between byte arrays, wherever they begin; a loop over
single bytes takes about seven times as long. `fetch` asks the processor to bring a line into its cache that will be
read a little later. `pointer_to` gives the first element of an array as a pointer, which is indexed like it and has no
owner, no length and no negative indices; the array must outlive it. None checks bounds: the caller knows what it may
touch.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

Pointer = Any
"""A pointer, in the annotations of helpers."""

FETCH_AHEAD_ROWS = 16
"""Rows between a line being asked for and being used: about one access to memory, at some 6 ns a row."""


def _copy(byte_count: int, typing_arguments: tuple[Any, ...]) -> Any:
    """The type and the code of a copy of `byte_count` bytes."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        target_bytes, to, source_bytes, begin = arguments
        chunk = ir.VectorType(ir.IntType(8), byte_count).as_pointer()
        pointers = [
            builder.bitcast(builder.gep(context.make_array(kind)(context, builder, value).data, [at]), chunk)
            for kind, value, at in (
                (signature.args[0], target_bytes, to),
                (signature.args[2], source_bytes, begin),
            )
        ]
        builder.store(builder.load(pointers[1], align=1), pointers[0], align=1)
        return context.get_dummy_value()

    target, source = typing_arguments
    return types.void(target, types.int64, source, types.int64), generate


@intrinsic  # type: ignore[untyped-decorator]
def copy_8_bytes(typing_context: Any, target: Any, target_at: Any, source: Any, source_at: Any) -> Any:
    """Copy 8 bytes between byte arrays, from and to any position."""
    return _copy(8, (target, source))


@intrinsic  # type: ignore[untyped-decorator]
def copy_32_bytes(typing_context: Any, target: Any, target_at: Any, source: Any, source_at: Any) -> Any:
    """Copy 32 bytes between byte arrays, from and to any position."""
    return _copy(32, (target, source))


@intrinsic  # type: ignore[untyped-decorator]
def fetch(typing_context: Any, array: Any, at: Any) -> Any:
    """Ask for an element to be brought into the processor's cache; any position is allowed."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        byte_pointer, word = ir.IntType(8).as_pointer(), ir.IntType(32)
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        prefetch = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(ir.VoidType(), [byte_pointer, word, word, word]), "llvm.prefetch.p0"
        )
        # For reading, wanted in every level of the cache, data rather than instructions.
        place = builder.bitcast(builder.gep(data, [arguments[1]]), byte_pointer)
        builder.call(prefetch, [place, word(0), word(3), word(1)])
        return context.get_dummy_value()

    return types.void(array, types.int64), generate


@intrinsic  # type: ignore[untyped-decorator]
def pointer_to(typing_context: Any, array: Any) -> Any:
    """Return a pointer to the first element of a contiguous array."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return context.make_array(signature.args[0])(context, builder, arguments[0]).data

    return types.CPointer(array.dtype)(array), generate
