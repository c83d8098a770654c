"""Makes Gluon kernels (Triton 3.8 and later) as launch files, as `triton_sources.py` does. Pure.

What a kernel computes does not depend on its layouts, and its configs differ in these: each is held
to the others. A value has one layout at rest; most statements convert it to another one, and
what they leave back. Copies land in buffers of their own, and are waited for before they are read.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from harness.hunt.changes import Program
from harness.hunt.triton_sources import KernelMaker, Tile, words_of

_SIZES = (16, 32, 32, 64)
_LAYOUTS = 3
_WARPS = (1, 2, 4, 4, 8)
_IMPORTS = """\
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import async_copy
"""
_ADDED = """\
@gluon.jit
def added(a, b):
    return a + b

"""


def gluon_program(seed: int) -> Program:
    """The program of a seed."""
    text = _GluonMaker(random.Random(seed)).text(seed)  # noqa: S311 - to repeat
    return Program(seed, text, words_of(text).keys())


@dataclass(slots=True)
class _GluonMaker(KernelMaker):
    tail: list[str] = field(default_factory=list)

    def text(self, seed: int) -> str:
        draw = self.draw
        self.trips = draw.choice((2, 3))
        sizes = draw.sample(_SIZES, 2)
        makers: dict[Callable[[], None], float] = {
            lambda: self._load(*draw.choices(sizes, k=2)): 2,
            lambda: self._copy(*draw.choices(sizes, k=2)): 2,
            self._through_shared: 3,
            self._change: 2,
            self._reduce: 3,
            self._gather: 1,
            self._dot: 1,
            self._branch: 0.7,
        }
        self._load(*draw.choices(sizes, k=2))
        inner = self._statements(draw.randint(3, 7), makers)
        for total in self.totals:
            self.head.append(
                f"{total.name} = gl.zeros([{total.rows}, {total.columns}], gl.float32, L0)"
            )
        stores = [line for total in self.totals for line in self._store_total(total)]
        stores = [*self.tail, *stores]
        loop = draw.choice((f"for step in range({self.trips}):", "for step in range(n):"))
        if draw.random() < 0.2:
            loop = f"for step in gl.static_range({self.trips}):"
        lines = [*self._layouts(), *self.head, loop, *(f"    {line}" for line in inner), *stores]
        constants = [f"{name}{n}" for n in range(_LAYOUTS) for name in "ETCD"]
        limit = draw.randint(1, self.trips)
        configs = [self._config(constants) for _ in range(2)]
        typed = [f"{name}: gl.constexpr" for name in constants]
        return self._file(
            seed, "gluon", _IMPORTS, configs, lines, limit, constants=typed, helper=_ADDED
        )

    def _config(self, constants: list[str]) -> str:
        """Of each layout: elements and threads in a row, warps in a row, and which axis is fast."""
        draw = self.draw
        warps = draw.choice([n for n in _WARPS if self.largest <= 64 * 32 * n])
        ways = {
            "E": (1, 2, 4, 8),
            "T": (1, 2, 4, 8, 16, 32),
            "C": tuple(n for n in (1, 2, 4, 8) if n <= warps),
            "D": (0, 1),
        }
        values = ", ".join(f'"{name}": {draw.choice(ways[name[0]])}' for name in constants)
        return f"triton.Config({{{values}}}, num_warps={warps})"

    def _layouts(self) -> list[str]:
        return [
            f"L{n}: gl.constexpr = gl.BlockedLayout([1, E{n}], [32 // T{n}, T{n}], "
            f"[gl.num_warps() // C{n}, C{n}], [1 - D{n}, D{n}])"
            for n in range(_LAYOUTS)
        ]

    # Statements: what they enter into the pool has the layout L0, a vector that of its rows.

    def _other(self) -> str:
        return f"L{self.draw.randrange(_LAYOUTS)}"

    def _swizzle(self) -> str:
        """A layout of shared memory for a tile."""
        draw = self.draw
        numbers = ", ".join(str(draw.choice((1, 2, 4, 8))) for _ in range(3))
        order = draw.choice(("[1, 0]", "[0, 1]"))
        return f"gl.SwizzledSharedLayout({numbers}, order={order})"

    def _range(self, size: int, axis: int, layout: str = "L0") -> str:
        return f"gl.arange(0, {size}, layout=gl.SliceLayout({1 - axis}, {layout}))"

    def _places(self, rows: int, columns: int, layout: str = "L0", step: str = "step") -> str:
        row = f"{self._range(rows, 0, layout)}[:, None] * {columns}"
        column = f"{self._range(columns, 1, layout)}[None, :]"
        return f"{step} * {rows * columns} + {row} + {column}"

    def _input(self, rows: int, columns: int) -> str:
        name = self._name("x")
        size = f"({self.trips * rows}, {columns})"
        self.inputs[name] = f'torch.randint(-2, 3, {size}, device="cuda").to(torch.float32)'
        return name

    def _load(self, rows: int, columns: int) -> None:
        name, layout = self._input(rows, columns), self._other()
        mask = f"{self._range(rows, 0, layout)}[:, None] < {self.draw.randint(1, rows)}"
        masked = f", mask={mask}, other=0.0" if self.draw.random() < 0.3 else ""
        loaded = f"gl.load({name} + {self._places(rows, columns, layout)}{masked})"
        self._value(rows, columns, f"gl.convert_layout({loaded}, L0)")

    def _copy(self, rows: int, columns: int) -> None:
        """A tile by `cp.async`: of this step, or sent for in the step before."""
        name, ring, layout = self._input(rows, columns), self._name("q"), self._other()
        buffers = self.draw.choice((2, 3))
        order = self.draw.choice(("[1, 0]", "[0, 1]"))
        shared = f"gl.SwizzledSharedLayout(1, 1, 1, order={order})"
        shape = f"[{buffers}, {rows}, {columns}]"
        self.head.append(f"{ring} = gl.allocate_shared_memory(gl.float32, {shape}, {shared})")

        def send(buffer: str, step: str) -> list[str]:
            places = self._places(rows, columns, layout, step)
            copy = f"async_copy.async_load({ring}.index({buffer}), {name} + {places})"
            return [copy, "async_copy.commit_group()"]

        is_ahead = self.draw.random() < 0.6
        if is_ahead:
            self.head += send("0", "0")
            # The last one arrives behind the loop: until then its buffer must live.
            total = self._total(rows, columns).name
            self.tail.append("async_copy.wait_group(0)")
            self.tail.append(f"{total} += {ring}.index({self.trips} % {buffers}).load(L0)")
            lines = send(f"(step + 1) % {buffers}", f"((step + 1) % {self.trips})")
        else:
            lines = send(f"step % {buffers}", "step")
        for line in (*lines, f"async_copy.wait_group({int(is_ahead)})"):
            self._say(line)
        self._value(rows, columns, f"{ring}.index(step % {buffers}).load(L0)")

    def _through_shared(self) -> None:
        """A tile, or a part of it, through shared memory: turned, cut or in another shape."""
        tile = self._tile()
        name = self._name("s")
        value = f"gl.convert_layout({tile.name}, {self._other()})"
        shape = f"[{tile.rows}, {tile.columns}]"
        self._say(
            f"{name} = gl.allocate_shared_memory(gl.float32, {shape}, {self._swizzle()}, {value})"
        )
        way = self.draw.choice(("", "permute", "slice"))
        if way == "permute":
            self._value(tile.columns, tile.rows, f"{name}.permute([1, 0]).load(L0)")
        elif way == "slice" and tile.rows > 16:
            half = tile.rows // 2
            start = self.draw.choice((0, half))
            self._value(half, tile.columns, f"{name}.slice({start}, {half}, 0).load(L0)")
        else:
            layout = self._other()
            loaded = f"{name}.load({layout})"
            self._value(tile.rows, tile.columns, f"gl.convert_layout({loaded}, L0)")

    def _change(self) -> None:
        tile = self._tile()
        like = self._pick(lambda one: (one.rows, one.columns) == (tile.rows, tile.columns)) or tile
        row = self._pick(lambda one: not one.columns and one.rows == tile.rows)
        column = self._pick(lambda one: not one.columns and one.rows == tile.columns)
        ways = [f"gl.maximum({tile.name}, -{like.name})", f"{tile.name} * 0.5 + {like.name}"]
        if row:
            ways += [f"{tile.name} + {row.name}[:, None]"] * 2
        if column:
            turned = f"gl.convert_layout({column.name}, gl.SliceLayout(0, L0))"
            ways += [f"{tile.name} - {turned}[None, :]"] * 2
        self._value(tile.rows, tile.columns, self.draw.choice(ways))

    def _reduce(self) -> None:
        tile, layout = self._tile(), self._other()
        axis = self.draw.choice((0, 1))
        value = f"gl.convert_layout({tile.name}, {layout})"
        way = self.draw.choice(("sum", "max", "associative_scan"))
        if way == "associative_scan":
            backwards = self.draw.choice(("", ", reverse=True"))
            scanned = f"gl.associative_scan({value}, {axis}, added{backwards}) * 0.0625"
            self._value(tile.rows, tile.columns, f"gl.convert_layout({scanned}, L0)")
        else:
            left = (tile.columns, tile.rows)[axis]
            made = f"gl.{way}({value}, {axis})"
            self._value(left, 0, f"gl.convert_layout({made}, gl.SliceLayout(1, L0))")

    def _gather(self) -> None:
        """Each element from another place along an axis."""
        tile, layout = self._tile(), self._other()
        axis = self.draw.choice((0, 1))
        size = (tile.rows, tile.columns)[axis]
        row = f"{self._range(tile.rows, 0, layout)}[:, None]"
        column = f"{self._range(tile.columns, 1, layout)}[None, :]"
        places = f"({row} * {self.draw.choice((1, 3))} + {column} * 5 + step) % {size}"
        value = f"gl.convert_layout({tile.name}, {layout})"
        gathered = f"gl.gather({value}, {places}, {axis})"
        self._value(tile.rows, tile.columns, f"gl.convert_layout({gathered}, L0)")

    def _dot(self) -> None:
        tiles = [one for one in self.pool if one.columns]
        pairs = [(a, b) for a in tiles for b in tiles if a.columns == b.rows == 16]
        if pairs:
            left, right = self.draw.choice(pairs)
            layout, rows, columns = self._other(), left.rows, right.columns
            operands = ", ".join(
                f"gl.convert_layout({one.name}, gl.DotOperandLayout({n}, {layout}, 0))"
                for n, one in enumerate((left, right))
            )
            zeros = f"gl.zeros([{rows}, {columns}], gl.float32, {layout})"
            product = f"gl.dot_fma({operands}, {zeros})"
            self._value(rows, columns, f"gl.convert_layout({product}, L0) * 0.0625")

    def _branch(self) -> None:
        tile = self._tile()
        self._say("if step < limit:")
        self._say(f"    {self._total(tile.rows, tile.columns).name} += {tile.name}")

    def _tile(self) -> Tile:
        tile = self._pick(lambda one: one.columns > 0)
        assert tile is not None, "a kernel begins with a load"
        return tile

    def _put(self, tile: Tile) -> None:
        name = self._name("o")
        size = tile.rows * max(1, tile.columns)
        self.outputs[name] = f'torch.zeros({self.trips * size}, device="cuda")'
        places = f"step * {tile.rows} + {self._range(tile.rows, 0)}"
        value = tile.name
        if tile.columns:
            layout = self._other()
            places = self._places(tile.rows, tile.columns, layout)
            value = f"gl.convert_layout({tile.name}, {layout})"
        self._say(f"gl.store({name} + {places}, {value})")

    def _store_total(self, total: Tile) -> list[str]:
        name = self._name("o")
        self.outputs[name] = f'torch.zeros({total.rows * total.columns}, device="cuda")'
        places = self._places(total.rows, total.columns, step="0")
        return [f"gl.store({name} + {places}, {total.name})"]
