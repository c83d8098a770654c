"""Virtual environments of compilers: one folder each, named by all that is in it.

`toolchains/KIND-VERSION-eDIGEST/` holds a whole virtual environment. The digest is that of what its
front end declares: each package with its version, the Python, and what it shares with triage's own
environment, file lists included. So two sets of partners of one version lie side by side, and what
lies there is never changed. Using one reads its marker: no network, no process, no lock.
"""

from __future__ import annotations

import hashlib
import json
import sys
import sysconfig
from pathlib import Path

from msgspec.structs import replace

from harness.io.files.writing import sha256_of
from harness.io.packages.wheels import (
    SharedPackage,
    create_environment,
    install_pins,
    link_packages,
    shared_packages,
)
from harness.io.processes.hub import run_tool
from harness.io.processes.machine import plain_environment
from harness.io.toolchains.installed import (
    VENV,
    Toolchain,
    list_installed,
    make_toolchain,
    read_toolchain,
    site_of,
)
from harness.values.errors import InfrastructureError
from harness.values.toolchain import Compiler, Environment

# Goes up when the same declaration comes to another folder.
_RULE = 1
_PROBE_SECONDS = 600.0
_PROBE = (
    "import importlib, json, platform, sys\n"
    "for name in sys.argv[1:]: importlib.import_module(name)\n"
    "print(); print(json.dumps(platform.python_version()))"
)


def install_environment(declared: Environment) -> Compiler:
    """The compiler that lives in an environment, which is installed if it is not there yet.

    Raises:
        UsageError: the index has no wheel of one of its packages.
        InfrastructureError: there is no such Python, what it shares is not installed beside
            triage, or the packages cannot be imported together.
        OfflineError, IntegrityError, StorageError: as `harness.io.packages.wheels`.
    """
    shared = shared_packages(declared.shared)
    planned = _planned(declared, shared)

    def fill(folder: Path, scratch: Path) -> Toolchain:
        venv, python = folder / VENV, folder / planned.executable
        create_environment(venv, python=declared.python or sys.executable, scratch=scratch)
        install_pins(declared.pins, python, scratch=scratch)
        link_packages(shared, site_of(venv))
        banner = probe_environment(planned, folder)
        return replace(planned, executable_sha256=sha256_of(python), banner=banner)

    return compiler_in(read_toolchain(planned.name) or make_toolchain(planned, fill))


def planned_environment(declared: Environment) -> Compiler:
    """What `install_environment` would give; nothing is installed.

    Raises:
        InfrastructureError: what it shares is not installed beside triage.
    """
    return compiler_in(_planned(declared, shared_packages(declared.shared)))


def is_installed(compiler: Compiler) -> bool:
    """Whether the environment of a compiler, if it has its own, is there, and not only planned."""
    return compiler.python is None or compiler.python.exists()


def environments_of(kind: str) -> list[Toolchain]:
    """The installed environments of one kind of compiler that have all that they share."""
    return [toolchain for toolchain in list_installed(kind) if toolchain.environment]


def compiler_in(toolchain: Toolchain) -> Compiler:
    """The compiler that lives in an installed environment."""
    return Compiler(
        kind=toolchain.kind,
        version=toolchain.version,
        origin=toolchain.distribution,
        sha256=toolchain.sha256,
        python=toolchain.path / toolchain.executable,
        partners=(*toolchain.dependencies, *toolchain.shared),
    )


def _planned(declared: Environment, shared: tuple[SharedPackage, ...]) -> Toolchain:
    """The marker, but for what only the finished environment tells."""
    own, *partners = declared.pins
    # All that decides what the environment holds.
    parts = {
        "rule": _RULE,
        "pins": list(map(str, declared.pins)),
        "python": declared.python
        or [sys.version, sysconfig.get_config_var("SOABI"), sys.base_prefix],
        "platform": sysconfig.get_platform(),
        "imports": declared.imports,
        "shared": [
            [str(package), package.record, *map(str, package.entries)] for package in shared
        ],
    }
    digest = hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
    return Toolchain(
        kind=declared.kind,
        version=declared.version,
        distribution=own.name,
        filename="",
        sha256=digest,
        executable=f"{VENV}/bin/python",
        executable_sha256="",
        banner="",
        dependencies=tuple(map(str, partners)),
        shared=tuple(map(str, shared)),
        imports=declared.imports,
        environment=f"e{digest[:12]}",
        installed="",
    )


def probe_environment(toolchain: Toolchain, folder: Path) -> str:
    """The version of Python in an environment's folder, after importing what must be importable.

    Raises:
        InfrastructureError: something cannot be imported there.
    """
    argv: list[str | Path] = [folder / toolchain.executable, "-I", "-c", _PROBE, *toolchain.imports]
    result = run_tool(argv, timeout=_PROBE_SECONDS, env=plain_environment(), cwd=folder)
    if not result.end.ok:
        packages = ", ".join((*toolchain.dependencies, *toolchain.shared))
        beside = f" beside {packages}" if packages else ""
        raise InfrastructureError(
            f"{toolchain.kind}-{toolchain.version} cannot be imported{beside} "
            f"({result.last_words[:300]}); choose another version"
        )
    return f"Python {json.loads(result.stdout.splitlines()[-1])}"
