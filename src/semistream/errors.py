"""One family of errors, one shape of message.

Every error a user can cause says, in this order: what is wrong, what was given, what is allowed, and a hint.
The four parts are arguments rather than prose, so that no message can forget one by accident and so that tests
can check the shape once for all of them.

Programmer errors are not here: those are `assert` statements with words.
"""

from __future__ import annotations

import difflib
import functools
import inspect
import itertools
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

_P = ParamSpec("_P")
_R = TypeVar("_R")

ENTRIES_LOOKED_AT = 1_000
"""Of a folder in which a near name is sought: an error must come at once, also beside a million files."""

_CUTOFF = 0.5
"""How alike two words must be: 1 is the same, 0 nothing in common."""


class SemistreamError(Exception):
    """Base of everything this package raises on purpose.

    Example:
        >>> print(InvalidOption("`on_miss` is not a known policy", given="'nul'", allowed="null, drop"))
        `on_miss` is not a known policy; given: 'nul'; allowed: null, drop.
    """

    def __init__(
        self, what: str, *, given: str | None = None, allowed: str | None = None, hint: str | None = None
    ) -> None:
        self.what = what
        self.given = given
        self.allowed = allowed
        self.hint = hint
        super().__init__(self._message())

    def _message(self) -> str:
        parts = [self.what.rstrip(".")]
        if self.given is not None:
            parts.append(f"given: {self.given}")
        if self.allowed is not None:
            parts.append(f"allowed: {self.allowed}")
        message = "; ".join(parts) + "."
        if self.hint is not None:
            end = "" if self.hint.endswith(("?", ".")) else "."
            message += f"\nHint: {self.hint}{end}"
        return message

    def __reduce__(self) -> tuple[object, ...]:
        # Errors cross process borders (a worker fails, the driver shows it); the default would lose the parts.
        return _rebuild, (type(self), self.what, self.given, self.allowed, self.hint)


def _rebuild(
    kind: type[SemistreamError], what: str, given: str | None, allowed: str | None, hint: str | None
) -> SemistreamError:
    return kind(what, given=given, allowed=allowed, hint=hint)


class InvalidOption(SemistreamError, ValueError):
    """An argument has a value that is not allowed."""


class BudgetExceeded(SemistreamError, MemoryError):
    """A memory budget is too small for the least that must be held."""


class RelationNotFound(SemistreamError, FileNotFoundError):
    """There is no relation at the given place."""


class RelationCorrupt(SemistreamError, ValueError):
    """The files of a relation are not what its manifest says they are."""


class RelationRefused(SemistreamError, ValueError):
    """A relation, or a new version of one, breaks what it promised."""


class StateCorrupt(SemistreamError, ValueError):
    """The files that hold the state of a query are not what was written."""


class StateRefused(SemistreamError, ValueError):
    """State on disk belongs to another query, or to the same one as it was before it was changed."""


class KeyMismatch(SemistreamError, TypeError):
    """The key of the stream and the key of the relation cannot be compared."""


class ColumnNotFound(SemistreamError, KeyError):
    """A named column does not exist."""

    # KeyError shows the repr of its argument; an error for people shows the text.
    __str__ = Exception.__str__


class ColumnCollision(SemistreamError, ValueError):
    """Two columns of the output would have the same name."""


class DuplicateKey(SemistreamError, ValueError):
    """A key that was promised to be unique occurs twice."""


class UnmatchedKey(SemistreamError, LookupError):
    """A stream row has no partner and the user asked for that to be an error."""


class BalanceBroken(SemistreamError, RuntimeError):
    """Rows were lost or doubled: the one thing that must never happen quietly."""


class EnvironmentUnfit(SemistreamError, RuntimeError):
    """Something outside this package (Java, Python of the workers, a directory) does not fit."""


def did_you_mean(given: str, allowed: Iterable[str]) -> str | None:
    """Return a hint naming the closest allowed word, or None when nothing is close."""
    closest = _closest(given, allowed)
    return f"did you mean {closest!r}?" if closest else None


def _closest(given: str, allowed: Iterable[str]) -> str | None:
    """The allowed word that is nearest; letters are alike whatever their case."""
    words = {word.casefold(): word for word in allowed}
    nearest = difflib.get_close_matches(given.casefold(), list(words), n=1, cutoff=_CUTOFF)
    return words[nearest[0]] if nearest else None


def did_you_mean_beside(
    path: str | os.PathLike[str], is_possible: Callable[[Path], bool] = lambda _: True
) -> str | None:
    """Return a hint naming what lies beside a path that does not exist and is called much like it, or None.

    Endings alone make no two files alike: all that comes before the first dot must be near, too. Where a folder on the
    way does not exist, what lies beside that is looked at.
    """
    nearest = _nearest(Path(path), is_possible)
    return f"did you mean {str(nearest)!r}?" if nearest else None


def _nearest(missing: Path, is_possible: Callable[[Path], bool]) -> Path | None:
    if not missing.parent.is_dir():
        folder = _nearest(
            missing.parent, lambda other: (other / missing.name).exists() and is_possible(other / missing.name)
        )
        return folder / missing.name if folder else None
    try:
        with os.scandir(missing.parent) as entries:
            names = [entry.name for entry in itertools.islice(entries, ENTRIES_LOOKED_AT)]
    except (OSError, ValueError):
        # A folder that may not be read: the error is about the path, not about a hint.
        return None
    stems = {_stem(name) for name in names}
    near = set(difflib.get_close_matches(_stem(missing.name), stems, n=len(stems) + 1, cutoff=_CUTOFF))
    possible = [name for name in names if _stem(name) in near and is_possible(missing.parent / name)]
    closest = _closest(missing.name, possible)
    return missing.parent / closest if closest else None


def _stem(name: str) -> str:
    return name.partition(".")[0].casefold()


def check_choice(option: str, given: object, allowed: Iterable[str]) -> None:
    """Raise `InvalidOption` unless `given` is one of the allowed words."""
    choices = list(allowed)
    if given not in choices:
        raise InvalidOption(
            f"`{option}` has an unknown value",
            given=repr(given),
            allowed=", ".join(choices),
            hint=did_you_mean(str(given), choices),
        )


def check_option_names(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Decorate an entry point: an option it does not know gets an error that names the nearest one it knows."""

    @functools.wraps(function)
    def checked(*arguments: _P.args, **given: _P.kwargs) -> _R:
        check_options_of(function, given, called=function.__name__)
        return function(*arguments, **given)

    return checked


def check_options_of(function: Callable[..., Any], given: Mapping[str, Any], *, called: str) -> None:
    """Refuse options that a function does not know, in the name of what the user has called."""
    parameters = inspect.signature(function).parameters
    options = [name for name, parameter in parameters.items() if parameter.kind is parameter.KEYWORD_ONLY]
    for name in given.keys() - parameters.keys():
        raise InvalidOption(
            f"`{called}` has no such option",
            given=f"{name}={given[name]!r}",
            allowed=", ".join(options),
            hint=did_you_mean(name, options),
        )
