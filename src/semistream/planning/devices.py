"""Devices by name: what operations and reads take on a usual machine with such a device, or on this machine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from semistream.clock import RealClock
from semistream.cost.symbols import UnitCosts
from semistream.errors import check_choice
from semistream.planning.charging import typical
from semistream.planning.measuring import calibrate_here
from semistream.relations.metered import HDD, NVME, SSD, IoProfile

HERE = "here"
"""This machine, which is measured; it takes some seconds."""

KNOWN = {profile.name: profile for profile in (HDD, SSD, NVME)}

NAMES = (*KNOWN, HERE)


@dataclass(frozen=True, slots=True)
class Device:
    """Prices of operations and reads, for models and for a metered relation."""

    unit_costs: UnitCosts
    profile: IoProfile


def device_named(name: str, on_operation: Callable[[str], None] | None = None) -> Device:
    """The prices of a device; where they are measured, `on_operation` is told of every operation before."""
    check_choice("io", name, NAMES)
    if name in KNOWN:
        return Device(typical(KNOWN[name]), KNOWN[name])
    costs = calibrate_here(RealClock(), on_operation=on_operation).unit_costs
    # A metered relation knows no price of a call; a read at random has it in its seek.
    return Device(costs, IoProfile(name, costs.io.seek_s + costs.io.call_s, costs.io.bytes_per_s))
