"""Finds what `--kernel` names: a repro, a Python file, a PTX file."""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from msgspec.structs import replace

import harness
from harness.cells.repros.launch_files import (
    OF_TESTS,
    find_launch_files,
    imported_modules,
    launches_of_repro,
    launches_of_script,
)
from harness.cells.repros.releases import in_releases, whole_folder
from harness.cells.repros.repro_file import NAME, REPRO_FILE, ReproFile, ReproInputs, check_repro
from harness.frontends.base import FrontEnd
from harness.frontends.registry import front_end, kinds, takes
from harness.frontends.texts.ir_inputs import SUFFIXES, launch_from, read_file, spelling
from harness.io.files.reading import FieldError, read_yaml
from harness.values.errors import TriageError, UsageError
from harness.values.kernel import LaunchSpec, PtxInputs, Repro, Scalar
from harness.values.target import Target
from harness.values.toolchain import TRITON


def _folders() -> list[Path]:
    """Where repros are looked for; the user's own come first."""
    package = Path(harness.__file__).parent
    shipped = [package / "data" / "repros", package.parent / "repros"]
    return [path for path in (Path("repros"), *shipped) if path.is_dir()]


def list_repros() -> tuple[list[Repro], list[TriageError]]:
    """Every repro by name, and the complaints about those that cannot be read."""
    repros: dict[str, Repro] = {}
    errors: list[TriageError] = []
    names: set[str] = set()
    for path in _files():
        if path.parent.name in names:
            continue
        names.add(path.parent.name)
        try:
            for repro in _read(path):
                # A name that the user has taken is the user's.
                repros.setdefault(repro.name, repro)
        except TriageError as error:
            errors.append(error)
    return [repros[name] for name in sorted(repros)], errors


def _files() -> list[Path]:
    return [path for folder in _folders() for path in sorted(folder.glob(f"*/{REPRO_FILE}"))]


def find_kernel(text: str) -> Repro:
    """The one repro that `--kernel TEXT` means.

    Raises:
        UsageError: nothing has that name (near ones are named), several have, or the file cannot
            be used.
    """
    repros = find_kernels(text)
    if len(repros) > 1:
        names = ", ".join(repro.name for repro in repros[:8])
        more = ", ..." if len(repros) > 8 else ""
        raise UsageError(f"--kernel {text}: name one of {names}{more}")
    return repros[0]


def find_kernels(text: str) -> list[Repro]:
    """The repros that `--kernel TEXT` means: a name, a pattern, a folder of several; or a file.

    Of a folder without a repro they are the files that launch kernels: scripts and tests.
    `NAME@VERSION` is the same in another release of its package (or in several: `NAME@>=0.5`), and
    `FOLDER::FUNCTION` any kernel that a folder's launches come to.

    Raises:
        UsageError: nothing has that name (near ones are named), the file cannot be used, or the
            package has no such release.
        InfrastructureError: the releases of the package cannot be asked for.
    """
    path, colons, kernel = text.partition("::")
    if colons and not kernel:
        raise UsageError(f"--kernel {text}: name the kernel after `::`, or leave `::` out")
    if front := _of_suffix(path):
        return [front.read_file(Path(path), kernel or None)]
    if path.endswith(".py"):
        return [_python_file(Path(path), kernel or None)]
    name, at, spec = path.partition("@")
    repros = [whole_folder(_named(name), kernel)] if kernel else _named(name)
    return [release for repro in repros for release in in_releases(repro, spec)] if at else repros


_ADVICE = {
    ".llir": "; name the .ttgir that it was made of, or the .ptx that was made of it",
    ".mlir": "; name a module of Triton .ttir or .ttgir, by the dialect that it is in",
    ".cubin": "; a cubin is compiled to its end: name the .ptx that it was made of",
    ".ndjson": "; `triage import` takes a trace of tritonparse",
    ".gz": "; `triage import` takes a trace of tritonparse",
    ".log": "; `triage log` reads a log",
    ".txt": "; `triage log` reads a log",
}


def _named(text: str) -> list[Repro]:
    if NAME.fullmatch(text):
        for folder in _folders():
            if (folder / text / REPRO_FILE).is_file():
                return _read(folder / text / REPRO_FILE)
    if os.path.isfile(os.path.join(text, REPRO_FILE)):  # noqa: PTH113, PTH118 - any text
        return _read(Path(text) / REPRO_FILE)
    repros, errors = list_repros()
    if matching := [repro for repro in repros if fnmatchcase(repro.name, text)]:
        return matching
    for path in _files():
        if fnmatchcase(path.parent.name, text):
            _read(path)  # one that cannot be read says why
    if os.path.isdir(text):  # noqa: PTH112 - it takes any text for a path
        modules = [TRITON, "helion", *(name for kind in kinds() for name in takes(kind)[1])]
        files = find_launch_files(Path(text), {name.rpartition(".")[2] for name in modules})
        if not files:
            raise UsageError(
                f"{text}: no Python file in it launches kernels: none that imports a compiler has "
                "launch(), tests or code to run; `triage import` takes the folders of a cache"
            )
        return list(map(_python_file, files))
    if os.path.exists(text):  # noqa: PTH110 - as above
        suffixes = " ".join(dict.fromkeys(suffix for kind in kinds() for suffix in takes(kind)[0]))
        advice = _ADVICE.get(Path(text).suffix, "")
        raise UsageError(f"{text}: `--kernel` takes files of these kinds: .py {suffixes}{advice}")
    broken = [error for error in errors if text in str(error)]
    if broken:
        raise broken[0]
    scripts = [path.name for path in Path().glob("*.py")]
    near = difflib.get_close_matches(f"{text[:100]}.py", scripts, n=1, cutoff=0.7)
    hint = f"there is a file {near[0]}" if near else near_names(text)
    raise UsageError(f"no kernel {text[:200]!r}; {hint}; or give FILE.py::NAME or FILE.ptx")


def near_names(text: str) -> str:
    """The nearest of the names of kernels, or the command that lists them."""
    names = [repro.name for repro in list_repros()[0]]
    near = difflib.get_close_matches(text[:100], names, cutoff=0.4)
    return f"near names: {', '.join(near)}" if near else "`triage kernels` lists them"


def _of_suffix(path: str) -> FrontEnd | None:
    """The front end that reads files of this name."""
    if "." not in path:  # which front ends other packages register need not be looked up
        return None
    return next((front_end(kind) for kind in kinds() if path.endswith(takes(kind)[0])), None)


def _read(path: Path) -> list[Repro]:
    folder, launches = path.parent, dict[str, LaunchSpec]()

    def check(data: ReproFile) -> None:
        check_repro(data)
        _check_files(data, folder)
        if data.files:
            # The first of them is the default.
            specs = tuple(_from_file(folder / name, data) for name in data.files)
        else:
            specs = launches_of_repro(folder / data.launch)
        launches.update((launch.name, launch) for launch in specs)
        _check_launches(data, launches)

    data = read_yaml(path, ReproFile, check)
    # The version is the one that upstream's issue names.
    kind, _, version = (data.compiler or TRITON).partition("==")
    return [
        Repro(
            name=name,
            group=folder.name,
            kernel=kernel.kernel,
            folder=folder,
            file=launches[next(iter(kernel.launches or launches))].file or folder / data.launch,
            launches=tuple(launches[spec] for spec in kernel.launches or launches),
            check=tuple({**data.check, **kernel.check}.items()),
            tunable=_lists({**data.tunable, **kernel.tunable}),
            operation=kernel.operation or data.operation,
            reference=kernel.reference,
            baseline=kernel.baseline,
            inputs=_inputs(data.inputs, folder),
            report=kernel.report or data.report,
            configs=kernel.configs,
            macros=_lists({**data.macros, **kernel.macros}),
            source=data.source,
            requires=tuple(data.requires),
            issue=kernel.issue or data.issue,
            summary=kernel.summary or data.summary,
            compiler=kind,
            version=kernel.triton or data.triton or version or None,
            targets=tuple(str(Target.parse(text)) for text in kernel.targets or data.targets),
            tags=tuple(data.tags),
        )
        for name, kernel in data.by_name(folder.name).items()
    ]


def _lists(values: Mapping[str, Sequence[Scalar]]) -> tuple[tuple[str, tuple[Scalar, ...]], ...]:
    return tuple((name, tuple(choices)) for name, choices in values.items())


def _check_files(data: ReproFile, folder: Path) -> None:
    """Files that the repro names.

    Raises:
        FieldError: there is none of that name beside it.
    """
    for index, name in enumerate(data.files or [data.launch]):
        file = folder / name
        # In this very folder: not elsewhere, by a symbolic link either.
        place = os.path.dirname(os.path.realpath(file))  # noqa: PTH120
        if not file.is_file() or place != os.path.realpath(folder):
            where = f"$.files[{index}]" if data.files else "$.launch"
            raise FieldError(where, f"no file {name!r} in {folder}")


def _check_launches(data: ReproFile, launches: Mapping[str, LaunchSpec]) -> None:
    """Names of launch functions and of their parameters.

    Raises:
        FieldError: there is none of that name.
    """
    parameters = {p.name for launch in launches.values() for p in launch.parameters}
    for where, place in data.places:
        for index, name in enumerate(place.launches):
            if name not in launches:
                problem = f"no launch function {name!r}; {data.launch} has {', '.join(launches)}"
                raise FieldError(f"{where}.launches[{index}]", problem)
        for key, names in (("check", place.check), ("tunable", place.tunable)):
            for name in names:
                if name not in parameters:
                    problem = f"no launch function of {data.launch} has a parameter {name!r}"
                    raise FieldError(f"{where}.{key}", problem)


def _inputs(inputs: ReproInputs | None, folder: Path) -> PtxInputs | None:
    if inputs is None:
        return None
    return PtxInputs(
        buffers=tuple(f"{name}={text}" for name, text in inputs.buffers.items()),
        scalars=tuple(f"{name}={value}" for name, value in inputs.scalars.items()),
        expect=tuple(f"{name}={file}" for name, file in inputs.expect.items()),
        grid=None if inputs.grid is None else str(inputs.grid),
        block=None if inputs.block is None else str(inputs.block),
        shared=inputs.shared,
        folder=str(folder),
    )


def _from_file(path: Path, data: ReproFile) -> LaunchSpec:
    """What a compiler left is named by what it is, source by its file."""
    if path.name.endswith(SUFFIXES):
        entry = data.kernel if path.suffix == ".ptx" else None
        return launch_from(path, read_file(path, entry), data.options)
    front = _of_suffix(path.name)
    assert front is not None, "the suffixes of files are checked"
    return replace(front.read_file(path, None).launches[0], name=path.stem)


def file_of_tests(path: Path) -> Repro:
    """A Python file whose launch are its tests, whatever else it holds.

    Raises:
        UsageError: not Python.
    """
    return _python_file(path, None, (OF_TESTS,))


def _python_file(
    path: Path, kernel: str | None = None, launches: tuple[LaunchSpec, ...] | None = None
) -> Repro:
    if spelling(path) != os.path.normpath(path):
        # The child that runs it is given its name as text.
        raise UsageError(f"{path}: not a name in this locale: rename it, or set PYTHONUTF8=1")
    launches = launches or launches_of_script(path)
    imported = tuple(f"{name}." for name in imported_modules(path))
    # The front end whose modules the file imports.
    compilers = (
        kind
        for kind in kinds()
        if any(name.startswith(f"{module}.") for module in takes(kind)[1] for name in imported)
    )
    return Repro(
        name=f"{spelling(path)}::{kernel}" if kernel else spelling(path),
        kernel=kernel,
        folder=path.parent,
        file=path,
        launches=launches,
        compiler=next(compilers, TRITON),
    )
