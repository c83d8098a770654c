"""What is alike for compilers whose launch code runs in a child: captures and lowerings of it.

A front end of theirs is a subclass: it names the child, a package of ours that is run with the
compiler's Python (see `harness.io.children.captures`), and says what its jobs leave. Captures and
lowerings are kept by content.
"""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import sys
import textwrap
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec
from msgspec import structs

import harness
import harness.io.children.enter
from harness.frontends.assemble import read_stream
from harness.frontends.base import CompileRequest, FrontEnd, Lowered, SourceForm
from harness.frontends.bench import Kept, Workbench, content_key, has_died
from harness.frontends.cuda.compilers import tool_of
from harness.frontends.launch_code import (
    capture_request,
    fetch_launch_code,
    has_launch_code,
    is_unchanged,
    withheld,
)
from harness.frontends.one_file import GUARD, StandaloneError, code_before, values_of
from harness.frontends.plan import CapturePlace, Plan, cells_of
from harness.frontends.readings import PtxReading, read_text
from harness.frontends.sessions import (
    CapturedLaunch,
    CaptureRequest,
    JobResult,
    LaunchCode,
    interpreter_of,
    sessions_of,
)
from harness.io.files.own_code import code_sha256
from harness.io.files.reading import read_regular
from harness.io.files.writing import scratch_disk
from harness.io.processes.hub import ResourceLimits
from harness.io.processes.machine import is_confined, plain_environment, require_confinement
from harness.io.toolchains.environments import is_installed
from harness.judging.judge import died, failed, stopped
from harness.values.errors import ConfigurationError, InfrastructureError, UsageError
from harness.values.execution import Departure, Interpretation, Operations
from harness.values.kernel import Config
from harness.values.outcome import Capture, LaunchFacts, Lowering, ProcessEnd, RaisedError
from harness.values.standalone import Dialect, Export, FileLaunch, Standalone
from harness.values.target import Target
from harness.values.toolchain import PTXAS, Assembler, Compiler, Tool
from harness.values.verdict import Stage, Verdict, VerdictKind

# Where the sources lie; `LaunchCode.identity` says what they are.
_SOURCES = frozenset({"file", "paths", "bare"})
_MOST_SOURCE = 1 << 20
# Of the host's: its Python's settings, and a toolkit that is none of the compiler's.
_NOT_OURS = ("PYTHON", "CUDA", "NVCC", "LD_LIBRARY_PATH")
# Launch code that iterates over a set makes the same launches every time. Threads of numeric
# libraries do not survive a fork, and nothing here computes.
OF_CHILDREN = {
    "PYTHONHASHSEED": "0",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "CUDA_VISIBLE_DEVICES": "",
}


# Of what is measured between configs: raised when there is more of it.
_CHECK_RULE = 3

T = TypeVar("T")

_code_of = cache(code_sha256)


class CapturedFrontEnd(FrontEnd):
    """The parts of a front end that follow from a child.

    `form` writes its kernels as files. `module` is run as the child; `code` are the places of all
    of our code that runs there. `variables` are those that the compiler reads, by their prefixes;
    of those, children never get the ones in `never`. `files` are what a job leaves, by stage.
    `impossible` are wordings of what another version or target could do.

    One that `interprets` has an interpreter on the CPU, which children of its own run: modules of
    the child have the names `interpreting`, which compares configs of a launch, or variants of it,
    `launching`, which hands launches over, and `reference`. `interpreter_mode` is the variable that
    has the compiler's decorators interpret kernels.
    """

    form: type[FileForm]
    module: str
    code: tuple[str, ...]
    variables: tuple[str, ...] = ()
    never: frozenset[str] = frozenset()
    files: Mapping[str, str] = {}
    impossible: tuple[re.Pattern[str], ...] = ()
    interpreter_mode: tuple[str, str]

    def __init__(self) -> None:
        self.source_form = self.form(self)

    def bundled(self, compiler: Compiler) -> Path | None:
        """The assembler that this compiler brings along."""
        return tool_of(compiler, PTXAS)

    def evidence(self, launch: CapturedLaunch, job: JobResult) -> Lowering:
        """The evidence that a job left in its folder."""
        # A result that was written before the process died is whole: it is renamed into place.
        result, progress = job.result or {}, job.progress or {}
        error, log = result.get("error"), job.folder / "stderr"
        return Lowering(
            end=job.end,
            stage=str(result.get("stage") or progress.get("stage") or self.stages[0]),
            error=msgspec.convert(error, RaisedError) if error else None,
            metadata=result.get("metadata", {}),
            seconds=result.get("seconds") or progress.get("seconds") or {},
            log=read_stream(log) if log.is_file() else "",
            flags=tuple(result.get("flags", ())),
        )

    async def compile_text(
        self,
        bench: Workbench,
        compiler: Compiler,
        text: str,
        request: CaptureRequest,
        more: Mapping[str, object],
    ) -> JobResult:
        """Have a child compile a text, which lies in a file as `request` names it.

        Raises:
            InfrastructureError: the child could not be kept alive, or the disk is full.
        """
        with bench.hub.folder("standalone") as folder:
            file = folder / request.file
            with scratch_disk():
                file.write_text(text, encoding="utf-8")
            capture = structs.replace(request, file=file).message()
            async with bench.slot():
                job = await sessions_of(bench).run_job(
                    compiler, {"op": "compile", "capture": capture, **more}
                )
        bench.cpu_seconds += job.end.cpu
        return job

    async def finished(
        self, bench: Workbench, launch: CapturedLaunch, job: JobResult, *, alone: bool
    ) -> tuple[Lowering, dict[str, str]]:
        """The evidence and the artifacts of what a job of the child left.

        `alone`: nothing else is to run beside it.
        """
        lowering = self.evidence(launch, job)
        if lowering.end.ok and not lowering.error:
            lowering = await self.go_on(bench, launch, job, lowering, alone=alone)
        files = self.left(job)
        if lowering.error:
            files.pop(self.stages[-1], None)
        artifacts = {stage: bench.store.artifacts.put_file(file) for stage, file in files.items()}
        artifacts["log"] = keep_streams(bench, job)
        return lowering, artifacts

    def left(self, job: JobResult) -> dict[str, Path]:
        """The files that a job left, by stage."""
        paths = {stage: job.folder / file for stage, file in self.files.items()}
        return {stage: path for stage, path in paths.items() if path.is_file()}

    async def go_on(
        self,
        bench: Workbench,
        launch: CapturedLaunch,
        job: JobResult,
        lowering: Lowering,
        *,
        alone: bool = False,
    ) -> Lowering:
        """Run what goes on from a job that ended well, in its folder; the evidence of both.

        Raises:
            InfrastructureError: it cannot be started.
        """
        return lowering

    def judge(self, lowering: Lowering) -> Verdict:
        """The verdict on a lowering that raised an error of Python, or did not end well."""
        stage, error, title = Stage(lowering.stage), lowering.error, self.title
        if verdict := stopped(lowering.end, stage, f"{title} ({stage.value})"):
            return verdict
        if error is None:
            return died(lowering.end, stage, title, self.last_words(lowering.log))
        line = self.essence(error)
        if "MemoryError" in error.kinds:
            return failed(VerdictKind.OUT_OF_MEMORY, stage, f"{title} ran out of memory: {line}")
        if "OSError" in error.kinds:
            reason = f"{title} could not read or write a file: {line}"
            return Verdict(kind=VerdictKind.INFRA, reason=reason, stage=stage)
        if self.cannot(error):
            reason = f"this {title} cannot do it: {line}"
            return failed(VerdictKind.UNSUPPORTED, stage, reason, message=line)
        return self.judge_raised(error, stage, line)

    def last_words(self, log: str) -> str:
        """The last line of a log that says something."""
        lines = (line.strip() for line in reversed(log.splitlines()))
        return next(filter(None, lines), "")[:500]

    def essence(self, error: RaisedError) -> str:
        """The line that says what failed."""
        lines = (line.strip() for line in error.message.splitlines())
        return next(filter(None, lines), error.type)

    def cannot(self, error: RaisedError) -> bool:
        """Whether another version or target could do it."""
        return any(pattern.search(error.message) for pattern in self.impossible)

    def judge_raised(self, error: RaisedError, stage: Stage, line: str) -> Verdict:
        """The verdict on any other error, of which `line` says what failed."""
        raise NotImplementedError

    def lowered_with(self) -> dict[str, object]:
        """What decides a lowering besides compiler, child and settings."""
        return {}

    def asked(self, ptxas: Assembler) -> dict[str, object]:
        """What the child gets to know of the assembler that a record is lowered for."""
        return {}

    def settings(self, target: Target, compiler: Compiler) -> dict[str, object]:
        """What only this child understands of a request."""
        bundled = self.bundled(compiler)
        return {"target": str(target), "ptxas": str(bundled) if bundled else None}

    def must_repeat(self, process: ProcessEnd) -> bool:
        """Whether a job that ended so is run once more, alone."""
        return has_died(process)

    def program(self, compiler: Compiler) -> tuple[list[str], dict[str, str]]:
        enter = str(Path(harness.io.children.enter.__file__).resolve())
        argv = (interpreter_of(compiler), "-s", "-B", enter, self.module)
        return [*argv], self.child_environment(compiler)

    def child_environment(self, compiler: Compiler) -> dict[str, str]:
        """The variables of its processes: what any program needs, and settings of the compiler."""
        user = plain_environment() if is_confined() else dict(os.environ)
        plain = {name: value for name, value in user.items() if not name.startswith(_NOT_OURS)}
        own = self.user_settings(compiler)
        return {**plain, **own, **OF_CHILDREN, **dict(compiler.variables)}

    def user_settings(self, compiler: Compiler) -> dict[str, str]:
        """The user's settings of this compiler, and of torch."""
        prefixes = (*self.variables, "TORCH", "PYTORCH_")
        return {
            name: value
            for name, value in sorted(os.environ.items())
            if name.startswith(prefixes) and name not in self.never
        }

    def child_sha256(self) -> str:
        """Hash of the code that runs in children: part of the key of everything it made."""
        return _code_of("io/children", *self.code)

    def identity(self, compiler: Compiler) -> object:
        child = [self.child_sha256(), self.user_settings(compiler)]
        return [compiler.identity, *self.lowered_with().values(), child]

    async def plan(self, bench: Workbench, place: CapturePlace) -> Plan:
        captured = await self.capture(bench, self._code(place), place.target, place.compiler)
        return self._cells(place, captured)

    def stored_plan(self, bench: Workbench, place: CapturePlace) -> Plan | None:
        if not (has_launch_code(place.selection.repro) and is_installed(place.compiler)):
            return None
        code, compiler = self._code(place), place.compiler
        request = self._request(code, place.target, compiler)
        key = self.launch_key("capture", code, request.message(), compiler)
        stored = bench.read("capture", key, Capture)
        if stored is None or not self.is_true(stored.value, compiler):
            return None
        captured = CapturedLaunch(capture=stored, compiler=compiler, request=request)
        return self._cells(place, captured)

    def _code(self, place: CapturePlace) -> LaunchCode:
        launch = place.launch
        code = fetch_launch_code(place.selection.repro, launch.spec, launch.overrides)
        return place.adapted(code)

    def _request(self, code: LaunchCode, target: Target, compiler: Compiler) -> CaptureRequest:
        settings = self.settings(target, compiler)
        return structs.replace(capture_request(code, target), settings=settings)

    def _cells(self, place: CapturePlace, captured: CapturedLaunch) -> Plan:
        environment = self.child_environment(captured.compiler)
        missing = withheld(captured.capture.value.reads, environment, self.never)
        tool = self.own_disassembler(captured.compiler)
        return cells_of(
            self.back_end(place.target), place, captured, nvdisasm=tool, withheld=missing
        )

    def own_disassembler(self, compiler: Compiler) -> Tool | None:
        """One that the compiler brings along: it reads what the newest has dropped."""
        return None

    async def capture(
        self, bench: Workbench, code: LaunchCode, target: Target, compiler: Compiler
    ) -> CapturedLaunch:
        """What the launch code launches, as `target` would see it.

        The capture of code that raised is not kept (its `error` says what was raised), nor of
        code whose time was up.

        Raises:
            CaptureError: the launch code hung or ended its process.
            InfrastructureError: this compiler cannot be imported here.
        """
        request = self._request(code, target, compiler)
        key = self.launch_key("capture", code, request.message(), compiler)
        async with bench.once(key):
            capture = bench.find("capture", key, Capture)
            if capture is None or not self.is_true(capture.value, compiler):
                async with bench.slot():
                    value = await sessions_of(bench).capture(key, compiler, request)
                if value.error or value.is_late:
                    capture = Kept(value=value, key=key)
                else:
                    capture = bench.keep("capture", key, value, {})
        return CapturedLaunch(capture=capture, compiler=compiler, request=request)

    def launch_key(
        self, kind: str, code: LaunchCode, message: Mapping[str, object], compiler: Compiler
    ) -> str:
        """By what an answer to `message` is kept: all that the child is sent, and what runs it.

        The content of the sources counts, not where a copy of them lies. What the launch code
        reads besides is looked up again: see `harness.frontends.launch_code`.
        """
        sent = {name: value for name, value in message.items() if name not in _SOURCES}
        return content_key(kind=kind, sent=sent, code=code.identity, **self.key_of(compiler))

    def key_of(self, compiler: Compiler) -> dict[str, object]:
        """What of a compiler, its child and its settings decides what launch code does."""
        return {
            "compiler": compiler.identity,
            "child": self.child_sha256(),
            "settings": self.user_settings(compiler),
        }

    def is_true(self, capture: Capture, compiler: Compiler) -> bool:
        """Whether what the launch code of a stored capture read is still the same."""
        return is_unchanged(capture.reads, self.child_environment(compiler))

    def lowering_key(self, launch: CapturedLaunch, record: LaunchFacts, ptxas: Assembler) -> str:
        return content_key(
            record=record.key,
            settings=[dict(launch.request.settings), self.user_settings(launch.compiler)],
            compiler=launch.compiler.identity,
            child=self.child_sha256(),
            **self.lowered_with(),
            **self.asked(ptxas),
        )

    async def lower(
        self, bench: Workbench, launch: CapturedLaunch, record: LaunchFacts, *, ptxas: Assembler
    ) -> Kept[Lowering]:
        """Have a fork of the capture lower one record.

        Raises:
            InfrastructureError: the child could not be kept alive.
        """
        message = {"op": "lower", **self.asked(ptxas)}

        async def attempt(number: int) -> tuple[Lowering, dict[str, str]]:
            alone = number > 1
            job = await self.on_record(bench, launch, record, message, alone=alone)
            try:
                lowering, artifacts = await self.finished(bench, launch, job, alone=alone)
                if text := _kernel_text(launch.request, record):
                    artifacts["python"] = bench.store.artifacts.put(text)
            finally:
                bench.hub.drop_folder(job.folder)
            return structs.replace(lowering, attempts=number), artifacts

        key = self.lowering_key(launch, record, ptxas)
        repeat = self.must_repeat
        return await bench.run_once("lower", key, Lowering, attempt, must_repeat=repeat)

    async def on_record(
        self,
        bench: Workbench,
        launch: CapturedLaunch,
        record: LaunchFacts,
        message: Mapping[str, object],
        *,
        alone: bool = False,
    ) -> JobResult:
        """Have a fork of a capture do something with a record; the folder is the caller's.

        Raises:
            InfrastructureError: the child could not be kept alive, or no longer makes this launch.
        """
        message = {**message, "key": record.key, "limits": bench.limits.message()}
        key, compiler, request = launch.capture.key, launch.compiler, launch.request
        sessions = sessions_of(bench)
        async with bench.slot(alone=alone):
            if launch.capture.cached:
                # The launch code runs again, and must come to the same launch.
                value = await sessions.capture(key, compiler, request)
                if all(again.key != record.key for again in value.records):
                    if not value.error:
                        bench.keep("capture", key, value, {})
                    raise InfrastructureError(
                        f"{request.file}: the launch code no longer makes this launch, and nothing "
                        "that it reads has changed, as far as can be seen (random numbers, the "
                        "time, a service?); what it makes now is stored: run again"
                    )
            job = await sessions.run_job(compiler, message, (key, request))
        bench.cpu_seconds += job.end.cpu
        return job

    def interpreter_environment(self, compiler: Compiler) -> Mapping[str, str]:
        """The variables that launch code sees there."""
        name, value = self.interpreter_mode
        return {**self.child_environment(compiler), name: value}

    async def run_with_values(
        self,
        what: Literal["launching", "reference"],
        bench: Workbench,
        compiler: Compiler,
        folder: Path,
        limits: ResourceLimits,
    ) -> JobResult:
        """Run a launch function once, and hand each launch to the caller; or a reference function.

        `request.json` in the folder says with which values; see `harness.run.inputs` and
        `harness.run.references`. The folder of the result, with what was printed, is the caller's.

        Raises:
            InfrastructureError: the child could not be kept alive.
        """
        # A fork of the server imports the module, which confines itself to the folder.
        capture = {"module": f"{self.module}.{what}", "place": str(folder), "confined": False}
        message = {"op": "compile", "capture": capture, "limits": limits.message()}
        return await sessions_of(bench).run_job(compiler, message)

    async def compare_configs(
        self,
        bench: Workbench,
        code: LaunchCode,
        *,
        kernels: Sequence[str],
        target: Target,
        compiler: Compiler,
    ) -> Interpretation:
        """Compare the configs of the kernels with these names or patterns, as `target` sees them.

        What was found is kept by content, unless the launch code raised or the time was too short.

        Raises:
            InfrastructureError: the interpreter cannot be started here.
        """
        sent = {**capture_request(code, target).message(), "kernels": list(kernels)}
        key = self.launch_key("check", code, {**sent, "rule": _CHECK_RULE}, compiler)
        async with bench.once(key):
            stored = bench.find("check", key, Interpretation)
            if stored and is_unchanged(stored.value.reads, self.interpreter_environment(compiler)):
                return stored.value
            value = await self._interpreted(bench, compiler, sent, Interpretation)
            if isinstance(value, str):
                error = RaisedError(type="Interpreter", kinds=(), message=value)
                return Interpretation(error=error)
            timed_out = any("time limit" in v.error for f in value.findings for v in f.variants)
            if not (value.error or timed_out):
                bench.keep("check", key, value, {})
        return value

    async def compare_variants(
        self,
        bench: Workbench,
        original: LaunchCode,
        others: Sequence[LaunchCode],
        *,
        target: Target,
        compiler: Compiler,
    ) -> list[Departure]:
        """Compare what a launch returns with what each variant of it does, on the same inputs.

        Variants differ in overrides and in injected configs. What was found is kept by content,
        unless a variant could not be compared.

        Raises:
            InfrastructureError: the interpreter cannot be started here.
        """
        variants = [
            {"overrides": dict(code.overrides), "injected": dict(code.injected)}
            for code in (original, *others)
        ]
        sent = {**capture_request(original, target).message(), "variants": variants}
        key = self.launch_key("operations", original, sent, compiler)
        async with bench.once(key):
            environment = self.interpreter_environment(compiler)
            stored = bench.find("operations", key, Operations)
            if stored and all(is_unchanged(reads, environment) for reads in stored.value.reads):
                return stored.value.variants
            value = await self._interpreted(bench, compiler, sent, Operations)
            if isinstance(value, str):
                return [Departure(error=value) for _ in others]
            if not any(variant.error for variant in value.variants):
                bench.keep("operations", key, value, {})
        return value.variants

    async def _interpreted(
        self, bench: Workbench, compiler: Compiler, sent: Mapping[str, Any], schema: type[T]
    ) -> T | str:
        """The answer of a child to a request; how it ended where it left none."""
        require_confinement()
        folder = bench.hub.new_folder("check")
        request = {**sent, "jobs": bench.jobs, "timeout": bench.limits.timeout}
        with scratch_disk():
            (folder / "request.json").write_text(json.dumps(request))
        argv = [sys.executable, "-m", f"{self.module}.interpreting", str(folder)]
        env = dict(self.interpreter_environment(compiler))
        # Its forks are its own affair, and as many as there are workers.
        async with bench.slot(alone=True):
            process = await bench.hub.execute(argv, folder=folder, limits=bench.limits, env=env)
        bench.cpu_seconds += process.cpu
        try:
            return msgspec.json.decode((folder / "result.json").read_bytes(), type=schema)
        except (OSError, msgspec.MsgspecError):
            end = JobResult(end=process, result=None, folder=folder)
            return f"the interpreter's process {end.words}"
        finally:
            bench.hub.drop_folder(folder)

    def config_line(self, kernel: str, config: Config, *, autotuned: bool) -> str:
        values = ", ".join(f"{name}={value!r}" for name, value in config.items)
        return f"{kernel}(..., {values})"


def keep_streams(bench: Workbench, job: JobResult) -> str:
    """Keep what a job printed as one artifact; its sha256."""
    with scratch_disk(), (job.folder / "log").open("wb") as log:
        for name in ("stderr", "stdout"):
            # One that was killed at once may not have made them yet.
            if (job.folder / name).is_file():
                with (job.folder / name).open("rb") as stream:
                    shutil.copyfileobj(stream, log)
    return bench.store.artifacts.put_file(job.folder / "log")


def _kernel_text(request: CaptureRequest, record: LaunchFacts) -> bytes | None:
    """The file that holds the kernel, where it lies beside the launch code or in its packages.

    Its place was said by a child that runs what others wrote: it names no other file of the user's.
    """
    file = Path(record.file).resolve()
    roots = (request.file.resolve().parent, *(path.resolve() for path in request.paths))
    if file.suffix != ".py" or not any(map(file.is_relative_to, roots)):
        return None
    try:
        return read_regular(file, _MOST_SOURCE)
    except ConfigurationError:
        return None


class FileForm(SourceForm):
    """How the kernels of one compiler are written as one file of Python with a launch, and read.

    `imports` are all that files begin with, and `roots` the names that they give. What the code
    begins with has two blank lines before it where it is one of `spaced`. Stages in `past` are got
    past where a job ends well: no program shows more of them.
    """

    imports: tuple[str, ...]
    roots: frozenset[str]
    dialect: Dialect
    past: frozenset[str]
    spaced: tuple[str, ...] = ()

    def __init__(self, front_end: CapturedFrontEnd) -> None:
        self.front_end = front_end

    @abstractmethod
    def launch_lines(self, launch: FileLaunch) -> Iterator[str]:
        """How the launch is written."""

    @abstractmethod
    def read_launch(self, values: Mapping[str, ast.expr]) -> FileLaunch:
        """The launch, from what its lines set each name to; it may raise what `ast` raises."""

    def picked(self, launch: CapturedLaunch, job: JobResult) -> str | None:
        """The executable of the assembler that the compiler would have run, where it says so."""
        return None

    def reading(self, lowering: Lowering, program: bytes, left: Mapping[str, Path]) -> PtxReading:
        """What a program says, beside the other files that its job left."""
        entry = lowering.metadata.get("entry")
        return read_text(program.decode(errors="replace"), entry=str(entry) if entry else None)

    async def lowered(
        self, bench: Workbench, launch: CapturedLaunch, job: JobResult, until: Stage | None
    ) -> Lowered | None:
        """The result of a job that compiled a file; None where it got past `until`."""
        if job.result and job.result.get("is_past"):
            return None  # the child stops after the stage that it was asked for
        front, picked = self.front_end, self.picked(launch, job)
        lowering = front.evidence(launch, job)
        if lowering.end.ok and not lowering.error:
            if until and until.value in self.past:
                return None
            lowering = await front.go_on(bench, launch, job, lowering)
        left = front.left(job)
        file = left.get(front.stages[-1])
        if not lowering.end.ok or lowering.error or file is None:
            return Lowered(lowering=lowering, picked_ptxas=picked)
        program = file.read_bytes()
        reading = self.reading(lowering, program, left)
        return Lowered(lowering=lowering, program=program, reading=reading, picked_ptxas=picked)

    def imports_of(self, launch: FileLaunch) -> Sequence[str]:
        """Those of `imports` that a file with this launch has."""
        return self.imports

    def completed(self, launch: FileLaunch, answer: Mapping[str, Any]) -> FileLaunch:
        """An exported launch, with what the child tells of it besides."""
        return launch

    def asked(self, launch: CapturedLaunch, request: CompileRequest) -> dict[str, object]:
        """What the child gets to know of a compilation besides the file."""
        return {}

    def render(self, standalone: Standalone, *, header: str = "") -> str:
        """The file; `header` becomes its docstring."""
        docstring = f'"""{header.strip()}\n"""\n\n' if header else ""
        code = standalone.code.strip("\n")
        code = f"\n\n{code}" if self.spaced and code.startswith(self.spaced) else code
        body = textwrap.indent("\n".join(self.launch_lines(standalone.launch)), "    ")
        imports = "\n".join(self.imports_of(standalone.launch))
        return f"{docstring}{imports}\n{code}\n\n\n{GUARD}{body}\n"

    def read(self, text: str) -> Standalone:
        """The two parts of a file that `render` made.

        Raises:
            StandaloneError: it is laid out in another way.
        """
        try:
            tree = ast.parse(text)
            launch = self.read_launch(values_of(tree))
        except (SyntaxError, ValueError, KeyError, AttributeError, IndexError, TypeError) as error:
            message = f"not a standalone file as this program writes it: {error}"
            raise StandaloneError(message) from error
        return Standalone(code=code_before(text, tree, set(self.imports)), launch=launch)

    async def export(
        self, bench: Workbench, launch: CapturedLaunch, record: LaunchFacts
    ) -> Standalone:
        """One config of a captured launch as a file of its own.

        Raises:
            UsageError: something of the launch cannot be written down.
            InfrastructureError: the child could not be kept alive.
        """
        job = await self.front_end.on_record(bench, launch, record, {"op": "export"})
        answer = job.result or {"error": f"its process ended ({job.words})"}
        bench.hub.drop_folder(job.folder)
        if answer["error"]:
            raise UsageError(f"{record.kernel} cannot be written as one file: {answer['error']}")
        from harness.frontends.inline import inline  # noqa: PLC0415 - libcst: 0.3 s

        standalone = inline(msgspec.convert(answer["export"], Export), self.dialect)
        return structs.replace(standalone, launch=self.completed(standalone.launch, answer))

    async def compile(
        self, bench: Workbench, launch: CapturedLaunch, request: CompileRequest
    ) -> Lowered | None:
        capture = CaptureRequest(
            file=Path(f"kernel{request.suffix}"),
            function=None,
            overrides=request.options,
            capability=launch.request.capability,
            limits=launch.request.limits,
            settings=launch.request.settings,
        )
        more = {"limits": request.limits.message(), **self.asked(launch, request)}
        job = await self.front_end.compile_text(bench, launch.compiler, request.text, capture, more)
        try:
            return await self.lowered(bench, launch, job, request.until)
        finally:
            bench.hub.drop_folder(job.folder)
