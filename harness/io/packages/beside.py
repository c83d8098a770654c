"""Packages of triage's own environment that another one shares: links, in place of copies."""

from __future__ import annotations

import hashlib
import importlib.metadata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from harness.values.errors import InfrastructureError


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedPackage:
    """One of our packages: `record` hashes its list of files, `entries` lie in a site folder."""

    name: str
    version: str
    record: str
    entries: tuple[Path, ...]

    def __str__(self) -> str:
        return f"{self.name}=={self.version}"


def shared_packages(names: Sequence[str]) -> tuple[SharedPackage, ...]:
    """These packages and all that they need, by name.

    Raises:
        InfrastructureError: one of them is not installed beside triage, or not from a wheel.
    """
    found: dict[str, SharedPackage] = {}
    asked = {canonicalize_name(name) for name in names}
    wanted = [*asked]
    while wanted:
        name = wanted.pop()
        if name in found:
            continue
        try:
            package = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError as error:
            if name not in asked:
                continue  # what shares it does without it here, too
            raise InfrastructureError(
                f"{name} is not installed beside triage, and a compiler shares it; install it there"
            ) from error
        found[name] = _shared(name, package)
        wanted += [canonicalize_name(each.name) for each in _needs(package.requires or ())]
    return tuple(found[name] for name in sorted(found))


def _shared(name: str, package: importlib.metadata.Distribution) -> SharedPackage:
    record = package.read_text("RECORD")
    if record is None or _is_editable(package):
        raise InfrastructureError(
            f"{name} beside triage is not installed from a wheel, so it cannot be shared; install "
            "a wheel of it"
        )
    # `..` are scripts, outside of the site folder.
    tops = {file.parts[0] for file in package.files or ()} - {"..", "__pycache__"}
    return SharedPackage(
        name=name,
        version=package.version,
        record=hashlib.sha256(record.encode()).hexdigest(),
        entries=tuple(Path(str(package.locate_file(top))).resolve() for top in sorted(tops)),
    )


def _is_editable(package: importlib.metadata.Distribution) -> bool:
    return '"editable": true' in (package.read_text("direct_url.json") or "")


def _needs(requires: Iterable[str]) -> list[Requirement]:
    needs = [Requirement(text) for text in requires]
    return [each for each in needs if not each.marker or each.marker.evaluate({"extra": ""})]


def link_packages(packages: Iterable[SharedPackage], site: Path) -> None:
    """Link what they consist of into a site folder; what is installed there stays.

    Raises:
        OSError: it cannot be written.
    """
    for package in packages:
        for entry in package.entries:
            place = site / entry.name
            if not place.is_symlink() and not place.exists():
                place.symlink_to(entry)
