"""What is in the folder of a toolchain: how it is filled, and how it is checked again later.

A Triton is a site folder with its wheel and what that needs at import; ptxas and nvdisasm are one
executable each, which must say that it is the version that its wheel promises. Nothing is kept that
does not run here.
"""

from __future__ import annotations

import base64
import csv
import importlib.metadata
import json
import os
import re
import shutil
import sys
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from harness.io.files.whole_folders import sha256_of
from harness.io.packages.index import Release, wheels
from harness.io.packages.versions import parse_banner
from harness.io.packages.wheels import install_wheels
from harness.io.processes.hub import run_tool
from harness.io.toolchains.environments import probe_environment, site_of
from harness.io.toolchains.marker import TRITON, Toolchain
from harness.values.errors import InfrastructureError, IntegrityError

SITE = "site"
"""Where a Triton lies in its folder: what goes on the module path."""
_NOT_NEEDED = frozenset({"torch", "cmake", "lit"})
"""What Triton 2.0 asks for and a compile does not need, or has from triage's own environment."""
_BANNER_SECONDS = 60.0
_IMPORT_SECONDS = 600.0
_PROBE = "import json, triton; print(); print(json.dumps([triton.__version__, triton.__file__]))"


def fill(kind: str, release: Release, partial_folder: Path) -> bytes:
    """Put that release of a Triton or a tool into an empty folder; what its marker is to say.

    Raises:
        InfrastructureError: the wheel does not hold it, or it does not run here, or it says that
            it is another version.
        OfflineError, IntegrityError, StorageError: as `harness.io.packages.wheels`.
    """
    if kind == TRITON:
        scratch, site = partial_folder / "scratch", partial_folder / SITE
        scratch.mkdir()
        install_wheels([release], site, scratch=scratch)
        needed = _dependencies(site)
        if needed:
            install_wheels(needed, site, scratch=scratch)
        shutil.rmtree(scratch)
        library = next(site.glob("triton/_C/libtriton*"), site / "triton" / "__init__.py")
        return _marker(
            TRITON,
            release,
            library.relative_to(partial_folder),
            sha256_of(library),
            _import_triton(site, release.version),
            dependencies=tuple(f"{each.name}=={each.version}" for each in needed),
        )
    # Keep one executable, and the licence, of a wheel that holds a whole toolkit.
    scratch = partial_folder / "scratch"
    scratch.mkdir()
    # uv's own cache would keep the whole toolkit of every version.
    install_wheels([release], scratch / SITE, scratch=scratch, cache=scratch / "cache")
    unpacked = next((scratch / SITE).glob(f"**/bin/{kind}"), None)
    if unpacked is None:
        raise InfrastructureError(f"{release.filename} holds no {kind}; choose another version")
    executable = partial_folder / "bin" / kind
    executable.parent.mkdir()
    unpacked.rename(executable)
    executable.chmod(0o755)
    for licence in (scratch / SITE).glob("*.dist-info/**/[Ll]icense*.txt"):
        licence.rename(partial_folder / "LICENSE.txt")
    shutil.rmtree(scratch)
    banner = _checked_banner(executable, f"{kind}-{release.version}", str(release.version))
    where = executable.relative_to(partial_folder)
    return _marker(kind, release, where, sha256_of(executable), banner)


def check(found: Toolchain) -> None:
    """Hash an installed toolchain again and run it again.

    Raises:
        IntegrityError: a file is missing or was changed since the install.
        InfrastructureError: it no longer runs, or says that it is another version.
    """
    executable = found.path / found.executable
    try:
        digest = sha256_of(executable)
        damaged = executable if digest != found.executable_sha256 else None
        damaged = damaged or _damaged_file(
            site_of(found) if found.environment else found.path / SITE
        )
    except OSError as error:
        damaged = Path(error.filename or executable)
    if damaged is not None:
        raise IntegrityError(
            f"{found.name} was changed since it was installed ({damaged.name}); "
            "remove it and install it again"
        )
    if found.environment:
        banner = probe_environment(found, found.path)
    elif found.kind == TRITON:
        banner = _import_triton(found.path / SITE, Version(found.version))
    else:
        banner = _checked_banner(executable, found.name, found.version)
    if banner != found.banner:
        raise InfrastructureError(
            f"{found.name} no longer says what it said at the install; remove it and install again"
        )


def banner_of(executable: Path) -> str:
    """What its `--version` prints.

    Raises:
        InfrastructureError: it does not run.
    """
    result = run_tool([executable, "--version"], timeout=_BANNER_SECONDS)
    if not result.end.ok:
        raise InfrastructureError(
            f"{executable.name} --version fails on this machine ({result.end.words}): {executable}"
        )
    return result.stdout.strip()


def _marker(
    kind: str,
    release: Release,
    executable: Path,
    digest: str,
    banner: str,
    *,
    dependencies: tuple[str, ...] = (),
) -> bytes:
    toolchain = Toolchain(
        kind=kind,
        version=str(release.version),
        distribution=release.name,
        filename=release.filename,
        sha256=release.sha256,
        executable=executable.as_posix(),
        executable_sha256=digest,
        banner=banner,
        dependencies=dependencies,
        installed=datetime.now(UTC).isoformat(timespec="seconds"),
    )
    return msgspec.json.format(msgspec.json.encode(toolchain))


def _dependencies(site: Path) -> list[Release]:
    """The newest wheels of what the Triton in `site` needs at import, except torch."""
    requirements = {
        canonicalize_name(requirement.name): requirement
        for text in importlib.metadata.Distribution.at(
            next(site.glob("triton-*.dist-info"), site)
        ).requires
        or ()
        if (requirement := Requirement(text)).marker is None
        or requirement.marker.evaluate({"extra": ""})
    }
    package = site / "triton"
    pattern = re.compile(rb"^\s*(?:import|from)\s+setuptools\b", re.MULTILINE)
    if any(pattern.search(path.read_bytes()) for path in package.glob("**/*.py")):
        # Triton 2.0 to 3.2 import it and do not say so.
        requirements.setdefault(canonicalize_name("setuptools"), Requirement("setuptools"))
    found: list[Release] = []
    for name in sorted(requirements.keys() - _NOT_NEEDED):
        fitting = [
            release
            for release in wheels(name)
            if requirements[name].specifier.contains(release.version, prereleases=False)
        ]
        if not fitting:
            raise InfrastructureError(
                f"the package index has no {requirements[name]}, which this Triton needs; "
                "choose another Triton"
            )
        found.append(fitting[-1])
    return found


def _import_triton(site: Path, version: Version) -> str:
    environment = {**os.environ, "PYTHONPATH": str(site)}
    result = run_tool(
        [sys.executable, "-s", "-c", _PROBE], timeout=_IMPORT_SECONDS, env=environment, cwd=site
    )
    if not result.end.ok:
        last = (result.stderr.strip().splitlines() or [result.end.words])[-1]
        raise InfrastructureError(
            f"{TRITON}-{version} cannot be imported by this Python ({last}); choose another one"
        )
    said, where = json.loads(result.stdout.splitlines()[-1])
    if not Path(where).resolve().is_relative_to(site.resolve()):
        raise InfrastructureError(
            f"importing {TRITON}-{version} finds another Triton; unset PYTHONPATH and try again"
        )
    return str(said)


def _checked_banner(executable: Path, name: str, version: str) -> str:
    """What `--version` prints, which must name the version that the wheel promises."""
    banner = banner_of(executable)
    release = parse_banner(banner)
    if release is None or Version(release[0]) != Version(version):
        raise InfrastructureError(
            f"the executable of {name} reports {release[0] if release else 'an unknown version'}"
            "; choose another version"
        )
    return banner


def _damaged_file(site: Path) -> Path | None:
    """The first file that is not what the wheels' RECORD says (absent for a lone executable)."""
    for record in sorted(site.glob("*.dist-info/RECORD")):
        if record.parent.is_symlink():
            continue  # of triage's own environment
        with record.open(encoding="utf-8", newline="") as stream:
            rows: Iterable[list[str]] = list(csv.reader(stream))
        for relative, algorithm, *_ in rows:
            kind, _, expected = algorithm.partition("=")
            if kind != "sha256":
                continue
            digest = bytes.fromhex(sha256_of(site / relative))
            if base64.urlsafe_b64encode(digest).rstrip(b"=").decode() != expected:
                return site / relative
    return None
