"""`semistream advise`: how much memory a stream needs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from semistream.cli.planned import Io, Json, RelationPath

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from semistream.demo.display import Display
    from semistream.joins.base import Numbers
    from semistream.planning.key_sample import KeySample
    from semistream.relations.building.sources import Source
    from semistream.relations.handle import RelationHandle

SIZES = "1MB,2MB,4MB,8MB,16MB,32MB,64MB,128MB,256MB"


def advise(
    relation: RelationPath,
    stream: Annotated[
        list[str],
        typer.Option(metavar="SOURCE", help="A recorded stream: Parquet, CSV or Arrow; may be given several times."),
    ],
    on: Annotated[
        str | None,
        typer.Option(metavar="A[,B]", help="Columns of the stream that hold the key.", show_default="the key's names"),
    ] = None,
    memory: Annotated[str, typer.Option(metavar="SIZE[,SIZE]", help="Sizes of memory to try.")] = SIZES,
    rate: Annotated[
        str | None,
        typer.Option(metavar="ROWS", help="Wanted stream rows a second, such as 50k.", show_default="none"),
    ] = None,
    io: Io = "nvme",
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw the curves into this file: png, svg or pdf.")
    ] = None,
    json: Json = False,
) -> None:
    """Say how much memory a recorded stream needs: memory, hit rate, service rate, and the least for a wanted rate.

    The stream's keys are played against the cache of the default algorithm in every size; beside it stands the best
    fixed choice of keys, which only a cache that follows changes can beat. A long stream is sampled by key.

    \b
    Example:
      semistream advise relations/products --stream sales.parquet --on product_id
      semistream advise relations/products --stream 'sales/*.csv' --on product_id --memory 4MB,16MB,64MB --rate 50k
    """  # noqa: D301 - typer keeps the lines behind this mark as they are
    from semistream.cli.output import parse_rows, parse_sizes, print_json, split_names, watching
    from semistream.cli.planned import Stages, check_io, device_shown, opened
    from semistream.clock import RealClock
    from semistream.planning.advise import advise as make_table
    from semistream.planning.advise import of_one_process
    from semistream.planning.capacities import Room, sampled_rows_per_key
    from semistream.planning.plots import check_plot_name
    from semistream.relations.building.sources import open_source

    check_io(io)
    if plot is not None:
        check_plot_name(plot)
    sizes = parse_sizes(memory)
    wanted = None if rate is None else float(parse_rows(rate))
    handle, rows = opened(relation)
    sources = [open_source(source) for source in stream]
    columns = handle.on(*(split_names(on) or ())).on
    for source in sources:
        _check_columns(source, columns, handle)
    with watching(RealClock()) as display:
        device = device_shown(io, display)
        sample = _sampled(sources, columns, display)
        stages = Stages(display)
        stages.begin(f"Memory 1 of {len(sizes)}")
        rows_per_key = sampled_rows_per_key(rows)
        advice = make_table(
            sample,
            rows,
            sizes,
            of_one_process(rows, Room(max(sizes)), rows_per_key),
            device.unit_costs,
            rows_per_key=rows_per_key,
            wanted_rows_per_s=wanted,
            on_point=lambda done, total: stages.begin(
                f"Memory {done + 1} of {total}" if done < total else "Searching the least memory"
            ),
        )
        stages.end()
    if plot is not None:
        advice.plot(plot)
        typer.echo(f"written: {plot}", err=True)
    if json:
        print_json(advice.as_json())
    else:
        typer.echo(advice.as_text())


def _check_columns(source: Source, columns: Sequence[str], handle: RelationHandle) -> None:
    from semistream.errors import ColumnNotFound, did_you_mean
    from semistream.keys import check_same_family

    names = source.schema.names
    for column, key_column, key_type in zip(columns, handle.key, handle.key_types, strict=True):
        if column not in names:
            raise ColumnNotFound(
                f"the stream {source.name} has no column {column!r}, which should hold the key of {handle.name!r}",
                given=column,
                allowed=", ".join(names),
                hint=did_you_mean(column, names) or f"--on names the stream's columns for {', '.join(handle.key)}",
            )
        check_same_family({column: source.schema.field(column).type}, {key_column: key_type})


def _sampled(sources: Sequence[Source], columns: Sequence[str], display: Display) -> KeySample:
    from semistream.planning.key_sample import KeySample

    display.begin("Reading the stream")
    sample = KeySample()
    for codes in _codes(sources, columns, display):
        sample.add(codes)
    display.end(f"{sample.stream_rows:,} rows, {sample.distinct_keys:,} keys")
    return sample


def _codes(sources: Sequence[Source], columns: Sequence[str], display: Display) -> Iterator[Numbers]:
    """The codes of all keys without a null, batch by batch."""
    from semistream.keys import KeyCodec

    counts = [source.row_count for source in sources]
    known = [count for count in counts if count is not None]
    rows_total = sum(known) if len(known) == len(counts) else None
    read = 0
    for source in sources:
        stored = source.stored_schema(columns)
        codec = KeyCodec(stored.types, columns)
        for batch in source.batches(stored):
            read += len(batch)
            display.advance("read", read, rows_total)
            keys = codec.encode(batch.columns)
            yield keys.codes if keys.null is None else keys.codes[~keys.null]
