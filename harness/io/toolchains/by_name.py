"""An executable of a toolchain by names: another machine looks it up by them, or installs it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from packaging.version import Version

from harness.io.toolchains.bundled import installed_package, installed_triton
from harness.io.toolchains.damage import digest_of
from harness.io.toolchains.install import install_nvdisasm, install_ptxas, install_triton
from harness.io.toolchains.installed import find_installed
from harness.io.toolchains.marker import NVDISASM, PTXAS, TRITON, read_toolchain, toolchains_root
from harness.values.errors import InfrastructureError, StorageError
from harness.values.toolchain import INSTALLED

_INSTALL: Mapping[str, Callable[[str], object]] = {
    PTXAS: install_ptxas,
    NVDISASM: install_nvdisasm,
    TRITON: install_triton,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedTool:
    """A `file` in the folder of a toolchain, and the sha256 that it has.

    `kind` is `installed` for the Triton beside triage; the file is then in its package.
    """

    kind: str
    version: str
    file: str
    sha256: str

    @property
    def words(self) -> str:
        """For people: `ptxas 13.1.115`, or `ptxas of triton 3.6.0`."""
        name = Path(self.file).name
        own = TRITON if self.kind == INSTALLED else self.kind
        return f"{name} {self.version}" if name == own else f"{name} of {own} {self.version}"


def name_tool(path: Path) -> NamedTool | None:
    """The names of an executable; None where another machine could not find it by them.

    Raises:
        StorageError: it cannot be read.
    """
    root, package = toolchains_root(), installed_package()
    if path.is_relative_to(root):
        folder = path.relative_to(root).parts[0]
        found = read_toolchain(folder)
        if found is None or found.kind not in _INSTALL:
            return None
        kind, version, file = found.kind, found.version, path.relative_to(root / folder)
    elif package is not None and path.is_relative_to(package):
        kind, version = INSTALLED, installed_triton().version
        file = path.relative_to(package)
    else:
        return None
    try:
        return NamedTool(kind=kind, version=version, file=str(file), sha256=digest_of(path))
    except OSError as error:
        raise StorageError(f"{path} cannot be read: {error.strerror}") from error


def find_tool(name: NamedTool) -> Path:
    """The executable on this machine; its toolchain is installed if it is not yet.

    Raises:
        UsageError, InfrastructureError: there is none, it cannot be installed, or is another file.
    """
    if name.kind == INSTALLED:
        folder = installed_package()
    else:
        _INSTALL[name.kind](name.version)
        found = find_installed(name.kind, Version(name.version))
        folder = found.path if found else None
    if folder is None or not (folder / name.file).is_file():
        raise InfrastructureError(f"there is no {name.words}")
    if digest_of(folder / name.file) != name.sha256:
        raise InfrastructureError(f"{name.words} is another file than where this was started")
    return folder / name.file
