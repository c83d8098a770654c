"""Finds what `--kernel` names: a repro, a Python file, a PTX file."""

from __future__ import annotations

import difflib
import os
import re
from pathlib import Path
from typing import NoReturn

import msgspec
from packaging.version import InvalidVersion, Version

import harness
from harness.effects.launch_files import launches_of_repro, launches_of_script
from harness.effects.yaml_files import FieldError, read_yaml
from harness.logic.ptx import MAX_BYTES, PtxError, read_ptx
from harness.values.errors import TriageError, UsageError
from harness.values.kernel import Pin, Repro, Source
from harness.values.target import Target

__all__ = ["find_kernel", "list_repros"]

_FILE = "repro.yaml"

_NAME = re.compile(r"\w[\w.+-]{0,199}")
_PYTHON_FILE = re.compile(r"\w[\w.-]*\.py")
_PACKAGE = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")
_SHA256 = re.compile(r"[0-9a-f]{64}")


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
    if _NAME.fullmatch(text):
        for folder in _folders():
            if (folder / text / _FILE).is_file():
                return _read(folder / text / _FILE)
    names = sorted(
        {file.parent.name for folder in _folders() for file in folder.glob(f"*/{_FILE}")}
    )
    near = difflib.get_close_matches(text[:100], names, n=3, cutoff=0.4)
    hint = f"near names: {', '.join(near)}" if near else "`triage kernels` lists them"
    raise UsageError(f"no kernel {text[:200]!r}; {hint}; or give FILE.py::NAME or FILE.ptx")


def _read(path: Path) -> Repro:
    data = read_yaml(path, _ReproFile, _check)
    launch = path.parent / data.launch
    if not _is_inside(launch, path.parent):
        # `read_yaml` is asked again only to find the line.
        read_yaml(path, _ReproFile, lambda data: _no_launch(data, path.parent))
    source = data.source
    return Repro(
        name=path.parent.name,
        kernel=data.kernel,
        folder=path.parent,
        file=launch,
        launches=launches_of_repro(launch),
        source=Source(pin=_pin(source), module=source.module) if source else None,
        requires=tuple(_pin(pin) for pin in data.requires),
        issue=data.issue,
        summary=data.summary,
        triton=data.triton,
        targets=tuple(str(Target.parse(text)) for text in data.targets),
        tags=tuple(data.tags),
    )


def _pin(pin: _Pin | _Source) -> Pin:
    return Pin(package=pin.package, version=pin.version, sha256=pin.sha256)


def _check(data: _ReproFile) -> None:
    """What the types do not say.

    Raises:
        FieldError: a value makes no sense.
    """
    if not data.kernel.isidentifier():
        raise FieldError("$.kernel", f"{data.kernel!r} is not the name of a Python function")
    if not _PYTHON_FILE.fullmatch(data.launch):
        said = f"{data.launch!r} is not the name of a Python file beside {_FILE}"
        raise FieldError("$.launch", said)
    if data.triton is not None and not _is_version(data.triton):
        raise FieldError("$.triton", f"{data.triton!r} is not a version, like 3.6.0")
    for index, text in enumerate(data.targets):
        _check_target(f"$.targets[{index}]", text)
    if data.source:
        _check_pin("$.source", data.source)
        if not all(part.isidentifier() for part in data.source.module.split(".")):
            said = f"{data.source.module!r} is not the dotted name of a module"
            raise FieldError("$.source.module", said)
    for index, pin in enumerate(data.requires):
        _check_pin(f"$.requires[{index}]", pin)


def _check_target(where: str, text: str) -> None:
    try:
        Target.parse(text)
    except UsageError as error:
        raise FieldError(where, str(error)) from error


def _check_pin(where: str, pin: _Pin | _Source) -> None:
    if not _PACKAGE.fullmatch(pin.package):
        raise FieldError(f"{where}.package", f"{pin.package!r} is not the name of a package")
    if not _is_version(pin.version):
        raise FieldError(f"{where}.version", f"{pin.version!r} is not a version")
    if not _SHA256.fullmatch(pin.sha256):
        raise FieldError(f"{where}.sha256", f"{pin.sha256!r} is not 64 lower-case hex digits")


def _is_version(text: str) -> bool:
    try:
        Version(text)
    except InvalidVersion:
        return False
    return True


def _is_inside(file: Path, folder: Path) -> bool:
    """A file in this very folder: not elsewhere, by a symbolic link either."""
    real = os.path.realpath(file)
    return file.is_file() and os.path.dirname(real) == os.path.realpath(folder)  # noqa: PTH120


def _no_launch(data: _ReproFile, folder: Path) -> NoReturn:
    raise FieldError("$.launch", f"no file {data.launch!r} in {folder}")


def _spelling(path: Path) -> str:
    """How cells spell a file: as the user does, so that equal names in two folders stay apart."""
    return os.path.normpath(path)


def _readable(path: Path) -> None:
    if path.is_dir():
        raise UsageError(f"{path}: a folder; name a file in it")
    if not path.is_file():
        raise UsageError(f"{path}: no such file")


def _python_file(path: Path, kernel: str | None) -> Repro:
    _readable(path)
    launches = launches_of_script(path)
    name = f"{_spelling(path)}::{kernel}" if kernel else _spelling(path)
    return Repro(name=name, kernel=kernel, folder=path.parent, file=path, launches=launches)


def _ptx_file(path: Path, kernel: str | None) -> Repro:
    _readable(path)
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from error
    if len(data) > MAX_BYTES:
        raise UsageError(f"{path}: PTX of more than {MAX_BYTES:,} bytes is not read")
    if not data.strip():
        raise UsageError(f"{path}: the file is empty")
    try:
        facts = read_ptx(data.decode("utf-8"), kernel)
        target = Target.parse(facts.target)
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: not PTX: it holds binary data") from error
    except (PtxError, UsageError) as error:
        raise UsageError(f"{path}: {error}") from error
    entry = f"::{facts.entry}" if kernel else ""
    return Repro(
        name=f"{_spelling(path)}{entry}",
        kernel=kernel,
        folder=path.parent,
        file=path,
        ptx=path,
        targets=(str(target),),
    )
