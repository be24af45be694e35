"""Every error has the same four parts, in the same order, on both sides of a process border."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest

from semistream import errors
from semistream.errors import (
    InvalidOption,
    SemistreamError,
    check_choice,
    check_option_names,
    did_you_mean,
    did_you_mean_beside,
)


def _family(kind: type[SemistreamError]) -> Iterator[type[SemistreamError]]:
    yield kind
    for child in kind.__subclasses__():
        yield from _family(child)


KINDS = sorted(
    {kind for kind in _family(SemistreamError) if kind.__module__ == errors.__name__}, key=lambda k: k.__name__
)


@pytest.mark.parametrize("kind", KINDS)
def test_the_parts_stand_in_their_order(kind: type[SemistreamError]) -> None:
    error = kind("`memory` is too small.", given="1 byte", allowed="at least 64 KiB", hint="raise `memory`.")
    assert str(error) == "`memory` is too small; given: 1 byte; allowed: at least 64 KiB.\nHint: raise `memory`."


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        ({}, "it broke."),
        ({"given": "a"}, "it broke; given: a."),
        ({"allowed": "b"}, "it broke; allowed: b."),
        ({"hint": "try c"}, "it broke.\nHint: try c."),
    ],
)
def test_a_part_that_is_not_given_is_left_out(parts: dict[str, str], text: str) -> None:
    assert str(SemistreamError("it broke", **parts)) == text


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("travel", [copy.copy, copy.deepcopy, lambda error: pickle.loads(pickle.dumps(error))])
def test_an_error_survives_the_way_to_another_process(kind: type[SemistreamError], travel: object) -> None:
    error = kind("what", given="given", allowed=None, hint="hint")
    again = travel(error)  # type: ignore[operator]
    assert type(again) is kind
    assert str(again) == str(error)
    assert (again.what, again.given, again.allowed, again.hint) == ("what", "given", None, "hint")


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind is not SemistreamError])
def test_an_error_is_also_of_the_kind_that_python_programmers_expect(kind: type[SemistreamError]) -> None:
    builtin = [
        base
        for base in kind.__mro__
        if base.__module__ == "builtins" and base not in (Exception, BaseException, object)
    ]
    assert builtin, "nothing would catch it but its own name"
    with pytest.raises(builtin[0], match="what"):
        raise kind("what")


@pytest.mark.parametrize("kind", KINDS)
def test_an_error_says_in_its_docstring_when_it_is_raised(kind: type[SemistreamError]) -> None:
    assert kind.__doc__ and kind.__doc__ not in {base.__doc__ for base in kind.__bases__}


def test_a_near_miss_is_answered_with_the_word_that_was_meant() -> None:
    assert did_you_mean("adaptve", ["inlj", "adaptive"]) == "did you mean 'adaptive'?"
    assert did_you_mean("SSCJ", ["inlj", "sscj"]) == "did you mean 'sscj'?"
    assert did_you_mean("xyz", ["inlj", "adaptive"]) is None
    assert did_you_mean("x", []) is None


def test_a_path_that_is_missing_is_answered_with_its_neighbour(tmp_path: Path) -> None:
    for name in ("sales.parquet", "weather.csv", "products"):
        (tmp_path / name).touch()
    assert did_you_mean_beside(tmp_path / "sale.parquet") == f"did you mean {str(tmp_path / 'sales.parquet')!r}?"
    assert did_you_mean_beside(tmp_path / "SALES.parquet") == f"did you mean {str(tmp_path / 'sales.parquet')!r}?"
    assert did_you_mean_beside(str(tmp_path / "sales.parqet")) == f"did you mean {str(tmp_path / 'sales.parquet')!r}?"
    assert did_you_mean_beside(f"{tmp_path}/prodcts/") == f"did you mean {str(tmp_path / 'products')!r}?"
    assert did_you_mean_beside(tmp_path / "prodcts", lambda path: path.is_dir()) is None


def test_a_folder_on_the_way_may_be_what_is_mistyped(tmp_path: Path) -> None:
    (tmp_path / "relations" / "products").mkdir(parents=True)
    (tmp_path / "relation").touch()
    meant = f"did you mean {str(tmp_path / 'relations' / 'products')!r}?"
    assert did_you_mean_beside(tmp_path / "relatons" / "products") == meant
    assert did_you_mean_beside(tmp_path / "relation" / "products", Path.is_dir) == meant
    assert did_you_mean_beside(tmp_path / "relatons" / "stores") is None


def test_files_are_not_alike_for_their_ending(tmp_path: Path) -> None:
    (tmp_path / "sales.parquet").touch()
    assert did_you_mean_beside(tmp_path / "nowhere.parquet") is None


@pytest.mark.parametrize("path", ["nowhere/products", "file/products", "/", "", "a\0b/c"])
def test_a_path_without_a_folder_to_look_into_has_no_neighbour(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    assert did_you_mean_beside(path) is None


def test_of_a_large_folder_only_a_part_is_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(errors, "ENTRIES_LOOKED_AT", 0)
    (tmp_path / "sales.csv").touch()
    assert did_you_mean_beside(tmp_path / "sale.csv") is None


def test_a_choice_is_one_of_the_allowed_words() -> None:
    check_choice("on_miss", "drop", ["null", "drop"])
    with pytest.raises(InvalidOption) as caught:
        check_choice("on_miss", "dorp", (word for word in ["null", "drop"]))
    assert caught.value.what == "`on_miss` has an unknown value"
    assert caught.value.given == "'dorp'"
    assert caught.value.allowed == "null, drop"
    assert caught.value.hint == "did you mean 'drop'?"


@pytest.mark.parametrize("given", [None, 3, ["drop"], "DROP!!!"])
def test_a_choice_of_any_type_is_refused_in_words(given: object) -> None:
    with pytest.raises(InvalidOption) as caught:
        check_choice("on_miss", given, ["null", "drop"])
    assert caught.value.given == repr(given)


def test_an_option_that_does_not_exist_gets_the_nearest_one() -> None:
    @check_option_names
    def enrich(rows: int, *, memory: str = "1MB", on_miss: str = "null") -> str:
        return f"{rows} {memory} {on_miss}"

    assert enrich(3, memory="2MB") == "3 2MB null"
    assert enrich(rows=3) == "3 1MB null"
    with pytest.raises(
        InvalidOption, match="`enrich` has no such option; given: memroy='2MB'; allowed: memory"
    ) as caught:
        enrich(3, memroy="2MB")  # type: ignore[call-arg]
    assert caught.value.hint == "did you mean 'memory'?"
    with pytest.raises(TypeError, match="rows"):
        enrich()  # type: ignore[call-arg]
