"""PTX programs of a few lines, and what they leave in their buffers."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from gpu_emulator.api import run
from gpu_emulator.values import Allocation, Budget, Checks, Launch, Outcome, Pointer, Schedule

__all__ = ["SCHEDULES", "apply", "execute", "kernel", "outcome"]

WARPS: tuple[Literal["lockstep", "first", "last", "random"], ...]
WARPS = ("lockstep", "first", "last", "random")
COMPLETIONS: tuple[Literal["early", "late", "random"], ...] = ("early", "late", "random")
SCHEDULES = [
    Schedule(warps=warps, completion=completion, seed=5)
    for warps in WARPS
    for completion in COMPLETIONS
]
HEAD = ".version 8.7\n.target sm_100a\n.address_size 64\n"
REGISTERS = """
    .reg .pred %p<16>;
    .reg .b16 %h<16>;
    .reg .b32 %r<64>;
    .reg .b64 %rd<64>;
"""


def kernel(body: str, parameters: int, *, declarations: str = "", functions: str = "") -> str:
    """An entry whose parameters are pointers: `%rd40`, `%rd41`, ...; `%r40` is the thread."""
    names = ", ".join(f".param .u64 p{number}" for number in range(parameters))
    loads = "".join(f"ld.param.u64 %rd{40 + n}, [p{n}];\n" for n in range(parameters))
    return (
        f"{HEAD}{declarations}\n{functions}\n.visible .entry k({names})\n{{{REGISTERS}{loads}"
        f"mov.u32 %r40, %tid.x;\n{body}\nret;\n}}\n"
    )


def outcome(
    ptx: str,
    *buffers: NDArray[np.generic],
    grid: int = 1,
    block: int = 32,
    schedule: Schedule | None = None,
    checks: Checks | None = None,
    limits: Budget | None = None,
    shared: int = 0,
    cluster: int = 1,
) -> Outcome:
    """Run an entry on buffers."""
    allocations = tuple(
        Allocation(name=f"p{number}", data=np.ascontiguousarray(each).view(np.uint8).reshape(-1))
        for number, each in enumerate(buffers)
    )
    launch = Launch(
        ptx=ptx, grid=(grid, 1, 1), block=(block, 1, 1), cluster=(cluster, 1, 1),
        allocations=allocations, dynamic_shared=shared,
        arguments=tuple(Pointer(allocation=number) for number in range(len(buffers))),
    )  # fmt: skip
    return run(launch, schedule, limits, checks)


def execute(
    ptx: str,
    *buffers: NDArray[np.generic],
    grid: int = 1,
    block: int = 32,
    schedule: Schedule | None = None,
    shared: int = 0,
    cluster: int = 1,
) -> list[NDArray[np.generic]]:
    """The buffers after a run that ends well."""
    result = outcome(
        ptx, *buffers, grid=grid, block=block, schedule=schedule, shared=shared, cluster=cluster
    )
    assert result.not_run is None, result.not_run
    assert not result.faults, result.faults
    return [
        one.data.view(each.dtype) for one, each in zip(result.allocations, buffers, strict=True)
    ]


def apply(
    instruction: str, result: str, *operands: tuple[str, NDArray[np.generic]]
) -> NDArray[np.generic]:
    """One instruction on `$1`, `$2`, ... of given types; it writes `$0` of the type `result`.

    Predicates travel as 32-bit integers.
    """
    count = len(operands[0][1])
    lines, names = [], {}
    for number, (kind, _) in enumerate(operands, 1):
        names[f"${number}"] = name = f"%v{number}"
        lines.append(_load(kind, name, number))
    names["$0"] = "%v0"
    text = instruction
    for mark, name in names.items():
        text = text.replace(mark, name)
    kinds = [result, *(kind for kind, _ in operands)]
    declared = "".join(
        f".reg .{'b16' if kind.endswith('8') else kind} %v{number};\n"
        for number, kind in enumerate(kinds)
    )
    body = f"{declared}{''.join(lines)}{text}\n{_store(result)}"
    width = 4 if result == "pred" else _bytes(result)
    out = np.zeros(count, dtype=f"u{width}")
    ptx = kernel(body, len(operands) + 1)
    block = 32
    grid = -(-count // block)
    padded = [np.resize(values, grid * block) for _, values in operands]
    found = execute(ptx, np.resize(out, grid * block), *padded, grid=grid, block=block)
    return found[0][:count]


def _bytes(kind: str) -> int:
    return int(kind.lstrip("bsuf")) // 8


def _load(kind: str, name: str, number: int) -> str:
    width = 4 if kind == "pred" else _bytes(kind)
    place = (
        f"mov.u32 %r41, %ctaid.x;\nmad.lo.u32 %r42, %r41, 32, %r40;\n"
        f"mad.wide.u32 %rd1, %r42, {width}, %rd{40 + number};\n"
    )
    if kind == "pred":
        return f"{place}ld.global.u32 %r1, [%rd1];\nsetp.ne.u32 {name}, %r1, 0;\n"
    return f"{place}ld.global.b{8 * width} {name}, [%rd1];\n"


def _store(kind: str) -> str:
    width = 4 if kind == "pred" else _bytes(kind)
    place = (
        f"mov.u32 %r41, %ctaid.x;\nmad.lo.u32 %r42, %r41, 32, %r40;\n"
        f"mad.wide.u32 %rd1, %r42, {width}, %rd40;\n"
    )
    if kind == "pred":
        return f"{place}selp.u32 %r1, 1, 0, %v0;\nst.global.u32 [%rd1], %r1;\n"
    return f"{place}st.global.b{8 * width} [%rd1], %v0;\n"
