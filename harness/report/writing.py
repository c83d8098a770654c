"""The files of a report, what its text must not give away, and the trial of its one command."""

from __future__ import annotations

import getpass
import hashlib
import os
import platform
import shlex
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import harness
from gpu_emulator.ptx.text.facts import without_debug
from harness.bisect.collapse.facts import TIMES_FILE
from harness.io.files.locations import cache_dir, home_dir, offline
from harness.io.files.own_code import import_path
from harness.io.processes.hub import ResourceLimits, ToolResult, run_tool
from harness.report.dossier import Attachment, Dossier
from harness.report.gate import Defect, Private, inspect_report, without_folders
from harness.report.paragraphs import PROGRAM
from harness.report.picture import PICTURE
from harness.store.store import Store

# Words that are not secret though they are values of the environment.
_COMMON = frozenset({"root", "user", "runner", "linux", "en_US.UTF-8", "C.UTF-8", "localhost"})
_SECRETS = ("TOKEN", "SECRET", "PASSWORD", "PASSWD", "KEY", "CREDENTIAL", "PROXY", "INDEX_URL")
_SHORTEST = 4
_TRIAL_SECONDS = 900.0
# What the run needs to reach the package index that this machine uses, and nothing else of it.
_PASSED_ON = (
    *("UV_", "PIP_", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"),
    *("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"),
)


def attach(
    dossier: Dossier,
    store: Store,
    scripts: Mapping[str, str],
    given: bytes,
    picture: bytes | None = None,
) -> Dossier:
    """The dossier with the files of its bundle.

    `scripts` are those that go with the reduction, `given` are the bytes of a PTX file that was
    reported as it is, empty for a kernel's source; `picture` is that of its history.
    """
    files: dict[str, tuple[bytes, str]] = {}
    found = dossier.minimized
    if found:
        files[f"min{found.suffix}"] = (found.text.encode(), "the smallest input that shows it")
        what = "what the launch is given" if found.run_files else ""
        files |= {name: (data, what) for name, data in found.run_files.items()}
        if program := found.run_files.get(PROGRAM):
            files[PROGRAM] = (program, "all of it as one program: Python, ptxas and a driver")
        if found.shown_file in found.run_files:
            data = found.run_files[found.shown_file]
            files[found.shown_file] = (data, "the same with a launch: what is executed")
    if given:
        files["original.ptx"] = (given, "the input as it was given, byte for byte")
    elif (dossier.on_gpu or dossier.is_in_cubin) and (sha256 := _followed_ptx(dossier)):
        text = store.artifacts.get(sha256).decode(errors="replace")
        what = f"the PTX that {dossier.case.compiler_name} generates, without debug information"
        files["original.ptx"] = (without_debug(text).encode() + b"\n", what)
    if found and found.suffix != ".ptx":
        what = f"what min{found.suffix} was reduced from"
        files[f"original{found.suffix}"] = (found.original_text.encode(), what)
    for script in ("repro.sh", "test.sh"):
        if script in scripts:
            what = _EXECUTES if dossier.executed else _SCRIPTS[script]
            what = _LAUNCHES if dossier.on_gpu else what
            files[script] = (scripts[script].encode(), what)
    if dossier.times:
        files[TIMES_FILE] = (dossier.times, "every sample that was measured on a GPU")
    if picture:
        files[PICTURE] = (picture, "the numbers of the history as a picture")
    return _with(dossier, files)


def _followed_ptx(dossier: Dossier) -> str | None:
    """The PTX that the history gave to every ptxas; else that of the case.

    For another ptxas, Triton writes another `.version`, which older ones refuse.
    """
    history = dossier.along_ptxas
    row = history.rows.get(dossier.case.ptxas or "") if history else None
    return row.ptx_sha256 if row else dossier.case.ptx_sha256


def with_log(dossier: Dossier) -> Dossier:
    """The dossier with its log among the files."""
    if not dossier.log:
        return dossier
    return _with(dossier, {"log.txt": (without_folders(dossier.log).encode(), "what is printed")})


def _with(dossier: Dossier, files: Mapping[str, tuple[bytes, str]]) -> Dossier:
    made = (
        Attachment(name=name, data=data, sha256=hashlib.sha256(data).hexdigest(), what=what)
        for name, (data, what) in files.items()
    )
    return replace(dossier, attachments=(*dossier.attachments, *made))


_SCRIPTS = {
    "repro.sh": "installs the compiler into a temporary folder and shows it",
    "test.sh": "says whether a file still shows it (creduce, cvise)",
}


_EXECUTES = "executes kernel.py without a GPU, and checks that it goes wrong in this way"
_LAUNCHES = "launches the cubins of min.ptx with kernel-triage, and checks what they compute"


def inspect_dossier(dossier: Dossier, issue: str, required: tuple[str, ...]) -> list[Defect]:
    """What the text, the files and the pieces say: is it ready to be filed?"""
    files = {file.name: file.data for file in dossier.attachments}
    defects = inspect_report(issue, files, required=required, private=_private())
    found = dossier.minimized
    # The errors of PTX that a compiler wrote are that compiler's, as long as none is added.
    is_restricted = dossier.is_compilers and found and found.fingerprint.errors
    if found and found.is_unheld and not is_restricted:
        words = (
            "no version accepts what it was reduced from, and no other target that was tried does: "
            "it may be wrong in itself"
        )
        defects.append(Defect(kind="reduction", file=f"min{found.suffix}", words=words))
    return defects + [
        Defect(
            kind="missing",
            file="issue.md",
            words=f"{each.what} is missing ({each.why}); this adds it: {each.command}",
        )
        for each in dossier.missing
    ]


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
        "value of the environment": list(_secret_values()),
    }
    return Private(
        words={
            what: [word for word in found if len(word) >= _SHORTEST and word not in _COMMON]
            for what, found in words.items()
        }
    )


def _secret_values() -> Iterator[str]:
    for name, value in os.environ.items():
        if any(word in name.upper() for word in _SECRETS):
            yield value


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
    folder.mkdir()
    command = folder / "triage"
    words = shlex.join(["env", f"PYTHONPATH={import_path()}", sys.executable, "-m", "harness"])
    command.write_text(f'#!/bin/sh\nexec {words} "$@"\n')
    command.chmod(0o755)
    return str(folder)


def script_defects(done: ToolResult) -> list[Defect]:
    """What is wrong with what the bundle's command did: 0 says that it shows the failure."""
    if done.end.ok:
        return []
    said = (done.stderr or done.stdout).strip().splitlines()[-1:] or [done.end.words]
    words = f"sh repro.sh does not show it: {done.end.words}: {said[0][:200]}"
    return [Defect(kind="trial", file="repro.sh", words=words)]
