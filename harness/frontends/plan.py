"""What is selected, where its kernels are captured, and the cells that a capture becomes.

A front end is asked for a `Plan` at a `CapturePlace` of a `Selection`; `cells_of` makes it.
"""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

import msgspec
from msgspec import structs

from harness.frontends.back_end import BackEnd
from harness.frontends.sessions import CapturedLaunch, LaunchCode
from harness.judging.ptxas.ptxas_options import FlagChange
from harness.values.cell import CellId, LaunchLabel, file_label
from harness.values.errors import CaptureError
from harness.values.kernel import Config, ConfigFilter, LaunchSpec, Repro, Scalar
from harness.values.limits import Limits, limits_of
from harness.values.matrix import MatrixVariant
from harness.values.outcome import Capture, LaunchFacts, RaisedError
from harness.values.target import Target
from harness.values.toolchain import PTXAS, Assembler, Compiler, Tool, compiler_name

Adapt = Callable[[LaunchCode], LaunchCode]
"""Gives a launch other configs, or other sources, than the repro has."""


class PlannedLaunch(msgspec.Struct, frozen=True, kw_only=True):
    """A launch function with its overrides; `label` is how cells spell both.

    `named` are the parameters that the user set, those too that are set to their default. `number`
    is the one launch of a kernel that is meant of several, as `LaunchLabel` counts them; None: all.
    """

    spec: LaunchSpec
    overrides: Mapping[str, Scalar | None]
    named: frozenset[str] = frozenset()
    number: int | None = None

    @property
    def label(self) -> str:
        """As in a cell id: `default:chunk_size=32`."""
        words = tuple(f"{name}={value}" for name, value in self.overrides.items())
        return LaunchLabel(name=self.spec.name, overrides=words).call


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be compiled with what; all `compilers` are of one kind.

    None among `ptxas` is the one that each compiler bundles. `is_compiler_named`: the user named
    the compiler; else it is the repro's, or the installed one. `formal`: where cells are executed,
    a formal race (`RaceFacts`) counts too. `surroundings` are options that decide what launch code
    sees, for commands that are printed.
    """

    repro: Repro
    launches: tuple[PlannedLaunch, ...]
    targets: tuple[Target, ...]
    compilers: tuple[Compiler, ...]
    ptxas: tuple[Assembler | None, ...]
    config: ConfigFilter
    freeze_ptx: bool
    nvdisasm: Tool | None
    notes: tuple[str, ...] = ()
    is_compiler_named: bool = False
    formal: bool = False
    surroundings: tuple[str, ...] = ()

    def of_launch(self, kernel: str, launch: str) -> Selection:
        """The same, of one kernel and one launch of it alone, as a cell names them."""
        label, repro = LaunchLabel.parse(launch), self.repro
        if repro.is_several:
            repro = structs.replace(repro, name=kernel, kernel=kernel.rpartition("::")[2])
        launches = tuple(
            structs.replace(planned, number=label.number)
            for planned in self.launches
            if planned.spec.name == label.name
        )
        return structs.replace(self, repro=repro, launches=launches)

    def place(
        self,
        *,
        target: Target | None = None,
        compiler: Compiler | None = None,
        launch: PlannedLaunch | None = None,
        adapt: Adapt | None = None,
    ) -> CapturePlace:
        """Where the kernel is captured with these; else with the first that are selected."""
        return CapturePlace(
            selection=self,
            target=target or self.targets[0],
            compiler=compiler or self.compilers[0],
            launch=launch or self.launches[0],
            adapt=adapt,
        )


class CapturePlace(msgspec.Struct, frozen=True, kw_only=True):
    """Where one kernel of a selection is captured.

    With a `variant`, its one config takes the place of those that the kernel lists. `adapt` may
    give the launch other configs, or other sources, than the repro has.
    """

    selection: Selection
    target: Target
    compiler: Compiler
    launch: PlannedLaunch
    variant: MatrixVariant | None = None
    adapt: Adapt | None = None

    @property
    def capture(self) -> object:
        """Equal for the kernels that one capture serves."""
        repro, launch = self.selection.repro, self.launch
        file = repro.name if repro.ptx else repro.file
        source = file, repro.source
        return source, launch.spec.name, launch.label, self.target, self.compiler, self.variant

    @property
    def is_own(self) -> bool:
        """Whether the configs are those of the repro."""
        return self.variant is None and self.adapt is None

    def adapted(self, code: LaunchCode) -> LaunchCode:
        """The launch code, with what is changed of it here."""
        kernel = self.selection.repro.kernel
        if self.variant is not None and kernel is not None:
            code = code.with_configs(kernel, [self.variant.config.as_dict()])
        return self.adapt(code) if self.adapt else code


class PlannedCell(msgspec.Struct, frozen=True, kw_only=True):
    """A cell and all that it takes to compile it.

    `launch` and `record` are None where nothing is lowered: the program is given, as the artifact
    `raw_ptx` and its `entry`. `bundled` is the ptxas that this compiler picks; with `freeze_ptx`
    the PTX is the one generated for it. `options` are what ptxas gets besides for a file of PTX;
    `change` is made to the flags that it would get.
    `file` is as in `Row`.
    """

    cell: CellId
    compiler: Compiler
    ptxas: Assembler
    limits: Limits | None
    nvdisasms: tuple[Tool, ...]
    launch: CapturedLaunch | None = None
    record: LaunchFacts | None = None
    bundled: Assembler | None = None
    freeze_ptx: bool = False
    raw_ptx: str | None = None
    entry: str | None = None
    options: tuple[str, ...] = ()
    change: FlagChange | None = None
    file: str | None = None

    @property
    def seen_ptxas(self) -> Assembler:
        """The ptxas that the compiler is pointed at: it decides the PTX."""
        return self.bundled if self.freeze_ptx and self.bundled else self.ptxas


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """The cells of one launch on one target and compiler.

    `configs` are all that were captured, those too that the filter leaves out. `failures` say what
    is missing because the launch code failed half-way, `warnings` what may make the cells others
    than the user means; every command says them. `session` names the capture's session, None
    where there is none. `passed_over` is what the launch code does with results in vain.
    """

    cells: tuple[PlannedCell, ...]
    configs: tuple[Config, ...] = ()
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    failures: tuple[str, ...] = ()
    session: str | None = None
    passed_over: str = ""


def cells_of(
    back_end: BackEnd,
    place: CapturePlace,
    captured: CapturedLaunch,
    *,
    nvdisasm: Tool | None = None,
    withheld: Sequence[str] = (),
) -> Plan:
    """The cells of a capture at its place.

    `back_end` is that of the place's target. `nvdisasm` is one that the compiler brings along: it
    reads what the newest has dropped.
    `withheld` names variables that the launch code reads and did not get.

    Raises:
        CaptureError: the kernel is never launched.
    """
    selection, repro, compiler = place.selection, place.selection.repro, captured.compiler
    where = f"{repro.name}, launch {place.launch.label}, {compiler.name}, {place.target}"
    value = captured.capture.value
    unpassed = ""
    if withheld:
        was = "which was" if len(withheld) == 1 else "which were"
        options = " ".join(f"--pass-env {name}" for name in withheld)
        unpassed = f"the launch code reads {', '.join(withheld)}, {was} not passed: {options}"
    try:
        records = _wanted_records(repro, value, where, unpassed, compiler_name(compiler.kind))
    except CaptureError as error:
        error.tests = value.tests
        raise
    notes = list(value.notes)
    if value.dropped:
        notes.append(f"{where}: {value.dropped} launches beyond the limit are left out")
    kernels = {record.kernel for record in records}
    notes += [
        f"{where}: the kernel's own pruning leaves {count} of {declared} configs"
        for kernel, (count, declared) in value.pruned.items()
        if count < declared and kernel in kernels
    ]
    failures = []
    if value.error:
        raised = raised_words(repro, value.error)
        failures.append(f"{raised}, after the launches that are shown ({where})")
    tools = tuple(tool for tool in (selection.nvdisasm, nvdisasm) if tool)
    return Plan(
        cells=tuple(_each_cell(back_end, place, captured, records, tools)),
        configs=tuple(Config.of(record.config) for record in records),
        notes=(*notes, *(_miscounted(place, records) if place.is_own else [])),
        # Alike for each target and compiler, and said once.
        warnings=(f"{repro.name}: {unpassed}",) if unpassed else (),
        failures=tuple(failures),
        session=captured.capture.key,
        passed_over=value.passed_over,
    )


def _each_cell(
    back_end: BackEnd,
    place: CapturePlace,
    captured: CapturedLaunch,
    records: list[LaunchFacts],
    nvdisasms: tuple[Tool, ...],
) -> Iterator[PlannedCell]:
    selection, target, repro = place.selection, place.target, place.selection.repro
    bundled = None
    if path := captured.capture.value.ptxas:
        bundled = back_end.brought_along(Path(path))
    limits = limits_of(target.capability)
    file = None
    if not repro.group:
        file = file_label(str(repro.file.resolve()), repro.file.read_bytes())
    times: Counter[tuple[str, int, str]] = Counter()
    launches: dict[str, dict[tuple[int, int], int]] = {}
    number = place.launch.number
    for record in records:
        config = Config.of(record.config)
        # Numbered as they first appear; a config that one has twice is of a launch of its own.
        times[record.kernel, record.launch, config.label] += 1
        of_kernel = launches.setdefault(record.kernel, {})
        one = record.launch, times[record.kernel, record.launch, config.label]
        nth = of_kernel.setdefault(one, len(of_kernel) + 1)
        if number not in (None, nth) or not selection.config.matches(config):
            continue
        # A file, or a pattern, of several kernels names each; a repro is one by definition.
        several = f"{repro.name.partition('::')[0]}::{record.kernel}"
        launch = place.launch.label
        compiler = captured.compiler.label
        for chosen in selection.ptxas:
            assembler = chosen or bundled
            assert assembler is not None, "the selection names one where none is bundled"
            frozen = selection.freeze_ptx and chosen is not None and chosen.kind == PTXAS
            cell = CellId(
                kernel=several if repro.is_several else repro.name,
                launch=f"{launch}#{nth}" if nth > 1 else launch,
                config=config,
                target=target,
                compiler=compiler,
                ptxas=f"{assembler.label}-frozen" if frozen else assembler.label,
                assembler=assembler.kind,
            )
            yield PlannedCell(
                cell=cell,
                compiler=captured.compiler,
                ptxas=assembler,
                limits=limits,
                nvdisasms=nvdisasms,
                launch=captured,
                record=record,
                bundled=bundled,
                freeze_ptx=frozen,
                file=file,
            )
    most = max(map(len, launches.values()))
    if number is not None and number > most:
        count = "once" if most == 1 else f"{most} times"
        raise CaptureError(
            f"--launch {place.launch.label}#{number}: {repro.name} is launched {count} there"
        )


def _wanted_records(
    repro: Repro, value: Capture, where: str, unpassed: str, title: str
) -> list[LaunchFacts]:
    pattern = repro.kernel
    if pattern is None and value.records:
        return value.records
    if records := [r for r in value.records if pattern and fnmatchcase(r.kernel, pattern)]:
        return records
    if value.error:
        more = f"; {unpassed}" if unpassed else ""
        raise CaptureError(f"{raised_words(repro, value.error)} ({where}){more}")
    names = sorted({record.kernel for record in value.records})
    where = "; ".join(filter(None, [where, *value.notes, value.passed_over]))
    if names:
        near = difflib.get_close_matches(pattern or "", names, n=1)
        hint = f"did you mean {near[0]}? " if near else ""
        raise CaptureError(
            f"{repro.file}: kernel {pattern!r} is never launched; "
            f"{hint}launched are {', '.join(names)} ({where})"
        )
    raise CaptureError(f"{repro.file}: no {title} kernel is launched ({where})")


def raised_words(repro: Repro, error: RaisedError) -> str:
    """What launch code raised, and at which line: of its own, or of what was imported before it."""
    line = f":{error.line}" if error.line else ""
    if not line and (frames := _FRAME.findall(error.traceback)):
        line = f": {frames[-1][0]}:{frames[-1][1]}"
    first = next(filter(None, map(str.strip, error.message.splitlines())), "")
    if _OF_CAPTURE.intersection(error.kinds):
        return f"{repro.file}{line}: {first[:300]}, before the first launch"
    missing = re.fullmatch(r"No module named '(\w+)'", first)
    package = missing and _package(missing[1], repro.file)
    advice = f"; a package of that name: pip install {package}, beside triage" if package else ""
    message = f": {first[:300]}" if first else ""
    return f"{repro.file}{line}: the launch raised {error.type}{message}{advice}"


# In a traceback: those of the standard library, of installed packages and of ours are left out.
_NOT_THEIRS = rf'<|{re.escape(str(Path(__file__).parents[1]))}|[^"\n]*(?:-packages/|/lib/python3)'
_FRAME = re.compile(rf'File "(?!{_NOT_THEIRS})([^"\n]+)", line (\d+)')
# What ends a capture: see `harness.frontends.pretend.recorded`.
_OF_CAPTURE = frozenset({"NeedsValuesError", "TimeUpError", "UnknownFactError"})
# Modules whose package has another name.
_PACKAGES = {
    "PIL": "pillow",
    "attr": "attrs",
    "bs4": "beautifulsoup4",
    "cv2": "opencv-python",
    "dateutil": "python-dateutil",
    "fla": "flash-linear-attention",
    "google": "protobuf",
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "yaml": "pyyaml",
    "zmq": "pyzmq",
}
# What lies beside the scripts of a project, and is in no package.
_OF_PROJECTS = frozenset({"common", "conftest", "helpers", "scripts", "test", "tests", "utils"})


def _package(module: str, file: Path) -> str | None:
    """The package that a missing module most likely is of; None where it belongs to the script.

    A module that says itself private, or is named after a package that the script lies in, is an
    extension that the package builds.
    """
    around = [folder.name for folder in file.parents if (folder / "__init__.py").is_file()]
    is_own = any(module.startswith(f"{name}_") for name in around)
    if module.startswith("_") or module in _OF_PROJECTS or is_own:
        return None
    return _PACKAGES.get(module, module.replace("_", "-"))


def _miscounted(place: CapturePlace, records: list[LaunchFacts]) -> list[str]:
    """Where a repro says how many configs its default has, and is wrong."""
    repro, launch = place.selection.repro, place.launch
    count = len({Config.of(record.config).label for record in records})
    default = (repro.version, *repro.targets[:1]), repro.launches[0]
    if repro.configs in (None, count) or launch.overrides:
        return []
    if ((place.compiler.version, str(place.target)), launch.spec) != default:
        return []
    return [f"{repro.name}: its repro.yaml counts {repro.configs} configs, there are {count}"]
