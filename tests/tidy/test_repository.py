"""What must hold for the files of the repository as a whole: nothing of one machine in them, no broken promise.

Forbidden words are put together from pieces here, so that this file may be searched like any other.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.tidy.sources import ROOT, project_files

LOCKS = ("requirements/build.txt", "requirements/lock.txt")

MACHINE_PATH = re.compile(r"(?<![\w./:-])(?:/(?:" + "home|root|Users|work" + r")/|[A-Z]:\\Users\\)[\w.-]+")
INDEX_ADDRESS = re.compile(
    r"https?://\S*/sim" + r"ple\b|index" + r"-url|pypi\.or" + r"g/|pythonhosted\.or" + r'g|"resolved": *"https?:'
)
LINK = re.compile(r"\[[^\]]*\]\(<?([^)>\s]+)>?(?:\s+\"[^\"]*\")?\)")
FENCE = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)


def offending_lines(pattern: re.Pattern[str], text: str) -> Iterator[str]:
    """Lines in which the pattern occurs, with their numbers."""
    for number, line in enumerate(text.splitlines(), start=1):
        if pattern.search(line):
            yield f"{number}: {line.strip()[:120]}"


def locked_requirements(lock: str) -> list[str]:
    """The lock file's entries, each with its continuation lines joined and without comments."""
    without_comments = re.sub(r"^\s*#.*\n?", "", lock, flags=re.MULTILINE)
    return [entry.strip() for entry in without_comments.replace("\\\n", " ").splitlines() if entry.strip()]


def lock_offences(lock: str) -> Iterator[str]:
    """Entries that are not exactly one version with a hash, and anything that names a place."""
    for entry in locked_requirements(lock):
        requirement = entry.split("--hash")[0].strip()
        if not re.fullmatch(r"[a-z0-9][a-z0-9._-]*==[\w.!+-]+(?:\s*;.*)?", requirement):
            yield f"not one exact version: {requirement}"
        if not re.search(r"--hash=sha256:[0-9a-f]{64}\b", entry):
            yield f"no hash: {requirement}"
    if "://" in lock:
        yield "an address"
    if re.search(r"(?:^|\s)(?:\.{0,2}/|file:|[A-Z]:\\)\S", lock):
        yield "a path"


def broken_links(page: Path, text: str) -> Iterator[str]:
    """Relative links of a page whose target is not there."""
    for target in LINK.findall(FENCE.sub("", text)):
        if re.match(r"[a-z][a-z0-9+.-]*:|#", target):
            continue
        if not (page.parent / target.split("#")[0]).exists():
            yield f"{page.name}: {target}"


def missing_commands(readme: str) -> list[str]:
    """The two commands a newcomer needs, if the README does not name them."""
    return [command for command in ("make demo", "make test") if command not in readme]


def _texts() -> Iterator[tuple[Path, str]]:
    for path in project_files():
        content = (ROOT / path).read_bytes()
        if b"\0" not in content:
            yield path, content.decode("utf-8")


@pytest.mark.parametrize("pattern", [MACHINE_PATH, INDEX_ADDRESS], ids=["machine path", "package index"])
def test_no_file_names_a_place_of_one_machine_or_network(pattern: re.Pattern[str]) -> None:
    assert [f"{path}:{line}" for path, text in _texts() for line in offending_lines(pattern, text)] == []


@pytest.mark.parametrize("name", LOCKS)
def test_the_lock_pins_every_package_by_hash_and_names_no_place(name: str) -> None:
    assert list(lock_offences((ROOT / name).read_text(encoding="utf-8"))) == []


def test_the_lock_fits_the_project_file() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    named = project["project"]["dependencies"] + project["project"]["optional-dependencies"]["dev"]
    wanted = [requirement for requirement in map(Requirement, named) if requirement.name != project["project"]["name"]]
    locked = [
        Requirement(entry.split("--hash")[0].strip())
        for entry in locked_requirements((ROOT / "requirements/lock.txt").read_text(encoding="utf-8"))
    ]
    unmet = [
        str(requirement)
        for requirement in wanted
        if not any(
            canonicalize_name(entry.name) == canonicalize_name(requirement.name)
            and requirement.specifier.contains(next(iter(entry.specifier)).version)
            for entry in locked
        )
    ]
    assert unmet == [], "run `make lock`"


def test_every_link_of_the_documentation_leads_somewhere() -> None:
    pages = [(path, text) for path, text in _texts() if path.suffix == ".md"]
    assert [broken for path, text in pages for broken in broken_links(ROOT / path, text)] == []


def test_the_readme_names_the_two_commands() -> None:
    assert missing_commands((ROOT / "README.md").read_text(encoding="utf-8")) == []


def test_scripts_can_be_run() -> None:
    scripts = [path for path in project_files() if path.parts[0] in {"scripts", ".ci"}]
    assert scripts, "there are no scripts left to check"
    assert [str(path) for path in scripts if not (ROOT / path).stat().st_mode & 0o100] == []


@pytest.mark.parametrize(
    ("pattern", "line"),
    [
        (MACHINE_PATH, 'open("/ho' + 'me/ann/data.csv")'),
        (MACHINE_PATH, "cd /ro" + "ot/project"),
        (MACHINE_PATH, "C:" + r"\Users\ann"),
        (INDEX_ADDRESS, "--index" + "-url=x"),
        (INDEX_ADDRESS, "https://mirror.example/sim" + "ple/numpy"),
    ],
)
def test_the_search_sees_a_place(pattern: re.Pattern[str], line: str) -> None:
    assert list(offending_lines(pattern, f"fine\n{line}\n")) == [f"2: {line}"]


def test_the_search_lets_relative_paths_and_web_pages_pass() -> None:
    for line in ("relations/wo" + "rk/products", "https://example.org/ho" + "me/page", "/tmp/x", "./ho" + "me/x"):
        assert list(offending_lines(MACHINE_PATH, line)) == []


@pytest.mark.parametrize(
    "lock",
    [
        "numpy==2.4.6\n",
        "numpy>=2 \\\n    --hash=sha256:" + "0" * 64,
        "numpy @ https://example.org/numpy.whl \\\n    --hash=sha256:" + "0" * 64,
        "-e ./local\n",
        "numpy==2.4.6 \\\n    --hash=sha256:" + "0" * 64 + "\n    # via /some/where/pyproject.toml\n",
    ],
    ids=["no hash", "no exact version", "an address", "an editable path", "a path in a comment"],
)
def test_the_check_of_the_lock_sees(lock: str) -> None:
    assert list(lock_offences(lock)) != []


def test_the_check_of_links_sees_a_broken_one(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    (tmp_path / "there.md").touch()
    text = "[a](there.md#part) [b](gone.md) [c](https://example.org) [d](#here)\n```\n[e](in_code.md)\n```\n"
    assert list(broken_links(page, text)) == ["page.md: gone.md"]


def test_the_check_of_the_readme_sees_a_missing_command() -> None:
    assert missing_commands("Run `make demo`.") == ["make test"]
