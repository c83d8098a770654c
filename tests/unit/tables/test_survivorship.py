from __future__ import annotations

import pytest
from msgspec.structs import replace
from rich.console import Console

from harness.cells.next_steps import next_steps
from harness.cells.spelling import SelectionOptions
from harness.tables.markdown import rows_as_markdown
from harness.tables.rows import rows_said
from harness.tables.survivors import common_reason, group_rows, survivors
from harness.tables.terminal import for_terminal
from harness.values.kernel import Scalar
from harness.values.row import Row
from harness.values.verdict import VerdictKind


def row(
    verdict: str = "ok",
    *,
    ptxas: str = "13.1.115",
    triton: str | None = "3.6.0",
    stage: str | None = None,
    reason: str = "compiled",
    spill_stores: int = 0,
    **config: Scalar,
) -> Row:
    words = ",".join(f"{name}={value}" for name, value in config.items())
    return Row(
        cell=f"k/{words}@sm_90a/{ptxas}",
        short=f"{abs(hash((words, ptxas))):016x}"[:8],
        kernel="k",
        launch="launch",
        config=dict(config),
        target="sm_90a",
        triton=triton,
        compiler="triton" if triton else None,
        compiler_version=triton,
        ptxas=ptxas,
        ptxas_origin="wheel",
        verdict=VerdictKind(verdict),
        reason=reason,
        stage=stage,
        signature=None if verdict == "ok" else verdict,
        spill_stores=spill_stores,
    )


def printed(rows: list[Row], width: int) -> str:
    console = Console(width=width, color_system=None)
    with console.capture() as capture:
        console.print(for_terminal(rows_said(rows)))
    return capture.get()


def test_one_config_on_many_ptxas_is_one_table() -> None:
    rows = [row("ok" if n % 2 else "sick", ptxas=f"13.{n}.1", num_warps=4) for n in range(5)]
    text = printed(rows, 160)
    assert text.count("num_warps=4") == text.count("regs") == 1
    assert all(f"ptxas 13.{n}.1 " in text for n in range(5))
    assert "3 sick" in text
    tritons = [row(triton=f"3.{n}.0", num_warps=4) for n in range(2)]
    text = printed(tritons, 160)
    assert text.count("num_warps=4") == text.count("regs") == 1
    assert all(f"Triton 3.{n}.0 " in text for n in range(2))


def test_a_heading_says_what_tells_its_launch_from_the_others() -> None:
    rows = [replace(row(num_warps=4), launch=name, cell=name) for name in ("main", "main#3")]
    told = {"main#3": "BLOCK=8192, x=float16"}
    console = Console(width=120, color_system=None)
    with console.capture() as capture:
        console.print(for_terminal(rows_said(rows, launches=told)))
    for text in (capture.get(), rows_as_markdown(rows, launches=told)):
        assert "k · main · sm_90a" in text
        assert "k · main#3 (BLOCK=8192, x=float16) · sm_90a" in text


def test_one_table_for_each_toolchain_however_the_rows_come() -> None:
    rows = [
        row(ptxas=ptxas, num_warps=warps) for warps in (4, 8) for ptxas in ("12.9.86", "13.1.80")
    ]
    assert [[one.ptxas for one in group] for group in group_rows(rows)] == [
        ["12.9.86", "12.9.86"],
        ["13.1.80", "13.1.80"],
    ]
    assert printed(rows, 200).count("2 configs: 2 compile.") == 2


@pytest.mark.parametrize(
    ("reasons", "said"),
    [
        (("spills 3 B", "spills 5 B"), "spills 3 to 5 B"),
        # By their size, not as words: "255" sorts before "32", and "1,024" before "896".
        (("255 registers", "32 registers", "128 registers"), "32 to 255 registers"),
        (("spills 1,024 B", "spills 896 B"), "spills 896 to 1,024 B"),
        (("32 registers; spills 4 B", "spills 8 B; 33 registers"),
         "32 to 33 registers; spills 4 to 8 B"),
        (("spills 3 B; spills 5 B", "spills 4 B"),
         "spills 3 B; spills 5 B (others: spills 4 B)"),
        (("a 1; b 2; b 3", "b 4; a 5", "c 6; a 7"), "a 1 to 7"),
    ],
)  # fmt: skip
def test_reasons_are_matched_part_by_part(reasons: tuple[str, ...], said: str) -> None:
    assert common_reason([row("sick", reason=reason) for reason in reasons]) == said


@pytest.mark.parametrize(
    ("verdict", "stage", "triton", "said"),
    [
        ("rejected", "ttir", "3.6.0", "at fault: the kernel, stage ttir"),
        ("trap_stub", "llir", "3.6.0", "at fault: Triton, stage llir"),
        ("trap_stub", "ptx", None, "stage ptx"),
        ("ptxas_ice", "cubin", "3.6.0", "at fault: ptxas, stage cubin"),
        ("ptxas_ice", "cubin", None, "at fault: ptxas, stage cubin"),
        ("ptxas_error", "cubin", "3.6.0", "stage cubin"),
        # No process of ptxas ended: Triton raised before it began.
        ("pass_failure", "cubin", "3.6.0", "at fault: Triton, stage cubin"),
        ("unsupported", "cubin", "3.6.0", "stage cubin"),
        ("timeout", "ptx", "3.6.0", "stage ptx"),
        ("out_of_resources", "launch", "3.6.0", "the config; Triton would say so at launch only"),
        ("sick", "cubin", "3.6.0", None),
        ("ok", None, "3.6.0", None),
    ],
)
def test_blame_follows_the_verdict(
    verdict: str, stage: str | None, triton: str | None, said: str | None
) -> None:
    [fate] = survivors([row(verdict, stage=stage, triton=triton)]).fates
    assert fate.at_fault == said


def test_what_tells_the_failures_apart() -> None:
    rows = [
        row(
            "trap_stub" if warps > 2 else "ok", stage="llir" if warps > 2 else None, num_warps=warps
        )
        for warps in (2, 4, 8)
    ]
    found = survivors(rows)
    assert found.headline == "3 configs: 1 compiles; 2 do not work."
    assert found.fates[0].where == "num_warps=4|8"


@pytest.mark.parametrize("verdict", ["timeout", "out_of_memory", "infra"])
def test_what_a_limit_ended_is_not_said_to_fail(verdict: str) -> None:
    rows = [row(num_warps=4), row("rejected", num_warps=2), row(verdict, num_warps=8)]
    assert survivors(rows).headline == (
        "3 configs: 1 compiles; 1 does not work; 1 could not be determined."
    )


def test_reasons_that_differ_in_numbers_become_spans() -> None:
    rows = [
        row("sick", stage="cubin", reason=f"spills {n:,} B stores", num_warps=n)
        for n in (2048, 1024, 44324)
    ]
    assert survivors(rows).fates[0].reason == "spills 1,024 to 44,324 B stores"


@pytest.mark.parametrize("width", [60, 80, 200])
def test_no_width_cuts_a_name(width: int) -> None:
    rows = [row(num_warps=warps, BLOCK_M=128, BLOCK_N=64, GROUP=8) for warps in (4, 8)]
    text = printed(rows, width)
    for one in rows:
        assert one.short in text
    assert "…" not in text
    assert "BLOCK_M=128" in text
    assert ("left out for width" in text) == (width < 200)
    two = [*rows, *(replace(one, launch="other") for one in rows)]
    assert printed(two, width).count("left out for width") == (width < 200)


def test_what_could_not_be_checked_of_one_that_compiles_is_said() -> None:
    doubt = "compiled; the kernel writes nothing, and there is no IR that says whether it should"
    text = printed([row(n=1, reason=doubt), row(n=2, reason=doubt), row(n=3)], 200)
    assert "2 ok: the kernel writes nothing, and there is no IR" in text
    assert text.count(" ok:") == 1


def commands(*rows: Row) -> str:
    return "\n".join(command for command, _ in next_steps(rows, SelectionOptions(kernel="k")))


def test_next_steps_fit_what_was_found() -> None:
    assert commands(row()) == "triage run --kernel k"
    assert "--stage log" in commands(row("rejected", stage="ttir"))
    assert "--triton" not in commands(row("rejected", stage="ttir"))
    assert "--triton latest" in commands(row("trap_stub", stage="llir"))
    raw = commands(row("trap_stub", stage="ptx", triton=None))
    assert "--triton" not in raw
    assert "llir" not in raw
    assert "--freeze-ptx" in commands(row("ptxas_ice", stage="cubin"))
    large = commands(row("out_of_resources", stage="launch", num_warps=8))
    assert large.startswith("triage workaround --kernel k --sm sm_90a")
    assert "num_warps=8" in large
    assert "--stage meta" not in large
    sick = next_steps([row("sick", stage="cubin")], SelectionOptions(kernel="d/f.py", sm=["H100"]))
    assert [command.split()[1] for command, _ in sick] == ["workaround", "bisect"]
    assert not any("spill" in why for _, why in sick)


def test_what_works_is_run_and_compared_with_the_release_before() -> None:
    versions = {"triton": ("3.4.0", "3.5.0", "3.5.1", "3.6.0"), "ptxas": ()}
    words = SelectionOptions(kernel="k", sm=["H100"])
    steps = next_steps([row()], words, known=versions.__getitem__)
    assert steps == [
        ("triage run --kernel k --sm H100", "does it compute what it must?"),
        (
            "triage compile --kernel k --sm H100 --triton 3.5.1 --triton 3.6.0",
            "what changed since Triton 3.5.1?",
        ),
    ]
    # What is raw PTX has no Triton to compare, and is run as it is.
    raw = row(triton=None)
    [(command, _)] = next_steps([raw], SelectionOptions(kernel="k.ptx", ptxas=["latest"]))
    assert command == "triage run --kernel k.ptx"


def test_what_had_no_time_is_given_more_and_what_is_rejected_is_followed_to_other_versions() -> (
    None
):
    assert commands(row("timeout", stage="llir")).endswith("--timeout 3600")
    rejected = commands(row("rejected", stage="ttir")).splitlines()
    assert [command.split()[1] for command in rejected] == ["show", "bisect"]
    assert rejected[1].endswith("--axis triton")


def test_a_step_for_the_first_of_several_launches_names_it_alone() -> None:
    sick = row("sick", stage="cubin", num_warps=4)
    assert "--launch launch --config" in commands(sick, replace(sick, kernel="other", launch="x"))
    assert "--launch 'launch#1' --config" in commands(sick, replace(sick, launch="launch#2"))


def test_where_a_newer_version_does_well_upgrading_is_the_first_step() -> None:
    def at(verdict: str, triton: str, ptxas: str) -> Row:
        one = row(verdict, stage="cubin", triton=triton, ptxas=ptxas)
        return replace(one, cell=f"k/launch/num_warps=4@sm_90a/triton-{triton}/ptxas-{ptxas}")

    def first(*rows: Row) -> tuple[str, str]:
        return next_steps(rows, SelectionOptions(kernel="k", sm=["90a"]))[0]

    old = at("ptxas_ice", "3.4.0", "12.8.93")
    command, why = first(old, at("ok", "3.10.0", "12.9.86"))
    assert (command.split()[1], command.split()[-1]) == ("bisect", "compiler")
    assert "--triton" not in command
    assert why == "upgrading to Triton 3.10.0 ends it; which version was the first?"
    command, why = first(old, at("ok", "3.4.0", "13.0.88"))
    assert (command.split()[1], command.split()[-1]) == ("bisect", "assembler")
    assert "--triton 3.4.0" in command
    assert why.startswith("upgrading to ptxas 13.0.88 ends it")
    # What the newest still does, and what another launch does, is no way out.
    sick = at("sick", "3.10.0", "12.9.86")
    elsewhere = replace(sick, verdict=VerdictKind.OK, cell=sick.cell.replace("launch", "other"))
    for rows in ([old, at("ok", "3.5.0", "12.8.93"), sick], [old, elsewhere]):
        assert not any(
            "upgrading" in why for _, why in next_steps(rows, SelectionOptions(kernel="k"))
        )


@pytest.mark.parametrize("stage", ["cubin", "ttir"])
def test_no_step_is_the_command_that_was_given(stage: str) -> None:
    words = SelectionOptions(kernel="k", triton=["3.6.0"], ptxas=["latest"], freeze_ptx=True)
    if stage == "ttir":
        words = SelectionOptions(kernel="k", triton=["latest"])
    steps = next_steps([row("compiler_crash", stage=stage)], words)
    assert [command.split()[1] for command, _ in steps] == ["show"]
    # Nor one that tries what was tried: the newest version there is.
    versions = {"triton": ("3.5.0", "3.6.0"), "ptxas": ("13.0.88", "13.1.115")}
    crashed = [row("compiler_crash", stage=stage)]
    steps = next_steps(crashed, SelectionOptions(kernel="k"), known=versions.__getitem__)
    assert [command.split()[1] for command, _ in steps] == ["show"]


def test_the_stage_before_is_one_of_the_same_language() -> None:
    def shown(stage: str) -> str:
        one = replace(row("pass_failure", stage=stage), compiler="tilelang")
        stages = {"tilelang": ("tir", "device", "cuda", "nvcc")}
        (command, _), *_ = next_steps([one], SelectionOptions(kernel="k"), stages)
        return command.rpartition(" ")[2]

    assert [shown(stage) for stage in ("tir", "device", "nvcc")] == ["log", "tir", "cuda"]


def test_a_triton_that_dies_before_any_stage_is_not_said_to_be_ptxas() -> None:
    steps = next_steps([row("compiler_crash", stage="capture")], SelectionOptions(kernel="k.ttgir"))
    assert [why for _, why in steps] == [
        "everything that Triton printed",
        "does the newest Triton still do it?",
    ]
    assert all("ptxas" not in command for command, _ in steps)
