"""What a report states of its case without more work: where it comes from, log, versions, times."""

from __future__ import annotations

import platform
import shlex
from importlib import metadata
from pathlib import Path

import msgspec

import harness
from harness.bisect.collapse.times import MeasuredTimes, timed_change, times_file
from harness.frontends.base import Selection
from harness.frontends.registry import back_end, front_end
from harness.frontends.texts.tracebacks import as_the_user_sees_it
from harness.io.packages.metadata import package_license
from harness.io.processes.hub import run_tool
from harness.io.toolchains.install import install_ptxas
from harness.report.dossier import SourceOrigin
from harness.store.sqlite.records import ResultRecord
from harness.store.store import Store
from harness.tables.templates import config_label
from harness.values.errors import OfflineError, UsageError
from harness.values.kernel import Repro
from harness.values.outcome import Assembly, Lowering
from harness.values.row import Row
from harness.values.target import Target
from harness.values.toolchain import EMULATOR, PTX, PTXAS, TRITON, assembler_name, compiler_name
from harness.workaround.measured import judge_timed
from harness.workaround.packed import find_packed
from harness.workaround.settings import SettingKind


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
    given = compiler_name(case.compiler) if case.compiler else "PTX"
    tool = assembler_name(case.assembler)
    own = {f"{tool} version": f"{case.ptxas} ({case.ptxas_origin})"}
    own |= {f"{tool} flags": shlex.join(case.ptxas_flags)} if case.ptxas_flags else {}
    return {
        f"{title} version": case.compiler_version or f"none: the input is {given}",
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


def times_of_results(path: Path, selection: Selection, store: Store) -> bytes:
    """The times of today's config, and with each option of ptxas alone: cubins of one PTX.

    Raises:
        UsageError: these are not results of `triage workaround --pack` for the selected kernel, or
            they have no time of it.
    """
    packed, timed = find_packed([path], store)
    if packed.asked[0] != selection.repro.name:
        mine = selection.repro.name
        raise UsageError(f"{path}: measured of {packed.asked[0]}; the report is of {mine}")
    today, kept, _ = judge_timed(packed.report.baseline, packed.report.candidates, timed)
    before = timed.get(today.cubin_sha256 or "")
    if before is None or not before.samples:
        raise UsageError(f"{path}: no time of today's config")
    changes = [timed_change("", today, before.samples, before.digest)]
    for each in kept:
        after = timed.get(each.row.cubin_sha256 or "")
        is_option = {step.kind for step in each.steps} == {SettingKind.FLAGS}
        is_same_ptx = each.row.ptx_body_sha256 == today.ptx_body_sha256
        if after and after.samples and is_option and is_same_ptx:
            words = " ".join(str(step.after) for step in each.steps)
            changes.append(timed_change(words, each.row, after.samples, after.digest))
    found = MeasuredTimes(
        device=before.device,
        driver=before.driver,
        day=before.day,
        kernel=today.kernel,
        launch=today.launch,
        config=config_label(today),
        target=today.target,
        compiler=today.compiler_name,
        tool=today.tool,
        changes=tuple(changes),
    )
    return times_file(found)
