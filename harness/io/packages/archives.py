"""Sources that repros pin: sdists and pure-Python wheels, fetched, checked and unpacked.

Nothing is built and no code of the archive is run. Unpacking writes regular files, folders and
links that stay inside; anything else in an archive makes it refused.
"""

from __future__ import annotations

import gzip
import io
import os
import re
import shutil
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO

import msgspec
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from harness.io.files.locations import cache_dir, storage_error
from harness.io.files.writing import ensure_folder, write_atomically
from harness.io.packages.index import download, pick_file
from harness.values.errors import IntegrityError, UsageError

# What a fetched source distribution says of itself (core metadata, `PKG-INFO`).


def package_license(package: str, version: str, sha256: str) -> str | None:
    """The licence in a few words: the SPDX expression, else the classifier; None if it has neither.

    Raises:
        TriageError: the source cannot be fetched.
    """
    from email.parser import Parser  # noqa: PLC0415 - each command pins sources, and few say this

    file = fetch_sdist(package, version, sha256) / "PKG-INFO"
    if not file.is_file():
        return None
    headers = Parser().parsestr(file.read_text(errors="replace"), headersonly=True)
    if expression := headers.get("License-Expression"):
        return str(expression)
    for classifier in headers.get_all("Classifier", ()):
        if str(classifier).startswith("License :: "):
            return str(classifier).rpartition(" :: ")[2]
    return None


MARKER = ".triage-source.json"
_TREE = "tree"
_DOWNLOAD_LIMIT = 200 << 20
_BLOCK = 1 << 20
_SHA256 = re.compile("[0-9a-f]{64}")
_DAMAGE = (
    *(tarfile.TarError, zipfile.BadZipFile, gzip.BadGzipFile, zlib.error, EOFError),
    KeyError,  # tarfile: a hard link to a member that is not there
    *(FileExistsError, IsADirectoryError, NotADirectoryError),  # two members in one place
)


_Entries = Iterable[tuple[tarfile.TarInfo, Callable[[], IO[bytes] | None]]]
"""The members of an archive, and what opens each of them; those of a zip file as of a tar file."""


def fetch_sdist(package: str, version: str, sha256: str) -> Path:
    """The unpacked source distribution, without its top folder; fetched if it is not yet.

    Raises:
        UsageError: there is no such version, or the version or hash is malformed.
        IntegrityError: the index has another hash, or the archive is damaged or hostile.
        OfflineError, StorageError, InfrastructureError: it cannot be fetched or written.
    """
    return _fetch(package, version, sha256, wheel=False)


def fetch_wheel(package: str, version: str, sha256: str) -> Path:
    """The unpacked pure-Python wheel, ready for the module path; errors as `fetch_sdist`."""
    return _fetch(package, version, sha256, wheel=True)


def is_fetched(package: str, version: str, sha256: str) -> bool:
    """Whether a source lies in the cache."""
    try:
        folder = _folder_of(canonicalize_name(package), Version(version), sha256.lower())
    except InvalidVersion:
        return False
    return (folder / MARKER).is_file()


def _folder_of(name: str, version: Version, digest: str) -> Path:
    return cache_dir() / "sources" / f"{name}-{version}-{digest[:8]}"


def unpack(archive: Path, folder: Path, *, size: int = 2 << 30, entries: int = 100_000) -> None:
    """Unpack a .tar.gz, .zip or .whl into `folder`, which must be new.

    All its files together may have `size` bytes, and there may be so many `entries`.

    Raises:
        IntegrityError: the archive is damaged, hostile or too large.
        OSError: the disk refuses.
    """
    folder.mkdir()
    try:
        if archive.suffix in {".zip", ".whl"}:
            with zipfile.ZipFile(archive) as zipped:
                _write_all(archive.name, _in_zip(zipped), folder, size, entries)
        else:
            with tarfile.open(archive, "r:gz") as tar:
                members = ((member, partial(tar.extractfile, member)) for member in tar)
                _write_all(archive.name, members, folder, size, entries)
    except _DAMAGE as error:
        raise IntegrityError(
            f"{archive.name} is damaged ({error}); fetch it again or pin another file"
        ) from error
    except (NotImplementedError, RuntimeError) as error:
        # zipfile says so of encrypted members and of compressions that it does not know.
        raise IntegrityError(
            f"{archive.name} cannot be read ({error}); pin another file"
        ) from error


def _in_zip(file: zipfile.ZipFile) -> _Entries:
    for member in file.infolist():
        entry = tarfile.TarInfo(member.filename)
        entry.mode = member.external_attr >> 16
        kind = stat.S_IFMT(entry.mode)
        if kind not in {0, stat.S_IFREG, stat.S_IFDIR}:
            entry.type = tarfile.FIFOTYPE  # or another that is refused alike
        elif member.is_dir():
            entry.type = tarfile.DIRTYPE
        yield entry, partial(file.open, member)


def _fetch(package: str, version: str, sha256: str, *, wheel: bool) -> Path:
    name = canonicalize_name(package)
    try:
        exact = Version(version)
    except InvalidVersion as error:
        raise UsageError(f"{version!r} is not a version of {package}") from error
    if not _SHA256.fullmatch(sha256.lower()):
        raise UsageError(f"{sha256!r} is not the sha256 of a file of {package} {version}")
    digest = sha256.lower()
    folder = _folder_of(name, exact, digest)
    marker = folder / MARKER
    if not marker.is_file():
        fill = partial(_fill, name, exact, digest, wheel=wheel)
        ensure_folder(folder, marker=MARKER, fill=fill)
    try:
        kept = msgspec.json.decode(marker.read_bytes(), type=dict[str, str])["sha256"]
    except (msgspec.MsgspecError, KeyError):
        kept = ""
    except OSError as error:
        raise storage_error(error, marker, "read") from error
    if kept != digest:
        raise IntegrityError(
            f"{folder} was not unpacked from the file with sha256 {sha256}; delete that folder"
        )
    return folder / _TREE


def _fill(name: str, version: Version, sha256: str, folder: Path, *, wheel: bool) -> bytes:
    release = pick_file(name, version, sha256, wheel=wheel)
    archive = folder / release.filename
    download(release, archive, limit=_DOWNLOAD_LIMIT)
    unpacked = folder / "unpacked"
    unpack(archive, unpacked)
    archive.unlink()
    tops = list(unpacked.iterdir())
    is_inside = not wheel and len(tops) == 1 and tops[0].is_dir() and not tops[0].is_symlink()
    (tops[0] if is_inside else unpacked).rename(folder / _TREE)
    shutil.rmtree(unpacked, ignore_errors=True)
    source = {"package": name, "version": str(version), "filename": release.filename}
    return msgspec.json.format(msgspec.json.encode({**source, "sha256": release.sha256}))


def _write_all(name: str, members: _Entries, folder: Path, room: int, most: int) -> None:
    links: dict[PurePosixPath, tarfile.TarInfo] = {}
    for count, (entry, open_it) in enumerate(members, start=1):
        if count > most:
            raise _refused(name, entry, f"more than {most} entries")
        # Where the entry goes, relative to the root; every way out is refused here.
        place = PurePosixPath(entry.name)
        if place.is_absolute() or ".." in place.parts or "\\" in entry.name or "\0" in entry.name:
            raise _refused(name, entry, "its path leads out of the folder")
        if not (entry.isreg() or entry.isdir() or entry.issym() or entry.islnk()):
            raise _refused(name, entry, "it is neither file, folder nor link")
        if entry.issym() or entry.islnk():
            # A hard link is named from the root of the archive, a symbolic one from where it lies.
            base = place.parent.as_posix() if entry.issym() else "."
            target = os.path.normpath(f"{base}/{entry.linkname}")
            if entry.linkname.startswith("/") or PurePosixPath(target).parts[:1] == ("..",):
                raise _refused(name, entry, "it links out of the folder")
        if place == PurePosixPath("."):
            continue
        if not links.keys().isdisjoint((place, *place.parents)):
            # Else a link that is harmless by itself makes the path of a later member lead out.
            raise _refused(name, entry, "its path leads through a symbolic link")
        path = folder / place
        if entry.isdir():
            path.mkdir(parents=True, exist_ok=True)
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        if entry.issym():
            links[place] = entry
            path.symlink_to(entry.linkname)
            continue
        # Write one file of at most `room` bytes and return its size.
        written = 0
        content = open_it()
        assert content is not None
        with content as source, path.open("wb") as stream:
            while block := source.read(_BLOCK):
                written += len(block)
                if written > room:
                    raise _refused(name, entry, "it unpacks to more than the limit")
                stream.write(block)
        path.chmod(0o755 if entry.mode & stat.S_IXUSR else 0o644)
        room -= written
    root = folder.resolve()
    for place, entry in links.items():
        # Only now: two links that are harmless by themselves may lead out together.
        if not (folder / place).resolve().is_relative_to(root):
            raise _refused(name, entry, "it links out of the folder")


def _refused(name: str, entry: tarfile.TarInfo, why: str) -> IntegrityError:
    return IntegrityError(f"{name} is refused at {entry.name!r}: {why}; pin another file")


# Bundles: `.tar.gz` files whose bytes depend on their content, and on nothing of the machine.


def pack_bundle(path: Path, files: Mapping[str, bytes], *, folder: str) -> None:
    """Write a bundle; equal files give equal bytes. Scripts (`.sh`) can be run.

    Raises:
        StorageError: it cannot be written.
    """
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, data in sorted(files.items()):
            member = tarfile.TarInfo(f"{folder}/{name}")
            member.size = len(data)
            member.mode = 0o755 if name.endswith(".sh") else 0o644
            archive.addfile(member, io.BytesIO(data))
    packed = io.BytesIO()
    # No name and no time in the header.
    with gzip.GzipFile(filename="", fileobj=packed, mode="wb", mtime=0) as file:
        file.write(plain.getvalue())
    write_atomically(path, packed.getvalue())


def unpack_bundle(path: Path, target: Path) -> None:
    """Unpack a bundle that `pack_bundle` made into a folder, which must be new.

    Raises:
        IntegrityError: it is damaged, hostile or too large.
        StorageError: it cannot be read, or written there.
    """
    try:
        unpack(path, target)
    except OSError as error:
        raise storage_error(error, path, "unpack", option="--out") from error
