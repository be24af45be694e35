"""All figures on one HTML page: what the paper claims, what was measured, whether it holds, and why not.

The page needs nothing else: figures are part of it, as SVG. At its top stands a table of all experiments: the claim,
the ratio found here and the paper's, and how our own join does beside the best of all others at equal memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path

from semistream.lab.plots import svg
from semistream.lab.run import Result

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem; color: #222; }
section { border-top: 1px solid #ccc; padding: 1rem 0; }
svg { max-width: 100%; height: auto; }
table { border-collapse: collapse; font-size: 0.9rem; }
td, th { padding: 0.2rem 0.8rem 0.2rem 0; text-align: left; vertical-align: top; border-bottom: 1px solid #eee; }
.yes { color: #17692f; } .no { color: #9a2a1a; }
"""

COLUMNS = ("figure", "holds", "claim", "here", "paper", "adaptive : best other")

READING = (
    "Ratios say how many times better the paper's algorithm is than its rival, at the value of the figure's x axis. "
    "<i>adaptive</i> is our own join: its ratio to the best of all others at equal memory on as many disks, the least "
    "and the most over the points of the figure; above 1 it is the best."
)


def write_report(results: Sequence[Result], directory: Path, not_run: Sequence[str] = ()) -> Path:
    """Write `directory/report.html`, which names what was to be run and was not."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / "report.html"
    path.write_text(page(results, not_run), encoding="utf-8")
    return path


def page(results: Sequence[Result], not_run: Sequence[str] = ()) -> str:
    """The whole page."""
    sections = "".join(map(_section, results))
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>The laboratory of Semistream</title>'
        f"<style>{STYLE}</style></head><body><h1>What the papers claim, and what was measured</h1>"
        f"{_incomplete(not_run)}{_summary(results)}{sections}</body></html>\n"
    )


def _incomplete(not_run: Sequence[str]) -> str:
    return f"<p><b>Stopped before the end.</b> Not run: {escape(', '.join(not_run))}.</p>" if not_run else ""


def _summary(results: Sequence[Result]) -> str:
    held = sum(result.verdict.holds is True for result in results)
    open_ = sum(result.verdict.holds is None for result in results)
    judged = f" {open_} could not be judged." if open_ else ""
    compared = [result.ours for result in results if result.ours.measured]
    near = sum(ours.is_near_everywhere for ours in compared)
    best, points = sum(o.best_at for o in compared), sum(len(o.measured) for o in compared)
    clearly = sum(o.clearly_best_at for o in compared)
    ours = (
        f" In {near} of {len(compared)} experiments <i>adaptive</i> is the best or within 5 % of it at every point; it "
        f"is the best at {best} of {points} points, at {clearly} by more than the 95 % intervals leave open."
        if compared
        else ""
    )
    titles = "".join(f"<th>{title}</th>" for title in COLUMNS)
    rows = "".join(map(_summary_row, results))
    told = f"<p>{held} of {len(results)} claims hold.{judged}{ours}</p><p>{READING}</p>"
    return f"{told}<table><tr>{titles}</tr>{rows}</table>"


def _summary_row(result: Result) -> str:
    name, verdict = escape(result.experiment.id), result.verdict
    cells = (
        f'<a href="#{name}">{name}</a>',
        _holds(result),
        escape(result.experiment.claim),
        escape(verdict.found),
        escape(verdict.published) or "not stated",
        _beside_best(result),
    )
    return "<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>"


def _beside_best(result: Result) -> str:
    ratios = result.ours.measured.values()
    if not ratios:
        return "not compared"
    kind = "yes" if result.ours.is_near_everywhere else "no"
    return f'<b class="{kind}">{min(ratios):.3g} … {max(ratios):.3g}</b>'


def _holds(result: Result) -> str:
    if result.verdict.holds is None:
        return "<b>not judged</b>"
    return '<b class="yes">yes</b>' if result.verdict.holds else '<b class="no">no</b>'


def _section(result: Result) -> str:
    experiment = result.experiment
    measured = "".join(
        f"<tr><td>{escape(name)}</td><td>{value:g}</td></tr>"
        for name, value in {**result.verdict.measured, **result.ours.measured}.items()
    )
    note = f"<p>{escape(experiment.note)}</p>" if experiment.note else ""
    return (
        f'<section id="{escape(experiment.id)}"><h2>{escape(experiment.id)}</h2>'
        f"<p>{escape(experiment.paper)}, figure {escape(experiment.figure)}. {escape(experiment.fixed)}. "
        f"Run with {escape(result.run_with)}.</p>"
        f"<p><b>Claim:</b> {escape(experiment.claim)}.</p>"
        f"<p><b>Holds:</b> {_holds(result)}. {escape(result.verdict.reason)}</p>"
        f"{svg(result)}{note}<details><summary>measured</summary><table>{measured}</table></details></section>"
    )
