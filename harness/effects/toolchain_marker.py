"""The folders of installed toolchains, and the marker file in each that says what it holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from harness.effects.locations import cache_dir, storage_error
from harness.values.errors import StorageError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = [
    "MARKER",
    "NVDISASM",
    "PTXAS",
    "TRITON",
    "Toolchain",
    "read_toolchain",
    "toolchain_folder",
    "toolchains_root",
]

MARKER = ".triage-toolchain.json"
TRITON, PTXAS, NVDISASM = "triton", "ptxas", "nvdisasm"
"""The kinds of toolchains."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Toolchain:
    """What the marker of one installed toolchain says.

    `distribution`, `filename` and `sha256` are those of the wheel; `executable` is relative to the
    folder and `executable_sha256` its hash (for Triton: its compiled library); `banner` is what
    `--version` printed, or the `__version__` that Triton gives; `dependencies` are wheels that
    were installed beside it; `installed` is a time in ISO 8601, UTC.
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
    installed: str

    @property
    def name(self) -> str:
        """How users spell it: `ptxas-13.1.115`."""
        return f"{self.kind}-{self.version}"

    @property
    def path(self) -> Path:
        """Its folder."""
        return toolchain_folder(self.name)


def toolchains_root() -> Path:
    """The folder that holds them all; it need not exist."""
    return cache_dir() / "toolchains"


def toolchain_folder(name: str) -> Path:
    """The folder of the toolchain of that name (`ptxas-13.1.115`), installed or not."""
    return toolchains_root() / name


def read_toolchain(name: str) -> Toolchain | None:
    """What is installed under that name; None if nothing is.

    Raises:
        StorageError: its marker is damaged or cannot be read.
    """
    path = toolchain_folder(name) / MARKER
    try:
        return msgspec.json.decode(path.read_bytes(), type=Toolchain)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise storage_error(error, path, "read") from error
    except msgspec.MsgspecError as error:
        raise StorageError(
            f"the marker of {name} is damaged ({path}); remove {name} and install it again"
        ) from error
