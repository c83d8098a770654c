"""The commands worth running after a compile, chosen by what was found."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

from harness.values.row import Row
from harness.values.toolchain import (
    PTXAS,
    TRITON,
    assembler_name,
    assembler_words,
    compiler_name,
    compiler_words,
    program_name,
)
from harness.values.verdict import Stage, VerdictKind

__all__ = ["next_steps"]

# What goes into each stage of Triton's: some of its kernels leave out one of the stages.
_SHOWN = {"ttir": "source", "glir": "source", "ttgir": "ttir", "llir": "ttgir", "ptx": "llir"}


def next_steps(
    rows: Sequence[Row],
    selection: Sequence[str],
    stages: Mapping[str, Sequence[str]] | None = None,
) -> list[tuple[str, str]]:
    """Pairs of command and what it would tell; `selection` holds the options that chose the kernel.

    `selection` leaves out `--triton`, `--ptxas` and `--config`, which the commands here vary.
    `stages` are those of compilers other than Triton, by their kind.
    """
    steps: dict[str, str] = {}
    # What does not work first, then the worst of the sick.
    order = sorted(
        rows, key=lambda row: (VerdictKind(row.verdict).compiles, -(row.spill_stores or 0))
    )
    for row in order:
        kind = VerdictKind(row.verdict)
        if kind is not VerdictKind.OK:
            for command, why in _steps_for(row, kind, selection, stages or {}):
                steps.setdefault(why, command)
    if any(row.suspect for row in rows):
        check = shlex.join(["triage", "check", *selection])
        steps["do its configs compute the same?"] = check
    return [(command, why) for why, command in steps.items()]


def _steps_for(
    row: Row, kind: VerdictKind, selection: Sequence[str], stages: Mapping[str, Sequence[str]]
) -> list[tuple[str, str]]:
    if kind is VerdictKind.SICK:
        if row.instructions is None:
            return [(_show(row, "meta"), "what it asks of the target")]
        why = "where it spills (LDL, STL)" if row.spill_stores else "its instructions"
        return [(_show(row, "sass"), why)]
    if kind in (VerdictKind.REJECTED, VerdictKind.UNSUPPORTED, VerdictKind.INFRA):
        return [(_show(row, "log"), "all that the compiler said")]
    if kind is VerdictKind.OUT_OF_RESOURCES:
        stage = "meta" if row.compiler else "log"
        return [(_show(row, stage), "what it asks of the target")]
    if row.compiler and row.stage != Stage.CUBIN.value:
        title = compiler_name(row.compiler)
        # Nothing comes before the first stage: what was printed is all there is.
        shown = _stage_before(row, stages)
        why = "the IR before the stage at fault" if shown else f"everything that {title} printed"
        newest = _compile(selection, *compiler_words(row.compiler, "latest"))
        return [
            (_show(row, shown or "log"), why),
            (newest, f"does the newest {title} still do it?"),
        ]
    options = assembler_words(row.assembler, "latest")
    tool = assembler_name(row.assembler)
    code = program_name(row.program_sha256 is not None)
    if row.compiler:
        options = [*compiler_words(row.compiler, row.compiler_version), *options]
        options += ["--freeze-ptx"] if row.assembler == PTXAS else []
    return [
        (_show(row, "log"), f"everything that {tool} printed"),
        (_compile(selection, *options), f"the same {code} on the newest {tool}"),
    ]


def _stage_before(row: Row, stages: Mapping[str, Sequence[str]]) -> str | None:
    """The stage that went into the one that failed; None where that is the first."""
    if row.compiler == TRITON:
        return _SHOWN.get(row.stage or "")
    of_it = stages.get(row.compiler or "", ())
    at = of_it.index(row.stage) if row.stage in of_it else 0
    return of_it[at - 1] if at else None


def _show(row: Row, stage: str) -> str:
    return f"triage show {row.short} --stage {stage}"


def _compile(selection: Sequence[str], *options: str) -> str:
    return shlex.join(["triage", "compile", *selection, *options])
