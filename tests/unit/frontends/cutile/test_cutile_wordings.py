"""What cuTile, tileiras and the ptxas that it calls say when they fail: texts that were seen."""

from __future__ import annotations

import pytest

from harness.frontends.cutile.front_end import CUTILE_FRONT_END
from harness.frontends.cutile.tileiras import judge_tileiras
from harness.judging.judge import CellEvidence
from harness.values.outcome import Assembly, Lowering, ProcessEnd, RaisedError
from harness.values.target import Target

OK = ProcessEnd(exit_code=0)


def raised(*kinds: str, message: str, stage: str = "cutile") -> Lowering:
    error = RaisedError(type=kinds[0], kinds=(*kinds, "Exception"), message=message)
    return Lowering(end=OK, stage=stage, error=error)


@pytest.mark.parametrize(
    ("lowering", "verdict", "said"),
    [
        (
            raised("TileSyntaxError", "TileError", message="Undefined variable x used\n  file"),
            "rejected",
            "cuTile rejects the kernel: Undefined variable x used",
        ),
        (
            raised("TypeCheckingError", "TileError", message='Dimension #0 of shape "100" is not'),
            "rejected",
            'rejects the kernel: Dimension #0 of shape "100" is not',
        ),
        (
            raised("UnsupportedFeatureError", "TileError", message="float8_e4m3fn is not there"),
            "unsupported",
            "this cuTile cannot do it: float8_e4m3fn is not there",
        ),
        (
            raised("AttributeError", message="module 'cuda.tile' has no attribute 'Slice'"),
            "unsupported",
            "has no attribute 'Slice'",
        ),
        (
            raised("KeyError", message="'x'", stage="tileir"),
            "pass_failure",
            "tileir: KeyError: 'x'",
        ),
        (raised("MemoryError", message=""), "out_of_memory", "out of memory: MemoryError"),
        (raised("OSError", message="no space"), "infra", "could not read or write a file"),
        (
            Lowering(end=ProcessEnd(signal=11), stage="cutile", log="x\nFatal Python error\n"),
            "compiler_crash",
            "cuTile died by SIGSEGV in stage cutile: Fatal Python error",
        ),
        (
            Lowering(end=ProcessEnd(exit_code=7), stage="cutile"),
            "infra",
            "ended with exit code 7 in stage cutile and left no result",
        ),
        (Lowering(end=ProcessEnd(timed_out=True, wall=3.0), stage="cutile"), "timeout", "cuTile"),
    ],
)
def test_lowering(lowering: Lowering, verdict: str, said: str) -> None:
    found = CUTILE_FRONT_END.judge(lowering)
    assert (found.kind.value, said in found.reason) == (verdict, True), found.reason
    assert found.stage is not None
    assert found.stage.value == lowering.stage


def ran(stderr: str, *, code: int | None = 5, signal: int | None = None) -> CellEvidence:
    end = ProcessEnd(exit_code=None if signal else code, signal=signal)
    return CellEvidence(
        target=Target.parse("100a"),
        assembly=Assembly(end=end, flags=(), stdout="", stderr=stderr, has_cubin=False),
        kernel="sum_kernel_Kt1_A1f32",
    )


ITS_PTXAS = """\
error: failed to compile Tile IR program
ptxas info    : 0 bytes gmem
ptxas kernel.ptx, line 33; error   : Not a name of any known instruction: 'bogus'
ptxas fatal   : Ptx assembly aborted due to errors
ptxas ended with 255
"""


@pytest.mark.parametrize(
    ("evidence", "verdict", "said"),
    [
        (ran("", signal=11), "compiler_crash", "tileiras died by SIGSEGV, saying nothing"),
        (
            ran("error: it was here\nptxas info    : 0 bytes gmem\n", signal=6),
            "compiler_crash",
            "tileiras died by SIGABRT: it was here",
        ),
        (
            ran("tileiras: for the --gpu-name option: Cannot find option named 'sm_90'!", code=1),
            "unsupported",
            "this tileiras cannot do it: for the --gpu-name option: Cannot find option",
        ),
        (
            ran("error: unsupported Tile IR bytecode version: 13.4\n", code=3),
            "unsupported",
            "unsupported Tile IR bytecode version: 13.4",
        ),
        (
            ran("error: failed to compile Tile IR program\n"),
            "pass_failure",
            "exit code 5 before it called ptxas: failed to compile Tile IR program",
        ),
        (
            ran("error: an op\nerror: failed to compile Tile IR program\n"),
            "pass_failure",
            "before it called ptxas: an op",
        ),
        (ran(ITS_PTXAS), "ptxas_error", "Not a name of any known instruction: 'bogus'"),
        (
            ran("error: failed to compile Tile IR program\nptxas ended with 139\n"),
            "compiler_crash",
            "ptxas",
        ),
        (ran("", code=0), "pass_failure", "exit code 0 and left no complete cubin"),
    ],
)
def test_assembling(evidence: CellEvidence, verdict: str, said: str) -> None:
    found = judge_tileiras(evidence)
    assert (found.kind.value, said in found.reason) == (verdict, True), found.reason
    assert found.stage is not None
    assert found.stage.value == "cubin"
