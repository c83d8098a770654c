"""What lifts a register collapse: ptxas' own options, and a directive, tried on the same PTX."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from msgspec import structs

from gpu_emulator.ptx.text.facts import blank_opaque, with_directive
from harness.bisect.axes import plan_cells, with_ptxas
from harness.bisect.collapse.facts import CollapseEvidence, Lift, collapse_of, collapse_words
from harness.cells.evaluate import Evaluated, evaluate, with_flags
from harness.cells.places import CompileOptions, record_of, work
from harness.frontends.base import PlannedCell, Selection
from harness.frontends.bench import Workbench
from harness.io.processes.tasks import in_parallel
from harness.io.toolchains.install import install_ptxas
from harness.io.toolchains.installed import installed_versions
from harness.judging.ptxas.help import options_of
from harness.judging.ptxas.ptxas_options import PtxasOption
from harness.store.store import Store
from harness.values.row import Row
from harness.values.toolchain import BUNDLED, Assembler

_DIRECTIVE = ".minnctapersm 1"
_ASKED = (".minnctapersm", ".maxnreg")


async def lift_collapse(bench: Workbench, cell: PlannedCell, row: Row) -> tuple[str, ...]:
    """What lifts the collapse that a cell's row shows, in words; nothing where it shows none.

    Raises:
        InfrastructureError: ptxas does not run.
        StorageError: results cannot be read or written.
    """
    study, _ = await _with_options(bench, cell, row)
    if study is None:
        return ()
    lifts = [(option.words, option.after) for option in study.options if option.lifts]
    return collapse_words(study.collapse, row, lifts, [option.words for option in study.options])


async def study_collapse(
    selection: Selection, store: Store, how: CompileOptions, case: Row
) -> CollapseEvidence | None:
    """The collapse of a case with all that a report says of it; None where it shows none.

    `selection` has the kernel's one launch with all its configs. Every row is stored.

    Raises:
        TriageError: the launch cannot be captured, or a toolchain is not available.
    """
    if collapse_of(case) is None:
        return None
    async with work(store, how) as (bench, run):
        cells = (await plan_cells(bench, selection, None)).cells
        home = next((cell for cell in cells if str(cell.cell) == case.cell), None)
        study, results = await _with_options(bench, home, case) if home else (None, [])
        if home and study and (best := study.best):
            option = next(o for o in options_of(home.ptxas) if o.words == best.words)
            versions = await _on_other_ptxas(bench, home, option)
            configs = await _pairs(bench, [cell for cell in cells if cell is not home], option)
            directive, more = await _with_directive(bench, home, case)
            study = replace(
                study,
                directive=directive,
                versions=_lifts(option, versions),
                configs=_lifts(option, configs),
            )
            results += [*more, *(result for pair in (*versions, *configs) for result in pair)]
        for result in results:
            store.put_result(run, record_of(result))
    return study


async def _with_options(
    bench: Workbench, cell: PlannedCell, row: Row
) -> tuple[CollapseEvidence | None, list[Evaluated]]:
    collapse = collapse_of(row)
    if collapse is None or row.ptx_sha256 is None:
        return None, []
    code = blank_opaque(bench.store.artifacts.get(row.ptx_sha256).decode(errors="replace"))
    if any(directive in code for directive in _ASKED):
        return None, []
    known_options = await asyncio.to_thread(options_of, cell.ptxas)
    # One of each kind.
    options = list({option.needs[0][0]: option for option in reversed(known_options)}.values())[
        ::-1
    ]
    results = await in_parallel(
        evaluate(bench, with_flags(cell, option.change)) for option in options
    )
    lifts = tuple(
        Lift(words=option.words, before=row, after=result.row)
        for option, result in zip(options, results, strict=True)
        if result.row.ptx_sha256 == row.ptx_sha256
    )
    return CollapseEvidence(collapse=collapse, options=lifts), list(results)


async def _pairs(
    bench: Workbench, cells: Sequence[PlannedCell], option: PtxasOption
) -> list[tuple[Evaluated, Evaluated]]:
    plain = await in_parallel(evaluate(bench, cell) for cell in cells)
    alive = [
        (cell, result)
        for cell, result in zip(cells, plain, strict=True)
        if result.row.verdict.compiles
    ]
    changed = await in_parallel(
        evaluate(bench, with_flags(cell, option.change)) for cell, _ in alive
    )
    return [(before, after) for (_, before), after in zip(alive, changed, strict=True)]


def _lifts(option: PtxasOption, pairs: Sequence[tuple[Evaluated, Evaluated]]) -> tuple[Lift, ...]:
    return tuple(
        Lift(words=option.words, before=plain.row, after=changed.row)
        for plain, changed in pairs
        if plain.row.ptx_sha256 == changed.row.ptx_sha256
    )


async def _on_other_ptxas(
    bench: Workbench, home: PlannedCell, option: PtxasOption
) -> list[tuple[Evaluated, Evaluated]]:
    def find() -> list[Assembler]:
        versions = installed_versions("ptxas")
        others = (
            install_ptxas(version) for version in versions if str(version) != home.ptxas.version
        )
        return [tool for tool in others if tool.origin != BUNDLED and option in options_of(tool)]

    knowing = await asyncio.to_thread(find)
    return await _pairs(bench, [with_ptxas(home, ptxas) for ptxas in knowing], option)


async def _with_directive(
    bench: Workbench, home: PlannedCell, case: Row
) -> tuple[Lift | None, list[Evaluated]]:
    assert case.ptx_sha256 is not None
    text = bench.store.artifacts.get(case.ptx_sha256).decode(errors="replace")
    changed = with_directive(text, _DIRECTIVE)
    if changed is None:
        return None, []
    words = _DIRECTIVE.replace(" ", "_")
    cell = structs.replace(
        home,
        cell=structs.replace(home.cell, ptxas=f"{home.cell.ptxas},{words}"),
        launch=None,
        record=None,
        raw_ptx=bench.store.artifacts.put(changed.encode()),
    )
    result = await evaluate(bench, cell)
    return Lift(words=_DIRECTIVE, before=case, after=result.row), [result]
