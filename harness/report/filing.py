"""From a dossier to an issue and a bundle, and the gate before both are filed."""

from __future__ import annotations

import asyncio
import contextlib
import getpass
import hashlib
import os
import platform
import re
import shlex
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
from msgspec import structs

import harness
from gpu_emulator.ptx.text.facts import PtxError, without_debug
from harness.frontends.one_file import StandaloneError
from harness.frontends.registry import front_end
from harness.frontends.texts.ir_inputs import IR_SUFFIXES
from harness.frontends.texts.python import as_the_user_sees_it
from harness.io.files.locations import cache_dir, home_dir, offline
from harness.io.files.own_code import import_path
from harness.io.files.writing import scratch_disk
from harness.io.packages.archives import pack_bundle, unpack_bundle
from harness.io.processes.hub import ResourceLimits, ToolResult, run_tool
from harness.minimize.levels import source_format
from harness.minimize.ptx.reduce import count_instructions, count_unwritten
from harness.minimize.ttgir import IR_FORMAT
from harness.report.claims import (
    AttachedPlace,
    Claim,
    ClaimKind,
    ClaimsProof,
    ClaimsTrial,
    Issue,
    prove,
)
from harness.report.dossier import Attachment, Dossier, Upstream
from harness.report.gate import Defect, Private, inspect_report, without_folders
from harness.report.gather import Case, required_fields
from harness.report.issue import render_report
from harness.report.paragraphs import NEAR, PROGRAM
from harness.report.rejudged import row_of_evidence
from harness.store.store import Store
from harness.values.row import Row
from harness.values.toolchain import EMULATOR
from harness.values.verdict import VerdictKind

# Words that are not secret though they are values of the environment.
_COMMON = frozenset({"root", "user", "runner", "linux", "en_US.UTF-8", "C.UTF-8", "localhost"})
_SECRETS = ("TOKEN", "SECRET", "PASSWORD", "PASSWD", "KEY", "CREDENTIAL", "PROXY", "INDEX_URL")
_SHORTEST = 4
_TRIAL_SECONDS = 900.0
BUNDLE = "bundle.tar.gz"
# What the run needs to reach the package index that this machine uses, and nothing else of it.
_PASSED_ON = (
    *("UV_", "PIP_", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"),
    *("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"),
)


def attach(dossier: Dossier, store: Store, scripts: Mapping[str, str], original: bytes) -> Dossier:
    """The dossier with the files of its bundle.

    `scripts` are those that go with the reduction, `original` are the bytes of a PTX file that was
    reported as it is, empty for a kernel's source.
    """
    files: dict[str, tuple[bytes, str]] = {}
    reduction = dossier.minimized
    if reduction:
        is_given = bool(dossier.notes and dossier.notes.as_given)
        smallest = "the kernel" if is_given else "the smallest input that shows it"
        files[f"min{reduction.suffix}"] = (reduction.left.text.encode(), smallest)
        for name, data in reduction.left.files.items():
            words = _RUN_FILES.get(name, "what the launch is given")
            is_shown = name == reduction.shown_file
            files[name] = (data, "the same with a launch: what is executed" if is_shown else words)
    if dossier.near:
        files[NEAR] = (dossier.near.encode(), "the same without `warp_specialize`: it compiles")
    if original and not (dossier.is_ptx and reduction):
        files["original.ptx"] = (original, "the input as it was given, byte for byte")
    elif dossier.is_in_cubin and not dossier.is_ptx and (sha256 := _followed_ptx(dossier)):
        text = store.artifacts.get(sha256).decode(errors="replace")
        words = f"the PTX that {dossier.case.compiler_name} generates, without debug information"
        files["original.ptx"] = (without_debug(text).encode() + b"\n", words)
    # Of a file of PTX, `original.ptx` is there already.
    is_other = reduction is not None and reduction.subject.text != reduction.left.text
    if reduction and is_other and reduction.suffix != ".ptx":
        words = f"what min{reduction.suffix} was reduced from"
        files[f"original{reduction.suffix}"] = (reduction.subject.text.encode(), words)
    again = _EXECUTES if dossier.executed else ""
    if dossier.of_cubins:
        again = _LAUNCHES if dossier.device else _EMULATES
    for script, words in _SCRIPTS.items():
        if script in scripts:
            files[script] = (scripts[script].encode(), again or words)
    return _with(dossier, files)


def _followed_ptx(dossier: Dossier) -> str | None:
    """The PTX that the history gave to every ptxas; else that of the case.

    For another ptxas, Triton writes another `.version`, which older ones refuse.
    """
    history = dossier.along_ptxas
    row = history.rows.get(dossier.case.ptxas or "") if history else None
    return row.ptx_sha256 if row else dossier.case.ptx_sha256


def _with(dossier: Dossier, files: Mapping[str, tuple[bytes, str]]) -> Dossier:
    attachments = (
        Attachment(name=name, data=data, sha256=hashlib.sha256(data).hexdigest(), what=words)
        for name, (data, words) in files.items()
    )
    return replace(dossier, attachments=(*dossier.attachments, *attachments))


_RUN_FILES = {PROGRAM: "all of it as one program: Python, ptxas and a driver"}
_SCRIPTS = {
    "repro.sh": "installs the compiler into a temporary folder and shows it",
    "test.sh": "says whether a file still shows it (creduce, cvise)",
}


_EXECUTES = "executes kernel.py without a GPU, and checks that it goes wrong in this way"
_EMULATES = "emulates the SASS of the cubins of min.ptx, and checks what they compute"
_LAUNCHES = "launches the cubins of min.ptx with kernel-triage, and checks what they compute"


def inspect_dossier(dossier: Dossier, issue: str, required: tuple[str, ...]) -> list[Defect]:
    """What the text, the files and the pieces say: is it ready to be filed?"""
    files = {file.name: file.data for file in dossier.attachments}
    defects = inspect_report(issue, files, required=required, private=_private())
    reduction = dossier.minimized
    # The errors of PTX that a compiler wrote are that compiler's, as long as none is added.
    is_restricted = dossier.is_compilers and reduction and reduction.fingerprint.errors
    if reduction and reduction.is_unheld and not is_restricted:
        words = (
            "no version accepts what it was reduced from, and no other target that was tried does: "
            "it may be wrong in itself"
        )
        defects.append(Defect(kind="reduction", file=f"min{reduction.suffix}", words=words))
    for piece in dossier.missing:
        words = f"not in the report: {piece.what} ({piece.why}); to add it: {piece.command}"
        defects.append(Defect(kind="missing", file="issue.md", words=words))
    return defects


def _private() -> Private:
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = ""
    ours = Path(harness.__file__).parent.parent
    places = (Path.home(), Path.cwd(), cache_dir(), home_dir(), ours)
    words = {
        "user name": [user],
        "host name": [platform.node()],
        "path of this machine": [str(path) for path in places if path != Path("/")],
        "value of the environment": [
            value
            for name, value in os.environ.items()
            if any(word in name.upper() for word in _SECRETS)
        ],
    }
    for kind, values in words.items():
        words[kind] = [x for x in values if len(x) >= _SHORTEST and x not in _COMMON]
    return Private(words=words)


def run_script(
    folder: Path, limits: ResourceLimits, *, has_triage: bool = False, runner: str | None = None
) -> ToolResult:
    """Run the bundle's one command where it was unpacked, with a fresh toolchain.

    It runs a stranger's kernel: within `limits`, and nothing of it stays behind. It has the
    network, since it installs that toolchain. With `has_triage` it finds this very program on its
    `PATH`, and no result of it; `runner` reaches a GPU. Where the network is forbidden, it takes
    the toolchains that are installed.
    """
    place = str(folder.parent)
    path = [_own_command(folder.parent / "bin")] if has_triage else []
    passed = {
        name: value for name, value in os.environ.items() if name.upper().startswith(_PASSED_ON)
    }
    environment = {
        "PATH": os.pathsep.join([*path, os.environ.get("PATH", "")]),
        "HOME": place,
        "TMPDIR": place,
        # What pip says of itself is not part of what the command shows.
        "PIP_ROOT_USER_ACTION": "ignore",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        **passed,
        **({"RUNNER": runner} if runner else {}),
    }
    if offline():
        environment |= {"TRIAGE_OFFLINE": "1", "TRIAGE_CACHE_DIR": str(cache_dir())}
    return run_tool(
        ["sh", folder / "repro.sh"], timeout=_TRIAL_SECONDS, env=environment, limits=limits
    )


def _own_command(folder: Path) -> str:
    """A folder with a `triage` that is the program that runs now."""
    command = folder / "triage"
    words = shlex.join(["env", f"PYTHONPATH={import_path()}", sys.executable, "-m", "harness"])
    with scratch_disk():
        folder.mkdir()
        command.write_text(f'#!/bin/sh\nexec {words} "$@"\n')
        command.chmod(0o755)
    return str(folder)


def script_defects(result: ToolResult) -> list[Defect]:
    """What is wrong with what the bundle's command did: 0 says that it shows the failure."""
    if result.end.ok:
        return []
    line = (result.stderr or result.stdout).strip().splitlines()[-1:] or [result.end.words]
    words = f"sh repro.sh does not show it: {result.end.words}: {line[0][:200]}"
    return [Defect(kind="trial", file="repro.sh", words=words)]


_SECONDS = 600.0
_LARGEST_FILE = 4 << 30
# It differs from run to run, and equal reports have equal bytes.
_TIMES = re.compile(r"^[^\n]*Compile time = [\d.]+ ms\n", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Filed:
    """What was written, and what is wrong with it."""

    dossier: Dossier
    issue: Issue
    proof: ClaimsProof
    defects: tuple[Defect, ...]


async def file_report(dossier: Dossier, upstream: Upstream, case: Case, out: Path) -> Filed:
    """Write the bundle to `out`, run its command, and hold the issue to what the files do.

    What was executed is executed again, as `case` says.

    Raises:
        StorageError: the bundle cannot be written.
    """
    defects: list[Defect] = []
    fields = () if dossier.same_as else required_fields(upstream, dossier.case.compiler)
    required = tuple(fields)
    with tempfile.TemporaryDirectory(prefix="triage-report-") as place:
        if any(file.name == "repro.sh" for file in dossier.attachments):
            case.tell("running the bundle's command in a clean folder")
            inside = _unpacked(dossier, out, Path(place) / "command")
            has_triage = dossier.executed is not None
            result = await asyncio.to_thread(
                run_script,
                inside,
                structs.replace(case.how.limits, file_size=_LARGEST_FILE),
                has_triage=has_triage,
                runner=case.runner,
            )
            defects += script_defects(result)
            if not defects:
                text = as_the_user_sees_it(result.stdout.partition("\nit shows: ")[0] + "\n")
                dossier = replace(dossier, log=_TIMES.sub("", text))
        if dossier.log:
            log = (without_folders(dossier.log).encode(), "what is printed")
            dossier = _with(dossier, {"log.txt": log})
        if dossier.reproducer:
            words = "the module before the passes, and the passes: triton-opt --run-reproducer FILE"
            module = without_folders(dossier.reproducer).encode()
            dossier = _with(dossier, {"reproducer.mlir": (module, words)})
        issue = render_report(dossier, upstream)
        inside = _unpacked(dossier, out, Path(place) / "files")
        proof = prove(issue.claims, await _trial(dossier, case, issue, inside), issue.text)
    defects += inspect_dossier(dossier, issue.text, required)
    defects += [Defect(kind="claim", file="issue.md", words=words) for words in proof.false]
    defects += [Defect(kind="unchecked", file="issue.md", words=each) for each in proof.unproved]
    return Filed(dossier=dossier, issue=issue, proof=proof, defects=tuple(defects))


def _unpacked(dossier: Dossier, out: Path, place: Path) -> Path:
    files, bundle = {file.name: file.data for file in dossier.attachments}, out / BUNDLE
    folder = out.name or "report"
    pack_bundle(bundle, files, folder=folder)
    unpack_bundle(bundle, place)
    return place / folder


async def _trial(dossier: Dossier, case: Case, issue: Issue, inside: Path) -> ClaimsTrial:
    from harness.report.attached import AttachedTrial  # noqa: PLC0415 - the emulator: 0.2 s

    # Nothing is unpacked where nothing is attached.
    attached = inside.iterdir() if dossier.attachments else ()
    files = {path.name: path.read_bytes() for path in attached}
    cells = {claim.cell for claim in issue.claims if claim.cell}
    stored = {cell: row_of_evidence(case.store, cell) for cell in cells}
    places = _in_order(dossier, issue.claims)
    if places:
        does = "executing" if dossier.executed else "compiling"
        does = "launching" if dossier.of_cubins else does
        case.tell(f"{does} the attached files in {len(places)} ways")
    with Store.open(inside.parent / "results") as store:
        trial = AttachedTrial(
            folder=inside,
            dossier=dossier,
            asked=replace(
                case,
                store=store,
                how=structs.replace(case.how, use_cache=False),
                tell=lambda _: None,
            ),
            seconds=_SECONDS,
        )
        for cell, judged in stored.items():
            if judged is None:
                trial.untried[cell] = _why_not_judged(case.store, cell)
        if dossier.of_cubins:
            await trial.launch(places)
        elif dossier.executed:
            await trial.execute(places)
            named = [row for row in dossier.executed_rows if row.cell in cells]
            case.tell(f"executing {len(named)} cells again")
            await trial.execute_cells(named)
        else:
            await trial.compile(places)
    rows: dict[AttachedPlace, Row] = {}
    for subject, row in trial.rows.items():
        if isinstance(subject, AttachedPlace):
            rows[subject] = row
        else:
            stored[subject] = row
    return ClaimsTrial(
        files=files,
        rows=rows,
        outcomes={place: dossier.outcome(row) for place, row in rows.items()},
        stored={cell: row for cell, row in stored.items() if row},
        runs=trial.runs,
        counts=_counts(files, case.selection.repro.front_end),
        untried=trial.untried,
    )


def _why_not_judged(store: Store, cell: str) -> str:
    """Why a stored result cannot be judged again from its evidence."""
    record = next(
        (candidate for candidate in store.find_cells(cell) if candidate.cell == cell), None
    )
    if record is None:
        return "no result of this cell is stored"
    row = msgspec.json.decode(record.row, type=Row)
    if row.flaky:
        return "its runs disagreed, and each would be judged by itself"
    if row.verdict is VerdictKind.INFRA:
        return f"this machine failed: {row.reason}"
    if row.ptxas == EMULATOR:
        return "it was not executed again"
    return "the evidence that it was judged from is not kept"


def _in_order(dossier: Dossier, claims: Sequence[Claim]) -> list[AttachedPlace]:
    """The places of all claims; the failing version and the sides of its boundaries first."""
    report = dossier.history
    first = [dossier.version]
    if report:
        for boundary in (report.finding.regression, report.finding.fix):
            if boundary:
                first += [report.version(boundary.before), report.version(boundary.after)]
    places = dict.fromkeys(claim.place for claim in claims if claim.place)
    return sorted(places, key=lambda place: (place.version not in first, bool(place.flag)))


def _counts(files: Mapping[str, bytes], kind: str) -> dict[ClaimKind, dict[str, int]]:
    """What is counted in attached files, by file; not of those that cannot be read."""
    counters: list[tuple[ClaimKind, str, Callable[[str], int]]] = [
        (ClaimKind.INSTRUCTIONS, ".ptx", count_instructions),
        (ClaimKind.UNWRITTEN, ".ptx", count_unwritten),
        *(
            (ClaimKind.LINES, each, lambda text: IR_FORMAT.size_of(text).lines)
            for each in IR_SUFFIXES
        ),
    ]
    if front_end(kind).source_form:
        suffix, text_format = source_format(kind)
        counters.append((ClaimKind.LINES, suffix, lambda text: text_format.size_of(text).lines))
    counts: dict[ClaimKind, dict[str, int]] = {kind: {} for kind, _, _ in counters}
    for claimed, suffix, count in counters:
        for name, data in files.items():
            if name.endswith(suffix):
                with contextlib.suppress(PtxError, StandaloneError):
                    counts[claimed][name] = count(data.decode(errors="replace"))
    return counts
