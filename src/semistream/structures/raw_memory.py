"""Three things kernels need that Numba does not offer: moving bytes at any address, fetching ahead, and pointers.

`copy_8_bytes` and `copy_32_bytes` move that many bytes in one go between byte arrays, wherever they begin; a loop over
single bytes takes about seven times as long. `fetch` asks the processor to bring a line into its cache that will be
read a little later. Both have forms for addresses, as there are for reading and writing single numbers: for kernels
whose rows come from several arrays at once, or lie packed with values of all widths. `pointer_to` gives the first
element of an array as a pointer, which is indexed like it and has no owner, no length and no negative indices; the
array must outlive it. None checks bounds: the caller knows what it may touch.
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


_BYTE_POINTER = ir.IntType(8).as_pointer()


OVERHANG_BYTES = 32
"""How far kernels that copy 32 bytes at a time may read, and write, behind the bytes they are asked to copy."""


def _prefetch(builder: Any, place: Any) -> None:
    """For reading, wanted in every level of the cache, data rather than instructions."""
    word = ir.IntType(32)
    kind = ir.FunctionType(ir.VoidType(), [_BYTE_POINTER, word, word, word])
    prefetch = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
    builder.call(prefetch, [place, word(0), word(3), word(1)])


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
def copy_32_bytes_from(typing_context: Any, target: Any, target_at: Any, address: Any) -> Any:
    """Copy 32 bytes at an address into a byte array, to any position."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        target_bytes, to, source = arguments
        chunk = ir.VectorType(ir.IntType(8), 32).as_pointer()
        data = context.make_array(signature.args[0])(context, builder, target_bytes).data
        place = builder.bitcast(builder.gep(data, [to]), chunk)
        builder.store(builder.load(builder.inttoptr(source, chunk), align=1), place, align=1)
        return context.get_dummy_value()

    return types.void(target, types.int64, types.int64), generate


def _reader(kind: Any) -> Any:
    """An intrinsic that reads a number at an address, wherever it begins."""

    def read(typing_context: Any, address: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            place = builder.inttoptr(arguments[0], context.get_value_type(kind).as_pointer())
            return builder.load(place, align=1)

        return kind(types.int64), generate

    return intrinsic(read)


def _putter(kind: Any) -> Any:
    """An intrinsic that writes a number at an address, wherever it begins."""

    def put(typing_context: Any, address: Any, value: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            place = builder.inttoptr(arguments[0], context.get_value_type(kind).as_pointer())
            builder.store(arguments[1], place, align=1)
            return context.get_dummy_value()

        return types.void(types.int64, kind), generate

    return intrinsic(put)


def _copier(byte_count: int) -> Any:
    """An intrinsic that copies so many bytes from one address to another."""

    def copy(typing_context: Any, target: Any, source: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            chunk = ir.IntType(8 * byte_count).as_pointer()
            to, begin = (builder.inttoptr(argument, chunk) for argument in arguments)
            builder.store(builder.load(begin, align=1), to, align=1)
            return context.get_dummy_value()

        return types.void(types.int64, types.int64), generate

    return intrinsic(copy)


byte_at, int32_at = (_reader(kind) for kind in (types.uint8, types.int32))
put_byte, put_int32 = (_putter(kind) for kind in (types.uint8, types.int32))
copy_1_byte, copy_2_bytes, copy_4_bytes, copy_8_bytes_between = (_copier(count) for count in (1, 2, 4, 8))


@intrinsic  # type: ignore[untyped-decorator]
def fetch_from(typing_context: Any, address: Any) -> Any:
    """Ask for what stands at an address to be brought into the processor's cache; any address is allowed."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _prefetch(builder, builder.inttoptr(arguments[0], _BYTE_POINTER))
        return context.get_dummy_value()

    return types.void(types.int64), generate


@intrinsic  # type: ignore[untyped-decorator]
def fetch(typing_context: Any, array: Any, at: Any) -> Any:
    """Ask for an element to be brought into the processor's cache; any position is allowed."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        _prefetch(builder, builder.bitcast(builder.gep(data, [arguments[1]]), _BYTE_POINTER))
        return context.get_dummy_value()

    return types.void(array, types.int64), generate


@intrinsic  # type: ignore[untyped-decorator]
def pointer_to(typing_context: Any, array: Any) -> Any:
    """Return a pointer to the first element of a contiguous array."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return context.make_array(signature.args[0])(context, builder, arguments[0]).data

    return types.CPointer(array.dtype)(array), generate
