"""The reference: a join with a dictionary, as anyone would write it. Slow, unbounded, and obviously right.

Every operator is compared with it, so it shares nothing with them: no codes, no pages, no kernels; keys are compared
as Python values. It is the one place where rows are looped over.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import pyarrow as pa

Row = dict[str, Any]


def reference_join(
    stream: pa.Table,
    relation: pa.Table,
    stream_key: Sequence[str],
    relation_key: Sequence[str],
    on_miss: Literal["null", "drop", "default"] = "null",
    defaults: Mapping[str, Any] | None = None,
) -> list[Row]:
    """Return the joined rows in stream order, the relation's key columns left out.

    Example:
        >>> sales = pa.table({"sku": [1, 9], "n": [5, 6]})
        >>> products = pa.table({"id": [1, 2], "name": ["ant", "bee"]})
        >>> reference_join(sales, products, ["sku"], ["id"])
        [{'sku': 1, 'n': 5, 'name': 'ant'}, {'sku': 9, 'n': 6, 'name': None}]
    """
    payload = [name for name in relation.column_names if name not in relation_key]
    partners: dict[tuple[Any, ...], list[Row]] = {}
    for row in relation.to_pylist():
        partners.setdefault(tuple(row[name] for name in relation_key), []).append({n: row[n] for n in payload})
    filled_in = (defaults or {}) if on_miss == "default" else {}
    unmatched = {name: filled_in.get(name) for name in payload}
    joined: list[Row] = []
    for row in stream.to_pylist():
        key = tuple(row[name] for name in stream_key)
        # In SQL a null is equal to nothing, not even to another null.
        matches = [] if None in key else partners.get(key, [])
        if not matches and on_miss != "drop":
            matches = [unmatched]
        joined += [row | match for match in matches]
    return joined
