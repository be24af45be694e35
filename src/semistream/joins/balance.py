"""The balance: no stream row is lost and none is counted twice, or the task fails."""

from __future__ import annotations

from dataclasses import dataclass

from semistream.errors import BalanceBroken

OUR_FAULT = "this is a defect of semistream; the task has failed and nothing of it was committed"
"""A hint for errors that no user can have caused."""


@dataclass(slots=True)
class Balance:
    """What became of the stream rows. `rows_in` is the sum of the other three once nothing waits."""

    rows_in: int = 0
    matched: int = 0
    unmatched: int = 0
    null_keys: int = 0

    def check(self) -> None:
        """Raise unless every row is accounted for."""
        if self.rows_in != self.matched + self.unmatched + self.null_keys:
            raise BalanceBroken(
                "a batch does not balance",
                given=f"in {self.rows_in}, matched {self.matched}, unmatched {self.unmatched}, "
                f"null keys {self.null_keys}",
                allowed="in = matched + unmatched + null keys",
                hint=OUR_FAULT,
            )
