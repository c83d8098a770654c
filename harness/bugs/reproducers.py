"""The smallest input of a bug that is gone, tried with the version that is free of the bug."""

from __future__ import annotations

import asyncio
import contextlib

import msgspec

from harness.bugs.list import list_bugs, reproducers_of
from harness.cells.compile import compile_selections
from harness.cells.places import CompileOptions, RunProgress
from harness.cells.selection import select
from harness.cells.spelling import SelectionOptions, on_compiler
from harness.frontends.bench import Workbench
from harness.io.files.writing import Scratch, scratch_disk
from harness.io.toolchains.install import install_ptxas
from harness.minimize.reduction.interest import PtxOracle
from harness.store.store import Store
from harness.values.bug import REPRODUCER, KeptReproducer
from harness.values.errors import TriageError
from harness.values.target import Target
from harness.values.toolchain import PTX


async def try_reproducers(bench: Workbench, how: CompileOptions) -> None:
    """Compile the smallest input of each bug that is gone, with the version that has to take it.

    What cannot be tried stays untried.

    Raises:
        StorageError: results cannot be read or kept.
    """
    store = bench.store
    if not store.records(REPRODUCER, KeptReproducer):
        return
    for bug in list_bugs(store):
        if bug.untried is None:
            continue
        key, reproducer = min(
            reproducers_of(store, bug).items(), key=lambda item: len(item[1].text)
        )
        with contextlib.suppress(TriageError):
            if await _is_accepted(bench, reproducer, bug.untried, how):
                accepted = msgspec.structs.replace(
                    reproducer, accepted_by=(*reproducer.accepted_by, bug.untried)
                )
                store.change_record(
                    REPRODUCER,
                    key,
                    KeptReproducer,
                    lambda kept, tried=reproducer, accepted=accepted: (  # type: ignore[misc]
                        accepted if kept == tried else None
                    ),
                )


async def _is_accepted(
    bench: Workbench, reproducer: KeptReproducer, version: str, how: CompileOptions
) -> bool:
    if reproducer.level == PTX:
        ptxas = await asyncio.to_thread(install_ptxas, version)
        oracle = PtxOracle(
            hub=bench.hub,
            target=Target.parse(reproducer.target),
            flags=reproducer.flags,
            limits=bench.limits,
            slots=asyncio.Semaphore(1),
        )
        return (await oracle.react(reproducer.text, ptxas)).is_accepted
    with Scratch() as place:
        file = place / reproducer.name
        with scratch_disk():
            file.write_text(reproducer.text)
        words = on_compiler(
            SelectionOptions(kernel=str(file), sm=[reproducer.target]), reproducer.kind, version
        )
        with Store.open(place / "results") as store:
            selection = await asyncio.to_thread(select, words)
            report = await compile_selections([selection], store, how, RunProgress())
        return all(row.verdict.compiles for row in report.rows)
