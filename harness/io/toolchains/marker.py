"""The folders of installed toolchains, and the marker file in each that says what it holds."""

from __future__ import annotations

import functools
import re
import sysconfig
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
from packaging.utils import InvalidWheelFilename, parse_wheel_filename
from packaging.version import Version

from harness.io.files.locations import cache_dir, storage_error
from harness.values.errors import StorageError

MARKER = ".triage-toolchain.json"
TRITON, PTXAS, NVDISASM = "triton", "ptxas", "nvdisasm"
"""The kinds of toolchains, beside those of compilers with an environment of their own."""
NAME = re.compile(r"([a-z][a-z0-9_]*)-(.+?)(?:-([a-z]\w*))?")
"""A toolchain's name: kind, version, and the Python or the environment where one is named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Toolchain:
    """What the marker of one installed toolchain says.

    `distribution`, `filename` and `sha256` are those of the wheel; `executable` is relative to the
    folder and `executable_sha256` its hash (for Triton: its compiled library); `banner` is what
    `--version` printed, or the `__version__` that Triton gives; `dependencies` are wheels that
    were installed beside it; `installed` is a time in ISO 8601, UTC. `folder` is the name of its
    folder, which is not part of the marker. Of a compiler in a virtual environment of its own,
    `environment` tells it from others of the same version, `shared` are packages of triage's own
    environment that are linked into it, and `imports` the modules that it must be able to import.
    """

    kind: str
    version: str
    distribution: str
    filename: str
    sha256: str
    executable: str
    executable_sha256: str
    banner: str
    dependencies: tuple[str, ...] = ()
    shared: tuple[str, ...] = ()
    imports: tuple[str, ...] = ()
    environment: str = ""
    installed: str
    folder: str = ""

    @property
    def name(self) -> str:
        """How users spell it: `ptxas-13.1.115`."""
        own = f"{self.kind}-{self.version}"
        return f"{own}-{self.environment}" if self.environment else own

    @property
    def python(self) -> str:
        """The ABI of the Python that its compiled modules are for (`cp312`); empty for any."""
        return _abi_of(self.filename)

    @property
    def fits(self) -> bool:
        """Whether this Python can import it."""
        return self.python in ("", this_python())

    @property
    def path(self) -> Path:
        """Its folder."""
        return toolchain_folder(self.folder or self.name)


def folder_name(kind: str, version: object, filename: str) -> str:
    """The folder of what a wheel holds: one for each Python where it holds compiled modules."""
    abi = _abi_of(filename)
    return f"{kind}-{version}-{abi}" if abi else f"{kind}-{version}"


@functools.cache
def this_python() -> str:
    """The ABI of the running Python, as wheels spell it: `cp312`, `cp313t`."""
    implementation, version, *_ = str(sysconfig.get_config_var("SOABI")).split("-")
    return f"cp{version}" if implementation == "cpython" else f"{implementation}_{version}"


@functools.cache
def _abi_of(filename: str) -> str:
    """Empty where any Python will do (`none`, `abi3`)."""
    try:
        abis = {tag.abi for tag in parse_wheel_filename(filename)[3]} - {"none", "abi3"}
    except InvalidWheelFilename:
        return ""  # of a marker that was written by hand: nothing is known of it
    return min(abis, default="")


def toolchains_root() -> Path:
    """The folder that holds them all; it need not exist."""
    return cache_dir() / "toolchains"


def list_folders() -> list[str]:
    """The names of all folders there that may be a toolchain's.

    Raises:
        StorageError: the cache cannot be read.
    """
    root = toolchains_root()
    try:
        names = sorted(path.name for path in root.iterdir()) if root.is_dir() else []
    except OSError as error:
        raise storage_error(error, root, "read") from error
    return [name for name in names if NAME.fullmatch(name)]


def toolchain_folder(name: str) -> Path:
    """The folder of the toolchain of that name (`ptxas-13.1.115`), installed or not."""
    return toolchains_root() / name


def read_toolchain(name: str) -> Toolchain | None:
    """What is installed in the folder of that name; None if nothing is.

    Raises:
        StorageError: its marker is damaged or cannot be read.
    """
    path = toolchain_folder(name) / MARKER
    try:
        found = msgspec.json.decode(path.read_bytes(), type=Toolchain)
        Version(found.version)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise storage_error(error, path, "read") from error
    except ValueError as error:
        raise StorageError(
            f"the marker of {name} is damaged ({path}); remove {name} and install it again"
        ) from error
    return replace(found, folder=name)
