"""Pages as large as a series' own model likes them best.

The figures have one page for all series, as the papers do. Of HYBRIDJOIN and MESHJOIN the page is all that can be
tuned, and on a disk with seeks it is worth more than a cache: a page sixteen times as large costs about the same seek.
So a series that `tunes_page` has R in pages of its own, and a figure also shows what remains of a gain over a rival
that was treated well.

The tuner doubles the figure's page, or halves it, for as long as the model finds no less: a rate has one maximum over
the page, but for the small steps in which cells and tables have whole rows. Pinned pages are chosen anew for every
page; a cache has half of the memory for rows while the page is sought, because to divide the memory for every page
takes twenty times as long and finds the same page, and is divided for the page that was found
(`semistream.lab.options`). The tuner sees sizes and skew and no measurement; keys that do not follow Zipf's law are to
it all equally popular.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from semistream.errors import BudgetExceeded
from semistream.lab.conditions import Conditions
from semistream.lab.experiment import Series, Setting
from semistream.lab.modelled import prediction

PAGE_BYTES_MIN = 4096
"""No file system reads less at once. By its model MESHJOIN likes pages of one row, where memory is short."""


def in_own_pages(series: Series, setting: Setting, conditions: Conditions) -> Setting:
    """The setting with the page that the series has: the figure's, or the one that its model finds best."""
    if not series.tunes_page:
        return setting

    sought = replace(series, options="plain") if series.options == "tuned" else series

    def rate(page_rows: int) -> float:
        return _rate(sought, replace(setting, page_rows=page_rows), conditions)

    least_rows = min(setting.page_rows, math.ceil(PAGE_BYTES_MIN / setting.row_bytes))
    return replace(setting, page_rows=best_page_rows(rate, setting.page_rows, least_rows, setting.r_rows))


def best_page_rows(rate: Callable[[int], float], begin_rows: int, least_rows: int, most_rows: int) -> int:
    """The page with the highest rate, of those that are a power of two times the first or a part of it.

    Example:
        >>> best_page_rows(lambda rows: -abs(rows - 90), 10, 1, 1000)
        80
    """
    begin_rate = rate(begin_rows)
    for factor in (2.0, 0.5):
        best_rows, best_rate, tried_rows = begin_rows, begin_rate, round(begin_rows * factor)
        while least_rows <= tried_rows <= most_rows:
            tried_rate = rate(tried_rows)
            if tried_rate < best_rate:
                break
            if tried_rate > best_rate:
                best_rows, best_rate = tried_rows, tried_rate
            tried_rows = int(tried_rows * factor)
        if best_rate > begin_rate:
            return best_rows
    return begin_rows


def _rate(series: Series, setting: Setting, conditions: Conditions) -> float:
    """Rows a second by the model; 0 where the memory is too small for the page."""
    try:
        told = prediction(series, setting, conditions)
    except BudgetExceeded:
        return 0.0
    if not series.queries_segments:
        return told.mu_rows_per_s
    # The model knows the seek at the beginning of a scan; every other segment is a query, too.
    seeks_s = (1.0 - told.counts.seeks) * conditions.profile.seek_s
    return told.mu_rows_per_s * told.seconds_per_iteration / (told.seconds_per_iteration + seeks_s)
