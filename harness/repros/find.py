"""Finds what `--kernel` names: a repro, a Python file, a PTX file."""

from __future__ import annotations

import difflib
import os
import re
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import msgspec

import harness
from harness.files.yaml_files import FieldError, read_yaml
from harness.frontends.base import FrontEnd
from harness.frontends.registry import front_ends
from harness.frontends.triton.ir_inputs import SUFFIXES, launch_from, read_file, spelling
from harness.packages.versions import parse_version
from harness.repros.launch_files import launches_of_repro, launches_of_script
from harness.values.errors import TriageError, UsageError
from harness.values.kernel import KernelSource, Operation, Pin, PtxInputs, Repro
from harness.values.target import Target

if TYPE_CHECKING:
    from collections.abc import Mapping

    from harness.values.kernel import LaunchSpec

__all__ = ["find_kernel", "find_kernels", "list_repros"]

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


class _Operation(msgspec.Struct, forbid_unknown_fields=True):
    kernel: str
    launch: str | None = None
    parameters: dict[str, bool | int | float | str] = {}


class _Inputs(msgspec.Struct, forbid_unknown_fields=True):
    """What raw PTX is launched with."""

    buffers: dict[str, str] = {}
    scalars: dict[str, int | float | str] = {}
    expect: dict[str, str] = {}
    grid: str | int | None = None
    block: str | int | None = None
    shared: int | None = None


class _Kernel(msgspec.Struct, forbid_unknown_fields=True):
    """One of several kernels of a file; what it leaves out is as the file says."""

    kernel: str
    summary: str = ""
    launches: list[str] = []
    check: dict[str, bool | int | float | str] = {}
    tunable: dict[str, list[bool | int | float | str]] = {}
    operation: _Operation | None = None
    reference: str | None = None
    configs: int | None = None
    issue: str | None = None
    triton: str | None = None
    targets: list[str] = []


class _ReproFile(msgspec.Struct, forbid_unknown_fields=True):
    kernel: str | None = None
    kernels: dict[str, _Kernel] = {}
    launch: str = "launch.py"
    files: list[str] = []
    options: dict[str, bool | int | float | str] = {}
    launches: list[str] = []
    check: dict[str, bool | int | float | str] = {}
    tunable: dict[str, list[bool | int | float | str]] = {}
    operation: _Operation | None = None
    reference: str | None = None
    inputs: _Inputs | None = None
    configs: int | None = None
    summary: str = ""
    source: _Source | None = None
    requires: list[_Pin] = []
    issue: str | None = None
    triton: str | None = None
    targets: list[str] = []
    tags: list[str] = []

    def by_name(self, folder: str) -> dict[str, _Kernel]:
        """The kernels by name: one that is alone has the name of its folder."""
        if self.kernel is None:
            return self.kernels
        alone = _Kernel(
            kernel=self.kernel,
            launches=self.launches,
            configs=self.configs,
            reference=self.reference,
        )
        return {folder: alone}


def _folders() -> list[Path]:
    """Where repros are looked for; the user's own come first."""
    package = Path(harness.__file__).parent
    shipped = [package / "data" / "repros", package.parent / "repros"]
    return [path for path in (Path("repros"), *shipped) if path.is_dir()]


def list_repros() -> tuple[list[Repro], list[TriageError]]:
    """Every repro by name, and the complaints about those that cannot be read."""
    repros: dict[str, Repro] = {}
    errors: list[TriageError] = []
    seen: set[str] = set()
    for path in _files():
        if path.parent.name in seen:
            continue
        seen.add(path.parent.name)
        try:
            for repro in _read(path):
                # A name that the user has taken is the user's.
                repros.setdefault(repro.name, repro)
        except TriageError as error:
            errors.append(error)
    return [repros[name] for name in sorted(repros)], errors


def _files() -> list[Path]:
    return [path for folder in _folders() for path in sorted(folder.glob(f"*/{_FILE}"))]


def find_kernel(text: str) -> Repro:
    """The one repro that `--kernel TEXT` means.

    Raises:
        UsageError: nothing has that name (near ones are named), several have, or the file cannot
            be used.
    """
    found = find_kernels(text)
    if len(found) > 1:
        names = ", ".join(repro.name for repro in found[:8])
        more = ", ..." if len(found) > 8 else ""
        raise UsageError(f"--kernel {text}: name one of {names}{more}")
    return found[0]


def find_kernels(text: str) -> list[Repro]:
    """The repros that `--kernel TEXT` means: a name, a pattern, a folder of several; or a file.

    Raises:
        UsageError: nothing has that name (near ones are named), or the file cannot be used.
    """
    path, colons, kernel = text.partition("::")
    if colons and not kernel:
        raise UsageError(f"--kernel {text}: name the kernel after `::`, or leave `::` out")
    if end := _of_suffix(path):
        return [end.read_file(Path(path), kernel or None)]
    if path.endswith(".py"):
        return [_python_file(Path(path), kernel or None)]
    if _NAME.fullmatch(text):
        for folder in _folders():
            if (folder / text / _FILE).is_file():
                return _read(folder / text / _FILE)
    repros, errors = list_repros()
    found = [repro for repro in repros if fnmatchcase(repro.name, text)]
    if found:
        return found
    broken = [error for error in errors if text in str(error)]
    if broken:
        raise broken[0]
    near = difflib.get_close_matches(text[:100], [r.name for r in repros], n=3, cutoff=0.4)
    hint = f"near names: {', '.join(near)}" if near else "`triage kernels` lists them"
    raise UsageError(f"no kernel {text[:200]!r}; {hint}; or give FILE.py::NAME or FILE.ptx")


def _of_suffix(path: str) -> FrontEnd | None:
    """The front end that reads files of this name."""
    return next((end for end in front_ends() if path.endswith(end.suffixes)), None)


def _read(path: Path) -> list[Repro]:
    data = read_yaml(path, _ReproFile, _check)
    names = data.files or [data.launch]
    for index, name in enumerate(names):
        if not _is_inside(path.parent / name, path.parent):
            where = f"$.files[{index}]" if data.files else "$.launch"
            said = f"no file {name!r} in {path.parent}"
            # `read_yaml` is asked again only to find the line.
            read_yaml(path, _ReproFile, partial(_complain, where, said))
    file = path.parent / names[0]
    found = _from_files(path.parent, data) if data.files else launches_of_repro(file)
    launches = {launch.name: launch for launch in found}
    read_yaml(path, _ReproFile, lambda data: _check_launches(data, launches))
    source = data.source
    return [
        Repro(
            name=name,
            group=path.parent.name,
            kernel=one.kernel,
            folder=path.parent,
            file=file,
            launches=tuple(launches[chosen] for chosen in one.launches or launches),
            check=tuple({**data.check, **one.check}.items()),
            tunable=tuple(
                (parameter, tuple(values))
                for parameter, values in {**data.tunable, **one.tunable}.items()
            ),
            operation=_operation(one.operation or data.operation),
            reference=one.reference,
            inputs=_inputs(data.inputs),
            configs=one.configs,
            source=KernelSource(pin=_pin(source), module=source.module) if source else None,
            requires=tuple(_pin(pin) for pin in data.requires),
            issue=one.issue or data.issue,
            summary=one.summary or data.summary,
            version=one.triton or data.triton,
            targets=tuple(str(Target.parse(text)) for text in one.targets or data.targets),
            tags=tuple(data.tags),
        )
        for name, one in data.by_name(path.parent.name).items()
    ]


def _check_launches(data: _ReproFile, launches: Mapping[str, LaunchSpec]) -> None:
    """Names of launch functions and of their parameters.

    Raises:
        FieldError: there is none of that name.
    """
    parameters = {p.name for launch in launches.values() for p in launch.parameters}
    places: list[tuple[str, _ReproFile | _Kernel]] = [("$", data)]
    places += [(f"$.kernels.{name}", one) for name, one in data.kernels.items()]
    for where, place in places:
        for index, name in enumerate(place.launches):
            if name not in launches:
                said = f"no launch function {name!r}; {data.launch} has {', '.join(launches)}"
                raise FieldError(f"{where}.launches[{index}]", said)
        for key, names in (("check", place.check), ("tunable", place.tunable)):
            for name in names:
                if name not in parameters:
                    said = f"no launch function of {data.launch} has a parameter {name!r}"
                    raise FieldError(f"{where}.{key}", said)


def _operation(found: _Operation | None) -> Operation | None:
    if found is None:
        return None
    return Operation(
        kernel=found.kernel, launch=found.launch, parameters=tuple(found.parameters.items())
    )


def _inputs(found: _Inputs | None) -> PtxInputs | None:
    if found is None:
        return None
    return PtxInputs(
        buffers=tuple(f"{name}={text}" for name, text in found.buffers.items()),
        scalars=tuple(f"{name}={value}" for name, value in found.scalars.items()),
        expect=tuple(f"{name}={file}" for name, file in found.expect.items()),
        grid=None if found.grid is None else str(found.grid),
        block=None if found.block is None else str(found.block),
        shared=found.shared,
    )


def _pin(pin: _Pin | _Source) -> Pin:
    return Pin(package=pin.package, version=pin.version, sha256=pin.sha256)


def _check(data: _ReproFile) -> None:
    """What the types do not say.

    Raises:
        FieldError: a value makes no sense.
    """
    if data.kernel is None and not data.kernels:
        raise FieldError("$", "the key `kernel` is missing (or `kernels`, several by name)")
    if data.kernel is not None and data.kernels:
        raise FieldError("$.kernels", "give `kernel` or `kernels`, not both")
    places: list[tuple[str, _ReproFile | _Kernel]] = [("$", data)]
    for name, one in data.kernels.items():
        if not _NAME.fullmatch(name):
            raise FieldError("$.kernels", f"{name!r} is not a name for a kernel")
        places.append((f"$.kernels.{name}", one))
    for where, place in places:
        _check_kernel(where, place, is_python=not data.files)
    for index, name in enumerate(data.files):
        if not _NAME.fullmatch(name) or not name.endswith(SUFFIXES):
            said = f"{name!r} is not the name of a .ptx, .ttir or .ttgir file beside {_FILE}"
            raise FieldError(f"$.files[{index}]", said)
    if data.files and data.kernel is None:
        raise FieldError("$.files", "such files hold one kernel; name it by `kernel`")
    if not _PYTHON_FILE.fullmatch(data.launch):
        said = f"{data.launch!r} is not the name of a Python file beside {_FILE}"
        raise FieldError("$.launch", said)
    if data.source:
        _check_pin("$.source", data.source)
        if not all(part.isidentifier() for part in data.source.module.split(".")):
            said = f"{data.source.module!r} is not the dotted name of a module"
            raise FieldError("$.source.module", said)
    for index, pin in enumerate(data.requires):
        _check_pin(f"$.requires[{index}]", pin)


def _check_kernel(where: str, place: _ReproFile | _Kernel, *, is_python: bool) -> None:
    if is_python and place.kernel is not None and not place.kernel.isidentifier():
        said = f"{place.kernel!r} is not the name of a Python function"
        raise FieldError(f"{where}.kernel", said)
    if place.reference is not None and not place.reference.isidentifier():
        raise FieldError(f"{where}.reference", f"{place.reference!r} is no function's name")
    if place.configs is not None and place.configs < 1:
        raise FieldError(f"{where}.configs", "a launch has at least one config")
    if place.triton is not None and parse_version(place.triton) is None:
        raise FieldError(f"{where}.triton", f"{place.triton!r} is not a version, like 3.6.0")
    for name, values in place.tunable.items():
        if not values:
            raise FieldError(f"{where}.tunable.{name}", "name at least one value to try")
    if place.operation and not _NAME.fullmatch(place.operation.kernel):
        said = f"{place.operation.kernel!r} is not a name for a kernel"
        raise FieldError(f"{where}.operation.kernel", said)
    for index, text in enumerate(place.targets):
        _check_target(f"{where}.targets[{index}]", text)


def _check_target(where: str, text: str) -> None:
    try:
        Target.parse(text)
    except UsageError as error:
        raise FieldError(where, str(error)) from error


def _check_pin(where: str, pin: _Pin | _Source) -> None:
    if not _PACKAGE.fullmatch(pin.package):
        raise FieldError(f"{where}.package", f"{pin.package!r} is not the name of a package")
    if parse_version(pin.version) is None:
        raise FieldError(f"{where}.version", f"{pin.version!r} is not a version")
    if not _SHA256.fullmatch(pin.sha256):
        raise FieldError(f"{where}.sha256", f"{pin.sha256!r} is not 64 lower-case hex digits")


def _is_inside(file: Path, folder: Path) -> bool:
    """A file in this very folder: not elsewhere, by a symbolic link either."""
    real = os.path.realpath(file)
    return file.is_file() and os.path.dirname(real) == os.path.realpath(folder)  # noqa: PTH120


def _complain(where: str, said: str, data: _ReproFile) -> NoReturn:  # noqa: ARG001
    raise FieldError(where, said)


def _from_files(folder: Path, data: _ReproFile) -> list[LaunchSpec]:
    """A launch for each file that a compiler left, in their order: the first is the default."""
    kernel = data.kernel
    return [
        launch_from(folder / name, read_file(folder / name, _entry(name, kernel)), data.options)
        for name in data.files
    ]


def _entry(name: str, kernel: str | None) -> str | None:
    return kernel if name.endswith(".ptx") else None


def _python_file(path: Path, kernel: str | None) -> Repro:
    if spelling(path) != os.path.normpath(path):
        # The child that runs it is given its name as text.
        raise UsageError(f"{path}: not a name in this locale: rename it, or set PYTHONUTF8=1")
    launches = launches_of_script(path)
    name = f"{spelling(path)}::{kernel}" if kernel else spelling(path)
    return Repro(name=name, kernel=kernel, folder=path.parent, file=path, launches=launches)
