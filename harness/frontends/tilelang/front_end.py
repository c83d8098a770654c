"""TileLang behind the door: see `harness.frontends.base`.

Launch code runs as it is in a child; each kernel that it has compiled is lowered to CUDA C++ by a
fork of that child, and by nvcc to PTX with the options that this TileLang would give it. Its
wordings are those of 0.1.8 to 0.1.15.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping

from msgspec.structs import replace

from harness.frontends.bench import Workbench
from harness.frontends.captured_front_end import CapturedFrontEnd, FileForm
from harness.frontends.cuda.compilers import host_compiler, judge_nvcc, run_nvcc
from harness.frontends.one_file import (
    keywords_of,
    mapping_lines,
    must_be,
    quoted,
    texts_of,
    wrapped,
)
from harness.frontends.partners import PINS, PackagedFrontEnd
from harness.frontends.sessions import CapturedLaunch, JobResult
from harness.io.files.writing import scratch_disk
from harness.judging.judge import failed
from harness.values.outcome import LaunchFacts, Lowering, RaisedError
from harness.values.standalone import Dialect, FileLaunch, SourceInstall
from harness.values.toolchain import NVCC, Assembler
from harness.values.verdict import Stage, Verdict, VerdictKind

# As TileLang 0.1.8 to 0.1.15 call nvcc, besides the options that they choose.
FLAGS = ("-O3", "-lineinfo")
"""The options of nvcc that do not depend on the kernel."""
FILES = {"tir": "kernel.tir", "device": "kernel.device", "cuda": "kernel.cu", "ptx": "kernel.ptx"}
"""What a job leaves, by stage."""
# Of what is shared with triage: modules that it imports.
_NEEDS = ("ml_dtypes", "numpy", "torch")


class TileLangForm(FileForm):
    """See `harness.frontends.captured_front_end.FileForm`.

    `python FILE` lowers the kernel to CUDA C++; from there nvcc goes on, as TileLang would call it.
    """

    imports = ("import tilelang", "import tilelang.language as T", "from tilelang import tvm")
    roots = frozenset({"tilelang", "T", "tvm"})
    dialect = Dialect(always=frozenset(imports))
    past = frozenset({"tir", "device", "cuda"})

    def launch_lines(self, launch: FileLaunch) -> Iterator[str]:
        constants = [f"{path[0]}={value}" for path, value in launch.constants.items()]
        yield from wrapped(f"kernel = {launch.kernel}(", constants, ")")
        kind, arch = launch.target
        yield f'target = tvm.target.Target({{"kind": "{kind}", "arch": "{arch}"}})'
        yield from mapping_lines("options = ", quoted(launch.options), closing="")
        yield "with tvm.transform.PassContext(opt_level=3, config=options), target:"
        yield "    lowered = tilelang.lower(kernel, target=target)"
        yield "print(lowered.kernel_source)"

    def read_launch(self, values: Mapping[str, ast.expr]) -> FileLaunch:
        kernel = must_be(ast.Call, values["kernel"])
        words = ast.literal_eval(must_be(ast.Call, values["target"]).args[0])
        keywords = keywords_of(kernel)
        return FileLaunch(
            kernel=must_be(ast.Name, kernel.func).id,
            signature=dict.fromkeys(keywords, '"argument"'),
            constants={(name,): value for name, value in keywords.items()},
            attributes={},
            options=texts_of(values["options"]),
            target=(words["kind"], words["arch"]),
        )

    def install(self, version: str, assembler: Assembler) -> SourceInstall:
        pins = PINS["tilelang"]
        return SourceInstall(
            title=pins.title,
            module=pins.package,
            # It lowers a kernel to CUDA C++.
            packages=tuple(map(str, pins.pins(version, without=NVCC))),
            needs=_NEEDS,
            has_pins=True,
            cache="TILELANG_CACHE_DIR",
        )


# Of the form "Bug report" of TileLang's tracker.
_ISSUE_FIELDS = (
    "Required prerequisites",
    "What version of TileLang are you using?",
    "System information",
    "Problem description",
    "Reproducible example code",
    "Traceback",
    "Expected behavior",
    "Additional context",
)


# TVM's C++ raises an error of its own, or one of Python's classes, where a check of its fails.
_CHECK = re.compile(r"\bCheck failed:? *(?:\(.*?\) is false:? ?)?")
_IN_CPP = re.compile(r"File \"[^\"]*\.(?:cc|cpp|h)\"|in (?:virtual )?\w[\w:<>, *&]* tvm::")
# A name, an argument or a module that another release has: the wordings of Python itself.
_OTHER_RELEASE = re.compile(
    r"module '(?:tilelang|tvm)[\w.]*' has no attribute '\w+'"
    r"|cannot import name '\w+' from '(?:tilelang|tvm)[\w.]*'"
    r"|No module named '(?:tilelang|tvm)[\w.]*'"
    r"|(?:jit|autotune|Kernel|copy|gemm|alloc_\w+|Pipelined|Parallel|annotate_\w+|use_swizzle)\(\)"
    r" got an unexpected keyword argument '\w+'"
    r"|Invalid config option|Cannot find global var|has been removed"
)
_OTHER_TARGET = re.compile(r"the launch compiles for .+, and CUDA was asked for")
_NOT_THERE = re.compile(
    r"No CUDA architecture was specified|Unsupported (?:target|arch|architecture)\b"
    r"|[Uu]nsupported CUDA arch"
)
_PASS = re.compile(r"\btransform\.(\w+)\([^()\n]*\)\(\w+\)")
# Times and levels of a log line are not part of what it says.
_CLOCK = re.compile(r"^\s*(?:\d{4}-\d\d-\d\d )?\[?\d\d:\d\d:\d\d\]?(?:[.,]\d+)? *")


class _TileLangFrontEnd(PackagedFrontEnd, CapturedFrontEnd):
    pins = PINS["tilelang"]
    kind = pins.kind
    title = pins.title
    needs = ("torch",)
    modules: tuple[str, ...] = ("tilelang",)
    stages: tuple[str, ...] = ("tir", "device", "cuda", NVCC, "ptx")
    files = FILES
    impossible = (_OTHER_TARGET, _NOT_THERE, _OTHER_RELEASE)
    levels: tuple[str, ...] = ("source",)
    form = TileLangForm
    issue_fields: tuple[str, ...] = _ISSUE_FIELDS
    module = "harness.frontends.tilelang.child"
    code = ("frontends/pretend", "frontends/tilelang/child.py")
    variables = ("TILELANG_", "TL_", "TVM_")
    never = frozenset({"TILELANG_CACHE_DIR", "TILELANG_TARGET", "TILELANG_DEFAULT_TARGET"})

    def lowered_with(self) -> dict[str, object]:
        return {"host": host_compiler(), "flags": FLAGS}

    async def go_on(
        self,
        bench: Workbench,
        launch: CapturedLaunch,
        job: JobResult,
        lowering: Lowering,
        *,
        alone: bool = False,
    ) -> Lowering:
        """Run nvcc on the code that the job left, as TileLang would."""
        code = job.folder / FILES["cuda"]
        if not code.is_file():
            return lowering
        options: list[str] = (job.result or {}).get("options", [])
        words = [*FLAGS, *(word for word in options if not word.startswith("--ptxas-options"))]
        run = await run_nvcc(bench, launch.compiler, code, words, alone=alone)
        with scratch_disk():
            if run.ptx is not None:
                (job.folder / FILES["ptx"]).write_bytes(run.ptx)
            with (job.folder / "stdout").open("a") as log:
                log.write(run.log)
        # What nvcc would hand to ptxas: the target, and what is meant for ptxas alone.
        named = (word.partition("=")[2] for word in options if word.startswith("-arch="))
        arch = next(named, str(launch.request.settings["target"]))
        own = (word.partition("=")[2] for word in options if word.startswith("--ptxas-options="))
        wall, cpu = run.end.wall + job.end.wall, run.end.cpu + job.end.cpu
        return replace(
            lowering,
            end=replace(run.end, wall=wall, cpu=cpu),
            stage=NVCC if run.ptx is None else "ptx",
            flags=("-v", f"--gpu-name={arch}", *own),
            log=run.log,
        )

    async def failing_pass(
        self,
        bench: Workbench,
        launch: CapturedLaunch,
        record: LaunchFacts,
        *,
        ptxas: Assembler,
        traps: bool,
    ) -> str | None:
        if traps:
            return None
        error = (await self.lower(bench, launch, record, ptxas=ptxas)).value.error
        return failing_pass(error.traceback) if error else None

    def judge(self, lowering: Lowering) -> Verdict:
        is_nvccs = lowering.error is None and lowering.stage == NVCC
        return judge_nvcc(lowering) if is_nvccs else super().judge(lowering)

    def last_words(self, log: str) -> str:
        # Without the time of day.
        return super().last_words("\n".join(_CLOCK.sub("", line) for line in log.splitlines()))

    def essence(self, error: RaisedError) -> str:
        """Without the check that found what failed, where there is more."""
        lines = [line.strip() for line in error.message.splitlines() if line.strip()]
        for line in lines:
            if match := _CHECK.search(line):
                return line[match.end() :].strip() or line
        return lines[0] if lines else error.type

    def judge_raised(self, error: RaisedError, stage: Stage, line: str) -> Verdict:
        # By a check of its own, TVM's C++ says that it failed at its own work.
        is_internal = (
            "InternalError" in error.kinds
            or _CHECK.search(error.message)
            or _IN_CPP.search(error.traceback)
        )
        if stage.value == self.stages[0] or not is_internal:
            reason = f"TileLang rejects the kernel: {error.type}: {line}"
            return failed(VerdictKind.REJECTED, stage, reason, message=f"{error.type}: {line}")
        culprit = failing_pass(error.traceback)
        where = f"pass {culprit}" if culprit else f"stage {stage.value}"
        cause = "Check failed" if _CHECK.search(error.message) else error.type
        reason = f"{where} failed: {line}" + ("" if cause in line else f" ({cause})")
        return failed(VerdictKind.PASS_FAILURE, stage, reason, message=f"{culprit or ''}: {line}")


def failing_pass(traceback: str) -> str | None:
    """The pass that was running, by the last line of TileLang's own pipeline in a traceback."""
    passes = _PASS.findall(traceback)
    return str(passes[-1]) if passes else None


TILELANG_FRONT_END = _TileLangFrontEnd()
