"""What a `repro.yaml` may say: its fields, and what of them makes no sense."""

from __future__ import annotations

import re

import msgspec

from harness.frontends.registry import kinds, takes
from harness.frontends.texts.ir_inputs import SUFFIXES
from harness.io.files.reading import FieldError
from harness.io.packages.versions import parse_version
from harness.values.errors import UsageError
from harness.values.kernel import KernelSource, Operation, Pin, ReportNotes, Scalar
from harness.values.target import Target

REPRO_FILE = "repro.yaml"
NAME = re.compile(r"\w[\w.+-]{0,199}")
_PYTHON_FILE = re.compile(r"\w[\w.-]*\.py")
_PACKAGE = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")
_SHA256 = re.compile(r"[0-9a-f]{64}")


class ReproInputs(msgspec.Struct, forbid_unknown_fields=True):
    """What raw PTX is launched with."""

    buffers: dict[str, str] = {}
    scalars: dict[str, int | float | str] = {}
    expect: dict[str, str] = {}
    grid: str | int | None = None
    block: str | int | None = None
    shared: int | None = None


class ReproKernel(msgspec.Struct, forbid_unknown_fields=True):
    """One of several kernels of a file; what it leaves out is as the file says."""

    kernel: str | None = None
    summary: str = ""
    launches: list[str] = []
    check: dict[str, Scalar] = {}
    tunable: dict[str, list[Scalar]] = {}
    operation: Operation | None = None
    reference: str | None = None
    baseline: str | None = None
    configs: int | None = None
    macros: dict[str, list[Scalar]] = {}
    issue: str | None = None
    report: ReportNotes | None = None
    triton: str | None = None
    targets: list[str] = []


class ReproFile(ReproKernel, forbid_unknown_fields=True):
    """A whole `repro.yaml`."""

    kernels: dict[str, ReproKernel] = {}
    launch: str = "launch.py"
    files: list[str] = []
    options: dict[str, Scalar] = {}
    inputs: ReproInputs | None = None
    source: KernelSource | None = None
    requires: list[Pin] = []
    compiler: str | None = None
    tags: list[str] = []

    @property
    def places(self) -> list[tuple[str, ReproKernel]]:
        """The whole and each of its kernels, with where it stands."""
        kernels = ((f"$.kernels.{name}", kernel) for name, kernel in self.kernels.items())
        return [("$", self), *kernels]

    def by_name(self, folder: str) -> dict[str, ReproKernel]:
        """The kernels by name: one that is alone has the name of its folder."""
        return self.kernels if self.kernel is None else {folder: self}


def check_repro(data: ReproFile) -> None:
    """What the types do not say.

    Raises:
        FieldError: a value makes no sense.
    """
    if data.kernel is None and not data.kernels:
        raise FieldError("$", "the key `kernel` is missing (or `kernels`, several by name)")
    if data.kernel is not None and data.kernels:
        raise FieldError("$.kernels", "give `kernel` or `kernels`, not both")
    for name in data.kernels:
        if not NAME.fullmatch(name):
            raise FieldError("$.kernels", f"{name!r} is not a name for a kernel")
        if data.kernels[name].kernel is None:
            raise FieldError(f"$.kernels.{name}", "Object missing required field `kernel`")
    for where, place in data.places:
        _check_kernel(where, place, is_python=not data.files)
    _check_files(data)
    if data.compiler is not None:
        _check_compiler(data.compiler, data.triton)
    if not _PYTHON_FILE.fullmatch(data.launch):
        problem = f"{data.launch!r} is not the name of a Python file beside {REPRO_FILE}"
        raise FieldError("$.launch", problem)
    if data.source:
        _check_pin("$.source", data.source)
        if not all(part.isidentifier() for part in data.source.module.split(".")):
            problem = f"{data.source.module!r} is not the dotted name of a module"
            raise FieldError("$.source.module", problem)
    for index, pin in enumerate(data.requires):
        _check_pin(f"$.requires[{index}]", pin)


def _check_files(data: ReproFile) -> None:
    suffixes = tuple(suffix for kind in kinds() for suffix in takes(kind)[0]) if data.files else ()
    for index, name in enumerate(data.files):
        if not NAME.fullmatch(name) or not name.endswith(suffixes):
            problem = f"is not the name of a {', '.join(suffixes)} file beside {REPRO_FILE}"
            raise FieldError(f"$.files[{index}]", f"{name!r} {problem}")
    is_lowered = any(name.endswith(SUFFIXES) for name in data.files)
    if is_lowered and data.kernel is None:
        raise FieldError("$.files", "such files hold one kernel; name it by `kernel`")
    for where, place in data.places:
        if place.macros and (is_lowered or not data.files):
            raise FieldError(f"{where}.macros", "macros are of source that `files` names")
        for name, values in place.macros.items():
            if not name.isidentifier() or not values:
                problem = f"give {name!r} a list of values, and the name of a macro"
                raise FieldError(f"{where}.macros", problem)


def _check_compiler(compiler: str, triton: str | None) -> None:
    kind, equals, version = compiler.partition("==")
    if triton is not None:
        raise FieldError("$.compiler", "give `compiler` or `triton`, not both")
    if kind not in kinds() or (equals and parse_version(version) is None):
        problem = f"{compiler!r} is not KIND==VERSION, where KIND is one of {', '.join(kinds())}"
        raise FieldError("$.compiler", problem)


def _check_kernel(where: str, place: ReproKernel, *, is_python: bool) -> None:
    # A method is named with its class.
    parts = [] if place.kernel is None else place.kernel.split(".")
    if is_python and not all(map(str.isidentifier, parts)):
        raise FieldError(
            f"{where}.kernel", f"{place.kernel!r} is not the name of a Python function"
        )
    for field in ("reference", "baseline"):
        name = getattr(place, field)
        if name is not None and not name.isidentifier():
            raise FieldError(f"{where}.{field}", f"{name!r} is not the name of a function")
    if place.configs is not None and place.configs < 1:
        raise FieldError(f"{where}.configs", "a launch has at least one config")
    if place.triton is not None and parse_version(place.triton) is None:
        raise FieldError(f"{where}.triton", f"{place.triton!r} is not a version, like 3.6.0")
    for name, values in place.tunable.items():
        if not values:
            raise FieldError(f"{where}.tunable.{name}", "name at least one value to try")
    if place.operation and not NAME.fullmatch(place.operation.kernel):
        problem = f"{place.operation.kernel!r} is not a name for a kernel"
        raise FieldError(f"{where}.operation.kernel", problem)
    for index, text in enumerate(place.targets):
        try:
            Target.parse(text)
        except UsageError as error:
            raise FieldError(f"{where}.targets[{index}]", str(error)) from error


def _check_pin(where: str, pin: Pin) -> None:
    if not _PACKAGE.fullmatch(pin.package):
        raise FieldError(f"{where}.package", f"{pin.package!r} is not the name of a package")
    if parse_version(pin.version) is None:
        raise FieldError(f"{where}.version", f"{pin.version!r} is not a version")
    if not _SHA256.fullmatch(pin.sha256):
        raise FieldError(f"{where}.sha256", f"{pin.sha256!r} is not 64 lower-case hex digits")
