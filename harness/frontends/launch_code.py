"""Launch code and its sources, brought to this machine: nothing of it is run here."""

from __future__ import annotations

import hashlib
import importlib
import itertools
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from msgspec.structs import replace

from harness.frontends.sessions import CaptureRequest, LaunchCode
from harness.io.children.read_facts import (
    environment_fact,
    file_fact,
    folder_fact,
    kind_fact,
    module_origin,
    value_fact,
)
from harness.io.files.reading import read_regular
from harness.io.files.writing import scratch_disk
from harness.io.packages.archives import fetch_sdist, fetch_wheel, is_fetched
from harness.values.errors import ConfigurationError, UsageError
from harness.values.kernel import LaunchSpec, Repro
from harness.values.limits import Limits, limits_of
from harness.values.outcome import Reads
from harness.values.target import Target


def fetch_launch_code(
    repro: Repro, launch: LaunchSpec, overrides: Mapping[str, object]
) -> LaunchCode:
    """Bring a launch's sources to this machine (cached); nothing of them is run.

    Raises:
        ConfigurationError: the pinned sdist does not hold the module that the repro names.
        TriageError: a source cannot be fetched.
    """
    if launch.file:
        # IR to go on from: nothing is fetched, nothing is run; the options are all that matters.
        options = {parameter.name: parameter.default for parameter in launch.parameters}
        return LaunchCode(
            file=launch.file,
            function=None,
            overrides={k: v for k, v in {**options, **overrides}.items() if v is not None},
            identity={"file": _sha256(launch.file), "stage": launch.name},
        )
    paths = [fetch_wheel(pin.package, pin.version, pin.sha256) for pin in repro.requires]
    root = (import_root(repro),) if repro.source else ()
    return LaunchCode(
        file=repro.file,
        function=launch.function,
        overrides=overrides,
        paths=(*paths, *root),
        # A user's own file imports a package as it is: what its `__init__` needs is the user's.
        bare=root if repro.group else (),
        identity={
            "file": _sha256(repro.file),
            "path": str(repro.file.resolve()),
            "pins": [pin.sha256 for pin in repro.requires],
            "source": repro.source.sha256 if repro.source else None,
        },
    )


def has_launch_code(repro: Repro) -> bool:
    """Whether `fetch_launch_code` would fetch nothing."""
    pins = [*repro.requires, *([repro.source] if repro.source else [])]
    return all(is_fetched(pin.package, pin.version, pin.sha256) for pin in pins)


def launch_sha256(repro: Repro, launch: LaunchSpec) -> str:
    """A hash of the file that launches a kernel and of the packages that it names, fetched or not.

    Raises:
        OSError: the file cannot be read.
    """
    pins = [*repro.requires, *([repro.source] if repro.source else [])]
    words = [_sha256(launch.file or repro.file), *(pin.sha256 for pin in pins)]
    return hashlib.sha256(" ".join(words).encode()).hexdigest()


def import_root(repro: Repro) -> Path:
    """The folder of its package's source (cached) from which the repro's module can be imported.

    Raises:
        ConfigurationError: the source does not hold the module that the repro names.
        TriageError: the source cannot be fetched.
    """
    assert repro.source is not None
    pin = repro.source
    folder = fetch_sdist(pin.package, pin.version, pin.sha256)
    parts = repro.source.module.split(".")
    for root in (folder, folder / "src", *sorted(folder.glob("*/")), *sorted(folder.glob("*/src"))):
        place = root.joinpath(*parts)
        if place.with_suffix(".py").is_file() or (place / "__init__.py").is_file():
            return root
    raise ConfigurationError(
        f"{repro.folder / 'repro.yaml'}: source.module: no {repro.source.module!r} "
        f"in {repro.source.package} {repro.source.version}"
    )


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def capture_request(
    code: LaunchCode, target: Target, limits: Limits | None = None
) -> CaptureRequest:
    """What a child needs to run the launch as `target` would see it, which has these limits."""
    limits = limits or limits_of(target.capability)
    assert limits is not None, "targets are checked when they are chosen"
    launch = {name: getattr(code, name) for name in LaunchCode.__struct_fields__}
    return CaptureRequest(**launch, capability=target.capability, limits=limits)


OWN_VARIABLES = frozenset({"HOME", "TMPDIR"})
# The size of the terminal, which pytest and argparse ask for: no kernel depends on it.
_OF_TERMINALS = frozenset({"COLUMNS", "LINES"})
"""Each child has a home and a temporary folder of its own, and sets these itself."""

_Stamp = tuple[int, int, int]
_HASHED: dict[str, tuple[_Stamp, str | None]] = {}


def is_unchanged(reads: Reads, environment: Mapping[str, str]) -> bool:
    """Whether launch code in this environment would find what it found then."""
    if reads.unseen or reads.environment not in (None, environment_fact(environment)):
        return False
    same = itertools.chain(
        (value_fact(environment.get(name)) == fact for name, fact in reads.variables.items()),
        (kind_fact(path) == fact for path, fact in reads.kinds.items()),
        (folder_fact(path) == fact for path, fact in reads.folders.items()),
        (_file_fact(path) == fact for path, fact in reads.files.items()),
    )
    if not all(same):
        return False
    if reads.modules:
        importlib.invalidate_caches()
    return all(
        module_origin(name, search.path) == origin
        for search in reads.modules
        for name, origin in search.found.items()
    )


def withheld(
    reads: Reads, environment: Mapping[str, str], never: frozenset[str] = frozenset()
) -> list[str]:
    """The user's variables that launch code reads, and that its environment does not have.

    Those that children never get (`never`: a compiler's cache, say) are not among them, nor the
    size of the terminal.
    """
    never |= OWN_VARIABLES | _OF_TERMINALS
    return sorted(reads.variables.keys() & os.environ.keys() - environment.keys() - never)


def _file_fact(path: str) -> str | None:
    """As `file_fact`; a file that many captures read is hashed once."""
    try:
        facts = os.stat(path)  # noqa: PTH116 - the path is text, as it was kept
    except (OSError, ValueError):
        return file_fact(path)
    stamp = (facts.st_mtime_ns, facts.st_size, facts.st_ino)
    hashed = _HASHED.get(path)
    if hashed is None or hashed[0] != stamp:
        hashed = _HASHED[path] = (stamp, file_fact(path))
    return hashed[1]


_MOST_BYTES = 4 << 20


def read_source(path: Path) -> str:
    """A Python file as it is, with its line ends.

    Raises:
        UsageError: it cannot be read, or is not UTF-8.
    """
    try:
        return read_regular(path, _MOST_BYTES).decode()
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: not UTF-8: {error.reason}") from error


def copy_with(code: LaunchCode, file: Path, text: str, folder: Path) -> LaunchCode | None:
    """The launch from a copy in `folder` (new) in which `file` holds `text`.

    None where the file does not come from the launch's own sources.

    Raises:
        InfrastructureError: the copy cannot be written.
    """
    is_launch = file == code.file.resolve()
    roots = (path.resolve() for path in code.paths)
    root = next((root for root in roots if file.is_relative_to(root)), None)
    if root is None and not is_launch:
        return None
    digest = hashlib.sha256(text.encode()).hexdigest()
    with scratch_disk():
        if is_launch or root is None:
            # What it imports from beside itself stays where it is.
            folder.mkdir(parents=True)
            copy = folder / file.name
            copy.write_bytes(text.encode())
            identity = {**code.identity, "file": digest, "path": file.name}
            return replace(code, file=copy, beside=(file.parent,), identity=identity)
        shutil.copytree(root, folder, symlinks=True)
        copy = folder / file.relative_to(root)
        copy.write_bytes(text.encode())

    def moved(paths: tuple[Path, ...]) -> tuple[Path, ...]:
        return tuple(folder if path.resolve() == root else path for path in paths)

    identity = {**code.identity, "source": digest}
    return replace(code, paths=moved(code.paths), bare=moved(code.bare), identity=identity)
