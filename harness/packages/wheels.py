"""Installing one wheel, pinned by sha256, with `uv pip install --target`."""

from __future__ import annotations

import os
import re
import sys
from typing import TYPE_CHECKING

import uv

from harness.files.locations import offline
from harness.packages.endpoint import endpoint_setting
from harness.processes.hub import run_tool
from harness.values.errors import (
    InfrastructureError,
    IntegrityError,
    OfflineError,
    StorageError,
    TriageError,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from harness.packages.index import Release

__all__ = ["install_wheels"]

_SECONDS = 1800.0
_URL = re.compile(r"[a-z+]+://\S*?(?=[`)\s]|$)")
_FRAME = re.compile(r"^[^\w`]*(?:(?:cause|error|Caused by):)?\s*", re.IGNORECASE)
_DISK_FULL = ("No space left on device", "Disk quota exceeded")
_READ_ONLY = ("Read-only file system", "Permission denied")
_NO_NETWORK = (
    "error sending request",
    "Could not connect",
    "dns error",
    "tcp connect error",
    "operation timed out",
    "request or response body error",
)


def install_wheels(
    releases: Sequence[Release], target: Path, *, scratch: Path, cache: Path | None = None
) -> None:
    """Unpack wheels into `target` as an importable folder; nothing else comes with them.

    `scratch` is an existing folder for uv's own settings. `cache` replaces uv's own cache.

    Raises:
        OfflineError: the index does not answer, or the network is forbidden.
        IntegrityError: the wheel has another sha256.
        StorageError: the disk is full or read-only.
        InfrastructureError: uv fails for another reason.
    """
    requirements = scratch / "requirements.txt"
    lines = [f"{each.name}=={each.version} --hash=sha256:{each.sha256}\n" for each in releases]
    requirements.write_text("".join(lines), encoding="utf-8")
    argv: list[str | Path] = [
        _uv(),
        *("pip", "install", "--python", sys.executable, "--target", target),
        *("--no-deps", "--no-build", "--require-hashes", "--no-progress"),
        *(("--cache-dir", cache) if cache else ()),
        *(("--offline",) if offline() else ()),
        *("-r", requirements),
    ]
    # The working folder matters: uv reads the pyproject.toml of the project it finds there.
    result = run_tool(argv, timeout=_SECONDS, env=_environment(), cwd=scratch)
    what = ", ".join(f"{release.name} {release.version}" for release in releases)
    if result.end.timed_out:
        raise InfrastructureError(
            f"uv did not install {what} in {_SECONDS:.0f} s; check the network and try again"
        )
    if not result.end.ok:
        raise _failure(what, result.stderr, result.end.words)


def _uv() -> str:
    try:
        return uv.find_uv_bin()
    except FileNotFoundError as error:
        raise InfrastructureError(
            "the executable of uv is missing; install the package uv beside triage again"
        ) from error


def _environment() -> dict[str, str]:
    environment = {**os.environ, "NO_COLOR": "1"}
    setting = endpoint_setting()
    if setting:
        environment["UV_DEFAULT_INDEX"] = setting
    return environment


def _failure(what: str, stderr: str, words: str) -> TriageError:
    reason = _last_words(stderr) or words
    if any(sign in stderr for sign in _DISK_FULL):
        return StorageError(
            f"cannot install {what}: the disk is full; free some space or set TRIAGE_CACHE_DIR "
            "and UV_CACHE_DIR to another disk"
        )
    if any(sign in stderr for sign in _READ_ONLY):
        return StorageError(
            f"cannot install {what}: {reason}; set TRIAGE_CACHE_DIR and UV_CACHE_DIR to writable "
            "folders"
        )
    if "Hash mismatch" in stderr:
        hashes = re.findall(r"sha256:([0-9a-f]{64})", stderr)
        return IntegrityError(
            f"the wheel of {what} was downloaded with sha256 {hashes[-1] if hashes else 'unknown'},"
            f" not {hashes[0] if hashes else 'that of the index'}; the index or a proxy changed it"
        )
    if offline():
        return OfflineError(
            f"{what} is not installed and TRIAGE_OFFLINE forbids fetching it; "
            "unset TRIAGE_OFFLINE once"
        )
    if any(sign in stderr for sign in _NO_NETWORK):
        return OfflineError(f"cannot download {what}: {reason}; check the network and try again")
    return InfrastructureError(f"uv cannot install {what}: {reason}; try again")


def _last_words(stderr: str) -> str:
    """The innermost cause that uv gives, on one line and without addresses.

    uv 0.13 writes `cause: ...` lines, older ones draw a tree; hints follow after a blank line.
    """
    causes: list[str] = []
    for line in stderr.splitlines():
        text = _URL.sub("(address)", _FRAME.sub("", line)).strip()
        if text.startswith("hint:"):
            break
        if text:
            causes.append(text)
    return causes[-1].rstrip(".") if causes else ""
