from __future__ import annotations

from pathlib import Path

import pytest
from msgspec import structs

from gpu_emulator.ptx.text.facts import read_ptx
from harness.frontends.triton.source import promises
from harness.judging.judge import CellEvidence, judge
from harness.judging.ptxas.occupancy import Occupancy, theoretical_occupancy
from harness.judging.ptxas.ptxas_log import parse_ptxas_log
from harness.values.limits import limits_of
from harness.values.outcome import Assembly, Lowering, ProcessEnd, RaisedError, Resources
from harness.values.target import Target
from harness.values.verdict import Stage, Thresholds, Verdict, VerdictKind

LOGS = Path(__file__).parents[2] / "data" / "ptxas_logs"
VERSIONS = ["11.7.99", "12.4.99", "12.8.93", "12.9.86", "13.1.115", "13.5.37"]
ASSERTION = "python: /src/{}/Utility.cpp:{}: void f(): Assertion `{}' failed."
CANNOT_SELECT = "LLVM ERROR: Cannot select: 0x5566: f32 = intrinsic %llvm.nvvm.mma t{}, t2"

HEAD = ".version 8.8\n.target sm_100a\n"
ALIVE = HEAD + ".entry k()\n{ st.global.b32 [%rd1], %r1; ret; }"
STUB = HEAD + ".entry k()\n{ trap; }"
EMPTY = HEAD + ".entry k()\n{ ret; }"
GUARDED = HEAD + ".func guard()\n{ trap; }\n" + ALIVE.removeprefix(HEAD)

FINE = ProcessEnd(exit_code=0)
LOWERED = Lowering(end=FINE, stage="cubin")
NEEDS = Resources(n_regs=32, spill_stores=0, spill_loads=0, stack=0, shared=1024, threads=128)


def ran(
    exit_code: int | None = 255, *, said: str = "", signal: int | None = None, cubin: bool = False
) -> CellEvidence:
    """A cell whose ptxas ended like that."""
    end = ProcessEnd(exit_code=None if signal else exit_code, signal=signal)
    return CellEvidence(
        target=Target.parse("sm_100a"),
        lowering=LOWERED,
        assembly=Assembly(end=end, flags=(), stdout="", stderr=said, has_cubin=cubin),
        ptx=read_ptx(ALIVE),
        ttir_effects=1,
        log=parse_ptxas_log(said),
        limits=limits_of(100),
    )


def compiled(needs: Resources = NEEDS, ptx: str = ALIVE, effects: int | None = 1) -> CellEvidence:
    limits = limits_of(100)
    assert limits is not None
    occupancy: Occupancy | None = None
    if needs.n_regs is not None and needs.shared is not None and needs.threads:
        occupancy = theoretical_occupancy(
            limits,
            n_regs=needs.n_regs,
            shared=needs.shared,
            threads_per_block=needs.threads,
            barriers=needs.barriers,
            tmem_columns=needs.tmem_columns or 0,
        )
    return structs.replace(
        ran(0, cubin=True),
        ptx=read_ptx(ptx),
        ttir_effects=effects,
        resources=needs,
        occupancy=occupancy,
    )


def raised(
    message: str, *, kinds: tuple[str, ...] = ("RuntimeError",), stage: str = "ttir", log: str = ""
) -> CellEvidence:
    """A cell whose Triton raised that."""
    error = RaisedError(type=kinds[0], kinds=kinds, message=message)
    lowering = Lowering(end=FINE, stage=stage, error=error, log=log)
    return CellEvidence(target=Target.parse("sm_100a"), lowering=lowering)


def died(end: ProcessEnd, log: str = "", stage: str = "llir") -> CellEvidence:
    return CellEvidence(
        target=Target.parse("sm_100a"), lowering=Lowering(end=end, stage=stage, log=log)
    )


def key(verdict: Verdict) -> str:
    assert verdict.signature is not None
    return verdict.signature.key


def test_a_healthy_kernel() -> None:
    verdict = judge(compiled())
    assert (verdict.kind, verdict.reason) == (VerdictKind.OK, "compiled")
    assert verdict.signature is None
    assert verdict.stage is None


def test_what_is_not_known_is_said() -> None:
    evidence = structs.replace(
        compiled(structs.replace(NEEDS, disagreements=("stack: the log says 1, the cubin 2",))),
        limits=None,
    )
    assert judge(evidence).reason == (
        "compiled; stack: the log says 1, the cubin 2; "
        "limits of sm_100a are not known, so fit was not checked"
    )


def test_our_own_trouble_says_nothing_of_the_kernel() -> None:
    verdict = judge(structs.replace(compiled(), trouble="the disk is full"))
    assert (verdict.kind, verdict.reason) == (VerdictKind.INFRA, "the disk is full")
    assert verdict.signature is None


@pytest.mark.parametrize("lowering", [LOWERED, None])
def test_nothing_assembled_is_never_ok(lowering: Lowering | None) -> None:
    verdict = judge(CellEvidence(target=Target.parse("sm_90"), lowering=lowering))
    assert verdict.kind is VerdictKind.INFRA
    why = "Triton succeeded and left no PTX" if lowering else "there is no PTX"
    assert verdict.reason == f"nothing was assembled: {why}"


def test_an_abort_in_llvm_is_a_crash() -> None:
    log = CANNOT_SELECT.format(12) + "\nFatal Python error: Aborted\n"
    verdict = judge(died(ProcessEnd(signal=6), log))
    assert verdict.kind is VerdictKind.COMPILER_CRASH
    assert verdict.stage is Stage.LLIR
    assert verdict.reason.startswith("Triton died by SIGABRT in stage llir: LLVM ERROR: Cannot sel")
    same = judge(died(ProcessEnd(exit_code=134), CANNOT_SELECT.format(99)))
    assert key(same) == key(verdict)


def test_the_same_words_of_a_process_that_ended_well_are_no_crash() -> None:
    evidence = structs.replace(compiled(), lowering=structs.replace(LOWERED, log=CANNOT_SELECT))
    assert judge(evidence).kind is VerdictKind.OK


def test_assertions_tell_crashes_apart_and_lines_do_not() -> None:
    end = ProcessEnd(signal=6)
    keys = [
        key(judge(died(end, ASSERTION.format(*words) + "\nPLEASE submit a bug report\n#0 0x12")))
        for words in [("a", 1, "x == 2"), ("b/c", 99, "x == 2"), ("a", 1, "x == 3")]
    ]
    assert keys[0] == keys[1] != keys[2]


def test_what_stands_above_unreachable_is_told() -> None:
    log = "cantFail: bad constraint\nUNREACHABLE executed at /s/Error.h:766!\n"
    assert "bad constraint; UNREACHABLE" in judge(died(ProcessEnd(signal=6), log)).reason


def test_crashes_by_other_signals_are_other_bugs() -> None:
    keys = {key(judge(died(ProcessEnd(signal=number)))) for number in (4, 6, 11)}
    assert len(keys) == 3


@pytest.mark.parametrize("number", [1, 2, 9, 15, 24])  # 24, SIGXCPU: `ulimit -t`
def test_who_is_killed_from_outside_is_not_to_blame(number: int) -> None:
    for verdict in (judge(died(ProcessEnd(signal=number))), judge(ran(signal=number))):
        assert verdict.kind is VerdictKind.INFRA
        assert "killed from outside by SIG" in verdict.reason


def test_a_kill_that_a_shell_reports_as_137_is_a_kill_from_outside() -> None:
    """A machine that is short of memory is no crash of ptxas or Triton."""
    for verdict in (judge(died(ProcessEnd(exit_code=137))), judge(ran(137))):
        assert verdict.kind is VerdictKind.INFRA
        assert verdict.reason.endswith("by SIGKILL; this machine may be short of memory")
        assert verdict.signature is None


def test_only_a_kill_hints_at_a_lack_of_memory() -> None:
    assert judge(ran(signal=15)).reason == "ptxas was killed from outside by SIGTERM"


def test_a_child_that_left_no_result_is_our_trouble() -> None:
    verdict = judge(died(ProcessEnd(exit_code=70), "fatal: no such folder\n"))
    assert (verdict.kind, verdict.reason) == (
        VerdictKind.INFRA,
        "Triton ended with exit code 70 in stage llir and left no result: fatal: no such folder",
    )


@pytest.mark.parametrize(
    "words",
    [
        "LLVM ERROR: out of memory",
        "terminate called after throwing an instance of 'std::bad_alloc'",
    ],
)
def test_who_dies_for_want_of_memory_has_not_crashed(words: str) -> None:
    said = f"ptxas fatal   : Memory allocation failure\n{words}\n"
    for verdict in (judge(died(ProcessEnd(signal=6), words)), judge(ran(said=said, signal=6))):
        assert verdict.kind is VerdictKind.OUT_OF_MEMORY
        assert " ran out of memory: " in verdict.reason


def test_who_dies_with_words_or_without() -> None:
    assert judge(died(ProcessEnd(signal=11))).reason == (
        "Triton died by SIGSEGV in stage llir, saying nothing"
    )
    assert judge(ran(said="terminate called: no way\n", signal=6)).reason == (
        "ptxas died by SIGABRT: terminate called: no way"
    )
    refused = judge(ran(said="ptxas fatal   : Unsupported .target 'sm_103a'\n", signal=11))
    assert (refused.kind, refused.reason) == (
        VerdictKind.UNSUPPORTED,
        "this ptxas cannot do it: Unsupported .target 'sm_103a' (then it died by SIGSEGV)",
    )
    assert judge(died(ProcessEnd(exit_code=1), CANNOT_SELECT.format(3))).reason == (
        "LLVM ended Triton's process (exit code 1) in stage llir: " + CANNOT_SELECT.format(3)
    )


def test_ptxas_that_fails_is_not_well_for_the_cubin_that_it_left() -> None:
    verdict = judge(structs.replace(ran(255, cubin=True), log=None))
    assert (verdict.kind, verdict.reason) == (
        VerdictKind.PTXAS_ERROR,
        "ptxas ended with exit code 255: it said nothing",
    )


@pytest.mark.parametrize(
    ("end", "kind"),
    [
        (ProcessEnd(signal=9, timed_out=True, wall=300), VerdictKind.TIMEOUT),
        (ProcessEnd(signal=9, over_memory=True, peak_rss=2**33), VerdictKind.OUT_OF_MEMORY),
    ],
)
def test_limits_of_ours(end: ProcessEnd, kind: VerdictKind) -> None:
    assert judge(died(end)).kind is kind
    assembly = Assembly(end=end, flags=(), stdout="", stderr="", has_cubin=False)
    verdict = judge(structs.replace(ran(), assembly=assembly))
    assert verdict.kind is kind
    assert verdict.reason in {
        "ptxas was not finished: killed after 300 s; --timeout allows more",
        "ptxas was not finished: killed at 8.0 GiB; --memory allows more",
    }
    slower = structs.replace(assembly, end=structs.replace(end, wall=400, peak_rss=2**34))
    assert key(judge(structs.replace(ran(), assembly=slower))) == key(verdict)


def test_a_flood_is_no_failure_of_the_compiler() -> None:
    """The size of a file is a limit of triage, and a full disk looks like it."""
    end = ProcessEnd(signal=25, flooded=True)
    assembly = Assembly(end=end, flags=(), stdout="", stderr="", has_cubin=False)
    for verdict in (judge(structs.replace(ran(), assembly=assembly)), judge(died(end))):
        assert (verdict.kind, verdict.signature) == (VerdictKind.INFRA, None)
        assert verdict.reason.endswith(
            "was not finished: killed for writing more than a file may hold here; "
            "no option allows more"
        )


def test_ptxas_dies_saying_nothing() -> None:
    verdict = judge(ran(signal=11))
    assert verdict.kind is VerdictKind.COMPILER_CRASH
    assert verdict.stage is Stage.CUBIN
    assert verdict.reason == "ptxas died by SIGSEGV, saying nothing"
    assert key(judge(ran(139))) == key(verdict)
    assert judge(ran(200)).kind is VerdictKind.PTXAS_ERROR


def test_an_internal_error_with_its_code() -> None:
    said = "ptxas fatal   : (C7907) Internal compiler error.\n"
    verdict = judge(ran(said=said))
    assert (verdict.kind, verdict.code) == (VerdictKind.PTXAS_ICE, "C7907")
    assert verdict.reason == "ptxas ended with exit code 255: (C7907) Internal compiler error."
    other = judge(ran(said=said.replace("C7907", "C7600")))
    assert other.kind is VerdictKind.PTXAS_ICE
    assert key(other) != key(verdict)
    with_more = said + "ptxas fatal   : Ptx assembly aborted due to errors\n"
    assert key(judge(ran(said=with_more))) == key(verdict)


@pytest.mark.parametrize(
    ("severity", "text", "kind"),
    [
        ("fatal", "(C0001) internal error: bad", VerdictKind.PTXAS_ICE),
        ("fatal", "Internal error", VerdictKind.PTXAS_ICE),
        ("error", "(C7602) Insufficient registers (24)", VerdictKind.PTXAS_ERROR),
        ("error", "Unknown symbol 'internal error'", VerdictKind.PTXAS_ERROR),
        ("error", "(C1) Unknown symbol 'internal'", VerdictKind.PTXAS_ERROR),
        ("fatal", "Unresolved extern function 'foo'", VerdictKind.PTXAS_ERROR),
        ("error", "Feature '.bf16' requires .target sm_80 or higher", VerdictKind.PTXAS_ERROR),
        ("error", "Feature 'x' requires PTX ISA .version 8.6 or later", VerdictKind.PTXAS_ERROR),
        (
            "error",
            "Instruction 'wgmma.fence' not supported on .target 'sm_90'",
            VerdictKind.PTXAS_ERROR,
        ),
        (
            "error",
            "Instruction 'wgmma.fence' cannot be compiled for architecture 'sm_120'",
            VerdictKind.PTXAS_ERROR,
        ),
        ("fatal", "Unsupported .version 9.1; current version is '8.7'", VerdictKind.UNSUPPORTED),
        ("fatal", "Unsupported .target 'sm_103a'", VerdictKind.UNSUPPORTED),
        ("error", "PTX .version 7.0 does not support .target sm_90", VerdictKind.UNSUPPORTED),
        (
            "fatal",
            "SM version specified by .target is higher than default SM version assumed",
            VerdictKind.UNSUPPORTED,
        ),
        (
            "fatal",
            "PTX with .target 'sm_90a' cannot be compiled for architecture 'sm_90'",
            VerdictKind.UNSUPPORTED,
        ),
        (
            "fatal",
            "Program with .target 'sm_90a' cannot be compiled to future architecture",
            VerdictKind.UNSUPPORTED,
        ),
        (
            "fatal",
            "Program with .target 'sm_100f' cannot be compiled to different SM-family architecture",
            VerdictKind.UNSUPPORTED,
        ),
        ("fatal", "Value 'sm_120' is not defined for option 'gpu-name'", VerdictKind.UNSUPPORTED),
        ("fatal", "Value 'x' is not defined for option 'opt-level'", VerdictKind.PTXAS_ERROR),
        ("fatal", "Memory allocation failure", VerdictKind.OUT_OF_MEMORY),
        ("fatal", "Input file 'kernel.ptx' could not be opened", VerdictKind.INFRA),
        ("info", "", VerdictKind.PTXAS_ERROR),
    ],
)
def test_what_ptxas_says_when_it_refuses(severity: str, text: str, kind: VerdictKind) -> None:
    assert judge(ran(said=f"ptxas {severity:8}: {text}\n")).kind is kind


def test_a_header_that_ptxas_cannot_do_outweighs_what_follows() -> None:
    said = (
        "ptxas error   : Feature 'cp.async' requires PTX ISA .version 7.0 or later\n"
        "ptxas error   : PTX .version 6.0 does not support .target sm_80\n"
    )
    assert judge(ran(said=said)).kind is VerdictKind.UNSUPPORTED


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("case", "kind"),
    [
        ("future_version-sm_80", VerdictKind.UNSUPPORTED),
        ("empty-sm_999", VerdictKind.UNSUPPORTED),
        ("syntax_error-sm_80", VerdictKind.PTXAS_ERROR),
        ("too_new_instruction-sm_80", VerdictKind.PTXAS_ERROR),
        ("shared_over-sm_80", VerdictKind.OUT_OF_RESOURCES),
        ("no_such_file-sm_80", VerdictKind.INFRA),
    ],
)
def test_real_logs(version: str, case: str, kind: VerdictKind) -> None:
    evidence = ran(said=(LOGS / version / f"{case}.log").read_text())
    assert judge(evidence).kind is kind


def test_static_shared_memory_over_the_limit() -> None:
    verdict = judge(ran(said=(LOGS / "13.1.115" / "shared_over-sm_80.log").read_text()))
    assert verdict.reason == "shared data: needs 300,000 B, sm_100a allows 49,152 B (says ptxas)"


def test_the_kernels_name_is_no_part_of_a_signature() -> None:
    said = "ptxas error   : (C7602) Insufficient registers ({}) in function {}.\n"
    one = ran(said=said.format(24, "k"))
    other = structs.replace(
        ran(said=said.format(30, "renamed")), ptx=read_ptx(ALIVE.replace(" k(", " renamed("))
    )
    assert key(judge(one)) == key(judge(other))


def test_exit_code_0_without_a_cubin() -> None:
    verdict = judge(ran(0))
    assert verdict.kind is VerdictKind.PTXAS_ERROR
    assert verdict.reason == "ptxas ended with exit code 0 and left no complete cubin"


def test_a_kernel_that_triton_rejects() -> None:
    message = "at 3:8:\n    x = tl.dot(a, b)\n        ^\ntype fp8e4nv not supported\nmore words"
    verdict = judge(raised(message, kinds=("CompilationError", "TritonError", "Exception")))
    assert verdict.kind is VerdictKind.REJECTED
    assert (
        verdict.reason == "Triton rejects the kernel: CompilationError: type fp8e4nv not supported"
    )


def test_the_cause_where_triton_says_nothing_below_the_caret() -> None:
    error = RaisedError(
        type="CompilationError",
        kinds=("CompilationError", "Exception"),
        message="at 3:8:\n    x = tl.dot(a, b)\n        ^",
        traceback="Traceback\n  File x\nAssertionError: N must be 16\n\nThe above ...\n\n"
        "triton.compiler.errors.CompilationError: at 3:8:\n",
    )
    evidence = raised("")
    assert evidence.lowering is not None
    evidence = structs.replace(evidence, lowering=structs.replace(evidence.lowering, error=error))
    assert judge(evidence).reason.endswith("CompilationError: AssertionError: N must be 16")


def test_a_failing_pass_is_named() -> None:
    log = (
        "/tmp/k.ttir:4:7: error: Failures have been detected while processing an MLIR pass "
        "pipeline\n"
        "/tmp/k.ttir:4:7: error: 'tt.dot' op has no layout for tensor<64x64xf16>\n"
        "/tmp/k.ttir:4:7: note: Pipeline failed while executing [`TritonGPUPipeline` on "
        "'builtin.module' operation]: reproducer generated\n"
    )
    verdict = judge(raised("PassManager::run failed", stage="ttgir", log=log))
    assert (verdict.kind, verdict.stage) == (VerdictKind.PASS_FAILURE, Stage.TTGIR)
    assert verdict.reason == (
        "pass TritonGPUPipeline failed: 'tt.dot' op has no layout for tensor<64x64xf16>"
    )
    for old, new, same in [
        ("64x64", "128x32", True),
        ("xf16", "xbf16", False),
        ("TritonGPUPipeline", "TritonGPUCoalesce", False),
    ]:
        again = judge(raised("PassManager::run failed", stage="ttgir", log=log.replace(old, new)))
        assert (key(again) == key(verdict)) is same
    assert judge(raised("PassManager::run failed", log=log)).kind is VerdictKind.PASS_FAILURE


@pytest.mark.parametrize(
    ("message", "kinds", "kind"),
    [
        (
            "Triton only support CUDA 10.0 or higher, but got CUDA version: 13.0",
            ("RuntimeError", "Exception"),
            VerdictKind.UNSUPPORTED,
        ),
        (
            "'Keyword argument maxnreg was specified but unrecognised'",
            ("KeyError",),
            VerdictKind.UNSUPPORTED,
        ),
        ("", ("MemoryError", "Exception"), VerdictKind.OUT_OF_MEMORY),
        ("[Errno 28] No space left", ("OSError", "Exception"), VerdictKind.INFRA),
        ("no", ("PermissionError", "OSError"), VerdictKind.INFRA),
        ("anything", ("AssertionError", "Exception"), VerdictKind.PASS_FAILURE),
        (
            "out of resource: shared memory, Required: 255512, Hardware limit: 232448. Reducing",
            ("OutOfResources", "TritonError"),
            VerdictKind.OUT_OF_RESOURCES,
        ),
    ],
)
def test_what_triton_raises(message: str, kinds: tuple[str, ...], kind: VerdictKind) -> None:
    assert judge(raised(message, kinds=kinds, stage="ptx")).kind is kind


def test_what_triton_says_of_resources_is_said_with_its_numbers() -> None:
    message = "out of resource: shared memory, Required: 255512, Hardware limit: 232448. Reducing"
    assert judge(raised(message, stage="ptx")).reason == (
        "needs 255,512 of shared memory, the target allows 232,448 (says Triton)"
    )


PIPELINE = "note: Pipeline failed while executing [`Coalesce` on 'builtin.module' operation]\n"
CAUGHT = "k.ttir:1:1: error: A signal was caught while processing the MLIR module: reproducer\n"
NO_LAYOUT = "k.ttir:4:7: error: 'tt.dot' op has no layout\n"


@pytest.mark.parametrize(
    ("message", "log", "said"),
    [
        ("no such thing", "", "stage ttgir failed: RuntimeError: no such thing"),
        ("no such thing", NO_LAYOUT, "stage ttgir failed: 'tt.dot' op has no layout"),
        ("PassManager::run failed", PIPELINE + NO_LAYOUT,
         "pass Coalesce failed: 'tt.dot' op has no layout"),
        ("PassManager::run failed", PIPELINE, "pass Coalesce failed, and nothing says why"),
        ("PassManager::run failed", PIPELINE + CAUGHT,
         "pass Coalesce crashed, and nothing says why"),
        ("PassManager::run failed", ASSERTION.format("a", 1, "x == 2") + "\n" + PIPELINE + CAUGHT,
         "pass Coalesce crashed: Utility.cpp: Assertion `x == 2' failed"),
        ("PassManager::run failed", ASSERTION.format("a", 1, "x == 2") + "\n" + NO_LAYOUT,
         ("stage ttgir crashed: Utility.cpp: Assertion `x == 2' failed after: "
          "'tt.dot' op has no layout")),
        # A log may hold what MLIR recovered from: no pass failed here.
        ("no such thing", ASSERTION.format("a", 1, "x == 2") + "\n" + NO_LAYOUT,
         "stage ttgir failed: 'tt.dot' op has no layout"),
        # Said of the processor, and no reason of a stage before LLVM's.
        ("no such thing", "'sm_100a' is not a recognized processor for this target\n",
         "stage ttgir failed: RuntimeError: no such thing"),
    ],
)  # fmt: skip
def test_where_a_stage_fails_and_why(message: str, log: str, said: str) -> None:
    verdict = judge(raised(message, stage="ttgir", log=log))
    assert (verdict.kind, verdict.reason) == (VerdictKind.PASS_FAILURE, said)


@pytest.mark.parametrize(
    ("log", "said"),
    [("k.ttir:1:1: error: expected '{'\n", "expected '{'"), ("", "RuntimeError: failed to parse")],
)
def test_ir_that_this_triton_cannot_read(log: str, said: str) -> None:
    verdict = judge(raised("failed to parse", stage="capture", log=log))
    assert (verdict.kind, verdict.reason) == (
        VerdictKind.UNSUPPORTED,
        f"this Triton cannot read the IR: {said}",
    )


def test_words_in_a_log_do_not_make_a_toolchain_unsupported() -> None:
    log = "ptxas fatal : Unsupported .version 9.1\n"
    assert judge(raised("bad", log=log)).kind is VerdictKind.PASS_FAILURE


def test_an_llvm_that_does_not_know_the_target() -> None:
    log = "'sm_100a' is not a recognized processor for this target (ignoring processor)\n"
    crash = died(ProcessEnd(signal=6), log + CANNOT_SELECT)
    assert judge(crash).kind is VerdictKind.UNSUPPORTED
    assert (
        judge(raised("failed to translate", stage="ptx", log=log)).kind is VerdictKind.UNSUPPORTED
    )
    known = ASSERTION.format("a", 36, 'false && "computeCapability not supported"')
    assert judge(died(ProcessEnd(signal=6), known, "ttgir")).kind is VerdictKind.UNSUPPORTED


def test_a_trap_stub_for_want_of_tensor_memory() -> None:
    verdict = judge(compiled(structs.replace(NEEDS, tmem_columns=544), STUB, effects=3))
    assert (verdict.kind, verdict.stage) == (VerdictKind.TRAP_STUB, Stage.LLIR)
    assert verdict.reason == (
        "asks for 544 columns of tensor memory, sm_100a has 512, and Triton lowered the kernel "
        "to a trap; ptxas never saw the real kernel; when it is loaded, Triton raises "
        "OutOfResources, and its autotuner skips the config"
    )
    assert key(judge(compiled(structs.replace(NEEDS, tmem_columns=576), STUB))) == key(verdict)
    assert key(judge(compiled(NEEDS, STUB))) != key(verdict)


def test_no_stub_where_the_kernel_asks_for_the_trap_or_has_no_effect() -> None:
    own = structs.replace(compiled(NEEDS, STUB, effects=0), has_trap=True)
    assert judge(own).reason == "compiled"
    assert judge(compiled(NEEDS, EMPTY, effects=0)).reason == "compiled"
    # A trap that the source does not ask for is a stub, whatever else it would do.
    assert judge(compiled(NEEDS, STUB, effects=0)).kind is VerdictKind.TRAP_STUB


def test_a_stub_is_a_stub_though_the_source_has_a_trap_of_its_own() -> None:
    verdict = judge(structs.replace(compiled(NEEDS, STUB, effects=10), has_trap=True))
    assert verdict.kind is VerdictKind.TRAP_STUB
    assert verdict.reason == (
        "Triton lowered the kernel to a trap; ptxas never saw the real kernel"
        " (a trap of the source's own is no reason: it has 10 stores or other effects)"
    )
    assert key(verdict) == key(judge(compiled(NEEDS, STUB, effects=3)))
    gone = structs.replace(compiled(NEEDS, EMPTY, effects=1), has_trap=True)
    assert judge(gone).kind is VerdictKind.SICK


@pytest.mark.parametrize("ptx", [STUB, EMPTY])
def test_whether_a_kernel_without_effects_should_have_some_may_not_be_known(ptx: str) -> None:
    verdict = judge(compiled(NEEDS, ptx, effects=None))
    assert verdict.kind is VerdictKind.OK
    assert "there is no IR that says whether it should" in verdict.reason
    unknown = structs.replace(compiled(NEEDS, EMPTY, effects=0), unknown_effects=("tt.new_store",))
    assert "whether tt.new_store of its source should is not known" in judge(unknown).reason
    assert judge(compiled(NEEDS, ALIVE, effects=None)).reason == "compiled"


def test_a_guard_that_traps_beside_a_live_entry() -> None:
    assert judge(compiled(NEEDS, GUARDED)).kind is VerdictKind.OK


def test_raw_ptx_that_only_traps() -> None:
    raw = structs.replace(compiled(NEEDS, STUB, effects=None), lowering=None)
    verdict = judge(raw)
    assert (verdict.kind, verdict.stage) == (VerdictKind.TRAP_STUB, Stage.PTX)
    assert judge(structs.replace(raw, ptx=read_ptx(EMPTY))).kind is VerdictKind.OK
    maybe = read_ptx(STUB.replace("trap;", "@%p1 trap; ret;"))
    assert judge(structs.replace(raw, ptx=maybe)).kind is VerdictKind.OK


def test_a_kernel_whose_stores_are_gone() -> None:
    verdict = judge(compiled(NEEDS, EMPTY, effects=1))
    assert (verdict.kind, verdict.stage) == (VerdictKind.SICK, Stage.LLIR)
    assert "though its source has 1 store or other effects" in verdict.reason


@pytest.mark.parametrize(
    ("needs", "said"),
    [
        (
            structs.replace(NEEDS, shared=255_512),
            (
                "needs 255,512 B of shared memory, sm_100a allows 232,448 B: "
                "the launch would be refused"
            ),
        ),
        (
            structs.replace(NEEDS, tmem_columns=544),
            "asks for 544 columns of tensor memory, sm_100a has 512: the launch would be refused",
        ),
        (
            structs.replace(NEEDS, threads=2048),
            "has 2,048 threads a block, sm_100a allows 1,024: the launch would be refused",
        ),
        (
            structs.replace(NEEDS, n_regs=255, threads=1024),
            (
                "needs 255 registers for each of 1,024 threads, sm_100a has 65,536 a block: "
                "the launch would be refused"
            ),
        ),
        (
            structs.replace(NEEDS, barriers=17),
            "needs 17 barriers, sm_100a has 16 a block: the launch would be refused",
        ),
    ],
)
def test_what_does_not_fit(needs: Resources, said: str) -> None:
    verdict = judge(compiled(needs))
    assert (verdict.kind, verdict.stage) == (VerdictKind.OUT_OF_RESOURCES, Stage.LAUNCH)
    assert verdict.reason == said


@pytest.mark.parametrize("columns", [None, 256, 512])
def test_tensor_memory_that_fits_is_no_complaint(columns: int | None) -> None:
    assert judge(compiled(structs.replace(NEEDS, tmem_columns=columns))).kind is VerdictKind.OK


def test_what_a_target_without_figures_allows_is_not_known() -> None:
    needs = structs.replace(NEEDS, tmem_columns=4096, shared=1 << 30)
    verdict = judge(structs.replace(compiled(needs), limits=None, occupancy=None))
    assert (verdict.kind, verdict.reason) == (
        VerdictKind.OK,
        "compiled; limits of sm_100a are not known, so fit was not checked",
    )


def test_machine_code_that_is_not_made_from_ptx() -> None:
    assert judge(structs.replace(compiled(), ptx=None)).reason == "compiled"


def test_two_limits_at_once() -> None:
    verdict = judge(compiled(structs.replace(NEEDS, shared=300_000, tmem_columns=544)))
    assert "shared memory" in verdict.reason
    assert "tensor memory" in verdict.reason
    assert (
        judge(compiled(structs.replace(NEEDS, shared=232_448))).kind
        is not VerdictKind.OUT_OF_RESOURCES
    )


def test_spills() -> None:
    verdict = judge(compiled(structs.replace(NEEDS, spill_stores=44_324, spill_loads=50_224)))
    assert (verdict.kind, verdict.stage) == (VerdictKind.SICK, Stage.CUBIN)
    assert verdict.reason == "spills 44,324 B stores and 50,224 B loads per thread at 32 registers"
    other = judge(compiled(structs.replace(NEEDS, spill_stores=600, spill_loads=600)))
    assert key(other) == key(verdict)


def test_two_sick_kernels_are_not_one_bug() -> None:
    spills = structs.replace(NEEDS, spill_stores=44_324, spill_loads=50_224)
    mine, entry = judge(compiled(spills)), read_ptx(ALIVE).entry
    assert mine.signature is not None
    assert mine.signature.template == f"{entry}: spills"
    renamed = judge(compiled(spills, ptx=ALIVE.replace(entry, "other")))
    assert renamed.signature is not None
    assert renamed.signature.key != mine.signature.key
    # Nor are two ways of one kernel to be sick.
    local = judge(compiled(structs.replace(NEEDS, stack=4_096)))
    assert local.signature is not None
    assert local.signature.key != mine.signature.key


@pytest.mark.parametrize(
    ("needs", "sick"),
    [
        (structs.replace(NEEDS, spill_stores=511, spill_loads=512), False),
        (structs.replace(NEEDS, spill_stores=512, spill_loads=512), True),
        (structs.replace(NEEDS, stack=1023), False),
        (structs.replace(NEEDS, stack=1024), True),
        (structs.replace(NEEDS, threads=32, shared=200_000), True),
        (structs.replace(NEEDS, threads=128, shared=200_000), False),
        (Resources(), False),
    ],
)
def test_thresholds_of_sickness(needs: Resources, *, sick: bool) -> None:
    assert (judge(compiled(needs)).kind is VerdictKind.SICK) is sick


def test_thresholds_are_data() -> None:
    evidence = compiled(structs.replace(NEEDS, spill_stores=8, spill_loads=8))
    assert judge(evidence, Thresholds(spill_bytes=16)).kind is VerdictKind.SICK


@pytest.mark.parametrize(
    ("ttir", "count"),
    [
        ("tt.func @k() { tt.return }", 0),
        ("tt.store %0, %1 : !tt.ptr<f32>\ntt.store %2, %3", 2),
        ("%0 = tt.atomic_rmw fadd, acq_rel, gpu, %1", 1),
        ("%0 = tt.atomic_cas acq_rel, gpu, %X, %c0, %c1", 1),
        ("tt.atomic_store %0, %1", 1),
        ("%0 = tt.atomic_load %1\n%2 = tt.atomic_poll %1", 0),
        ("tt.descriptor_store %d[%c0], %x", 1),
        ("tt.descriptor_reduce add, %d[%c0], %x", 1),
        ("tt.experimental_descriptor_store %d[%c0], %x", 1),
        ('tt.print ": x" : %0', 1),
        ('tt.assert %4, "neg" : tensor<128xi1>', 1),
        ("ttng.async_tma_copy_local_to_global %0[%1] %2", 1),
        ("tt.load %0\ngpu.barrier\nttg.barrier local|global_read\ntt.call @f(%0)", 0),
        ('tt.elementwise_inline_asm "nanosleep.u32 100; mov.b32 $0, $1;" {pure = false} %0', 0),
        ('tt.elementwise_inline_asm "st.global.f32 [$1], $2;" {pure = false} %0', 1),
        (
            'tt.elementwise_inline_asm "{\\0A\\09.reg .b32 t;\\0A\\09red.global.add.f32 [$1], 1;}"',
            1,
        ),
        ('tt.elementwise_inline_asm "{ .reg .pred p; @p trap; mov.b32 $0, $1; }" %0', 0),
        ('tt.store %0, %1\ntt.elementwise_inline_asm "\\09trap;" %0', 1),
        ('tt.elementwise_inline_asm "// no trap; here\\0Amov.b32 $0, $1;" %0 loc("trap")', 0),
    ],
)
def test_effects_of_the_source(ttir: str, count: int) -> None:
    assert promises(ttir, "").effects == count


@pytest.mark.parametrize(
    ("assembly", "has_trap"),
    [
        ("{ .reg .pred p; @p trap; mov.b32 $0, $1; }", True),
        ("\\09trap;", True),
        ("// no trap; here\\0Amov.b32 $0, $1;", False),
    ],
)
def test_a_trap_of_the_source_s_own(assembly: str, *, has_trap: bool) -> None:
    ttir = f'tt.store %0, %1\ntt.elementwise_inline_asm "{assembly}" %0 loc("trap")'
    found = promises(ttir, "")
    assert (found.effects, found.has_trap, found.unknown_effects) == (1, has_trap, ())


@pytest.mark.parametrize(
    ("ttir", "unknown"),
    [
        ("tt.new_store %0, %1\ntt.store %2", ("tt.new_store",)),
        ("ttg.local_store %0\nttng.tmem_store %1\nttng.async_tma_store_wait", ()),
        ("ttng.async_bulk_copy_local_to_global %0", ("ttng.async_bulk_copy_local_to_global",)),
        ("tt.descriptor_scatter %0\n%1 = tt.reduce %2\narith.store", ()),
    ],
)
def test_operations_that_may_write(ttir: str, unknown: tuple[str, ...]) -> None:
    assert promises(ttir, "").unknown_effects == unknown


def test_inline_assembly_that_the_ptx_lost() -> None:
    ttir = 'tt.elementwise_inline_asm "prefetch.global.L2 [$1];\\0Amov.b32 $0, $1;" %0'
    kept = "// begin inline asm\n\tprefetch.global.L2 [%rd1];\nmov.b32 %r1, %r2;\n// end inline asm"
    assert promises(ttir, kept).lost_assembly == ()
    assert promises(
        ttir, "mov.b32 %r1, %r2;\n" + kept.replace("mov.b32", "add.u32")
    ).lost_assembly == ("mov.b32",)
    assert promises("tt.store %0, %1", "").lost_assembly == ()


def test_a_diagnostic_after_which_triton_went_on_without_the_code_is_no_ok() -> None:
    log = "error: could not allocate output register for constraint 'Q'\n"
    said = structs.replace(compiled(), lowering=structs.replace(LOWERED, log=log))
    verdict = judge(structs.replace(said, lost_assembly=("mov.b32",)))
    assert (verdict.kind, verdict.stage) == (VerdictKind.PASS_FAILURE, Stage.PTX)
    assert "without mov.b32 of the source" in verdict.reason
    assert "constraint 'Q'" in verdict.reason
    # One line of a log decides nothing against a process that ended well, but it is not hidden.
    verdict = judge(said)
    assert verdict.kind is VerdictKind.OK
    assert verdict.reason.startswith("compiled; LLVM reported an error and went on")
    # A diagnostic that names a place is MLIR's, which may have recovered from it.
    log = "k.py:3:4: error: operation was retried\n"
    lost = structs.replace(compiled(), lost_assembly=("mov.b32",))
    assert (
        judge(structs.replace(lost, lowering=structs.replace(LOWERED, log=log))).reason
        == "compiled"
    )


RECOVERED = """\
python: /x/{folder}/{file}:{line}: static {long} A::get(B, C<D>): Assertion `{expression}' failed.
module {{
  tt.func public @kernel() {{
    tt.print "Assertion `no' failed."
  }}
}}
/tmp/k.py:15:0: error: {generic}
/tmp/k.py:15:0: note: Pipeline failed while executing [`TritonGPUAccelerateMatmul` on \
'builtin.module' operation]: reproducer generated at `std::errs, please share`
"""


def recovered(**changes: object) -> CellEvidence:
    """A pass in which an assertion failed, from which MLIR recovered."""
    words = {
        "folder": "llvm-project/mlir/lib/IR",
        "file": "BuiltinAttributes.cpp",
        "line": 1029,
        "long": "DenseElementsAttr " * 100,
        "expression": "type.getElementType().isIntOrIndex()",
        "generic": "Failures have been detected while processing an MLIR pass pipeline",
        **changes,
    }
    return raised("PassManager::run failed", stage="ttgir", log=RECOVERED.format(**words))


def test_a_recovered_assertion_keeps_its_file_and_expression() -> None:
    verdict = judge(recovered())
    assert (verdict.kind, verdict.stage) == (VerdictKind.PASS_FAILURE, Stage.TTGIR)
    assert verdict.reason == (
        "pass TritonGPUAccelerateMatmul crashed: BuiltinAttributes.cpp: "
        "Assertion `type.getElementType().isIntOrIndex()' failed"
    )
    assert verdict.signature is not None
    assert verdict.signature.template == (
        "BuiltinAttributes.cpp: Assertion `type.getElementType().isIntOrIndex()"
    )
    assert verdict.signature.failing_pass == "TritonGPUAccelerateMatmul"


@pytest.mark.parametrize(
    ("changes", "same"),
    [
        ({"line": 1031, "folder": "b", "long": "decltype(auto)"}, True),
        ({"file": "Casting.h"}, False),
        ({"expression": 'isa<To>(Val) && "cast<Ty>() argument"'}, False),
        ({"generic": "A signal was caught while processing the MLIR module:reproducer"}, True),
    ],
)
def test_recovered_assertions_tell_bugs_apart(changes: dict[str, object], *, same: bool) -> None:
    assert (key(judge(recovered(**changes))) == key(judge(recovered()))) is same


def test_a_pass_that_died_without_a_word() -> None:
    log = (
        "k.py:1:0: error: A signal was caught while processing the MLIR module:reproducer "
        "generated at `std::errs`; marking pass as failed\n"
        "k.py:1:0: note: Pipeline failed while executing [`TritonGPUPipeline` on "
    )
    verdict = judge(raised("PassManager::run failed", stage="ttgir", log=log))
    assert verdict.reason == "pass TritonGPUPipeline crashed, and nothing says why"


def test_the_expression_survives_a_long_function_where_the_process_died() -> None:
    log = RECOVERED.partition("\nmodule")[0]
    words = {"folder": "x", "file": "A.h", "line": 1, "long": "T " * 400, "expression": "n == 2"}
    verdict = judge(died(ProcessEnd(signal=6), log.format(**words)))
    assert verdict.reason.endswith("in stage llir: A.h: Assertion `n == 2' failed")


def test_an_unknown_capability_is_unsupported_also_where_mlir_recovers() -> None:
    evidence = recovered(expression='false && "computeCapability not supported"')
    assert judge(evidence).kind is VerdictKind.UNSUPPORTED


@pytest.mark.parametrize(
    ("log", "kind"),
    [
        ("error: couldn't allocate output register for constraint 'Q'", VerdictKind.COMPILER_CRASH),
        ("LLVM ERROR: Cannot select: t1", VerdictKind.COMPILER_CRASH),
        (
            "LLVM ERROR: PTX version 8.7 does not support target 'sm_103a'. Minimum is 8.8.",
            VerdictKind.UNSUPPORTED,
        ),
        ("", VerdictKind.INFRA),
    ],
)
def test_llvm_that_ends_the_process_with_an_exit_code(log: str, kind: VerdictKind) -> None:
    assert judge(died(ProcessEnd(exit_code=1), log=log, stage="ptx")).kind is kind


@pytest.mark.parametrize(("threads", "kind"), [(32, VerdictKind.SICK), (64, VerdictKind.OK)])
def test_one_resident_warp_is_sick_and_two_are_not(threads: int, kind: VerdictKind) -> None:
    needs = structs.replace(NEEDS, shared=200_000, threads=threads)
    assert judge(compiled(needs)).kind is kind


def front_end(
    type_: str, message: str, *, traceback: str = "", kinds: tuple[str, ...] = ()
) -> Verdict:
    """The verdict on an exception in stage ttir."""
    error = RaisedError(
        type=type_, kinds=(type_, *kinds, "Exception"), message=message, traceback=traceback
    )
    lowering = Lowering(end=FINE, stage="ttir", error=error)
    return judge(CellEvidence(target=Target.parse("sm_100a"), lowering=lowering))


IN_PYTHON = 'Traceback\n  File "/t/jit.py", line 141, in f\n    raise RuntimeError(f"{val}")\n'
IN_CPP = 'Traceback\n  File "/t/compiler.py", line 9, in f\n    ir.something(module)\n'


@pytest.mark.parametrize(
    ("type_", "message", "traceback", "kind"),
    [
        ("ValueError", "num_ctas > 1 requires NVIDIA SM90+ (Hopper)", "", VerdictKind.REJECTED),
        ("AssertionError", "num_warps must be a power of 2", "", VerdictKind.REJECTED),
        ("TypeError", "missing 1 required positional argument", "", VerdictKind.REJECTED),
        ("AssertionError", "", "", VerdictKind.PASS_FAILURE),
        ("KeyError", "'fp4'", "", VerdictKind.PASS_FAILURE),
        ("AttributeError", "'NoneType' object has no attribute 'x'", "", VerdictKind.PASS_FAILURE),
        (
            "AttributeError",
            "module 'triton.language' has no attribute 'make_tensor_descriptor'",
            "",
            VerdictKind.UNSUPPORTED,
        ),
        ("RuntimeError", "Unsupported function referenced", IN_PYTHON, VerdictKind.REJECTED),
        ("RuntimeError", "map::at", IN_CPP, VerdictKind.PASS_FAILURE),
    ],
)
def test_what_the_front_end_raises_itself(
    type_: str, message: str, traceback: str, kind: VerdictKind
) -> None:
    assert front_end(type_, message, traceback=traceback).kind is kind


@pytest.mark.parametrize(
    ("message", "traceback", "kind"),
    [
        ("at 1:2:\n  x\n  ^\ntype fp8 not supported", "", VerdictKind.REJECTED),
        ("at 1:2:\n  x\n  ^\nKeyError('fp4')", "", VerdictKind.PASS_FAILURE),
        ("at 1:2:\n  x\n  ^\n'fp4'", "Traceback\nKeyError: 'fp4'\n", VerdictKind.PASS_FAILURE),
        ("at 1:2:\n  x\n  ^\nNameError('x is not defined')", "", VerdictKind.REJECTED),
    ],
)
def test_what_a_refusal_of_the_source_wraps(
    message: str, traceback: str, kind: VerdictKind
) -> None:
    verdict = front_end("CompilationError", message, traceback=traceback, kinds=("TritonError",))
    assert verdict.kind is kind


def test_an_assertion_without_words_is_told_by_its_expression() -> None:
    traceback = (
        'Traceback\n  File "/t/semantic.py", line 1550, in dot\n    assert acc.type == ret_ty\n'
        "           ^^^^^^^^^^^^^^^^^^^\nAssertionError\n\nThe above exception was ...\n"
        "triton.compiler.errors.CompilationError: at 7:14:\n"
    )
    verdict = front_end("CompilationError", "at 7:14:\n  x\n  ^", traceback=traceback)
    assert verdict.kind is VerdictKind.REJECTED
    assert verdict.reason.endswith("CompilationError: AssertionError: assert acc.type == ret_ty")


def test_a_wrong_keyword_is_the_launch_s_unless_some_triton_knows_it() -> None:
    words = "'Keyword argument {} was specified but unrecognised'"
    verdict = front_end("KeyError", words.format("foo"))
    assert verdict.kind is VerdictKind.REJECTED
    assert verdict.reason == "the launch passes foo=, which neither the kernel nor Triton knows"
    assert front_end("KeyError", words.format("maxnreg")).kind is VerdictKind.UNSUPPORTED


def test_what_cannot_be_read_is_told_from_what_trips_while_reading() -> None:
    said = raised("Parse MLIR file failed.", stage="capture")
    assert judge(said).kind is VerdictKind.UNSUPPORTED
    tripped = raised("'NoneType' object has no attribute 'group'", kinds=("AttributeError",))
    assert tripped.lowering is not None
    lowering = structs.replace(tripped.lowering, stage="capture")
    assert judge(structs.replace(tripped, lowering=lowering)).kind is VerdictKind.PASS_FAILURE


def test_a_ptxas_that_dies_after_it_said_what_it_cannot_do() -> None:
    said = "ptxas fatal   : Unsupported .version 8.8; current version is '8.0'\n"
    verdict = judge(ran(said=said, signal=11))
    assert verdict.kind is VerdictKind.UNSUPPORTED
    assert key(verdict) == key(judge(ran(said=said)))
    assert judge(ran(said="ptxas error   : Unknown symbol 'x'\n", signal=11)).kind is (
        VerdictKind.COMPILER_CRASH
    )


def test_wordings_that_changed_between_versions_are_one_bug() -> None:
    old = "CompilationError: lhs_scale must be a tensor of shape [128, 4]. Got ['128', '8']"
    new = old.replace("[128, 4]", "[..., 128, 4]")
    keys = {key(front_end("CompilationError", said)) for said in (old, new)}
    assert len(keys) == 1


def test_a_signal_without_a_name_is_named_by_its_number() -> None:
    assert ProcessEnd(signal=40).words == "died by SIG40"


def test_spills_of_called_functions_are_named() -> None:
    needs = structs.replace(NEEDS, spill_stores=924, spill_loads=924, spilling_callees=("leaf",))
    verdict = judge(compiled(needs))
    assert verdict.kind is VerdictKind.SICK
    assert verdict.reason.endswith(
        "at 32 registers, in functions that it calls among others (leaf)"
    )
    plain = structs.replace(needs, spilling_callees=())
    assert key(judge(compiled(plain))) == key(verdict)
