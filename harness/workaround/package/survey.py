"""`triage package`: every kernel of a package that launches reach, compiled for each target."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from harness.cells.compile import compile_selections
from harness.cells.places import CompileOptions, RunProgress, Steering
from harness.cells.repros.find import find_kernel, list_repros
from harness.cells.repros.launch_files import imported_modules
from harness.cells.repros.releases import in_release, is_of, pin_of, releases, whole_folder
from harness.frontends.base import CapturePlace, Plan, PlannedCell, Selection
from harness.frontends.launch_code import import_root, read_source
from harness.io.packages.index import files
from harness.io.packages.versions import LATEST, exact_version
from harness.store.store import Store
from harness.values.errors import ConfigurationError, EmptySelectionError, TriageError, UsageError
from harness.values.kernel import KernelSource, Pin, Repro
from harness.values.outcome import LaunchFacts
from harness.workaround.package.losses import PackageReport, Reached, count_functions, tuning_lists

# Which launches reach a package: those of repros that take kernels from it, and of files.


def reach(text: str, own_files: Sequence[str] = ()) -> Reached:
    """The launches that reach the package that `NAME==VERSION` means, and those of files.

    A launch is that of a repro, in the release that is asked for. Each folder of repros gives its
    launches once, with the version of the compiler that the first repro with that launch names. A
    file of the user's is launched as every `--kernel FILE.py` is, with the release, and with what
    the repros require beside it, on its module path.

    Raises:
        UsageError: the text is malformed, there is no such package or release, or a file launches
            nothing or imports nothing of it.
        EmptySelectionError: the source of no repro is that package.
        InfrastructureError: the package index does not answer, and its listing is not cached.
    """
    try:
        found = Requirement(text)
    except InvalidRequirement:
        found = None
    if found is None or found.url or found.extras or found.marker:
        raise UsageError(f"{text[:80]!r}: write NAME==VERSION, for example fla-core==0.6.0")
    name, spec = canonicalize_name(found.name), str(found.specifier) or LATEST
    repros, errors = list_repros()
    mine = [repro for repro in repros if is_of(repro, name)]
    if not mine and not own_files:
        files(name)  # a package that the index does not have is said to be none
        unread = "".join(f"; {error}" for error in errors[:1])
        raise EmptySelectionError(
            f"no repro takes its kernels from {name} (--launch FILE names a file that does); "
            f"{_others(repros)}{unread}"
        )
    pins = {repro.source.pin.version: repro.source.pin for repro in mine if repro.source}
    version = _version(name, spec, pins)
    own = pins.get(str(version))
    pin = own or pin_of(name, version)
    launches = [_launch(repro, mine, version, pin) for repro in _first_of_each(mine)]
    beside = {each.package: each for repro in mine for each in repro.requires}
    launches += [_of_file(file, pin, tuple(beside.values())) for file in own_files]
    return Reached(
        pin=pin,
        is_pinned=own is not None,
        pinned=tuple(pins),
        launches=tuple(launches),
        complaints=tuple(map(str, errors)),
    )


def _version(name: str, spec: str, pins: dict[str, Pin]) -> Version:
    exact = exact_version(spec)
    if exact is not None and str(exact) in pins:
        return exact
    found = releases(name, spec)
    if len(found) > 1:
        raise UsageError(
            f"{name}{spec}: {len(found)} releases are meant ({', '.join(map(str, found))}); name "
            f"one, as {name}=={found[-1]}"
        )
    return found[0]


def _first_of_each(repros: list[Repro]) -> list[Repro]:
    found: dict[tuple[str, str], Repro] = {}
    for repro in repros:
        # The others of a repro are there to vary it.
        for launch in repro.launches[:1]:
            found.setdefault((repro.group, launch.name), replace(repro, launches=(launch,)))
    return list(found.values())


def _launch(repro: Repro, mine: list[Repro], version: Version, pin: Pin) -> Repro:
    group = [each for each in mine if each.group == repro.group]
    whole = whole_folder(group, None)
    release = in_release(whole, version, pin)
    return replace(release, launches=repro.launches, version=repro.version)


def _of_file(file: str, pin: Pin, beside: tuple[Pin, ...]) -> Repro:
    if not file.endswith(".py"):
        raise UsageError(f"--launch {file}: write the name of a Python file")
    repro = find_kernel(file)
    name = f"{repro.name}@{pin.package}=={pin.version}"
    for module in sorted(imported_modules(repro.file)):
        source = KernelSource(pin=pin, module=module)
        found = replace(repro, name=name, source=source, requires=beside)
        try:
            import_root(found)
        except ConfigurationError:
            continue
        return found
    raise UsageError(f"--launch {file}: it imports no module of {pin.package} {pin.version}")


def _others(repros: list[Repro]) -> str:
    names = sorted({repro.source.pin.package for repro in repros if repro.source})
    return f"repros there are of {', '.join(names)}" if names else "no repro is of a package"


_CELLS_A_WORKER = 4


@dataclass(slots=True, kw_only=True)
class _InPackage(Steering):
    """Takes the kernels that are written below `folder`, and keeps how each cell was captured."""

    folder: Path
    at_once: int
    records: dict[str, LaunchFacts] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    elsewhere: dict[str, None] = field(default_factory=dict)

    def choose(self, place: CapturePlace, plan: Plan) -> Sequence[PlannedCell]:  # noqa: ARG002
        chosen = []
        for cell in plan.cells:
            assert cell.record is not None, "what is captured has a record"
            file = Path(cell.record.file).resolve()
            if not file.is_relative_to(self.folder):
                self.elsewhere[cell.record.kernel] = None
                continue
            self.files[cell.record.file] = file.relative_to(self.folder.parent).as_posix()
            self.records[str(cell.cell)] = cell.record
            chosen.append(cell)
        return chosen


async def survey_package(
    reached: Reached,
    selections: Sequence[Selection],
    store: Store,
    how: CompileOptions,
    progress: RunProgress,
) -> PackageReport:
    """Compile what the selections (of `reached`) launch, and look at what is left.

    Raises:
        CaptureError: no launch could be captured.
        EmptySelectionError: no kernel of the package is launched.
        TriageError: the source cannot be fetched, or results cannot be kept.
    """
    from harness.workaround.package.pruning import pruning_of  # noqa: PLC0415 - libcst: 0.3 s

    repro = reached.launches[0]
    assert repro.source is not None
    folder = (import_root(repro) / repro.source.module.partition(".")[0]).resolve()
    mine = _InPackage(folder=folder, at_once=_CELLS_A_WORKER * how.workers)
    compiled = await compile_selections(selections, store, how, progress, mine)
    lists = tuning_lists(compiled.rows, mine.records, mine.files)
    launched = {(one.file, one.kernel) for one in lists}
    # The Python files of the package; one that is not text counts as empty.
    found = {}
    for path in sorted(folder.rglob("*.py")):
        try:
            found[path.relative_to(folder.parent).as_posix()] = read_source(path)
        except TriageError:
            found[path.relative_to(folder.parent).as_posix()] = "\0"
    return PackageReport(
        surroundings=selections[0].surroundings,
        reached=reached,
        compiled=compiled,
        lists=tuple((one, pruning_of(one)) for one in lists),
        functions=count_functions(found, launched),
        elsewhere=tuple(mine.elsewhere),
    )
