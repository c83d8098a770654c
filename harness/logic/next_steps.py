"""The commands worth running after a compile, chosen by what was found."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from harness.values.row import Row
from harness.values.verdict import Stage, VerdictKind

__all__ = ["next_steps"]

_OF_TRITON = (Stage.TTIR.value, Stage.TTGIR.value, Stage.LLIR.value, Stage.PTX.value)
_SHOWN = {"ttir": "source", "ttgir": "ttir", "llir": "ttgir", "ptx": "llir"}


def next_steps(rows: Sequence[Row], selection: Sequence[str]) -> list[tuple[str, str]]:
    """Pairs of command and what it would tell; `selection` holds the options that chose the kernel.

    `selection` leaves out `--triton`, `--ptxas` and `--config`, which the commands here vary.
    """
    failed = [row for row in rows if not VerdictKind(row.verdict).compiles]
    sick = [row for row in rows if row.verdict == VerdictKind.SICK.value]
    steps: list[tuple[str, str]] = []
    triton = next((row for row in failed if row.stage in _OF_TRITON), None)
    ptxas = next((row for row in failed if row.stage == Stage.CUBIN.value), None)
    if triton:
        if triton.verdict == VerdictKind.REJECTED.value:
            steps.append((_show(triton, "log"), "all that Triton said"))
        else:
            stage = _SHOWN.get(triton.stage or "", "log")
            steps.append((_show(triton, stage), "the IR before the stage at fault"))
        steps.append(
            (_compile(selection, "--triton", "latest"), "does the newest Triton still do it?")
        )
    if ptxas:
        steps.append((_show(ptxas, "log"), "everything that ptxas printed"))
        if ptxas.triton:
            again = _compile(
                selection, "--triton", ptxas.triton, "--ptxas", "latest", "--freeze-ptx"
            )
        else:
            again = _compile(selection, "--ptxas", "latest")
        steps.append((again, "the same PTX on the newest ptxas"))
    if sick:
        worst = max(sick, key=lambda row: row.spill_stores or 0)
        steps.append((_show(worst, "sass"), "where it spills (LDL, STL)"))
    return steps


def _show(row: Row, stage: str) -> str:
    return f"triage show {row.short} --stage {stage}"


def _compile(selection: Sequence[str], *options: str) -> str:
    return shlex.join(["triage", "compile", *selection, *options])
