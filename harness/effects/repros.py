"""Finds what `--kernel` names: a repro, a Python file, a PTX file."""

from __future__ import annotations

import difflib
from pathlib import Path

import msgspec

import harness
from harness.effects.launch_files import launches_of_repro, launches_of_script
from harness.effects.yaml_files import read_yaml
from harness.logic.ptx import MAX_BYTES, PtxError, read_ptx
from harness.values.errors import ConfigurationError, TriageError, UsageError
from harness.values.kernel import Pin, Repro, Source
from harness.values.target import Target

__all__ = ["find_kernel", "list_repros"]

_FILE = "repro.yaml"


class _Pin(msgspec.Struct, forbid_unknown_fields=True):
    package: str
    version: str
    sha256: str


class _Source(msgspec.Struct, forbid_unknown_fields=True):
    package: str
    version: str
    sha256: str
    module: str


class _ReproFile(msgspec.Struct, forbid_unknown_fields=True):
    kernel: str
    launch: str = "launch.py"
    summary: str = ""
    source: _Source | None = None
    requires: list[_Pin] = []
    issue: str | None = None
    triton: str | None = None
    targets: list[str] = []
    tags: list[str] = []


def _folders() -> list[Path]:
    """Where repros are looked for; the user's own come first."""
    package = Path(harness.__file__).parent
    shipped = [package / "data" / "repros", package.parent / "repros"]
    return [path for path in (Path("repros"), *shipped) if path.is_dir()]


def list_repros() -> tuple[list[Repro], list[TriageError]]:
    """Every repro by name, and the complaints about those that cannot be read."""
    repros: dict[str, Repro] = {}
    errors: dict[str, TriageError] = {}
    for folder in _folders():
        for path in sorted(folder.glob(f"*/{_FILE}")):
            name = path.parent.name
            if name in repros or name in errors:
                continue
            try:
                repros[name] = _read(path)
            except TriageError as error:
                errors[name] = error
    return [repros[name] for name in sorted(repros)], list(errors.values())


def find_kernel(text: str) -> Repro:
    """The repro that `--kernel TEXT` means.

    Raises:
        UsageError: nothing has that name (near ones are told), or the file cannot be used.
    """
    path, _, kernel = text.partition("::")
    if path.endswith(".ptx"):
        return _ptx_file(Path(path), kernel or None)
    if path.endswith(".py"):
        return _python_file(Path(path), kernel or None)
    for folder in _folders():
        if (folder / text / _FILE).is_file():
            return _read(folder / text / _FILE)
    names = sorted({file.parent.name for folder in _folders() for file in folder.glob(f"*/{_FILE}")})
    near = difflib.get_close_matches(text, names, n=3, cutoff=0.4)
    hint = f"near names: {', '.join(near)}" if near else "`triage kernels` lists them"
    raise UsageError(f"no kernel {text!r}; {hint}; or give FILE.py::NAME or FILE.ptx")


def _read(path: Path) -> Repro:
    data = read_yaml(path, _ReproFile)
    launch = path.parent / data.launch
    if launch.resolve().parent != path.parent.resolve() or not launch.is_file():
        raise ConfigurationError(f"{path}: launch: no file {data.launch!r} in {path.parent}")
    for pin in [*([data.source] if data.source else []), *data.requires]:
        if len(pin.sha256) != 64 or set(pin.sha256) - set("0123456789abcdef"):
            raise ConfigurationError(
                f"{path}: sha256 of {pin.package}: {pin.sha256!r} is not 64 lower-case hex digits"
            )
    source = data.source
    return Repro(
        name=path.parent.name,
        kernel=data.kernel,
        folder=path.parent,
        file=launch,
        launches=launches_of_repro(launch),
        source=source
        and Source(
            pin=Pin(package=source.package, version=source.version, sha256=source.sha256),
            module=source.module,
        ),
        requires=tuple(
            Pin(package=pin.package, version=pin.version, sha256=pin.sha256) for pin in data.requires
        ),
        issue=data.issue,
        summary=data.summary,
        triton=data.triton,
        targets=tuple(str(_target(path, text)) for text in data.targets),
        tags=tuple(data.tags),
    )


def _target(path: Path, text: str) -> Target:
    try:
        return Target.parse(text)
    except UsageError as error:
        raise ConfigurationError(f"{path}: targets: {error}") from error


def _python_file(path: Path, kernel: str | None) -> Repro:
    if not path.is_file():
        raise UsageError(f"{path}: no such file")
    launches = launches_of_script(path)
    name = f"{path.name}::{kernel}" if kernel else path.name
    return Repro(name=name, kernel=kernel, folder=path.parent, file=path, launches=launches)


def _ptx_file(path: Path, kernel: str | None) -> Repro:
    if not path.is_file():
        raise UsageError(f"{path}: no such file")
    size = path.stat().st_size
    if size > MAX_BYTES:
        raise UsageError(f"{path}: {size:,} bytes; PTX of more than {MAX_BYTES:,} is not read")
    data = path.read_bytes()
    if not data.strip():
        raise UsageError(f"{path}: the file is empty")
    try:
        text = data.decode("utf-8")
        if "\0" in text:
            raise PtxError("it holds binary data")
        facts = read_ptx(text, kernel)
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: not PTX: it holds binary data") from error
    except PtxError as error:
        raise UsageError(f"{path}: {error}") from error
    name = f"{path.name}::{facts.entry}" if kernel else path.name
    return Repro(
        name=name,
        kernel=facts.entry,
        folder=path.parent,
        file=path,
        ptx=path,
        targets=(str(Target.parse(facts.target)),),
    )
