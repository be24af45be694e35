"""Memory sizes as people write them, and a budget that is never passed."""

from __future__ import annotations

import random

import pytest

from semistream.budget import GIB, KIB, MIB, MemoryBudget, format_bytes, parse_bytes
from semistream.errors import BudgetExceeded, InvalidOption


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (1, 1),
        (4096, 4096),
        ("4096", 4096),
        ("1b", 1),
        ("64KB", 64_000),
        ("64KiB", 64 * KIB),
        ("64 kib ", 64 * KIB),
        ("64k", 64 * KIB),
        ("256MB", 256_000_000),
        ("256m", 256 * MIB),
        ("1.5MB", 1_500_000),
        ("1.5MiB", 3 * MIB // 2),
        ("1g", GIB),
        ("2GB", 2_000_000_000),
        ("2GiB", 2 * GIB),
        ("1TB", 10**12),
        ("1t", 1024 * GIB),
    ],
)
def test_a_size_is_read_as_it_is_meant(text: str | int, expected: int) -> None:
    assert parse_bytes(text) == expected


@pytest.mark.parametrize(
    "text", ["", "MB", "12 parsecs", "1e3", "-5MB", "+5MB", "1,5MB", "1 2MB", "nan", True, None, "0x10"]
)
def test_what_is_no_size_is_refused_with_examples(text: object) -> None:
    with pytest.raises(InvalidOption, match=r"(?s)could not be read; given: .*allowed: .*256MB") as caught:
        parse_bytes(text)  # type: ignore[arg-type]
    assert repr(text) in str(caught.value)


BEYOND_ALL_MACHINES: list[str | int] = ["1" * 5000, "100000000TB", 1 << 63, 1 << 20_000, str(1 << 63)]


@pytest.mark.parametrize("size", BEYOND_ALL_MACHINES, ids=["digits", "TB", "one more", "bits", "written"])
def test_a_size_beyond_all_machines_is_refused(size: str | int) -> None:
    with pytest.raises(InvalidOption, match=r"no machine has so much memory.*at most 9223372036854775807") as caught:
        parse_bytes(size)
    assert len(str(caught.value)) < 250


def test_the_largest_size_is_read_to_the_byte() -> None:
    assert parse_bytes("9223372036854775807") == parse_bytes((1 << 63) - 1) == (1 << 63) - 1


def test_a_size_that_is_too_long_is_not_repeated_in_full() -> None:
    with pytest.raises(InvalidOption, match=r"could not be read; given: 'x{39}…;"):
        parse_bytes("x" * 10_000)


@pytest.mark.parametrize("size", [0, -1, "0", "0GB", "0.0001b"])
def test_a_size_must_be_positive(size: str | int) -> None:
    with pytest.raises(InvalidOption, match="must be positive"):
        parse_bytes(size)


@pytest.mark.parametrize(
    ("count", "expected"),
    [(0, "0 B"), (1023, "1023 B"), (KIB, "1.0 KiB"), (1536, "1.5 KiB"), (256 * MIB, "256.0 MiB"), (5 * GIB, "5.0 GiB")],
)
def test_a_count_of_bytes_is_written_for_people(count: int, expected: str) -> None:
    assert format_bytes(count) == expected


@pytest.mark.parametrize("limit", [0, -5])
def test_a_budget_must_be_positive(limit: int) -> None:
    with pytest.raises(InvalidOption, match="must be positive"):
        MemoryBudget(limit)


def test_accounts_share_what_nobody_has_taken() -> None:
    budget = MemoryBudget(1000)
    waiting, remembered = budget.account("waiting"), budget.account("remembered")
    waiting.take(600)
    remembered.take(400)
    assert budget.used_by_account() == {"waiting": 600, "remembered": 400}
    assert budget.free_bytes == waiting.free_bytes == remembered.free_bytes == 0
    waiting.give_back(100)
    remembered.take(100)
    assert budget.used_bytes == 1000


def test_an_account_may_have_a_limit_of_its_own() -> None:
    budget = MemoryBudget(1000)
    pages = budget.account("pages", limit_bytes=300)
    assert pages.free_bytes == 300
    with pytest.raises(BudgetExceeded):
        pages.take(301)
    pages.take(300)
    assert pages.free_bytes == 0
    assert budget.free_bytes == 700


def test_the_limit_of_an_account_is_no_reservation() -> None:
    budget = MemoryBudget(1000)
    pages = budget.account("pages", limit_bytes=300)
    budget.account("others").take(900)
    assert pages.free_bytes == 100


def test_who_takes_too_much_is_told_what_is_free() -> None:
    budget = MemoryBudget(2 * KIB)
    account = budget.account("remembered rows")
    account.take(KIB)
    with pytest.raises(BudgetExceeded, match=r"'remembered rows' cannot take 1\.5 KiB; given: 1\.0 KiB free") as caught:
        account.take(1536)
    assert "Hint: give the join more memory." in str(caught.value)
    assert account.used_bytes == budget.used_bytes == KIB, "a refusal changes nothing"


def test_hold_moves_an_account_in_both_directions() -> None:
    budget = MemoryBudget(100)
    account = budget.account("output")
    for held in (40, 40, 100, 10, 0):
        account.hold(held)
        assert account.used_bytes == budget.used_bytes == held
    assert budget.peak_bytes == 100
    with pytest.raises(BudgetExceeded):
        account.hold(101)


def test_mistakes_of_our_own_are_assertions() -> None:
    budget = MemoryBudget(100)
    account = budget.account("rows")
    with pytest.raises(AssertionError, match="opened twice"):
        budget.account("rows")
    with pytest.raises(AssertionError, match="negative"):
        account.take(-1)
    with pytest.raises(AssertionError, match="more than was taken"):
        account.give_back(1)


@pytest.mark.parametrize("seed", range(5))
def test_the_sum_of_all_accounts_is_always_the_budget_used(seed: int) -> None:
    rng = random.Random(seed)
    budget = MemoryBudget(1000)
    accounts = [budget.account(str(i), limit_bytes=rng.choice([None, 300])) for i in range(4)]
    peak = 0
    for _ in range(300):
        account = rng.choice(accounts)
        try:
            account.hold(rng.randint(0, 500))
        except BudgetExceeded:
            assert budget.used_bytes <= budget.limit_bytes
        peak = max(peak, budget.used_bytes)
        assert budget.used_bytes == sum(budget.used_by_account().values()) <= 1000
        assert all(0 <= account.used_bytes <= account.limit_bytes for account in accounts)
    assert budget.peak_bytes == peak
