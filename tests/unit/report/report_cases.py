"""Two dossiers made up of plain values: the same ones that the golden reports were made from.

`python tests/unit/report/report_cases.py` writes the golden files again; read what changed before
you commit it.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

from made_minimization import changed, minimization
from msgspec import structs

from harness.bisect.bisect_words import BisectReport
from harness.bisect.contrast import Contrast, Point
from harness.bisect.ir_difference import StageDifference, StageStory
from harness.bisect.search import Probe, Tally, conclude
from harness.blame.blame_words import Blame
from harness.blame.grid import Culprit, Ground
from harness.frontends.registry import front_end
from harness.judging.answers import VerdictAnswer
from harness.judging.followed import follow
from harness.minimize.reduction.fingerprint import Answer, Fingerprint
from harness.minimize.reduction.minimization import Ending, VersionLine
from harness.minimize.reduction.reducer import Size
from harness.report.dossier import (
    Attachment,
    Dossier,
    KnownWorkaround,
    Missing,
    SourceOrigin,
    Upstream,
)
from harness.report.issue import render_report
from harness.values.cell import CellId
from harness.values.execution import OutputFacts, RaceFacts, RunRow
from harness.values.kernel import Config
from harness.values.row import Row
from harness.values.target import Target
from harness.values.verdict import Signature, Stage, VerdictKind

GOLDEN = Path(__file__).parents[2] / "data" / "reports"
VERSIONS = ("12.8.93", "13.0.88", "13.1.80", "13.3.33")
PTX = ".version 8.8\n.target sm_100a\n.entry k() {\n  bad.op;\n  ret;\n}\n"


def row(warps: int, verdict: str, reason: str, **more: object) -> Row:
    values: dict[str, object] = {
        "cell": f"scan/default/num_warps={warps}@sm_100a/triton-3.6.0/ptxas-13.1.80",
        "short": f"0000000{warps}",
        "kernel": "scan",
        "launch": "default",
        "config": {"num_warps": warps},
        "target": "sm_100a",
        "triton": "3.6.0",
        "compiler": "triton",
        "compiler_version": "3.6.0",
        "ptxas": "13.1.80",
        "ptxas_origin": "nvidia-cuda-nvcc",
        "verdict": VerdictKind(verdict),
        "reason": reason,
        "ptx_body_sha256": "b" * 64,
        "ptxas_flags": ("-v", "--gpu-name=sm_100a"),
        **more,
    }
    return Row(**values)  # type: ignore[arg-type]


CRASH = row(
    4,
    "ptxas_ice",
    "ptxas ended with exit code 255: (C1234) Internal compiler error.",
    stage="cubin",
    signature="0123456789ab",
    code="C1234",
    exit_code=255,
)
FINE = row(
    2, "sick", "spills 512 B stores per thread", n_regs=32, spill_stores=512, spill_loads=600
)
TRAP = row(
    4,
    "trap_stub",
    "asks for 544 columns of tensor memory, sm_100a has 512",
    stage="llir",
    signature="ba9876543210",
    tmem_size=544,
    ptxas="12.9.86",
    ptxas_origin="bundled",
)


def compiles(row: Row) -> Row:
    """The same config where it works."""
    return structs.replace(
        row,
        verdict=VerdictKind.OK,
        reason="compiled",
        signature=None,
        stage=None,
        code=None,
        exit_code=0,
    )


def history(
    axis: str,
    versions: tuple[str, ...],
    letters: str,
    failing: Row,
    rows: dict[int, Row] | None = None,
) -> BisectReport:
    """A letter for each version; `rows` are those that differ from what the letter stands for."""
    words = {
        "?": Probe(outcome=VerdictAnswer.UNTESTABLE, verdict="unsupported"),
        "+": Probe(outcome=VerdictAnswer.OK, verdict="ok"),
        "o": Probe(outcome=VerdictAnswer.OTHER),
        "x": Probe(
            outcome=VerdictAnswer.SAME, verdict=failing.verdict, signature=failing.signature
        ),
    }
    row_of = {
        "?": structs.replace(
            failing,
            verdict=VerdictKind.UNSUPPORTED,
            reason="Unsupported .version 8.8",
            signature=None,
        ),
        "+": structs.replace(FINE, verdict=VerdictKind.OK, reason="compiled", spill_stores=0),
        "x": failing,
        "o": failing,
    }
    known = {index: row_of[letter] for index, letter in enumerate(letters)} | (rows or {})
    return BisectReport(
        axis=axis,
        versions=versions,
        rows={versions[index]: row for index, row in known.items()},
        reasons={},
        tallies={
            version: Tally(failures=5 if letter == "x" else 0, runs=5)
            for version, letter in zip(versions, letters, strict=True)
        },
        finding=conclude(len(versions), dict(enumerate(map(words.__getitem__, letters)))),
        followed=follow(failing),
        cell=CellId(
            kernel=failing.kernel,
            launch=failing.launch,
            config=Config.of({"num_warps": 4}),
            target=Target.parse(failing.target),
            compiler="triton-3.6.0",
            ptxas="13.1.80",
        ),
        others=(),
        stages=None,
        trouble=None,
    )


def signature(failing: Row, stage: Stage, template: str) -> Signature:
    return Signature(
        stage=stage.value,
        kind=failing.verdict,
        failing_pass=None,
        code=failing.code,
        template=template,
    )


def attachment(name: str, text: str, what: str) -> Attachment:
    data = text.encode()
    return Attachment(name=name, data=data, sha256=hashlib.sha256(data).hexdigest(), what=what)


MINIMIZED = minimization(
    kernel="scan",
    short="00000004",
    target="sm_100a",
    flags=("-v", "--gpu-name=sm_100a"),
    level="ptx",
    reason=CRASH.reason,
    triton="3.6.0",
    ptxas="13.1.80",
    packages={"13.1.80": "nvidia-cuda-nvcc"},
    fingerprint=Fingerprint(bad="13.1.80", signature="0123456789ab"),
    reaction=None,
    limit=10.0,
    path="minimized/scan-00000004",
    original_text=PTX * 50,
    text=PTX,
    original=Size(instructions=2000, bytes=150_000, lines=3500),
    minimized=Size(instructions=2, bytes=len(PTX), lines=6),
    tests=900,
    calls=1200,
    seconds=80.0,
    ending=Ending.FINISHED,
    versions=tuple(
        VersionLine(
            version=version,
            original=answer,
            original_words="",
            minimized=answer,
            minimized_words="Unsupported .version 8.8" if answer is Answer.UNTOLD else "",
        )
        for version, answer in zip(
            VERSIONS, (Answer.UNTOLD, Answer.ACCEPTS, Answer.SAME, Answer.ACCEPTS), strict=True
        )
    ),
    is_minimal=True,
)

IN_PTXAS = Dossier(
    case=CRASH,
    signature=signature(CRASH, Stage.CUBIN, "(C1234) Internal compiler error."),
    function="_scan_kernel",
    summary="A scan",
    origin=SourceOrigin(
        package="some-package",
        version="1.2.3",
        sha256="a" * 64,
        module="some.scan",
        license="Apache-2.0",
    ),
    issue="somebody/some-package#12",
    shown_by="triage compile --kernel scan --sm 100a --ptxas 13.1.80",
    made_by="triage report --kernel scan --sm 100a --ptxas 13.1.80 --for nvidia",
    rows=(FINE, CRASH),
    log="ptxas fatal   : (C1234) Internal compiler error.\n",
    banner="Cuda compilation tools, release 13.1, V13.1.80\nBuild cuda_13.1.r13.1/compiler.1_0\n",
    ptxas_package="nvidia-cuda-nvcc",
    environment={"Triton version": "3.6.0", "OS": "Linux x86_64, glibc 2.36"},
    elsewhere=dict.fromkeys(("13.0.88", "13.3.33"), (FINE, compiles(CRASH))),
    along_ptxas=history("ptxas", VERSIONS, "?+x+", CRASH),
    flags=Contrast(
        axis="flag",
        origin=CRASH,
        points=(
            Point(label="-O0", outcome=VerdictAnswer.OK, reason="compiled", row=FINE),
            Point(label="-O3", outcome=VerdictAnswer.SAME, reason=CRASH.reason, row=CRASH),
        ),
    ),
    targets=Contrast(
        axis="target",
        origin=CRASH,
        points=(Point(label="sm_90a", outcome=VerdictAnswer.OK, reason="compiled", row=FINE),),
    ),
    blame=Blame(
        culprit=Culprit.PTXAS,
        ground=next(iter(Ground)),
        headline="ptxas is to blame.",
        reasons=("PTX identical on both sides: yes, so ptxas.",),
    ),
    minimized=MINIMIZED,
    ways=(
        KnownWorkaround(
            change="ptxas 13.1.80 -> 13.3.33", row=FINE, evidence="not checked: same source"
        ),
    ),
    ways_from=FINE,
    attachments=(
        attachment("min.ptx", PTX, "the smallest input that shows it"),
        attachment("original.ptx", PTX * 50, "the PTX that Triton 3.6.0 generates"),
        attachment("repro.sh", "#!/bin/sh\n", "shows it"),
    ),
)

IN_TRITON = replace(
    IN_PTXAS,
    case=TRAP,
    signature=signature(TRAP, Stage.LLIR, TRAP.reason),
    rows=(structs.replace(FINE, ptxas="12.9.86"), TRAP),
    log="",
    made_by="triage report --kernel scan --sm 100a --for triton",
    shown_by="triage compile --kernel scan --sm 100a",
    along_ptxas=None,
    flags=None,
    targets=None,
    along_triton=replace(
        history("triton", ("3.4.0", "3.5.0", "3.6.0", "3.8.0"), "?xx+", TRAP),
        stages=StageStory(
            stages=(
                StageDifference(stage="ttgir"),
                StageDifference(stage="llir", gained=("add",), lost=("llvm.trap",)),
            ),
            failing_pass="convert-something",
            trap_stage="llir",
            llvm=("aaaaaaaa", "bbbbbbbb"),
            ptxas=("12.9.86", "13.3.33"),
        ),
    ),
    blame=None,
    minimized=None,
    attachments=(attachment("original.ptx", PTX, "the input"),),
    missing=(
        Missing(what="whose fault it is", why="left out by --quick", command="triage blame"),
        Missing(what="the smallest input", why="left out by --quick", command="triage minimize"),
    ),
)


def race(
    lines: tuple[int, int],
    sources: tuple[str | None, str | None],
    what: str,
    *,
    formal: bool = False,
) -> RaceFacts:
    return RaceFacts(
        kind="write-read",
        space="shared",
        formal=formal,
        ptx_lines=lines,
        source_lines=sources,
        what=what,
        words="",
    )


RAN = RunRow(
    cell="scan/default/num_warps=4@sm_100a/triton-3.6.0/emulator",
    short="00000004",
    kernel="scan",
    launch="default",
    config={"num_warps": 4},
    target="sm_100a",
    triton="3.6.0",
    on="emulator",
    run=VerdictKind.WRONG_RESULT,
    run_reason="emulated PTX: 12 of 64 elements of out differ from num_stages=1 on sm_80, emulated",
    run_signature="ba9876543210",
    reference="num_stages=1 on sm_80, emulated",
    schedule="first/late",
    outputs=(
        OutputFacts(
            name="out",
            dtype="float32",
            elements=64,
            differing=12,
            max_abs=31.5,
            where="[3, 0]",
            expected=1.5,
            actual=-30.0,
        ),
        OutputFacts(name="untouched", dtype="float32", elements=64, differing=0),
    ),
    races=(
        race(
            (20, 31), ("kernel.py:1", "helper.py:7"), "the write by a bulk load, the read by 0x10"
        ),
        race(
            (24, 31), ("kernel.py:1", "helper.py:7"), "the write by a bulk load, the read by 0x20"
        ),
        race((40, 41), (None, None), "a fence that is missing", formal=True),
    ),
)


def executed(triton: str, verdict: str, reason: str, **more: object) -> Row:
    """A cell of the same kernel on the emulator."""
    values: dict[str, object] = {
        "cell": f"scan/default/num_warps=4@sm_100a/triton-{triton}/emulator",
        "triton": triton,
        "compiler_version": triton,
        "compiler": "triton",
        "ptxas": "emulator",
        "ptxas_origin": "emulator",
        "ptxas_flags": (),
        "ptx_body_sha256": f"{triton}-body",
        **more,
    }
    return row(4, verdict, reason, **values)


WRONG = executed("3.6.0", "wrong_result", RAN.run_reason, stage="run", signature=RAN.run_signature)
RIGHT = executed("3.8.0", "right", "emulated PTX: agrees with num_stages=1 on sm_80, emulated")
NOT_RUN = executed("3.4.0", "not_run", "it does not compile: rejected, no such feature")
ONE_STAGE = executed(
    "3.6.0",
    "right",
    RIGHT.reason,
    cell="scan/default/num_warps=4,num_stages=1@sm_100a/triton-3.6.0/emulator",
    config={"num_warps": 4, "num_stages": 1},
)
SOURCE = "import triton\n\n\n@triton.jit\ndef k(x):\n    pass\n"
EXECUTED_HISTORY = history(
    "triton", ("3.4.0", "3.6.0", "3.8.0"), "?x+", WRONG, {0: NOT_RUN, 1: WRONG, 2: RIGHT}
)
EXECUTED = replace(
    IN_PTXAS,
    case=WRONG,
    signature=signature(WRONG, Stage.RUN, "differs: out"),
    made_by="triage report --kernel scan --sm 100a --for triton --run",
    shown_by="triage run --kernel scan --sm 100a",
    origin=None,
    rows=(WRONG,),
    executed=RAN,
    tried=(WRONG, RIGHT, NOT_RUN, ONE_STAGE),
    environment={"Triton version": "3.6.0", "kernel-triage version": "1.0"},
    log="shown: it is wrong\n",
    elsewhere={},
    along_ptxas=None,
    flags=None,
    targets=None,
    along_triton=EXECUTED_HISTORY,
    blame=Blame(
        culprit=Culprit.TRITON,
        ground=next(iter(Ground)),
        headline="Triton/LLVM is to blame.",
        reasons=("With num_stages=1 in place of the config's own (Triton 3.6.0): right.",),
    ),
    minimized=changed(
        MINIMIZED,
        level="source",
        suffix=".py",
        stage="run",
        ptxas="emulator",
        packages={},
        reason=RAN.run_reason,
        fingerprint=Fingerprint(bad="3.6.0", signature=RAN.run_signature),
        original_text=SOURCE + "    pass\n",
        text=SOURCE,
        original=Size(bytes=70, lines=3),
        minimized=Size(bytes=len(SOURCE), lines=2),
        versions=tuple(
            VersionLine(
                version=version,
                original=answer,
                original_words="",
                minimized=answer,
                minimized_words=words,
            )
            for version, answer, words in (
                ("3.4.0", Answer.UNTOLD, NOT_RUN.reason),
                ("3.6.0", Answer.SAME, WRONG.reason),
                ("3.8.0", Answer.ACCEPTS, RIGHT.reason),
            )
        ),
        run_command="triage run --kernel kernel.py --sm sm_100a --triton 3.6.0",
        run_files={"kernel.py": SOURCE.encode()},
        shown=RAN,
        is_comparing=True,
    ),
    ways=(KnownWorkaround(change="num_stages 2 -> 1", row=ONE_STAGE, evidence="emulated: right"),),
    ways_from=WRONG,
    attachments=(
        attachment("min.py", SOURCE, "the smallest input that shows it"),
        attachment("kernel.py", SOURCE, "the same with a launch: what is executed"),
        attachment("original.py", SOURCE + "    pass\n", "what min.py was reduced from"),
        attachment("repro.sh", "#!/bin/sh\n", "shows it"),
    ),
)

front_end("tilelang")  # so that it has its name for people
LAYOUT = structs.replace(
    TRAP,
    compiler="tilelang",
    compiler_version="0.1.13",
    triton=None,
    verdict=VerdictKind.PASS_FAILURE,
    reason="pass LowerTileOp failed: cannot lower a layout",
    stage="cuda",
)
IN_TILELANG = replace(
    IN_TRITON,
    case=LAYOUT,
    signature=signature(LAYOUT, Stage("cuda"), LAYOUT.reason),
    rows=(LAYOUT,),
    log="Traceback (most recent call last):\nInternalError: cannot lower a layout\n",
    made_by="triage report --kernel scan --sm 100a --for tilelang",
    environment={"TileLang version": "0.1.13"},
    along_triton=history("tilelang", ("0.1.11", "0.1.12", "0.1.13"), "++x", LAYOUT),
)
assert VerdictKind(TRAP.verdict) is VerdictKind.TRAP_STUB
CASES = {
    "nvidia": (IN_PTXAS, Upstream.NVIDIA),
    "triton": (IN_TRITON, Upstream.TRITON),
    "project": (IN_TRITON, Upstream.PROJECT),
    "pytorch": (IN_PTXAS, Upstream.PYTORCH),
    "executed": (EXECUTED, Upstream.TRITON),
    "tilelang": (IN_TILELANG, Upstream.COMPILER),
}


if __name__ == "__main__":
    for name, (dossier, upstream) in CASES.items():
        (GOLDEN / f"{name}.md").write_text(render_report(dossier, upstream).text)
