"""Squares, grids and charts say what there is, and what they leave out."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from pathlib import Path

import jinja2
import msgspec
from nights import row

from harness.site.pages import CellPages, charts_of
from harness.site.squares import (
    ToolchainKey,
    cell_page,
    config_grid,
    kernel_page,
    matrix_grid,
    nights_grid,
)
from harness.values.limits import limits_of
from harness.values.row import BugFacts, Row
from harness.values.verdict import VerdictKind

TEMPLATES = Path(__file__).parents[3] / "templates"
_decode = msgspec.json.Decoder(BugFacts).decode


def facts(of: Row) -> BugFacts:
    return _decode(msgspec.json.encode(of))


def test_a_value_at_an_axis_is_short() -> None:
    templates = jinja2.Environment(loader=jinja2.FileSystemLoader(TEMPLATES), autoescape=True)
    tick = templates.get_template("charts.svg.j2").module.tick  # type: ignore[attr-defined]
    values = (0, 0.25, 50.0, 5_000, 10_000, 200_000.0, 2_500_000)
    assert [tick(value) for value in values] == ["0", "0.25", "50", "5,000", "10k", "200k", "2.5M"]


def test_names_of_files_are_safe_and_different() -> None:
    names = {
        kernel_page(kernel, "sm_90a") for kernel in ("../../a", "a", "A", "a/b", "a-b", "é" * 300)
    }
    names |= {cell_page("a"), kernel_page("a-sm", "90a"), kernel_page("a", "sm-90a")}
    assert len(names) == 9
    for name in names:
        assert set(name) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.")
        assert ".." not in name
        assert len(name) < 100


def test_a_grid_that_is_too_large_keeps_what_fails() -> None:
    cells = [
        facts(row(warps=warps, ptxas=ptxas)) for warps in range(1, 9) for ptxas in ("1.0", "2.0")
    ]
    cells[9] = facts(row("ptxas_ice", "s1", warps=5, ptxas="2.0"))
    whole = config_grid("default", cells, lambda cell: cell)
    assert (len(whole.lines), whole.left_out) == (8, "")
    assert [square and square.text for square in whole.lines[4].squares] == ["✓ ok", "✗ ptxas_ice"]
    cut = config_grid("default", cells, lambda cell: cell, most=6)
    assert [line.label for line in cut.lines].count(whole.lines[4].label) == 1
    assert len(cut.lines) == 3
    assert cut.left_out.startswith("5 of 8 configs")


def test_a_square_of_many_shows_the_failure_and_not_the_majority() -> None:
    toolchain = ToolchainKey("triton", "3.6.0", "13.0.88", "bundled", "", False)
    verdicts = Counter({VerdictKind.OK: 90, VerdictKind.TIMEOUT: 2, VerdictKind.INFRA: 8})
    (line,) = matrix_grid("sm_90a", {"scan": {toolchain: verdicts}}).lines
    (square,) = line.squares
    assert square is not None
    assert (square.text, square.count) == ("? timeout", "90/100")
    assert square.words == "90 ok, 8 infra, 2 timeout"


def test_a_chart_breaks_where_nothing_compiles_and_draws_a_near_limit() -> None:
    cells = [
        facts(row(ptxas="12.9", n_regs=100)),
        facts(row(ptxas="12.9", warps=8, n_regs=200)),
        facts(row("ptxas_ice", "s1", ptxas="13.0")),
        facts(row(ptxas="13.1", n_regs=255)),
    ]
    registers, occupancy = (it.chart for it in charts_of(cells, limits_of(90), lambda *_: ""))
    assert (registers.title, occupancy.title) == ("registers", "occupancy")
    eight, four = registers.lines
    assert [[point.value for point in stretch] for stretch in four.stretches] == [[100], [255]]
    assert [[point.value for point in stretch] for stretch in eight.stretches] == [[200]]
    assert four.points[0].y > eight.points[0].y > four.points[1].y == registers.limit_y
    assert [value for value, _ in registers.ticks] == [0, 100, 200]
    # Nothing is drawn of a limit that is not known.
    assert charts_of(cells, None, lambda *_: "")[0].chart.limit is None


def test_the_one_config_that_got_worse_is_named_and_compared() -> None:
    """Configs with the same numbers share a line; the largest step for the worse stands out."""
    cells = [
        facts(row(warps=warps, ptxas=ptxas, n_regs=64 if ptxas == "12.9" else regs, occupancy=0.5))
        for warps, regs in ((1, 64), (2, 64), (4, 200), (8, 40))
        for ptxas in ("12.9", "13.1")
    ]

    def pair(before: BugFacts, after: BugFacts) -> str:
        return f"{before.ptxas} {before.config['num_warps']} {after.ptxas}"

    registers, occupancy = charts_of(cells, limits_of(90), pair)
    assert [len(line.names) for line in registers.chart.lines] == [2, 1, 1]
    worst = registers.chart.worst
    assert worst
    assert (worst.before.value, worst.after.value, worst.line.names) == (
        64,
        200,
        ("num_warps=4,maxnreg=128",),
    )
    assert registers.compare == "12.9 4 13.1"
    # Each is named by what tells the configs apart, and names do not lie on each other.
    assert [(words, is_worst) for words, _, is_worst in registers.ends] == [
        ("warps=8", False),
        ("warps=1, 2", False),
        ("warps=4", True),
    ]
    places = [y for _, y, _ in registers.ends]
    assert min(above - below for above, below in pairwise(places)) >= 12
    # All configs have one line, and of one toolchain nothing is drawn.
    assert [words for words, _, _ in occupancy.ends] == ["warps=1, 2, 4, 8"]
    assert charts_of(cells[::2], limits_of(90), pair) == []
    assert (occupancy.chart.worst, occupancy.compare) == (None, "")


def test_pages_go_to_each_failure_before_more_of_the_same() -> None:
    chosen = CellPages(most=5, wanted=frozenset({str(row(warps=16).cell)}))
    same = [facts(row("ptxas_ice", "s1", warps=warps)) for warps in range(1, 9)]
    assert [chosen.takes(each) for each in same] == [True] * 3 + [False] * 5
    assert chosen.takes(facts(row("ptxas_error", "s2")))
    assert chosen.takes(facts(row(warps=16)))
    assert not chosen.takes(facts(row("ptxas_error", "s3")))
    assert (chosen.pages, chosen.passed_over) == (5, 6)


def test_tensor_memory_has_a_chart_with_its_limit_where_a_target_has_any() -> None:
    cells = [facts(row(ptxas=each, tmem_size=512)) for each in ("12.9", "13.1")]
    found = {it.chart.title: it.chart for it in charts_of(cells, limits_of(100), lambda *_: "")}
    assert (found["tensor memory"].most, found["tensor memory"].limit) == (512, 512)
    without = charts_of([facts(row(tmem_size=0))], limits_of(90), lambda *_: "")
    assert "tensor memory" not in {it.chart.title for it in without}


def test_a_step_that_is_too_small_to_matter_is_not_the_worst_of_a_chart() -> None:
    def worst(before: int, after: int) -> bool:
        numbers = (("12.9", before), ("13.1", after))
        cells = [facts(row(ptxas=each, n_regs=n, occupancy=0.5)) for each, n in numbers]
        registers, occupancy = (it.chart for it in charts_of(cells, None, lambda *_: ""))
        assert occupancy.worst is None
        return registers.worst is not None

    assert [worst(115, 118), worst(115, 123), worst(200, 208), worst(200, 210)] == [
        False,
        True,
        False,
        True,
    ]


def test_a_config_is_columns_and_what_all_share_is_said_once() -> None:
    cells = [facts(row(warps=warps)) for warps in (4, 8)]
    grid = config_grid("default", cells, lambda cell: cell)
    assert (grid.heads, grid.same) == (("warps",), "maxnreg=128")
    assert [line.parts for line in grid.lines] == [("4",), ("8",)]
    # Of one config nothing varies: it has its name.
    one = config_grid("default", cells[:1], lambda cell: cell)
    assert (one.heads, one.same) == (("config",), "num_warps=4, maxnreg=128")
    assert (one.lines[0].label, one.lines[0].parts) == ("num_warps=4,maxnreg=128", ())


def test_names_of_lines_at_the_top_stay_in_the_drawing() -> None:
    cells = [
        facts(row(ptxas=ptxas, warps=warps, n_regs=200 + warps % 3))
        for ptxas in ("12.9", "13.1")
        for warps in range(1, 4)
    ]
    registers, *_ = charts_of(cells, None, lambda *_: "")
    places = [y for _, y, _ in registers.ends]
    assert len(places) == 3
    assert min(places) >= registers.chart.frame.top
    assert all(below - above >= 12 for below, above in pairwise(places))


def test_the_name_of_a_line_that_is_long_is_its_values() -> None:
    def cells(ptxas: str) -> list[BugFacts]:
        return [
            facts(row(ptxas=ptxas, n_regs=64 + m, config={"BLOCK_M": m, "BLOCK_N": n, "same": 1}))
            for m, n in ((64, 128), (128, 64))
        ]

    registers, *_ = charts_of(cells("12.9") + cells("13.1"), None, lambda *_: "")
    assert [words for words, _, _ in registers.ends] == ["64/128", "128/64"]


def test_nights_are_columns_and_what_fails_now_comes_first() -> None:
    def tally(**verdicts: dict[VerdictKind, int]) -> dict[tuple[str, str], Counter[VerdictKind]]:
        return {(kernel, "sm_90a"): Counter(of) for kernel, of in verdicts.items()}

    ok, failed, sick = VerdictKind.OK, VerdictKind.OUT_OF_RESOURCES, VerdictKind.SICK
    infra = VerdictKind.INFRA
    grid = nights_grid(
        [
            (7, "3 Nov", tally(a={ok: 4}, b={failed: 4}, c={ok: 3, failed: 1}), {("a", "sm_90a")}),
            (6, "2 Nov", tally(a={ok: 3, sick: 1}, b={ok: 4}, d={infra: 1}), set()),
        ]
    )
    assert grid.columns == ("run 7\n3 Nov", "run 6\n2 Nov")
    assert grid.hrefs == ("run-7.html", "run-6.html")
    assert [line.parts for line in grid.lines] == [(name, "sm_90a") for name in "bacd"]
    shown = [
        [square and (square.text, square.tone, square.count) for square in line.squares]
        for line in grid.lines
    ]
    assert shown == [
        [("✗ 0/4", "bad", ""), ("✓ 4/4", "good", "")],
        [("! 4/4", "poor", "worse"), ("! 4/4", "poor", "sick")],
        [("! 3/4", "poor", ""), None],
        [None, ("? 0/1", "faint", "")],
    ]
    assert nights_grid([(1, "", tally(a={ok: 1}, b={ok: 1}), set())], most=1).left_out == (
        "1 of 2 lines, of kernels that work."
    )
