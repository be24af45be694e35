"""The accounts that the two ways of `adaptive` share: only one of them works at a time."""

from __future__ import annotations

from dataclasses import dataclass

from semistream.budget import Account, MemoryBudget


@dataclass(frozen=True, slots=True)
class Holders:
    """Accounts by what they are for."""

    work: Account
    """Arrays for the rows of a step."""
    pairs: Account
    read: Account
    """What was read from the relation just now."""
    waiting: Account
    """Tables of stream rows that wait; their columns are the driver's."""

    @classmethod
    def of(cls, budget: MemoryBudget) -> Holders:
        """Open the accounts."""
        names = ("rows of a step", "pairs", "rows just read", "waiting rows")
        return cls(*(budget.account(name) for name in names))

    def release(self) -> None:
        """Hold nothing."""
        for account in (self.work, self.pairs, self.read, self.waiting):
            account.hold(0)
