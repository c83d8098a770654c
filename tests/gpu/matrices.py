"""PTX of matrix instructions and tensor copies, as kernels that move operands in and out."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = [
    "HEADER",
    "SHARED_BYTES",
    "load_matrix_text",
    "mma_text",
    "move_matrix_text",
    "store_matrix_text",
    "tile_load_text",
    "tile_store_text",
    "wgmma_text",
]

HEADER = (
    ".version 8.4\n.target sm_90a\n.address_size 64\n"
    ".extern .shared .align 1024 .b8 shared[];\n.shared .align 8 .b64 bar_;\n"
)
SHARED_BYTES = 1 << 16
"""Dynamic shared memory of every kernel that copies all of it in or out."""


def _parameters(count: int) -> str:
    return ", ".join(f".param .u64 p{i}" for i in range(count))


def _list(prefix: str, count: int) -> str:
    return "{" + ", ".join(f"%{prefix}{i}" for i in range(count)) + "}"


def _thread_pointers(names: dict[str, int]) -> list[str]:
    """`%name` = parameter + thread * bytes, for each parameter in order."""
    lines = [
        "mov.u32 %c, %ctaid.x;", "mov.u32 %b, %ntid.x;", "mov.u32 %t, %tid.x;",
        "mad.lo.u32 %i, %c, %b, %t;",
    ]  # fmt: skip
    for number, (name, size) in enumerate(names.items()):
        lines += [
            f".reg .b64 %p{name};",
            f"ld.param.u64 %p{name}, [p{number}];",
            f"mad.wide.u32 %p{name}, %i, {size}, %p{name};",
        ]
    return lines


def _move(kind: str, name: str, count: int, width: int) -> list[str]:
    """Load or store `count` registers `%name0` ... of a thread."""
    size = width // 8
    lines = []
    for i in range(count):
        place = f"[%p{name} + {i * size}]"
        if kind == "ld":
            lines.append(f"ld.global.b{width} %{name}{i}, {place};")
        else:
            lines.append(f"st.global.b{width} {place}, %{name}{i};")
    return lines


def _entry(name: str, parameters: str, lines: Sequence[str]) -> str:
    body = "\n".join(lines)
    return (
        f".visible .entry {name}({parameters})\n{{\n.reg .b32 %c, %b, %t, %i;\n{body}\nret;\n}}\n"
    )


def mma_text(name: str, opcode: str, counts: tuple[int, int, int, int], width: int) -> str:
    """D = A x B + C for each warp; parameters D, A, B, C with `counts` registers a thread."""
    names = dict(zip("dabc", counts, strict=True))
    lines = [f".reg .b{width} %{n}<{count}>;" for n, count in names.items()]
    lines += _thread_pointers({n: count * width // 8 for n, count in names.items()})
    for n in "abc":
        lines += _move("ld", n, names[n], width)
    operands = ", ".join(_list(n, names[n]) for n in "dabc")
    lines.append(f"{opcode} {operands};")
    lines += _move("st", "d", names["d"], width)
    return _entry(name, _parameters(4), lines)


def _rows_to_shared(rows: str) -> list[str]:
    """Each of 32 threads copies 16 bytes, to or from the shared row of its own."""
    return [".reg .b32 %s, %x<4>;", "mov.u32 %s, shared;", "mad.lo.u32 %s, %t, 16, %s;", rows]


def load_matrix_text(name: str, count: int, *, transposed: bool) -> str:
    """`ldmatrix`: parameters registers, rows (16 bytes a lane)."""
    trans = ".trans" * transposed
    lines = [f".reg .b32 %d<{count}>;"]
    lines += _thread_pointers({"d": 4 * count, "r": 16})
    lines += _rows_to_shared("ld.global.v4.b32 {%x0, %x1, %x2, %x3}, [%pr];")
    lines += [
        "st.shared.v4.b32 [%s], {%x0, %x1, %x2, %x3};",
        "bar.sync 0;",
        f"ldmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16 {_list('d', count)}, [%s];",
        *_move("st", "d", count, 32),
    ]
    return _entry(name, _parameters(2), lines)


def store_matrix_text(name: str, count: int, *, transposed: bool) -> str:
    """`stmatrix`: parameters registers, rows."""
    trans = ".trans" * transposed
    lines = [f".reg .b32 %d<{count}>;"]
    lines += _thread_pointers({"d": 4 * count, "r": 16})
    lines += _rows_to_shared("mov.b32 %x0, 0;")
    lines += [
        "st.shared.v4.b32 [%s], {%x0, %x0, %x0, %x0};",
        "bar.sync 0;",
        *_move("ld", "d", count, 32),
        f"stmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16 [%s], {_list('d', count)};",
        "bar.sync 0;",
        "ld.shared.v4.b32 {%x0, %x1, %x2, %x3}, [%s];",
        "st.global.v4.b32 [%pr], {%x0, %x1, %x2, %x3};",
    ]
    return _entry(name, _parameters(2), lines)


def move_matrix_text(name: str) -> str:
    """`movmatrix`: parameters result, source."""
    lines = [
        ".reg .b32 %d0, %a0;",
        *_thread_pointers({"d": 4, "a": 4}),
        *_move("ld", "a", 1, 32),
        "movmatrix.sync.aligned.m8n8.trans.b16 %d0, %a0;",
        *_move("st", "d", 1, 32),
    ]
    return _entry(name, _parameters(2), lines)


def _copy_shared(direction: str) -> list[str]:
    """All threads copy all of shared memory from, or to, the pointer `%g`, 16 bytes at a time."""
    label = f"copy_{direction}"
    inner = {
        "in": [
            "ld.global.v4.b32 {%x0, %x1, %x2, %x3}, [%w];",
            "st.shared.v4.b32 [%s], {%x0, %x1, %x2, %x3};",
        ],
        "out": [
            "ld.shared.v4.b32 {%x0, %x1, %x2, %x3}, [%s];",
            "st.global.v4.b32 [%w], {%x0, %x1, %x2, %x3};",
        ],
    }[direction]
    return [
        "mov.u32 %s, shared;", "mad.lo.u32 %s, %t, 16, %s;", "mad.lo.u32 %i, %t, 16, 0;",
        "mad.wide.u32 %w, %t, 16, %g;",
        f"{label}:", *inner,
        "mad.lo.u32 %s, %b, 16, %s;", "mad.wide.u32 %w, %b, 16, %w;", "mad.lo.u32 %i, %b, 16, %i;",
        f"setp.lt.u32 %q, %i, {SHARED_BYTES};", f"@%q bra {label};", "bar.sync 0;",
    ]  # fmt: skip


_SHARED_REGISTERS = [
    ".reg .b32 %s, %x<4>;", ".reg .b64 %g, %w;", ".reg .pred %q;",
    "mov.u32 %b, %ntid.x;", "mov.u32 %t, %tid.x;",
]  # fmt: skip


def wgmma_text(name: str, opcode: str, d_count: int, *, a_in_registers: bool, tail: str) -> str:
    """One warpgroup: parameters D, shared memory, A (registers, or its descriptor), B, `scale-d`.

    Descriptors count from the start of shared memory; `base` is added here. `tail` are the
    immediates after `scale-d`.
    """
    lines = [
        *_SHARED_REGISTERS, f".reg .b32 %d<{d_count}>, %a<4>;", ".reg .b64 %pd, %pa, %da, %db, %o;",
        ".reg .pred %z;", ".reg .b32 %y;",
        "ld.param.u64 %g, [p1];", *_copy_shared("in"),
        "ld.param.u64 %pd, [p0];", f"mad.wide.u32 %pd, %t, {4 * d_count}, %pd;",
        *_move("ld", "d", d_count, 32),
        "mov.u32 %y, shared;", "shr.u32 %y, %y, 4;", "cvt.u64.u32 %o, %y;",
        "ld.param.u64 %db, [p3];", "add.u64 %db, %db, %o;",
        "ld.param.u64 %o, [p4];", "setp.ne.u64 %z, %o, 0;",
    ]  # fmt: skip
    if a_in_registers:
        lines += ["ld.param.u64 %pa, [p2];", "mad.wide.u32 %pa, %t, 16, %pa;"]
        lines += _move("ld", "a", 4, 32)
        operand = _list("a", 4)
    else:
        lines += ["cvt.u64.u32 %o, %y;", "ld.param.u64 %da, [p2];", "add.u64 %da, %da, %o;"]
        operand = "%da"
    lines += [
        "fence.proxy.async;", "bar.sync 0;", "wgmma.fence.sync.aligned;",
        f"{opcode} {_list('d', d_count)}, {operand}, %db, %z{tail};",
        "wgmma.commit_group.sync.aligned;", "wgmma.wait_group.sync.aligned 0;",
        *_move("st", "d", d_count, 32),
    ]  # fmt: skip
    return _entry(name, _parameters(5), lines)


def _map_parameters(rank: int) -> str:
    coordinates = ", ".join(f".param .u64 c{i}" for i in range(rank))
    return f".param .align 64 .b8 map[128], .param .u64 p0, {coordinates}"


def _coordinates(rank: int) -> list[str]:
    lines = [f".reg .b32 %k<{rank}>;", ".reg .b64 %m;"]
    lines += [f"ld.param.u32 %k{i}, [c{i}];" for i in range(rank)]
    return [*lines, "mov.b64 %m, map;", "cvta.param.u64 %m, %m;"]


def tile_load_text(name: str, rank: int, size: int) -> str:
    """A tile to the start of shared memory, and all of that out; parameters map, out, corner."""
    copy = f"cp.async.bulk.tensor.{rank}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
    place = f"[%m, {_list('k', rank)}]"
    lines = [
        *_SHARED_REGISTERS, *_coordinates(rank), ".reg .b32 %bar, %y;", ".reg .b64 %u;",
        "ld.param.u64 %g, [p0];", *_copy_shared("in"),
        "mov.u32 %bar, bar_;", "mov.u32 %y, shared;", "setp.ne.u32 %q, %t, 0;",
        "@%q bra wait;",
        "mbarrier.init.shared.b64 [%bar], 1;", "fence.mbarrier_init.release.cluster;",
        "fence.proxy.async;",
        f"mbarrier.arrive.expect_tx.shared.b64 %u, [%bar], {size};",
        f"{copy} [%y], {place}, [%bar];",
        "again:", "mbarrier.try_wait.parity.shared.b64 %q, [%bar], 0;", "@!%q bra again;",
        "wait:", "bar.sync 0;", *_copy_shared("out"),
    ]  # fmt: skip
    return _entry(name, _map_parameters(rank), lines)


def tile_store_text(name: str, rank: int, operation: str | None) -> str:
    """The start of shared memory to a tile, or a reduction; parameters map, source, corner."""
    place = f"[%m, {_list('k', rank)}]"
    kind = f"cp.reduce.async.bulk.tensor.{rank}d.global.shared::cta.{operation}.tile.bulk_group"
    if operation is None:
        kind = f"cp.async.bulk.tensor.{rank}d.global.shared::cta.tile.bulk_group"
    lines = [
        *_SHARED_REGISTERS, *_coordinates(rank), ".reg .b32 %y;",
        "ld.param.u64 %g, [p0];", *_copy_shared("in"), "fence.proxy.async;", "bar.sync 0;",
        "mov.u32 %y, shared;", "setp.ne.u32 %q, %t, 0;", "@%q ret;",
        f"{kind} {place}, [%y];",
        "cp.async.bulk.commit_group;", "cp.async.bulk.wait_group 0;",
    ]  # fmt: skip
    return _entry(name, _map_parameters(rank), lines)
