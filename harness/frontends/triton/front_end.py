"""Triton behind the door: see `harness.frontends.base`.

Launch code runs as it is in a child, which imports torch and a Triton; a fork of it compiles each
launch as far as PTX. A Triton lies on the module path of triage's own Python: see docs/design.md.
Its interpreter runs a launch on small real inputs: every config of it against the others, or
variants of the whole launch against each other.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import mmap
import os
import platform
import re
import site
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from packaging.version import Version

import harness
from harness.frontends.back_end import BUNDLED_BACK_END, BackEnd
from harness.frontends.base import PartLowering
from harness.frontends.bench import Kept, Workbench, content_key, has_died
from harness.frontends.captured_front_end import OF_CHILDREN, CapturedFrontEnd
from harness.frontends.readings import PtxReading, read_stored
from harness.frontends.sessions import CapturedLaunch, JobResult, interpreter_of
from harness.frontends.texts.ir_inputs import IR_SUFFIXES, repro_of
from harness.frontends.texts.python import OPTIONS, config_source
from harness.frontends.triton.source import TritonForm, follow_passes, promises
from harness.io.files.writing import scratch_disk
from harness.io.packages.versions import OLDEST_TRITON
from harness.io.processes.machine import is_confined, plain_environment
from harness.io.toolchains.install import (
    available_wheels,
    bundled_nvdisasm,
    install_triton,
    installed_package,
    installed_triton,
    package_of,
    select_versions,
    version_beside,
)
from harness.io.toolchains.installed import find_installed, installed_versions
from harness.judging.judge import failed, judge_lowering
from harness.judging.messages import essence, first_error, is_parser_error, is_refusal, line_of
from harness.values.errors import InfrastructureError
from harness.values.kernel import Config, Repro
from harness.values.outcome import Capture, LaunchFacts, Lowering, ProcessEnd
from harness.values.target import Target
from harness.values.toolchain import INSTALLED, TRITON, Assembler, Compiler, Tool
from harness.values.verdict import Stage, Verdict, VerdictKind

# Since 3.4 a Triton lists the variables that its Python code reads, in its `knobs.py`. Listed here
# are those that its compiler library reads (the strings of `libtriton.so`, 3.2.0 to 3.9.0), and
# those that 3.2 and 3.3 read here and there.
# Nothing but Triton and MLIR's or LLVM's NVPTX back end has names that begin like this.
_PREFIXES = ("TRITON_", "MLIR_", "NVPTX_", "AMDGCN_")
_ELSEWHERE = frozenset(
    {
        "ALLOW_LHS_TMEM_LAYOUT_CONVERSION",  # 3.3 on
        "DISABLE_FAST_REDUCTION",
        "DISABLE_LLVM_OPT",
        "DISABLE_MMA_V3",
        "DISABLE_MMA_V5",  # 3.3 on
        "DISABLE_PTXAS_OPT",
        "ENABLE_LHS_TO_TMEM",  # 3.3
        "ENABLE_PINGPONG",  # 3.3
        "LLVM_ENABLE_TIMING",
        "LLVM_EXTRACT_DI_LOCAL_VARIABLES",  # 3.6 on
        "LLVM_IR_ENABLE_DUMP",
        "LLVM_PASS_PLUGIN_PATH",
        "PTXAS_OPTIONS",  # 3.6 on
        "STORE_TMEM_TO_GLOBAL_BYPASS_SMEM",  # 3.3, 3.4
        "USE_IR_LOC",
    }
)
NO_KNOBS = frozenset(
    f"TRITON_{name}"
    for name in (
        *("CACHE_DIR", "CACHE_AUTOTUNING", "CACHE_MANAGER", "REMOTE_CACHE_BACKEND", "HOME"),
        *("DUMP_DIR", "KERNEL_DUMP", "KERNEL_OVERRIDE", "OVERRIDE_DIR", "OVERRIDE_ARCH"),
        *("PTXAS_PATH", "PTXAS_BLACKWELL_PATH", "INTERPRET", "ALWAYS_COMPILE", "STORE_BINARY_ONLY"),
    )
)
"""Settings that we decide ourselves: children never see the user's.

What an override folder or another cache manager does cannot be keyed.
"""
_NAME = re.compile(r"""["']([A-Z][A-Z0-9]*_[A-Z0-9_]+)["']""")


def listed_knobs(text: str) -> frozenset[str]:
    """The variables that the text of a `knobs.py` names."""
    return frozenset(_NAME.findall(text))


def is_knob(name: str, listed: frozenset[str] = frozenset()) -> bool:
    """Whether a Triton that lists these reads the variable, and the user decides it."""
    is_read = name.startswith(_PREFIXES) or name in _ELSEWHERE or name in listed
    return is_read and name not in NO_KNOBS


# What LLVM says of each optional pass where `-opt-bisect-limit` is given (OptBisect.cpp).
_BISECT = re.compile(r"BISECT: (?:NOT )?running pass \(\d+\) (.+)")
_GLUON = Stage("glir")
# Gluon is experimental: what one release has, another names or calls otherwise (Triton 3.4 - 3.9).
_OTHER_RELEASE = re.compile(
    r"has been removed|got an unexpected keyword argument '\w+'"
    r"|cannot import name '\w+' from 'triton\.experimental\.gluon[\w.]*'"
    r"|module 'triton\.experimental\.gluon[\w.]*' has no attribute '\w+'"
    r"|No module named 'triton\.experimental[\w.]*'"
)


_KEPT = ("source", "ttir", "glir", "ttgir", "llir", "ptx")
_SECRET = re.compile(r"TOKEN|SECRET|PASSW|CREDENTIAL|AUTH|API_?KEY|ACCESS_?KEY|PRIVATE_?KEY")
# The debug paths in Triton's library name the LLVM that it was built with, by commit.
_LLVM = re.compile(rb"llvm-project[ /]([0-9a-f]{8})[0-9a-f]{0,32}|llvm-([0-9a-f]{8})-[a-z]")


class _TritonFrontEnd(CapturedFrontEnd):
    """All that the program knows of Triton, and of Gluon, its dialect."""

    kind = TRITON
    title = "Triton"
    back_ends: tuple[BackEnd, ...] = (BUNDLED_BACK_END,)
    suffixes: tuple[str, ...] = IR_SUFFIXES
    stages: tuple[str, ...] = ("ttir", "glir", "ttgir", "llir", "ptx")
    options: tuple[str, ...] = OPTIONS
    levels: tuple[str, ...] = ("source", "ttir", "ttgir", "config")
    patches = True
    form = TritonForm
    module = "harness.frontends.triton.child"
    code = ("frontends/pretend", "frontends/triton/child")
    never = NO_KNOBS
    interprets = True
    interpreter_mode = ("TRITON_INTERPRET", "1")

    def read_file(self, path: Path, kernel: str | None) -> Repro:
        return repro_of(path, kernel)

    def available(self, *, prereleases: bool = False) -> list[Version]:
        versions = (wheel.version for wheel in available_wheels(TRITON, prereleases=prereleases))
        return [version for version in versions if version >= OLDEST_TRITON]

    def select(self, spec: str, *, prereleases: bool = False) -> list[Version]:
        return select_versions(TRITON, spec, prereleases=prereleases)

    def builds_beside(self, compilers: Sequence[Compiler]) -> list[Version]:
        others = {compiler.origin for compiler in compilers} - {TRITON, INSTALLED}
        every = (select_versions(TRITON, f"{name}>=0", prereleases=True) for name in others)
        return [version for versions in every for version in versions]

    def installed(self) -> list[Compiler]:
        compilers = [install_triton(version) for version in installed_versions(TRITON)]
        with contextlib.suppress(InfrastructureError):
            beside = installed_triton()
            if all(compiler.version != beside.version for compiler in compilers):
                compilers.append(beside)
        return compilers

    def install(self, version: Version | str) -> Compiler:
        _libraries()  # a Triton takes 0.9 GB, and does nothing without them
        return install_triton(version)

    def planned(self, version: Version | str) -> Compiler:
        return install_triton(version, is_planned=True)

    def default(self) -> Compiler:
        return installed_triton()

    def own_disassembler(self, compiler: Compiler) -> Tool | None:
        return bundled_nvdisasm(compiler)

    def program(self, compiler: Compiler) -> tuple[list[str], dict[str, str]]:
        keep = () if sys.dont_write_bytecode else ("-X", "keep-bytecode")
        argv = (interpreter_of(compiler), *keep, "-m", self.module)
        return [*argv], self.child_environment(compiler)

    def child_environment(self, compiler: Compiler) -> dict[str, str]:
        """As the user has it; a confined one gets settings of Triton and torch alone."""
        package_root = str(Path(harness.__file__).parent.parent)
        user: Mapping[str, str] = os.environ
        if is_confined():
            settings = {**self.user_settings(compiler), **_torch_settings()}
            harmless = {name: text for name, text in settings.items() if not _SECRET.search(name)}
            user = {**harmless, **plain_environment()}
        paths = [*([str(compiler.path)] if compiler.path else []), package_root]
        return {
            **{
                name: value
                for name, value in user.items()
                if name not in NO_KNOBS and not name.startswith("PYTHON")
            },
            "PYTHONPATH": os.pathsep.join(paths),
            # Packages in the user's own site folder are found below another home, too.
            **({"PYTHONUSERBASE": site.getuserbase()} if site.ENABLE_USER_SITE else {}),
            "PYTHONDONTWRITEBYTECODE": "1",
            **OF_CHILDREN,
            **dict(compiler.variables),
        }

    def user_settings(self, compiler: Compiler) -> dict[str, str]:
        listed = _listed(compiler.path)
        return {name: text for name, text in sorted(os.environ.items()) if is_knob(name, listed)}

    def settings(self, target: Target, compiler: Compiler) -> dict[str, object]:
        return {}

    def key_of(self, compiler: Compiler) -> dict[str, object]:
        return {
            "triton": compiler.identity,
            "child": self.child_sha256(),
            "libraries": _libraries(),
            "torch": _torch_settings(),
            "python": [sys.implementation.cache_tag, platform.python_version(), sys.prefix],
            "module_path": _path_files(),
            "knobs": self.user_settings(compiler),
        }

    def is_true(self, capture: Capture, compiler: Compiler) -> bool:
        return Path(capture.ptxas).exists() and super().is_true(capture, compiler)

    def asked(self, ptxas: Assembler | None) -> dict[str, object]:
        """Triton sees this ptxas as a user would point it there; None: the one that it picks."""
        return {"ptxas": str(ptxas.path) if ptxas else None, "dump": False}

    def lowering_key(self, launch: CapturedLaunch, record: LaunchFacts, ptxas: Assembler) -> str:
        # Triton picks the PTX version by the release of the ptxas it sees, and by nothing else of
        # it, so all ptxas of one release share a lowering.
        return content_key(
            record=record.key,
            capability=launch.request.capability,
            triton=launch.compiler.identity,
            sees=".".join(ptxas.version.split(".")[:2]),
            child=self.child_sha256(),
            knobs=self.user_settings(launch.compiler),
        )

    def must_repeat(self, end: ProcessEnd) -> bool:
        # LLVM's fatal errors leave by exit(1), and no result behind.
        return has_died(end) or bool(end.exit_code)

    def left(self, job: JobResult) -> dict[str, Path]:
        # Triton cuts the name at 150 characters; it is the only one of its kind in the folder.
        found = {stage: next(iter(job.folder.glob(f"cache/*/*.{stage}")), None) for stage in _KEPT}
        files = {stage: file for stage, file in found.items() if file}
        # Until Triton 3.8 what Gluon's source becomes is kept under that name alone.
        if (job.result or {}).get("first_stage") == "glir" and "source" in files:
            files.setdefault("glir", files["source"])
        return files

    def read(self, bench: Workbench, lowering: Kept[Lowering], ptx: str) -> Kept[PtxReading]:
        # The earliest IR there is: Gluon has no TTIR, and an old Triton keeps no source.
        stored = (lowering.artifacts.get(stage) for stage in ("source", "ttir", "glir", "ttgir"))
        return read_stored(bench, ptx, ir=next(filter(None, stored), None), promises=promises)

    async def failing_pass(
        self,
        bench: Workbench,
        launch: CapturedLaunch,
        record: LaunchFacts,
        *,
        ptxas: Assembler,
        traps: bool,
    ) -> str | None:
        message = {"op": "lower", **self.asked(ptxas), "dump": True}
        job = await self.on_record(bench, launch, record, message)
        with scratch_disk(), (job.folder / "stderr").open(errors="replace") as lines:
            trail = follow_passes(lines)
        bench.hub.drop_folder(job.folder)
        return trail.trapping if traps else trail.last

    async def lower_part(
        self,
        bench: Workbench,
        launch: CapturedLaunch,
        record: LaunchFacts,
        *,
        ptxas: Assembler,
        llvm: int | None = None,
        without: Collection[int] = (),
        until: Stage | None = None,
    ) -> PartLowering | None:
        message = {"op": "lower", **self.asked(ptxas), "until": until and until.value}
        if llvm is None:
            message["without"] = sorted(without)
        else:
            # No function has such a name: what is printed between the lines that count is not read.
            message["llvm"] = [f"-opt-bisect-limit={llvm}", "-filter-print-funcs=-"]
        job = await self.on_record(bench, launch, record, message)
        try:
            passes = (job.result or {}).get("passes", [])
            if llvm is not None:
                with scratch_disk(), (job.folder / "stderr").open(errors="replace") as lines:
                    passes = [match[1] for line in lines if (match := _BISECT.match(line))]
            # Of one that dies nothing is known but that.
            if not passes and (llvm is not None or job.result):
                return None
            lowering, artifacts = await self.finished(bench, launch, job, alone=False)
        finally:
            bench.hub.drop_folder(job.folder)
        kept = Kept(value=lowering, artifacts=artifacts)
        return PartLowering(lowering=kept, passes=tuple(passes))

    def built_with(self, compiler: Compiler) -> str | None:
        return llvm_of(compiler)

    def judge(self, lowering: Lowering) -> Verdict:
        verdict = judge_lowering(lowering)
        is_failure = verdict.kind is VerdictKind.PASS_FAILURE and verdict.stage is _GLUON
        if lowering.error is None or not is_failure:
            return verdict
        # Gluon source that is not accepted: no pass has run in the stage that reads it.
        error, log = lowering.error, lowering.log
        if match := _OTHER_RELEASE.search(error.message):
            line = line_of(error.message, match.start())
            reason = f"this Triton cannot do it: its Gluon has another interface: {line}"
            return failed(VerdictKind.UNSUPPORTED, _GLUON, reason)
        if is_refusal(error) or is_parser_error(error, log):
            line = ("" if is_refusal(error) else first_error(log)) or essence(error)
            reason = f"Gluon rejects the kernel: {line}"
            return failed(VerdictKind.REJECTED, _GLUON, reason, message=line)
        return verdict

    def install_line(self, version: str) -> str:
        installed = find_installed(TRITON, Version(version))
        if installed is None or installed.distribution == TRITON:
            return f"pip install triton=={version}"
        return f"pip install {installed.distribution}=={Version(version).public}"

    def config_line(self, kernel: str, config: Config, *, autotuned: bool) -> str:
        if autotuned:
            return config_source(config, "triton.Config")
        values = ", ".join(f"{name}={value!r}" for name, value in config.items)
        return f"kernel[grid](..., {values})"


def _torch_settings() -> dict[str, str]:
    prefixes = ("TORCH", "PYTORCH_")
    return {name: value for name, value in sorted(os.environ.items()) if name.startswith(prefixes)}


@functools.cache
def _listed(path: Path | None) -> frozenset[str]:
    """What its own `knobs.py` names; nothing before Triton 3.4, which has none."""
    package = path / "triton" if path else installed_package()
    try:
        return listed_knobs((package / "knobs.py").read_text()) if package else frozenset()
    except (OSError, UnicodeDecodeError):
        return frozenset()


@functools.cache
def _libraries() -> dict[str, str]:
    """The libraries beside Triton that decide what launch code does."""
    try:
        return {name: version_beside(name) for name in ("torch", "numpy")}
    except ModuleNotFoundError as error:
        raise InfrastructureError(
            f"{error.name} is not installed beside triage, and launch code needs it: "
            f"pip install {error.name} (a CPU build is enough)"
        ) from error


@functools.cache
def _path_files() -> dict[str, str]:
    """The files that add folders to Python's module path (editable installs), by content."""
    folders = [Path(entry) for entry in sys.path if entry.endswith("-packages")]
    patterns = ("*.pth", "__editable__*.py")
    paths = (path for folder in folders for pattern in patterns for path in folder.glob(pattern))
    return {
        str(path): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(paths)
        if path.is_file()
    }


@functools.lru_cache(maxsize=16)
def llvm_of(triton: Compiler) -> str | None:
    """The commit of the LLVM that a Triton was built with, where its library names it."""
    package = package_of(triton)
    for library in sorted(package.glob("_C/libtriton*.so")) if package else []:
        with (
            library.open("rb") as file,
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data,
        ):
            if match := _LLVM.search(data):
                return (match[1] or match[2]).decode()
    return None


TRITON_FRONT_END = _TritonFrontEnd()
