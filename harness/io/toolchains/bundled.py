"""The Triton that lies beside triage in its own environment, and what a Triton carries along."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import importlib.util
import os
from pathlib import Path

import msgspec

from harness.io.files.locations import cache_dir, storage_error
from harness.io.files.whole_folders import sha256_of, write_atomically
from harness.io.packages.versions import parse_banner
from harness.io.toolchains.contents import banner_of
from harness.io.toolchains.marker import NVDISASM, TRITON
from harness.values.errors import InfrastructureError, StorageError
from harness.values.toolchain import INSTALLED, Assembler, Compiler, Tool

# What a ptxas is that we did not install, such as the one inside a Triton. Asking it takes a
# process, so the answer is remembered as long as the file stays the same.


class _Description(msgspec.Struct, frozen=True, kw_only=True):
    """What is remembered of a ptxas that we did not install, while its file stays the same."""

    path: str
    mtime_ns: int
    size: int
    sha256: str
    version: str
    build: str


def describe_ptxas(path: Path, origin: str) -> Assembler:
    """What the ptxas at `path` is; its `--version` is run once as long as the file is the same.

    Raises:
        StorageError: it cannot be read.
        InfrastructureError: it cannot be run, or is not ptxas.
    """
    path = path.absolute()
    try:
        facts = path.stat()
    except OSError as error:
        raise storage_error(error, path, "read") from error
    memo = cache_dir() / "described" / f"{hashlib.sha256(os.fsencode(path)).hexdigest()[:16]}.json"
    known = _read_description(memo)
    stat = (str(path), facts.st_mtime_ns, facts.st_size)
    if known is None or (known.path, known.mtime_ns, known.size) != stat:
        try:
            digest = sha256_of(path)
        except OSError as error:
            raise storage_error(error, path, "read") from error
        if known is not None and known.sha256 == digest:
            release: tuple[str, str] | None = (known.version, known.build)
        else:
            release = parse_banner(banner_of(path))
        if release is None:
            raise InfrastructureError(
                f"{path} is not ptxas: its --version prints no version of ptxas"
            )
        known = _Description(
            path=str(path),
            mtime_ns=facts.st_mtime_ns,
            size=facts.st_size,
            sha256=digest,
            version=release[0],
            build=release[1],
        )
        # On a read-only cache the question is asked again next time.
        with contextlib.suppress(StorageError):
            write_atomically(memo, msgspec.json.encode(known))
    return Assembler(
        version=known.version, origin=origin, path=path, sha256=known.sha256, build=known.build
    )


def _read_description(memo: Path) -> _Description | None:
    try:
        return msgspec.json.decode(memo.read_bytes(), type=_Description)
    except (OSError, msgspec.MsgspecError):
        return None


def package_of(triton: Compiler | None) -> Path | None:
    """The folder of a Triton's package (the installed one for None); None where there is none."""
    if triton is not None and triton.path is not None:
        return triton.path / TRITON
    return installed_package()


def bundled_nvdisasm(triton: Compiler | None) -> Tool | None:
    """The nvdisasm inside a Triton (the installed one for None); None where it carries none."""
    package = package_of(triton)
    path = package / "backends" / "nvidia" / "bin" / NVDISASM if package else None
    if path is None or not path.is_file():
        return None
    facts = path.stat()
    return Tool(name=NVDISASM, version=f"bundled {facts.st_size} {facts.st_mtime_ns}", path=path)


def _fingerprint() -> str | None:
    package = installed_package()
    if package is None:
        return None
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*")):
        if path.suffix in (".py", ".so"):
            facts = path.stat()
            digest.update(f"{path}:{facts.st_size}:{facts.st_mtime_ns}\n".encode())
    return digest.hexdigest()


def installed_package() -> Path | None:
    """The folder of the Triton beside triage; it is not imported."""
    found = importlib.util.find_spec(TRITON)
    return Path(found.origin).parent if found and found.origin else None


def installed_triton() -> Compiler:
    """The Triton that lies beside triage in its own environment; it is not imported.

    Raises:
        InfrastructureError: there is none.
    """
    try:
        version = importlib.metadata.version(TRITON)
    except importlib.metadata.PackageNotFoundError as error:
        raise InfrastructureError(
            "no Triton is installed beside triage; install one there, or name a version"
        ) from error
    return Compiler(version=version, origin=INSTALLED, fingerprint=_fingerprint())
