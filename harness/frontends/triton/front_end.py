"""Triton behind the door: see `harness.frontends.base`.

Launch code runs as it is in a child, which imports torch and a Triton; a fork of it compiles each
launch as far as PTX. A Triton lies on the module path of triage's own Python: see docs/design.md.
"""

from __future__ import annotations

import functools
import hashlib
import mmap
import os
import platform
import re
import site
import sys
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

import harness
from harness.frontends.back_end import BUNDLED_BACK_END
from harness.frontends.bench.bench import content_key, has_died
from harness.frontends.captured_front_end import OF_CHILDREN, CapturedFrontEnd, keep_streams
from harness.frontends.readings import read_stored
from harness.frontends.sessions import CapturedLaunch, ChildProgram, interpreter_of
from harness.frontends.texts.ir_inputs import IR_SUFFIXES, repro_of
from harness.frontends.texts.python import OPTIONS, config_source
from harness.frontends.triton.interpreter import TritonInterpreter
from harness.frontends.triton.knobs import NO_KNOBS, is_knob, listed_knobs
from harness.frontends.triton.source import (
    TritonForm,
    evidence_of,
    follow_passes,
    promises,
    stage_file,
)
from harness.frontends.triton.wordings import judge_dialects
from harness.io.files.whole_folders import scratch_disk
from harness.io.packages.versions import OLDEST_TRITON
from harness.io.processes.confinement import is_confined
from harness.io.processes.machine import plain_environment
from harness.io.toolchains.bundled import (
    bundled_nvdisasm,
    installed_package,
    installed_triton,
    package_of,
)
from harness.io.toolchains.install import (
    available_triton,
    install_triton,
    planned_triton,
    select_triton,
)
from harness.io.toolchains.installed import installed_versions
from harness.values.errors import InfrastructureError
from harness.values.toolchain import TRITON

if TYPE_CHECKING:
    from collections.abc import Mapping

    from packaging.version import Version

    from harness.frontends.back_end import BackEnd
    from harness.frontends.bench.bench import Kept, Workbench
    from harness.frontends.readings import PtxReading
    from harness.frontends.sessions import JobResult
    from harness.values.kernel import Config, Repro
    from harness.values.outcome import Capture, LaunchFacts, Lowering, ProcessEnd
    from harness.values.target import Target
    from harness.values.toolchain import Assembler, Compiler, Tool
    from harness.values.verdict import Verdict

_KEPT = ("source", "ttir", "glir", "ttgir", "llir", "ptx")
_SECRET = re.compile(r"TOKEN|SECRET|PASSW|CREDENTIAL|AUTH|API_?KEY|ACCESS_?KEY|PRIVATE_?KEY")
# The debug paths in Triton's library name the LLVM that it was built with, by commit.
_LLVM = re.compile(rb"llvm-project[ /]([0-9a-f]{8})[0-9a-f]{0,32}|llvm-([0-9a-f]{8})-[a-z]")


class TritonFrontEnd(CapturedFrontEnd):
    """All that the program knows of Triton, and of Gluon, its dialect."""

    kind = TRITON
    title = "Triton"
    back_ends: tuple[BackEnd, ...] = (BUNDLED_BACK_END,)
    suffixes: tuple[str, ...] = IR_SUFFIXES
    stages: tuple[str, ...] = ("ttir", "glir", "ttgir", "llir", "ptx")
    options: tuple[str, ...] = OPTIONS
    levels: tuple[str, ...] = ("source", "ttir", "ttgir", "config")
    patches = True
    module = "harness.frontends.triton.child"
    code = ("frontends/pretend", "frontends/triton/child")
    never = NO_KNOBS

    def __init__(self) -> None:
        self.source_form = TritonForm(self)
        self.interpreter = TritonInterpreter(self)

    def read_file(self, path: Path, kernel: str | None) -> Repro:
        return repro_of(path, kernel)

    def available(self, *, prereleases: bool = False) -> list[Version]:
        found = available_triton(prereleases=prereleases)
        return [version for version in found if version >= OLDEST_TRITON]

    def select(self, spec: str, *, prereleases: bool = False) -> list[Version]:
        return select_triton(spec, prereleases=prereleases)

    def installed(self) -> list[Compiler]:
        found = [install_triton(version) for version in installed_versions(TRITON)]
        try:
            beside = installed_triton()
        except InfrastructureError:
            return found
        is_known = any(each.version == beside.version for each in found)
        return found if is_known else [*found, beside]

    def install(self, version: Version | str) -> Compiler:
        return install_triton(version)

    def planned(self, version: Version | str) -> Compiler:
        return planned_triton(version)

    def default(self) -> Compiler:
        return installed_triton()

    def is_there(self, compiler: Compiler) -> bool:
        return True

    def own_disassembler(self, compiler: Compiler) -> Tool | None:
        return bundled_nvdisasm(compiler)

    def program(self, compiler: Compiler) -> ChildProgram:
        keep = () if sys.dont_write_bytecode else ("-X", "keep-bytecode")
        argv = (interpreter_of(compiler), *keep, "-m", self.module)
        return ChildProgram(argv=argv, env=self.child_environment(compiler))

    def child_environment(self, compiler: Compiler) -> dict[str, str]:
        return child_environment(compiler, self.user_settings(compiler))

    def user_settings(self, compiler: Compiler) -> dict[str, str]:
        listed = _listed(compiler.path)
        return {name: each for name, each in sorted(os.environ.items()) if is_knob(name, listed)}

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

    async def finished(
        self, bench: Workbench, launch: CapturedLaunch, done: JobResult, *, alone: bool
    ) -> tuple[Lowering, dict[str, str]]:
        store = bench.store.artifacts
        files = ((stage, stage_file(done, stage)) for stage in _KEPT)
        artifacts = {stage: store.put_file(file) for stage, file in files if file}
        # Until Triton 3.8 what Gluon's source becomes is kept under that name alone.
        if (done.result or {}).get("first_stage") == "glir" and "source" in artifacts:
            artifacts.setdefault("glir", artifacts["source"])
        artifacts["log"] = keep_streams(bench, done)
        return evidence_of(done), artifacts

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
        asked = {"op": "lower", **self.asked(ptxas), "dump": True}
        again = await self.on_record(bench, launch, record, asked)
        with scratch_disk(), (again.folder / "stderr").open(errors="replace") as lines:
            trail = follow_passes(lines)
        bench.hub.drop_folder(again.folder)
        return trail.trapping if traps else trail.last

    def built_with(self, compiler: Compiler) -> str | None:
        return llvm_of(compiler)

    def judge(self, lowering: Lowering) -> Verdict:
        return judge_dialects(lowering)

    def install_line(self, version: str) -> str:
        return f"pip install triton=={version}"

    def config_line(self, kernel: str, config: Config, *, autotuned: bool) -> str:
        if autotuned:
            return config_source(config, "triton.Config")
        values = ", ".join(f"{name}={value!r}" for name, value in config.items)
        return f"kernel[grid](..., {values})"


def child_environment(triton: Compiler, knobs: Mapping[str, str]) -> dict[str, str]:
    """The environment of a process that runs a Triton; the user's settings of it stay."""
    package_root = str(Path(harness.__file__).parent.parent)
    user = _confined(knobs) if is_confined() else os.environ
    return {
        **{
            name: value
            for name, value in user.items()
            if name not in NO_KNOBS and not name.startswith("PYTHON")
        },
        "PYTHONPATH": os.pathsep.join([*([str(triton.path)] if triton.path else []), package_root]),
        # Packages in the user's own site folder are found below another home, too.
        **({"PYTHONUSERBASE": site.getuserbase()} if site.ENABLE_USER_SITE else {}),
        "PYTHONDONTWRITEBYTECODE": "1",
        **OF_CHILDREN,
        **dict(triton.variables),
    }


def _confined(knobs: Mapping[str, str]) -> Mapping[str, str]:
    settings = {**knobs, **_torch_settings()}
    harmless = {name: value for name, value in settings.items() if not _SECRET.search(name)}
    return {**harmless, **plain_environment()}


def _torch_settings() -> dict[str, str]:
    """The user's settings of torch, which reads some of them when it is imported."""
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
    return {name: metadata.version(name) for name in ("torch", "numpy")}


@functools.cache
def _path_files() -> dict[str, str]:
    """The files that add folders to Python's module path (editable installs), by content."""
    packages = [Path(entry) for entry in sys.path if entry.endswith("-packages")]
    patterns = ("*.pth", "__editable__*.py")
    found = (path for each in packages for pattern in patterns for path in each.glob(pattern))
    return {
        str(path): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(found)
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
            found = _LLVM.search(data)
            if found:
                return (found[1] or found[2]).decode()
    return None


TRITON_FRONT_END = TritonFrontEnd()
