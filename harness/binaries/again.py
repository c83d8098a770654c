"""Assemble the PTX of finished binaries again, by any ptxas, and read what came out of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from hashlib import sha256

from harness.cells.places import CompileOptions, at_bench
from harness.frontends.back_end import PTXAS_BACK_END
from harness.frontends.bench import content_key
from harness.io.processes.tasks import in_parallel
from harness.judging.ptxas.binary import kernels_of_cubin, stem_of
from harness.judging.ptxas.ptxas_log import PtxasLog, parse_ptxas_log
from harness.store.store import Store
from harness.values.binary import BinaryKernel, EmbeddedPtx, ReassembledKernel
from harness.values.outcome import Assembly
from harness.values.target import Target
from harness.values.toolchain import Assembler

_MOST_WORDS = 300


async def assemble_again(
    store: Store,
    modules: Sequence[EmbeddedPtx],
    kernels: Sequence[BinaryKernel],
    selects: Callable[[str], bool],
    tools: Sequence[Assembler],
    targets: Sequence[Target],
    how: CompileOptions,
    tell: Callable[[str], None],
) -> list[ReassembledKernel]:
    """Each selected kernel by each ptxas, for these targets or the one that its PTX names.

    What ptxas made is kept by content, as that of any other PTX.

    Raises:
        InfrastructureError: ptxas cannot be started.
        StorageError: results cannot be read or written.
    """
    shipped = {(stem_of(k.file), k.name, k.target): k for k in kernels}
    done = 0

    async def one(module: EmbeddedPtx, target: str, tool: Assembler) -> list[ReassembledKernel]:
        nonlocal done
        names = [name for name in module.entries if selects(name)]
        flags = ["-v", f"--gpu-name={target}"]
        if len(names) < len(module.entries):
            flags += [word for name in names for word in ("--entry", name)]
        # Its text is not read here: any PTX that a ptxas takes is assembled.
        key = content_key(program=sha256(module.text).hexdigest(), ptxas=tool.sha256, flags=flags)
        run = PTXAS_BACK_END.run(tool, lambda: module.text, tuple(flags), None)
        kept = await bench.run_once("assemble", key, Assembly, partial(run.attempt, bench))
        done += 1
        tell(f"{done} of {len(jobs)} modules of PTX are assembled")
        assembly, cubin = kept.value, kept.artifacts.get("cubin")
        code = store.artifacts.get(cubin) if cubin else b""
        made = {k.name: k for k in kernels_of_cubin(code, module.file)} if code else {}
        log = parse_ptxas_log(f"{assembly.stdout}\n{assembly.stderr}")
        said = log.errors[0].text[:_MOST_WORDS] if log.errors else assembly.end.words
        problem = None if code else said
        return [
            _row(module, name, target, tool, made.get(name), log, problem,
                 shipped.get((stem_of(module.file), name, target)))
            for name in names
        ]  # fmt: skip

    jobs = [
        (module, target, tool)
        for module in modules
        if any(map(selects, module.entries))
        for target in (list(map(str, targets)) or [module.target])
        for tool in tools
    ]
    async with at_bench(store, how) as bench:
        rows = await in_parallel(one(*job) for job in jobs)
    return [row for some in rows for row in some]


def _row(
    module: EmbeddedPtx,
    name: str,
    target: str,
    tool: Assembler,
    made: BinaryKernel | None,
    log: PtxasLog,
    problem: str | None,
    shipped: BinaryKernel | None,
) -> ReassembledKernel:
    spills = None
    if (usage := log.function(name)) and made:
        functions = (usage, *log.called_by(name))
        spills = sum((f.spill_stores or 0) + (f.spill_loads or 0) for f in functions)
    accesses = None
    if made and made.local_stores is not None and made.local_loads is not None:
        accesses = made.local_stores + made.local_loads
    return ReassembledKernel(
        file=module.file,
        name=name,
        target=target,
        ptxas=tool.version,
        n_regs=made.n_regs if made else None,
        spills=spills,
        stack=made.stack if made else None,
        local_accesses=accesses,
        shipped=shipped,
        problem=problem,
    )
