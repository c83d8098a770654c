"""Counts register collapses among compiled kernels, and what one option of ptxas changes in them.

    triage compile --kernel K --sm 90a --sm 100a --out DIR --json > K.json
    python benchmarks/register_collapse.py DIR K.json... --ptxas 12.9.86 --ptxas 13.5.37

Every PTX that was compiled is assembled again, with and without OPTION, by each ptxas: registers,
spills and occupancy, as Markdown. Nothing is run on a GPU.
"""

from __future__ import annotations

import argparse
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import msgspec
from msgspec.structs import replace

from gpu_emulator.ptx.text.facts import read_ptx
from harness.bisect.collapse.facts import collapse_of, is_lifted
from harness.io.processes.hub import run_tool
from harness.io.toolchains.install import install_ptxas
from harness.judging.ptxas.occupancy import theoretical_occupancy
from harness.judging.ptxas.ptxas_log import parse_ptxas_log
from harness.values.limits import limits_of
from harness.values.row import Row
from harness.values.target import Target
from harness.values.toolchain import Assembler
from harness.values.verdict import DEFAULT_THRESHOLDS, VerdictKind

OPTION = ["--minnctapersm", "1"]
_SECONDS = 600.0


@dataclass(frozen=True)
class Pair:
    """One PTX on one ptxas: without the option, and with it."""

    before: Row
    after: Row

    @property
    def fate(self) -> str:
        """In a word, what the option does to it."""
        if collapse_of(self.before):
            return "lifted" if is_lifted(self.before, self.after) else "not lifted"
        before, after = (_bytes(row) for row in (self.before, self.after))
        if (before, self.before.n_regs) == (after, self.after.n_regs):
            return "the same figures"
        if after != before:
            return "spills less" if after < before else "spills more"
        lower = (self.after.occupancy or 0) < (self.before.occupancy or 0)
        return "lower occupancy" if lower else "other registers, the same occupancy"


def _bytes(row: Row) -> int:
    return (row.spill_stores or 0) + (row.spill_loads or 0)


def measured(row: Row, ptx: Path, ptxas: Assembler, more: list[str]) -> Row | None:
    """The row with the figures of this ptxas; None where it refuses the PTX."""
    done = run_tool([ptxas.path, *row.ptxas_flags, *more, ptx, "-o", "/dev/null"], timeout=_SECONDS)
    usage = parse_ptxas_log(done.stderr).function(read_ptx(ptx.read_text()).entry)
    limits = limits_of(Target.parse(row.target).capability)
    if not done.end.ok or usage is None or usage.n_regs is None or limits is None:
        return None
    occupancy = theoretical_occupancy(
        limits,
        n_regs=usage.n_regs,
        shared=row.shared or 0,
        threads_per_block=row.threads or 1,
        barriers=row.barriers,
        tmem_columns=row.tmem_size or 0,
    )
    return replace(
        row,
        ptxas=ptxas.version,
        n_regs=usage.n_regs,
        spill_stores=usage.spill_stores,
        spill_loads=usage.spill_loads,
        occupancy=occupancy.fraction,
    )


def paired(row: Row, ptx: Path, ptxas: Assembler) -> Pair | None:
    """Both compilations of a PTX, where both come to an end."""
    before, after = (measured(row, ptx, ptxas, more) for more in ([], OPTION))
    return Pair(before, after) if before and after else None


def table(pairs: list[Pair]) -> str:
    """Every collapse, and then how many fared how."""
    lines = [
        "| kernel | config | target | ptxas | registers | with it | spill stores (B) | with it |",
        "| --- | --- | --- | --- | ---: | ---: | ---: | ---: |",
    ]
    for each in pairs:
        if collapse_of(each.before):
            row, then = each.before, each.after
            config = ", ".join(f"{n}={v}" for n, v in row.config.items())
            lines.append(
                f"| {row.kernel} | {config} | {row.target} | {row.ptxas} | {row.n_regs} | "
                f"{then.n_regs} | {row.spill_stores:,} | {then.spill_stores:,} |"
            )
    lines += [
        "",
        "| ptxas | target | compiled | what the option does |",
        "| --- | --- | ---: | --- |",
    ]
    groups = sorted({(each.before.ptxas, each.before.target) for each in pairs})
    for ptxas, target in groups:
        mine = [p for p in pairs if (p.before.ptxas, p.before.target) == (ptxas, target)]
        healthy = [p for p in mine if _bytes(p.before) < DEFAULT_THRESHOLDS.spill_bytes]
        rest = [p for p in mine if p not in healthy]
        fates = [
            f"{count} {name}: {fate}"
            for name, some in (("healthy", healthy), ("spilling", rest))
            for fate, count in Counter(p.fate for p in some).most_common()
        ]
        lines.append(f"| {ptxas} | {target} | {len(mine)} | {'; '.join(fates)} |")
    return "\n".join(lines)


def main() -> None:
    """See the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("documents", type=Path, nargs="+")
    parser.add_argument("--ptxas", action="append", required=True)
    parser.add_argument("--jobs", type=int, default=2)
    asked = parser.parse_args()
    rows = [
        row
        for document in asked.documents
        for row in msgspec.convert(msgspec.json.decode(document.read_bytes())["cells"], list[Row])
        if VerdictKind(row.verdict).compiles
    ]
    places = [next(asked.folder.glob(f"*-{row.short}/kernel.ptx"), None) for row in rows]
    versions = [install_ptxas(version) for version in asked.ptxas]
    with ThreadPoolExecutor(asked.jobs) as pool:
        tasks = [
            pool.submit(paired, row, ptx, ptxas)
            for row, ptx in zip(rows, places, strict=True)
            for ptxas in versions
            if ptx is not None
        ]
        pairs = [pair for task in tasks if (pair := task.result())]
    print(table(pairs))


if __name__ == "__main__":
    main()
