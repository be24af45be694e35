"""All figures on one HTML page: what the paper claims, what was measured, whether it holds, and why not.

The page needs nothing else: figures are part of it, as SVG.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path

from semistream.lab.plots import svg
from semistream.lab.run import Result

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #222; }
section { border-top: 1px solid #ccc; padding: 1rem 0; }
svg { max-width: 100%; height: auto; }
table { border-collapse: collapse; font-size: 0.9rem; }
td, th { padding: 0.1rem 0.8rem 0.1rem 0; text-align: left; vertical-align: top; }
.yes { color: #17692f; } .no { color: #9a2a1a; }
"""


def write_report(results: Sequence[Result], directory: Path) -> Path:
    """Write `directory/report.html`."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / "report.html"
    path.write_text(page(results), encoding="utf-8")
    return path


def page(results: Sequence[Result]) -> str:
    """The whole page."""
    held = sum(result.verdict.holds for result in results)
    rows = "".join(
        f'<tr><td><a href="#{escape(result.experiment.id)}">{escape(result.experiment.id)}</a></td>'
        f"<td>{_holds(result)}</td><td>{escape(result.experiment.claim)}</td></tr>"
        for result in results
    )
    sections = "".join(map(_section, results))
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>The laboratory of Semistream</title>'
        f"<style>{STYLE}</style></head><body><h1>What the papers claim, and what was measured</h1>"
        f"<p>{held} of {len(results)} claims hold.</p>"
        f"<table><tr><th>figure</th><th>holds</th><th>claim</th></tr>{rows}</table>{sections}</body></html>\n"
    )


def _holds(result: Result) -> str:
    return '<b class="yes">yes</b>' if result.verdict.holds else '<b class="no">no</b>'


def _section(result: Result) -> str:
    experiment, conditions = result.experiment, result.conditions
    measured = "".join(
        f"<tr><td>{escape(name)}</td><td>{value:g}</td></tr>" for name, value in result.verdict.measured.items()
    )
    note = f"<p>{escape(experiment.note)}</p>" if experiment.note else ""
    return (
        f'<section id="{escape(experiment.id)}"><h2>{escape(experiment.id)}</h2>'
        f"<p>{escape(experiment.paper)}, figure {escape(experiment.figure)}. {escape(experiment.fixed)}. "
        f"Run with io {conditions.io}, size {escape(result.size)}, memory {conditions.memory_model}, "
        f"seed {conditions.seed}.</p>"
        f"<p><b>Claim:</b> {escape(experiment.claim)}.</p>"
        f"<p><b>Holds:</b> {_holds(result)}. {escape(result.verdict.reason)}</p>"
        f"{svg(result)}{note}<details><summary>measured</summary><table>{measured}</table></details></section>"
    )
