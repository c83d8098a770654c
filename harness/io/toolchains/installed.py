"""Installed toolchains: Triton environments, ptxas and nvdisasm, one folder each in the cache.

`toolchains/<kind>-<version>/` appears whole or not at all and carries a marker file that says what
it is. A Triton holds modules that are compiled for one Python, and its folder names it
(`triton-3.8.0-cp312`), so that one cache serves several. Once it is there, using it reads that
marker: no network, no process, no lock.
"""

from __future__ import annotations

from packaging.version import InvalidVersion, Version

from harness.io.files.whole_folders import remove_folder
from harness.io.toolchains.contents import check
from harness.io.toolchains.environments import lost_package
from harness.io.toolchains.marker import (
    MARKER,
    NAME,
    NVDISASM,
    PTXAS,
    TRITON,
    Toolchain,
    list_folders,
    read_toolchain,
    this_python,
    toolchain_folder,
)
from harness.values.errors import StorageError, UsageError


def list_installed(*, of_any_python: bool = False) -> list[Toolchain]:
    """Every installed toolchain that this Python (or any) can use, by kind and version.

    Those of `list_damaged` are not among them.

    Raises:
        StorageError: the cache cannot be read.
    """
    return [each for each in _look_through()[0] if each.fits or of_any_python]


def installed_versions(kind: str) -> list[Version]:
    """The installed versions of `triton`, `ptxas` or `nvdisasm`, oldest first.

    Raises:
        StorageError: the cache cannot be read.
    """
    return [Version(each.version) for each in list_installed() if each.kind == kind]


def list_damaged() -> dict[str, StorageError]:
    """What is wrong with each installed toolchain that cannot be used as it is, by name.

    Raises:
        StorageError: the cache cannot be read.
    """
    return _look_through()[1]


def _look_through() -> tuple[list[Toolchain], dict[str, StorageError]]:
    sound: list[Toolchain] = []
    damaged: dict[str, StorageError] = {}
    for name in list_folders():
        try:
            found = read_toolchain(name)
            lost = lost_package(found) if found else None
        except StorageError as error:
            damaged[name] = error
            continue
        if lost:
            message = f"{name} shares {lost.name} with a triage that is gone; remove {name}"
            damaged[name] = StorageError(message)
        elif found:
            sound.append(found)
    return sorted(sound, key=lambda each: (each.kind, Version(each.version), each.python)), damaged


def require_installed(name: str) -> None:
    """Complain where nothing of that name can be verified; what is installed may be damaged.

    Raises:
        UsageError: it is not installed, is for another Python only, or is not a toolchain's name.
    """
    if name in list_damaged():
        return
    found = _require(name)
    if not found.fits:
        raise UsageError(
            f"{found.name} is for another Python ({found.python}; this one is {this_python()}); "
            "verify it with the triage of that Python"
        )


def verify(name: str) -> Toolchain:
    """Hash an installed toolchain again and run it again.

    Raises:
        UsageError: as `require_installed`.
        IntegrityError: a file is missing or was changed since the install.
        StorageError: its marker is damaged.
        InfrastructureError: it no longer runs, or says that it is another version.
    """
    require_installed(name)
    found = _require(name)
    check(found)
    return found


def remove(name: str) -> None:
    """Delete an installed toolchain, and nothing that is not one.

    Raises:
        UsageError: it is not installed, or the folder is not ours.
        StorageError: it cannot be deleted.
    """
    _parts_of(name)
    # By the folder's name first: the marker in it may be damaged.
    known = (toolchain_folder(each) for each in (f"{name}-{this_python()}", name))
    folder = next((each for each in known if each.exists()), None)
    remove_folder(folder or _require(name).path, marker=MARKER)


def _parts_of(name: str) -> tuple[str, str, str]:
    """Kind, version, and Python or environment (or empty) of a toolchain's name.

    Raises:
        UsageError: it is none.
    """
    match = NAME.fullmatch(name)
    try:
        if match and match[1] in _kinds() and str(Version(match[2])) == match[2]:
            return match[1], match[2], match[3] or ""
    except InvalidVersion:
        pass
    raise UsageError(f"{name!r} is not the name of a toolchain; write it like ptxas-13.1.115")


def _kinds() -> set[str]:
    there = (NAME.fullmatch(name) for name in list_folders())
    return {TRITON, PTXAS, NVDISASM, *(match[1] for match in there if match)}


def find_installed(kind: str, version: Version) -> Toolchain | None:
    """The installed toolchain of that version which this Python can use.

    Raises:
        StorageError: its marker is damaged, or the cache cannot be read.
    """
    for name in (f"{kind}-{version}-{this_python()}", f"{kind}-{version}"):
        found = read_toolchain(name)
        if found is not None and found.fits:
            return found
    # 3.6 and 3.6.0 are one version.
    same = (each for each in list_installed() if each.kind == kind)
    return next((each for each in same if Version(each.version) == version), None)


def _named(name: str) -> Toolchain | None:
    """What is installed under a name: for this Python, else for the only one that there is.

    Raises:
        UsageError: several are, and the name says neither Python nor environment.
    """
    kind, version, which = _parts_of(name)
    same = [
        each
        for each in list_installed(of_any_python=True)
        if (each.kind, each.version) == (kind, version)
        and which in ("", each.python or each.environment)
    ]
    fitting = [each for each in same if each.fits]
    if len(fitting or same) > 1:
        names = [each.folder for each in fitting or same]
        what = "Pythons" if not fitting else "partners"
        raise UsageError(f"{name} is installed for several {what}; name one of {', '.join(names)}")
    return next(iter(fitting or same), None)


def _require(name: str) -> Toolchain:
    found = _named(name)
    if found is None:
        every = list_installed(of_any_python=True)
        names = ", ".join(dict.fromkeys(each.name for each in every)) or "nothing"
        raise UsageError(f"{name} is not installed; installed: {names}")
    return found
