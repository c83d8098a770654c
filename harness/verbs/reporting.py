"""`triage report`: a dossier as an issue and a bundle, and the gate before both are filed."""

from __future__ import annotations

import getpass
import hashlib
import os
import platform
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import harness
from harness.effects.bundles import unpack
from harness.effects.locations import cache_dir, home_dir
from harness.effects.process import run_tool
from harness.effects.store import Store
from harness.logic.dossier import Attachment, Dossier
from harness.logic.ptx import without_debug
from harness.logic.report_gate import Defect, Private, inspect_report, without_folders

__all__ = ["attach", "inspect_dossier", "try_bundle"]

# Words that are no secret though they are values of the environment.
_COMMON = frozenset({"root", "user", "runner", "linux", "en_US.UTF-8", "C.UTF-8", "localhost"})
_SECRETS = ("TOKEN", "SECRET", "PASSWORD", "PASSWD", "KEY", "CREDENTIAL", "PROXY", "INDEX_URL")
_SHORTEST = 4
_TRIAL_SECONDS = 900.0
_NOT_HAD = 125
# What the run needs to reach the package index that this machine uses, and nothing else of it.
_PASSED_ON = ("UV_", "PIP_", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "SSL_CERT_FILE")


def attach(dossier: Dossier, store: Store, scripts: Mapping[str, str]) -> Dossier:
    """The dossier with the files of its bundle; `scripts` are those that go with the reduction."""
    files: dict[str, tuple[bytes, str]] = {}
    found = dossier.minimized
    if found:
        what = "the smallest input that shows it"
        files[f"min{found.suffix}"] = (found.text.encode(), what)
        original, what = found.original_text, "what it was made from"
        if found.suffix == ".ptx":
            original = without_debug(original) + "\n"
            what += ", without debug information"
        files[f"original{found.suffix}"] = (original.encode(), what)
        for script in ("repro.sh", "test.sh"):
            if script in scripts:
                files[script] = (scripts[script].encode(), _SCRIPTS[script])
    elif dossier.case.ptx_sha256:
        text = store.artifacts.get(dossier.case.ptx_sha256).decode(errors="replace")
        data = without_debug(text).encode() + b"\n"
        files["original.ptx"] = (data, "the input, without debug information")
    if dossier.log:
        files["log.txt"] = (without_folders(dossier.log).encode(), "what it printed")
    return replace(
        dossier,
        attachments=tuple(
            Attachment(name=name, data=data, sha256=hashlib.sha256(data).hexdigest(), what=what)
            for name, (data, what) in files.items()
        ),
    )


_SCRIPTS = {
    "repro.sh": "installs the compiler into a temporary folder and shows it",
    "test.sh": "says whether a file still shows it (creduce, cvise)",
}


def inspect_dossier(dossier: Dossier, issue: str, required: tuple[str, ...]) -> list[Defect]:
    """What the text, the files and the pieces say: is it ready to be filed?"""
    files = {file.name: file.data for file in dossier.attachments}
    defects = inspect_report(issue, files, required=required, private=_private())
    return defects + [
        Defect(
            kind="missing",
            file="issue.md",
            words=f"{each.what} is missing ({each.why}); make it: {each.command}",
        )
        for each in dossier.missing
    ]


def _private() -> Private:
    """What tells of this machine and its user."""
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


def try_bundle(
    bundle: Path, dossier: Dossier, again: Callable[[Path], str | None], folder: str
) -> list[Defect]:
    """Unpack it in a clean folder, run its command with a fresh toolchain; what is wrong with it.

    `again` compiles the unpacked input and gives the signature of what came of it.

    Raises:
        StorageError: it cannot be unpacked.
    """
    with tempfile.TemporaryDirectory(prefix="triage-report-") as place:
        unpack(bundle, Path(place))
        inside = Path(place) / folder
        script = inside / "repro.sh"
        if not script.is_file():
            return [Defect(kind="trial", file=bundle.name, words="it has no command: no repro.sh")]
        passed = {
            name: value for name, value in os.environ.items() if name.upper().startswith(_PASSED_ON)
        }
        environment = {"PATH": os.environ.get("PATH", ""), "HOME": place, "TMPDIR": place, **passed}
        done = run_tool(["sh", script], timeout=_TRIAL_SECONDS, env=environment)
        defects = []
        if not _has_shown(dossier, done.end.exit_code):
            said = (done.stderr or done.stdout).strip().splitlines()[-1:] or [done.end.words]
            words = f"sh repro.sh does not show it: {done.end.words}: {said[0][:200]}"
            defects.append(Defect(kind="trial", file="repro.sh", words=words))
        signature = again(inside)
        if signature != dossier.case.signature:
            words = f"the signature is {signature}, not {dossier.case.signature}"
            defects.append(Defect(kind="trial", file=bundle.name, words=words))
        return defects


def _has_shown(dossier: Dossier, exit_code: int | None) -> bool:
    """Whether the script came to its point; one that runs a compilation ends as that does."""
    if dossier.minimized and dossier.minimized.level == "source":
        return exit_code not in (None, _NOT_HAD)
    return exit_code == 0
