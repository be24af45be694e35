"""What the planning commands share: the relation they plan for, the device it lies on, and their common options.

Planning looks at a relation as `enrich` would read it: all columns but the key, and the key as well where its codes are
hashes that must be verified.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from semistream.demo.display import Display
    from semistream.planning.devices import Device
    from semistream.relations.arrow_file.reader import ArrowFileRelation
    from semistream.relations.handle import RelationHandle

RelationPath = Annotated[
    str, typer.Argument(metavar="RELATION", help="A directory that `semistream index` has made.", show_default=False)
]
Memory = Annotated[str, typer.Option(metavar="SIZE", help="Memory of the join, such as 64MB or 1GB.")]
Skew = Annotated[float, typer.Option(metavar="EXPONENT", min=0, help="Zipf's exponent of the stream; 0 is uniform.")]
Io = Annotated[
    str, typer.Option(metavar="IO", help="The device: hdd, ssd, nvme, or here, which measures this machine first.")
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as one line of JSON.")]


class Stages:
    """Stages of which each is ended by the next: a line for each in a log, the current one on a terminal."""

    def __init__(self, display: Display) -> None:
        self._display = display
        self._is_open = False

    def begin(self, stage: str) -> None:
        """End the stage before, and begin this one."""
        self.end()
        self._display.begin(stage)
        self._is_open = True

    def end(self, result: str = "done") -> None:
        """End the current stage, if there is one."""
        if self._is_open:
            self._display.end(result)
        self._is_open = False


def check_io(name: str) -> None:
    """Refuse an unknown device before anything else is done."""
    from semistream.errors import check_choice
    from semistream.planning.devices import NAMES

    check_choice("io", name, NAMES)


def device_shown(name: str, display: Display) -> Device:
    """The prices of a device; what is measured for them is shown."""
    from semistream.planning.devices import device_named

    stages = Stages(display)
    device = device_named(name, on_operation=lambda operation: stages.begin(f"Measuring {operation}"))
    stages.end()
    return device


def opened(path: str) -> tuple[RelationHandle, ArrowFileRelation]:
    """The relation in a directory, as `enrich` would read its current version."""
    from semistream.keys import KeyCodec
    from semistream.relations.handle import open_handle

    handle = open_handle(path, None, None, verify=False)
    is_exact = KeyCodec(handle.key_types, handle.key).exact
    return handle, handle.open(handle.info.version, with_key=not is_exact)
