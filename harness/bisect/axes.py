"""The axes along which a failure is followed: what lies on them, and the cell at each point."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace
from packaging.version import Version

from harness.cells.repros.find import find_kernel
from harness.cells.repros.releases import in_release, plain_name, releases
from harness.frontends.bench import Workbench
from harness.frontends.plan import Plan, PlannedCell, PlannedLaunch, Selection
from harness.frontends.registry import back_end, front_end, plan_launch, unassembled
from harness.io.packages.versions import newest_of_minor
from harness.values.cell import CellId, place_of
from harness.values.errors import CaptureError, ConfigurationError, UsageError
from harness.values.toolchain import BUNDLED, NO_ASSEMBLER, PTXAS, RELEASE, Assembler

VERSION_AXES = ("ptxas", "triton", "compiler", "assembler", RELEASE)
_EVERY = ">=0"


@dataclass(slots=True, kw_only=True)
class Axis:
    """Versions in order, and the cells at each of them.

    `at` is what is selected at a version, which is installed if need be. `origin` is the one where
    the search begins, which the user named if `is_named`; `at_hand` how many it takes to try all
    that are installed and one of each minor release. With `frozen`, the versions are those of an
    assembler, and all have one program. `has_all`: `versions` are all that there are, not a range
    of them.
    """

    name: str
    selection: Selection
    at: Callable[[str], Selection]
    versions: tuple[str, ...]
    origin: str | None
    at_hand: int
    is_named: bool
    has_all: bool = True
    frozen: bool = False
    _plan: Plan | None = None
    _planning: asyncio.Lock = field(default_factory=asyncio.Lock)

    def place(self, cell: CellId) -> str:
        """What stays the same of a cell from one version to another: no release is in it."""
        return place_of(replace(cell, kernel=plain_name(cell.kernel)))

    async def cells(self, bench: Workbench, version: str) -> list[PlannedCell]:
        """Every config that was selected, at this version.

        Raises:
            CaptureError: its Triton cannot be asked.
            TriageError: the toolchain is not available.
        """
        selection = await asyncio.to_thread(self.at, version)
        if self.frozen:
            [ptxas] = selection.ptxas
            assert ptxas is not None, "its version was named"
            async with self._planning:
                if self._plan is None:
                    self._plan = await plan_cells(bench, self.selection, ptxas)
            return [with_ptxas(cell, ptxas) for cell in self._plan.cells]
        try:
            return list((await plan_cells(bench, selection, None)).cells)
        except ConfigurationError as error:
            if self.name != RELEASE:
                raise
            # A release without the module that is launched: it says nothing of the kernel.
            raise CaptureError(str(error)) from error


async def plan_cells(
    bench: Workbench,
    selection: Selection,
    ptxas: Assembler | None,
    *,
    launch: PlannedLaunch | None = None,
) -> Plan:
    """The cells of a selection's one launch; `ptxas` is one to have for PTX that names none.

    Raises:
        TriageError: as `plan_launch`.
    """
    target = selection.targets[0]
    if ptxas is not None:
        # What a compiler generates for the ptxas that it brings along goes to the others too.
        own = back_end(selection.repro.front_end, target).default == BUNDLED
        selection = replace(selection, ptxas=(None if own else ptxas,))
    return await plan_launch(bench, selection.place(launch=launch))


def with_ptxas(cell: PlannedCell, ptxas: Assembler) -> PlannedCell:
    """The cell with another assembler; another ptxas gets the PTX of the bundled one."""
    frozen = cell.launch is not None and ptxas.kind == PTXAS
    label = f"{ptxas.label}-frozen" if frozen else ptxas.label
    return replace(cell, ptxas=ptxas, freeze_ptx=frozen, cell=replace(cell.cell, ptxas=label))


def version_axis(selection: Selection, name: str, spec: str | None = None) -> Axis:
    """The axis of that name, from the oldest version there is to the newest.

    `spec` are the releases of the package that lie on their axis.

    Raises:
        UsageError: the axis does not apply.
        InfrastructureError: what versions there are cannot be found out.
    """
    if name == RELEASE:
        repro = find_kernel(plain_name(selection.repro.name))
        source = selection.repro.source
        if source is None or repro.source is None:
            name = repro.name
            raise UsageError(f"{name}: its source is not a package, so that it has no releases")
        released = tuple(map(str, releases(source.package, spec or _EVERY)))
        pinned = source.version
        return Axis(
            name=RELEASE,
            selection=selection,
            # With one compiler and one assembler.
            at=lambda version: replace(selection, repro=in_release(repro, Version(version))),
            versions=released,
            origin=pinned if pinned in released else released[-1],
            is_named=source != repro.source,
            at_hand=len(released),
        )
    compiler = front_end(selection.repro.front_end)
    back = compiler.back_end(selection.targets[0])
    if back.kind == NO_ASSEMBLER and name in ("assembler", PTXAS):
        raise UsageError(f"{selection.repro.name}: {unassembled(compiler)}; use --axis compiler")
    if name in ("assembler", back.kind):
        named = selection.ptxas[0] if len(selection.ptxas) == 1 else None
        available = back.available()
        versions = _within(available, [tool.version for tool in selection.ptxas if tool])
        return Axis(
            name=back.kind,
            selection=selection,
            # All of them get what is generated for the bundled one.
            at=lambda version: replace(
                selection, ptxas=(back.install(version),), freeze_ptx=not selection.repro.ptx
            ),
            frozen=True,
            versions=tuple(map(str, versions)),
            origin=named.version if named else None,
            is_named=named is not None,
            has_all=versions == available,
            at_hand=_at_hand(set(back.installed()), versions),
        )
    if name == PTXAS:
        raise UsageError(
            f"{selection.repro.name}: it is assembled by {back.title}; use --axis assembler"
        )
    if selection.repro.ptx:
        raise UsageError(f"{selection.repro.name}: PTX has been through Triton; use --axis ptxas")
    if name not in ("compiler", compiler.kind):
        raise UsageError(
            f"{selection.repro.name}: it is compiled by {compiler.title}; use --axis compiler"
        )
    named_ones = selection.compilers if selection.is_compiler_named else ()
    available = sorted({*compiler.available(), *compiler.builds_beside(named_ones)})
    versions = _within(available, [name.version for name in named_ones])
    return Axis(
        name=compiler.kind,
        selection=selection,
        # With the ptxas that was named, or the one that each bundles.
        at=lambda version: replace(selection, compilers=(compiler.install(version),)),
        versions=tuple(map(str, versions)),
        origin=selection.compilers[0].version if len(selection.compilers) == 1 else None,
        is_named=selection.is_compiler_named,
        has_all=versions == available,
        at_hand=_at_hand({Version(there.version) for there in compiler.installed()}, versions),
    )


def _within(versions: list[Version], named: Sequence[str]) -> list[Version]:
    """From the oldest to the newest of several that are named; else all that there are."""
    ends = sorted(map(Version, named))
    return [version for version in versions if len(ends) < 2 or ends[0] <= version <= ends[-1]]


def _at_hand(installed: set[Version], versions: Sequence[Version]) -> int:
    return len((installed & set(versions)) | set(newest_of_minor(versions)))
