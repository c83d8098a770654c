from __future__ import annotations

from rich.console import Console

from harness.cells.compile import CompileReport, compile_document
from harness.tables.markdown import rows_as_markdown, summary_as_markdown
from harness.tables.rows import rows_said
from harness.tables.samples import Sample
from harness.tables.summary import summarize, summary_said
from harness.tables.terminal import for_terminal
from harness.values.row import Row
from harness.values.verdict import VerdictKind


def row(
    kernel: str,
    target: str,
    verdict: str = "ok",
    *,
    warps: int = 4,
    launch: str = "default",
    triton: str = "3.6.0",
    reason: str = "compiled",
    signature: str | None = None,
) -> Row:
    return Row(
        cell=f"{kernel}/{launch}/{warps}@{target}/{triton}",
        short="01234567",
        kernel=kernel,
        launch=launch,
        config={"num_warps": warps, "BLOCK": 64},
        target=target,
        triton=triton,
        compiler="triton" if triton else None,
        compiler_version=triton,
        ptxas="12.8.93" if target == "sm_80" else "12.9.86",
        ptxas_origin="bundled",
        verdict=VerdictKind(verdict),
        reason=reason,
        stage=None if signature is None else "cubin",
        signature=signature,
    )


def ice(kernel: str, target: str, reason: str, warps: int = 4) -> Row:
    return row(kernel, target, "ptxas_ice", warps=warps, reason=reason, signature="s1")


ROWS = [
    row("one", "sm_80"),
    row("one", "sm_80", warps=8),
    row("one", "sm_100a"),
    ice("one", "sm_100a", "died at 12 registers", warps=8),
    ice("two", "sm_100a", "died at 40 registers"),
    row("two", "sm_100a", "out_of_resources", warps=8, reason="too much", signature="s2"),
]


def printed(rows: list[Row]) -> list[str]:
    console = Console(width=200, color_system=None)
    with console.capture() as capture:
        console.print(for_terminal(summary_said(summarize(rows))))
    return [" ".join(line.split()) for line in capture.get().splitlines() if line.strip()]


def test_a_line_for_each_kernel_and_a_column_for_each_target() -> None:
    title, _, first, second, *_ = printed(ROWS)
    assert title == "kernel sm_80 sm_100a"
    assert first == "one 2 ok 1 ok, 1 ptxas_ice"
    assert second == "two - 1 ptxas_ice, 1 out_of_resources"


def test_a_failure_is_said_once_for_all_kernels() -> None:
    summary = summarize(ROWS)
    assert summary.headline == (
        "2 kernels on 2 targets, 6 configs in all: 3 ok, 2 ptxas_ice, 1 out_of_resources."
    )
    assert printed(ROWS)[-2:] == [
        (
            "2 ptxas_ice on sm_100a [one, two]: died at 12 to 40 registers "
            "(at fault: ptxas, stage cubin)"
        ),
        "1 out_of_resources on sm_100a [two]: too much (stage cubin)",
    ]


def test_many_places_are_counted_not_listed() -> None:
    rows = [ice(f"k{index}", "sm_90a", "bad") for index in range(9)]
    assert "ptxas_ice on sm_90a [k0, k1, k2, k3 and 5 more]: bad" in printed(rows)[-1]


def test_launches_and_toolchains_are_told_apart_where_there_are_several() -> None:
    rows = [row("one", "sm_80"), row("one", "sm_80", launch="varlen"), row("two", "sm_80")]
    assert [line.split()[:3] for line in printed(rows)[2:5]] == [
        ["one", "·", "default"],
        ["one", "·", "varlen"],
        ["two", "1", "ok"],
    ]
    rows = [row("one", "sm_80"), row("one", "sm_100a"), row("one", "sm_80", triton="3.9.0")]
    assert printed(rows)[2:4] == [
        "one Triton 3.6.0, bundled ptxas 1 ok 1 ok",
        "one Triton 3.9.0, bundled ptxas 1 ok -",
    ]


def test_markdown_is_a_table_that_survives_odd_text() -> None:
    text = summary_as_markdown(summarize([row("a|b*c<d", "sm_80")]))
    assert text.splitlines() == [
        "| kernel | sm_80 |",
        "| --- | --- |",
        "| a\\|b\\*c&lt;d | 1 ok |",
        "",
        "1 kernel on 1 target, 1 config in all: 1 ok.",
    ]


def test_markdown_of_one_kernel_has_each_config_and_no_times() -> None:
    text = rows_as_markdown([row("one", "sm_100a"), ice("one", "sm_100a", "died", warps=8)])
    heading, _, titles, _, first, second, _, headline, _, fate = text.splitlines()
    assert heading.startswith("**one · default · sm_100a · Triton 3.6.0 · ptxas 12.9.86 (bundled)")
    assert titles.startswith("| warps | verdict | regs |")
    assert first.startswith("| 4 | ok |")
    assert second.startswith("| 8 | ptxas_ice |")
    assert "01234567" not in text
    assert headline == "2 configs: 1 compiles; 1 does not work."
    assert fate.startswith("- 1 `ptxas_ice` [num_warps=8]: ")


def test_what_was_left_out_stands_where_the_result_is_said() -> None:
    sample = Sample(
        kernel="one",
        target="sm_100a",
        compiler="Triton 3.6.0",
        done="compiled",
        tried=2,
        of=17,
        left_out={"default": 10, "default#2": 5},
        command="triage compile --kernel one::one --sm 100a",
    )
    rows = [row("one", "sm_100a"), row("one", "sm_100a", warps=8), row("one", "sm_80")]
    console = Console(width=400, color_system=None)
    with console.capture() as capture:
        console.print(for_terminal(rows_said(rows, [sample])))
    for text in (capture.get(), rows_as_markdown(rows, [sample])):
        assert "2 of 12 configs: 2 compile; 10 were not tried." in text
        assert "1 config: 1 compiles." in text
        assert text.splitlines()[-1].strip() == sample.words
    assert sample.words == (
        "one, sm_100a, Triton 3.6.0: 2 of 17 configs were compiled; not compiled: 10 of default, "
        "5 of default#2. For all: triage compile --kernel one::one --sm 100a"
    )
    summary = summarize(rows, [sample])
    assert summary.headline.endswith("3 configs in all: 3 ok; 15 more not tried.")
    assert f"- {sample.words}" in summary_as_markdown(summary)
    report = CompileReport(
        rows=tuple(rows), failures=(), notes=(), samples=(sample,), wall_seconds=1, cpu_seconds=1
    )
    document = compile_document(report)["summary"]
    assert document["not_tried"] == (sample,)
    assert [group["headline"] for group in document["survivorship"]] == [
        "2 of 12 configs: 2 compile; 10 were not tried.",
        "1 config: 1 compiles.",
    ]
