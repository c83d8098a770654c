"""Assemble the PTX of finished binaries again, by any ptxas, and read what came out of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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
    selected: Mapping[str, str],
    tools: Sequence[Assembler],
    targets: Sequence[Target],
    how: CompileOptions,
    tell: Callable[[str], None],
) -> list[ReassembledKernel]:
    """Each `selected` kernel by each ptxas, for these targets or the one that its PTX names.

    Of those that are selected it gives the demangled name.

    What ptxas made is kept by content, as that of any other PTX.

    Raises:
        InfrastructureError: ptxas cannot be started.
        StorageError: results cannot be read or written.
    """
    shipped = {(stem_of(k.file), k.name, k.target): k for k in kernels}
    done = 0

    async def one(module: EmbeddedPtx, target: str, tool: Assembler) -> list[ReassembledKernel]:
        nonlocal done
        names = [name for name in module.entries if name in selected]
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
            ReassembledKernel(
                file=module.file,
                name=name,
                target=target,
                ptxas=tool.version,
                n_regs=made[name].n_regs if name in made else None,
                spills=_spills(log, name) if name in made else None,
                stack=made[name].stack if name in made else None,
                local_accesses=made[name].local_accesses if name in made else None,
                shipped=shipped.get((stem_of(module.file), name, target)),
                problem=problem,
                demangled=selected[name],
            )
            for name in names
        ]

    jobs = [
        (module, target, tool)
        for module in modules
        if not selected.keys().isdisjoint(module.entries)
        for target in (list(map(str, targets)) or [module.target])
        for tool in tools
    ]
    async with at_bench(store, how) as bench:
        rows = await in_parallel(one(*job) for job in jobs)
    return [row for some in rows for row in some]


def _spills(log: PtxasLog, name: str) -> int | None:
    if not (usage := log.function(name)):
        return None
    functions = (usage, *log.called_by(name))
    return sum((f.spill_stores or 0) + (f.spill_loads or 0) for f in functions)
