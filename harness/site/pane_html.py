"""The lines of a pane as HTML. Pure.

A page has tens of thousands of them, and a template takes ten times as long for each.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape

from harness.site.panes import Pane, PaneLine


def pane_html(pane: Pane, anchors: Mapping[int, str]) -> str:
    """What stands in a pane; of what the store holds everything is escaped.

    `anchors` lead from a line of the source to where code that comes from it stands.
    """
    texts = escape("\n".join(line.text for line in pane.lines)).split("\n")
    lines = zip(pane.lines, texts, strict=True)
    if pane.is_source:
        return "".join(_of_source(lines, anchors))
    return "".join(_of_stage(lines, pane.name, has_margin=bool(pane.curves)))


def _of_source(lines: Iterator[tuple[PaneLine, str]], anchors: Mapping[int, str]) -> Iterator[str]:
    for line, text in lines:
        at = line.origin
        if at is not None and at in anchors:
            text = f'<a data-l="{at}" href="#{escape(anchors[at])}">{text}</a>'  # noqa: PLW2901
        yield f"<i>{escape(line.margin)}</i>{text}\n"


def _of_stage(
    lines: Iterator[tuple[PaneLine, str]], name: str, *, has_margin: bool
) -> Iterator[str]:
    for line, text in lines:
        if has_margin:
            peak = f' id="{escape(line.anchor)}" class="peak"' if line.anchor else ""
            yield f"<i{peak}>{escape(line.margin)}</i>"
        shown = f"<mark>{text}</mark>" if line.is_spill else text
        if line.origin:
            first = f' id="{name}-{line.origin}"' if line.is_first else ""
            shown = f'<span data-l="{line.origin}"{first}>{shown}</span>'
        yield f"{shown}\n"
