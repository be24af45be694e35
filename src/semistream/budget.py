"""Memory as one number: a budget in bytes, handed out through named accounts.

Whatever holds rows takes an account and charges what it really allocates. The sum of all accounts never passes the
limit: `Account.take` refuses, and the caller does less at a time instead. Accounts may have a limit of their own, so
that one holder cannot starve the others, but a limit is not a reservation: room that nobody has taken is free to all.

The budget also remembers the highest sum it ever saw, which is what "peak bytes held" means everywhere in this
project.
"""

from __future__ import annotations

import re
from decimal import Decimal

from semistream.errors import BudgetExceeded, InvalidOption

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB

_UNITS = {
    "": 1,
    "b": 1,
    "kb": 1000,
    "mb": 1000**2,
    "gb": 1000**3,
    "tb": 1000**4,
    "k": KIB,
    "m": MIB,
    "g": GIB,
    "t": 1024 * GIB,
    "kib": KIB,
    "mib": MIB,
    "gib": GIB,
    "tib": 1024 * GIB,
}


BYTES_MAX = (1 << 63) - 1

SHOWN_CHARACTERS = 40
"""Of a value that is too long to be repeated in full."""


def parse_bytes(size: str | int) -> int:
    """Return a number of bytes written by a person: `"256MB"`, `"64 KiB"`, `"1g"` or `4096`.

    `kb`, `mb` and `gb` are powers of 1000; `k`, `m`, `g` (as the JVM writes them) and `kib`, `mib`, `gib` are powers
    of 1024.

    Example:
        >>> parse_bytes("64 KiB"), parse_bytes("1.5MB"), parse_bytes(4096)
        (65536, 1500000, 4096)
    """
    if isinstance(size, int) and not isinstance(size, bool):
        # Python prints no number of more than some thousand digits.
        given = repr(size) if abs(size) <= 2 * BYTES_MAX else f"a number of {size.bit_length()} bits"
        parsed = size
    else:
        given = _shortened(repr(size))
        match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([a-zA-Z]*)\s*", str(size))
        unit = match.group(2).lower() if match else None
        if match is None or unit not in _UNITS:
            raise InvalidOption(
                "a memory size could not be read",
                given=given,
                allowed="a number and a unit, such as 256MB, 64KiB or 1g",
            )
        # A fraction of a byte is none, and the largest numbers are not told from each other as floats.
        parsed = int(min(Decimal(match.group(1)) * _UNITS[unit], Decimal(2 * BYTES_MAX)))
    if parsed <= 0:
        raise InvalidOption("a memory size must be positive", given=given, allowed="at least 1 byte")
    if parsed > BYTES_MAX:
        raise InvalidOption(
            "no machine has so much memory",
            given=given,
            allowed=f"at most {BYTES_MAX} bytes",
            hint="write a size such as 256MB or 8g",
        )
    return parsed


def _shortened(text: str) -> str:
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}…"


def format_bytes(count: float) -> str:
    """Return a byte count as a person reads it.

    Example:
        >>> format_bytes(268_435_456), format_bytes(900)
        ('256.0 MiB', '900 B')
    """
    for unit, factor in (("GiB", GIB), ("MiB", MIB), ("KiB", KIB)):
        if count >= factor:
            return f"{count / factor:.1f} {unit}"
    return f"{int(count)} B"


class MemoryBudget:
    """A limit in bytes that several holders of rows share.

    Example:
        >>> budget = MemoryBudget(1 * MIB)
        >>> waiting = budget.account("waiting rows", limit_bytes=256 * KIB)
        >>> waiting.take(1000)
        >>> budget.used_bytes
        1000
    """

    def __init__(self, limit_bytes: int) -> None:
        if limit_bytes <= 0:
            raise InvalidOption("a memory budget must be positive", given=str(limit_bytes))
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        self.peak_bytes = 0
        self._accounts: dict[str, Account] = {}

    @property
    def free_bytes(self) -> int:
        """Bytes nobody has taken."""
        return self.limit_bytes - self.used_bytes

    def account(self, name: str, *, limit_bytes: int | None = None) -> Account:
        """Open an account; its own limit is the whole budget unless given."""
        assert name not in self._accounts, f"the account {name!r} was opened twice"
        account = Account(self, name, self.limit_bytes if limit_bytes is None else limit_bytes)
        self._accounts[name] = account
        return account

    def used_by_account(self) -> dict[str, int]:
        """Bytes held, by the name of the account."""
        return {name: account.used_bytes for name, account in self._accounts.items()}

    def _move(self, delta_bytes: int) -> None:
        self.used_bytes += delta_bytes
        assert 0 <= self.used_bytes <= self.limit_bytes, "an account moved the budget past its limits"
        self.peak_bytes = max(self.peak_bytes, self.used_bytes)


class Account:
    """The part of a budget that one holder of rows has taken."""

    def __init__(self, budget: MemoryBudget, name: str, limit_bytes: int) -> None:
        self._budget = budget
        self.name = name
        self.limit_bytes = limit_bytes
        self.used_bytes = 0

    @property
    def free_bytes(self) -> int:
        """Bytes this account could still take."""
        return min(self.limit_bytes - self.used_bytes, self._budget.free_bytes)

    def take(self, count_bytes: int) -> None:
        """Charge `count_bytes`; raise `BudgetExceeded` if they are not free."""
        assert count_bytes >= 0, "taking a negative number of bytes"
        if count_bytes > self.free_bytes:
            raise BudgetExceeded(
                f"the account {self.name!r} cannot take {format_bytes(count_bytes)}",
                given=f"{format_bytes(self.free_bytes)} free of a budget of {format_bytes(self._budget.limit_bytes)}",
                hint="give the join more memory",
            )
        self.used_bytes += count_bytes
        self._budget._move(count_bytes)

    def give_back(self, count_bytes: int) -> None:
        """Return `count_bytes` that were taken before."""
        assert 0 <= count_bytes <= self.used_bytes, "giving back more than was taken"
        self.used_bytes -= count_bytes
        self._budget._move(-count_bytes)

    def hold(self, count_bytes: int) -> None:
        """Set what this account holds to exactly `count_bytes`."""
        if count_bytes >= self.used_bytes:
            self.take(count_bytes - self.used_bytes)
        else:
            self.give_back(self.used_bytes - count_bytes)
