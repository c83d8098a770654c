"""What a report states of its case without more work: compilers, origin, log, environment."""

from __future__ import annotations

import platform
import shlex
from importlib import metadata

import msgspec

import harness
from harness.frontends.base import Selection
from harness.frontends.registry import back_end, front_end
from harness.frontends.triton.tracebacks import as_the_user_sees_it
from harness.packages.metadata import package_license
from harness.processes.hub import run_tool
from harness.report.dossier import SourceOrigin
from harness.store.store import ResultRecord, Store
from harness.toolchains.install import install_ptxas
from harness.values.errors import OfflineError, UsageError
from harness.values.kernel import Repro
from harness.values.outcome import Assembly, Lowering
from harness.values.row import Row
from harness.values.target import Target
from harness.values.toolchain import EMULATOR, PTX, PTXAS, TRITON, assembler_name, compiler_name

__all__ = ["environment_of", "log_of", "origin_of", "ptxas_facts", "version_on_axis"]


def ptxas_facts(selection: Selection, case: Row) -> tuple[str, str | None]:
    """What the failing ptxas says of its version, and the distribution that carries it.

    Of the one that a compiler bundles, its twin of the package index says so, where there is one.
    """
    if not case.ptxas_flags or case.assembler != PTXAS or case.ptxas in (None, EMULATOR):
        return "", None  # it never ran
    tools = (each for each in selection.ptxas if each and each.version == case.ptxas)
    try:
        tool = next(tools, None) or install_ptxas(case.ptxas)
    except (UsageError, OfflineError):
        return "", None
    return run_tool([tool.path, "--version"], timeout=30).stdout, tool.origin


def origin_of(repro: Repro) -> SourceOrigin | None:
    """The pinned file that holds the kernel; None where it is the user's own."""
    source = repro.source
    if source is None:
        return None
    pin = source.pin
    return SourceOrigin(
        package=pin.package,
        version=pin.version,
        sha256=pin.sha256,
        module=source.module,
        license=package_license(pin.package, pin.version, pin.sha256),
    )


def log_of(store: Store, record: ResultRecord) -> str:
    """What the compiler that failed printed: ptxas where it was run, else Triton."""
    if record.evidence.get("run"):
        return ""  # what Triton warns of says nothing of what its PTX computes
    kept = store.get_evidence("assemble", record.evidence.get("assemble", ""))
    if kept:
        assembly = msgspec.json.decode(kept.body, type=Assembly)
        return f"{assembly.stderr}{assembly.stdout}"
    kept = store.get_evidence("lower", record.evidence.get("lower", ""))
    if kept is None:
        return ""
    lowering = msgspec.json.decode(kept.body, type=Lowering)
    if lowering.error is None:
        return lowering.log
    return as_the_user_sees_it(lowering.error.traceback) or lowering.error.message


_NO_GPU = {False: "none; it is compiled only", True: "none; its PTX is executed on an emulator"}


def environment_of(case: Row, device: str | None = None) -> dict[str, str]:
    """In the manner of collect_env, with the ptxas if it ran; `device` is the GPU, if one did."""
    title = compiler_name(case.compiler or TRITON)
    tool = assembler_name(case.assembler)
    own = {f"{tool} version": f"{case.ptxas} ({case.ptxas_origin})"}
    own |= {f"{tool} flags": shlex.join(case.ptxas_flags)} if case.ptxas_flags else {}
    return {
        f"{title} version": case.compiler_version or "none: the input is PTX",
        **(own if case.ptxas_flags or case.program_sha256 else {}),
        "target": case.target,
        "PyTorch version": metadata.version("torch"),
        "Python version": platform.python_version(),
        "OS": f"{platform.system()} {platform.machine()}, {platform.libc_ver()[0]} "
        f"{platform.libc_ver()[1]}",
        "GPU": device or _NO_GPU[case.ptxas == EMULATOR],
        "kernel-triage version": harness.__version__,
    }


def version_on_axis(case: Row, axis: str) -> str | None:
    """The case's own version, where the axis has it: no graver failure of another one is meant."""
    if axis != case.assembler:
        mine, known = case.compiler_version, [str(each) for each in front_end(axis).available()]
    else:
        back = back_end(case.compiler or PTX, Target.parse(case.target))
        mine, known = case.ptxas, [str(version) for version in back.available()]
    return mine if mine in known else None
