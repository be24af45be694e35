"""The manifest of one version of a relation: a small JSON file that a person can read.

It says what the version promises (key, uniqueness, row count), how large its rows and pages are, and what its two
files must look like to be believed: their lengths and checksums. It carries a checksum of itself, so that a flipped
bit in it is an error and not another promise. The schema is repeated as text for people; the true one stands in the
Arrow file.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from semistream.errors import RelationCorrupt

FORMAT_VERSION = 3
"""Changes when a reader of an older format would read a newer file wrongly, or the other way round."""

READABLE_FORMATS = (2, FORMAT_VERSION)
"""Format 2 has no partitions: its rows are all in one."""

REBUILD = "build the relation again with `semistream index`"


@dataclass(frozen=True, slots=True)
class Manifest:
    """What one version of a relation promises, and how to recognise its files."""

    version: int
    """Number of this version; also part of the files' names."""
    code_version: int
    """Which key encoding the codes were made with; see `semistream.keys`."""
    key: tuple[str, ...]
    """Key columns, in order."""
    unique: bool
    """No key occurs twice."""
    row_count: int
    """Rows in the data file."""
    null_key_rows: int
    """Rows of the source that were left out because their key has a null."""
    rows_per_code_max: int
    """Most rows that share one code; 0 when there are no rows."""
    row_bytes_mean: float
    """Mean Arrow bytes of a row, the code included."""
    row_bytes_max: int
    """Arrow bytes of the largest row, the code included."""
    page_count: int
    """Record batches in the data file, which are rows in the index file."""
    page_bytes_max: int
    """Bytes of the largest page in the data file."""
    data_bytes: int
    """Length of the data file."""
    data_rest_checksum: int
    """Checksum of the data file's bytes before the first and after the last page."""
    index_bytes: int
    """Length of the index file."""
    index_checksum: int
    """Checksum of the whole index file."""
    created_at: str
    """When the version was written, UTC, ISO 8601."""
    columns: dict[str, str] = field(default_factory=dict)
    """The type of each column as text, for people."""
    column_bytes_mean: dict[str, float] = field(default_factory=dict)
    """Mean Arrow bytes of a value of each column."""
    column_bytes_max: dict[str, float] = field(default_factory=dict)
    """Arrow bytes of the largest value of each column."""
    partition_first_pages: tuple[int, ...] = (0,)
    """For each hash partition its first page; its others follow, up to the first of the next partition."""

    def to_json(self) -> str:
        """Return the manifest as it stands in its file."""
        content = {"format_version": FORMAT_VERSION, **asdict(self)}
        return json.dumps({**content, "checksum": _checksum(content)}, indent=2, ensure_ascii=False) + "\n"

    @classmethod
    def from_json(cls, text: str, *, where: str) -> Manifest:
        """Read a manifest; `where` names the file in errors.

        Raises:
            RelationCorrupt: if the text is no manifest, was changed, or is of a format this package does not know.
        """
        content = _parse(text, where)
        format_version = content.get("format_version")
        if format_version not in READABLE_FORMATS:
            raise RelationCorrupt(
                f"{where} has a format this package does not know",
                given=f"format_version {format_version!r}",
                allowed=" or ".join(map(str, READABLE_FORMATS)),
                hint=REBUILD + ", or use the version of semistream it was built with",
            )
        checksum = content.pop("checksum", None)
        if checksum != _checksum(content):
            raise _broken(where, "its checksum does not fit its content")
        del content["format_version"]
        content.setdefault("partition_first_pages", [0])
        names = {part.name for part in fields(cls)}
        if content.keys() != names:
            raise _broken(where, f"fields missing or unknown: {', '.join(sorted(content.keys() ^ names))}")
        lists = {name: tuple(content[name]) for name in ("key", "partition_first_pages")}
        return cls(**{**content, **lists})


def _parse(text: str, where: str) -> dict[str, Any]:
    try:
        content = json.loads(text)
    except ValueError as problem:
        raise _broken(where, str(problem)) from problem
    if not isinstance(content, dict):
        raise _broken(where, f"a JSON {type(content).__name__} instead of an object")
    return content


def _checksum(content: dict[str, Any]) -> str:
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:16]


def _broken(where: str, problem: str) -> RelationCorrupt:
    return RelationCorrupt(f"{where} is not a manifest that can be believed", given=problem, hint=REBUILD)
