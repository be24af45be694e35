"""How a kernel is compiled: once, ahead of its first call, and kept on disk.

Every kernel states its argument types, so that importing a module compiles it (or loads it from the cache) and no
row ever waits for a compiler. Arrays that a kernel only reads are declared read-only: NumPy views of Arrow buffers
are, and a writable array is accepted there too.

Numba takes what it has kept for fresh as long as the file of the kernel has not changed. Kernels here are made of
helpers from other files of this folder, so what was kept counts only as long as none of them has changed.

Numba refuses `cache=True` where neither the package's directory nor the user's cache directory can be written, as in
many containers. There a directory of our own under the system's temporary directory is used.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
import numpy.typing as npt
from numba import types
from numba.extending import register_jitable

Array = npt.NDArray[Any]
"""Any array, in the annotations of kernels; the true types are in their signatures."""

I64 = types.int64
BOOL = types.boolean
F64 = types.float64
VOID = types.void


def reads(element: Any) -> Any:
    """The type of a contiguous array that a kernel reads."""
    return types.Array(element, 1, "C", readonly=True)


def writes(element: Any) -> Any:
    """The type of a contiguous array that a kernel writes."""
    return types.Array(element, 1, "C")


READ_I64, READ_I32, READ_I16, READ_U8, READ_BOOL = (
    reads(t) for t in (types.int64, types.int32, types.int16, types.uint8, types.boolean)
)
WRITE_I64, WRITE_I32, WRITE_I16, WRITE_U8, WRITE_BOOL = (
    writes(t) for t in (types.int64, types.int32, types.int16, types.uint8, types.boolean)
)


def _give_numba_a_cache_directory() -> None:
    package = Path(__file__).resolve().parent
    home_cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    if numba.config.CACHE_DIR or any(_is_writable(place) for place in (package, home_cache)):
        return
    fallback = Path(tempfile.gettempdir()) / f"semistream-kernels-{os.getuid()}"
    fallback.mkdir(mode=0o700, exist_ok=True)
    if fallback.stat().st_uid != os.getuid():
        # Compiled code of another user must never be loaded.
        fallback = Path(tempfile.mkdtemp(prefix="semistream-kernels-"))
    numba.config.CACHE_DIR = str(fallback)


def _is_writable(place: Path) -> bool:
    return place.is_dir() and os.access(place, os.W_OK)


_give_numba_a_cache_directory()


def _digest_of_sources() -> str:
    """What changes when any file of this folder does."""
    digest = hashlib.blake2b(digest_size=16)
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.name.encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


_sources = _digest_of_sources()


def kernel(*signatures: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Compile a function for exactly these argument types, releasing the GIL while it runs."""

    def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
        dispatcher: Any = numba.njit(cache=True, nogil=True, error_model="numpy")(function)
        kept = dispatcher._cache._cache_file
        kept._source_stamp = (kept._source_stamp, _sources)
        for signature in signatures:
            dispatcher.compile(signature)
        dispatcher.disable_compile()
        kernel_: Callable[..., Any] = dispatcher
        return kernel_

    return compiled


def inlined(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a helper that only kernels call."""
    compiled: Callable[..., Any] = numba.njit(inline="always")(function)
    return compiled


def helper(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a function that only kernels call, once for the types they call it with.

    It should be given pointers (`raw_memory.pointer_to`) and numbers. An array has owners, who are counted at every
    call, and with `inlined` for every name: in a loop over rows the counting can cost more than the work.
    """
    return _called_by_kernels(function, is_always_inlined=False)


def hot_helper(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a helper that becomes part of whatever calls it: for what is done with every row, and is short."""
    return _called_by_kernels(function, is_always_inlined=True)


def _called_by_kernels(function: Callable[..., Any], *, is_always_inlined: bool) -> Callable[..., Any]:
    # Unlike `njit`, which compiles a function anew for every constant that it is given, this compiles it once. Whether
    # it is inlined must be said in both cases: a helper that says nothing does as the one that calls it.
    compiled: Callable[..., Any] = register_jitable(nogil=True, error_model="numpy", forceinline=is_always_inlined)(
        function
    )
    return compiled
