"""Makes Triton kernels that are well defined by construction, each a launch file. Pure.

A kernel is a pipelined loop, or two nested ones, over tiles of a few shapes. Its statements load
(through pointers and descriptors), multiply, add up, scale, reduce, scan, store, and go through
memory; values are used in branches, in the next step, and by several statements. What a kernel
reads somebody wrote; what threads exchange through memory lies between barriers, and no two
programs run. Inputs are small whole numbers and products are scaled by powers of two, so that
there is little to be rounded.

A program follows from its seed.
"""

from __future__ import annotations

import ast
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from harness.hunt.changes import Program

_SIZES = (16, 32, 32, 64, 128)
_MOST_TILE = 64 * 64
_MOST_EACH = 32
"""Numbers of a tile in a thread: LLVM and the emulator take time by what one thread does."""
_TRIPS = (4, 5)
_STAGES = (2, 3, 4)
_WARPS = (4, 4, 4, 8, 2, 1)
_OUTER = 2
_THROUGH_DESCRIPTOR = 0.05
"""How often what is stored and loaded again goes through a descriptor: no barrier keeps a pipelined
loop from loading too early, and of every two hits one was this."""

KERNEL = "generated"
_IMPORTS = "import triton.language as tl\n"
_ALLOCATOR = """\
    if hasattr(triton, "set_allocator"):
        triton.set_allocator(
            lambda size, *_: torch.empty(size, device="cuda", dtype=torch.int8)
        )"""


@dataclass(frozen=True, slots=True)
class Tile:
    """A value of the kernel; `columns` is 0 of a vector, and a half has 16 bits."""

    name: str
    rows: int
    columns: int
    is_half: bool


@dataclass(frozen=True, slots=True)
class _Matrix:
    """Memory that holds a tile for each step, one below or beside the other (`axis`)."""

    name: str
    rows: int
    columns: int
    axis: int
    is_half: bool
    has_descriptor: bool


def program(seed: int) -> Program:
    """The program of a seed: a launch file, made of the words of its kernel."""
    text = KernelMaker(random.Random(seed)).text(seed)  # noqa: S311 - to repeat
    return Program(seed, text, words_of(text).keys())


@dataclass(slots=True)
class KernelMaker:
    """Makes the text of one program."""

    draw: random.Random
    body: list[str] = field(default_factory=list)
    head: list[str] = field(default_factory=list)
    inputs: dict[str, str] = field(default_factory=dict)
    outputs: dict[str, str] = field(default_factory=dict)
    matrices: list[_Matrix] = field(default_factory=list)
    pool: list[Tile] = field(default_factory=list)
    totals: list[Tile] = field(default_factory=list)
    depth: int = 1
    count: int = 0
    half: str = ""
    trips: int = 0
    outer: int = 1
    step: str = "step"
    largest: int = 0

    # What a file is made of.

    def text(self, seed: int) -> str:
        draw = self.draw
        self.half = draw.choice(("bfloat16", "bfloat16", "float16"))
        self.trips = draw.choice(_TRIPS)
        self.outer = _OUTER if draw.random() < 0.2 else 1
        sizes = draw.sample(_SIZES, draw.choice((1, 2, 3)))
        loops = self._loops()
        statements = draw.randint(3, 7)
        makers = self._makers(sizes)
        self._load(draw.choice(sizes), draw.choice(sizes))
        inner = self._statements(statements, makers)
        for total in self.totals:
            # What an outer loop begins again is zero there.
            shape = f"[{total.rows}, {total.columns}]" if total.columns else f"[{total.rows}]"
            self.head.append(f"{total.name} = tl.zeros({shape}, tl.float32)")
        stores = [line for total in self.totals for line in self._store_total(total)]
        lines = [*self.head, *loops, *(f"{'    ' * len(loops)}{line}" for line in inner), *stores]
        configs = self._configs()
        ranges = sorted(set(_ranges("\n".join(lines))))
        lines = [f"r{n} = tl.arange(0, {n})" for n in ranges] + lines
        limit = draw.randint(1, self.trips)
        return self._file(seed, "triton", _IMPORTS, configs, lines, limit, prepares=_ALLOCATOR)

    def _statements(self, count: int, makers: Mapping[Callable[[], None], float]) -> list[str]:
        """The lines of this many statements, which are made as often as their weights say."""
        for _ in range(count):
            [maker] = self.draw.choices(list(makers), list(makers.values()))
            maker()
        self._use_all()
        inner, self.body, self.depth = self.body, [], 1
        return inner

    def _file(
        self,
        seed: int,
        language: str,
        head: str,
        configs: Iterable[str],
        lines: Iterable[str],
        limit: int,
        *,
        constants: Iterable[str] = (),
        helper: str = "",
        prepares: str = "",
    ) -> str:
        """A launch file: `lines` are the body of the kernel, which may call a `helper`.

        The kernel takes `constants`, too; `head` has the imports, and `prepares` begins its launch.
        """
        made = {**self.inputs, **self.outputs}
        return "\n".join(
            [
                f'"""Generated by `triage hunt triton`, program {seed}."""\n',
                "import torch",
                "import triton",
                head,
                "CONFIGS = [",
                *(f"    {config}," for config in configs),
                "]\n\n",
                *([helper] if helper else ()),
                "@triton.autotune(configs=CONFIGS, key=[])",
                f"@{language}.jit",
                f"def {KERNEL}({', '.join((*made, 'n', 'limit', *constants))}):",
                *(f"    {line}" for line in lines),
                "\n\ndef launch():",
                *([prepares] if prepares else ()),
                *(f"    {name} = {value}" for name, value in made.items()),
                f"    {KERNEL}[(1,)]({', '.join((*made, str(self.trips), str(limit)))})",
                f"    return {', '.join(self.outputs)}\n",
            ]
        )

    def _configs(self) -> list[str]:
        stages = self.draw.sample(_STAGES, 2)
        fitting = [warps for warps in _WARPS if self.largest <= _MOST_EACH * 32 * warps]
        warps = [self.draw.choice(fitting) for _ in stages]
        return [
            f"triton.Config({{}}, num_stages={s}, num_warps={w})"
            for s, w in zip(stages, warps, strict=True)
        ]

    def _loops(self) -> list[str]:
        draw = self.draw
        bound = draw.choice(("n", str(self.trips)))
        # With stages of its own a loop is pipelined without a product, too.
        options = {
            "": 8.0,
            f"num_stages={draw.choice(_STAGES)}": 6.0,
            "loop_unroll_factor=2": 1.0,
            "disallow_acc_multi_buffer=True": 1.0,
            "warp_specialize=True": 1.0 if self.outer == 1 else 0.0,
        }
        [option] = draw.choices(list(options), list(options.values()))
        loop = f"for step in tl.range(0, {bound}, {option}):" if option else ""
        inner = loop or f"for step in range(0, {bound}):"
        if self.outer == 1:
            return [inner]
        is_flat = draw.random() < 0.5
        around = f"tl.range(0, {self.outer}, flatten=True)" if is_flat else f"range({self.outer})"
        self.step = f"(turn * {self.trips} + step)"
        return [f"for turn in {around}:", f"    {inner}"]

    def _makers(self, sizes: list[int]) -> dict[Callable[[], None], float]:
        draw = self.draw

        def load() -> None:
            self._load(draw.choice(sizes), draw.choice(sizes))

        def load_vector() -> None:
            self._vector(draw.choice(sizes))

        weights: dict[Callable[[], None], float] = {
            load: 3,
            load_vector: 1,
            self._dot: 4,
            self._add_up: 3,
            self._change: 2,
            self._reduce: 1,
            self._store: 1,
            self._through_memory: 0.7,
            self._branch: 1,
            self._carry: 0.7,
        }
        # Each kernel leaves out some kinds: small ones show more.
        return {maker: weight * (draw.random() < 0.75) + 0.01 for maker, weight in weights.items()}

    # Statements: each writes lines, and enters what it computes into the pool.

    def _name(self, kind: str) -> str:
        self.count += 1
        return f"{kind}{self.count}"

    def _say(self, line: str) -> None:
        self.body.append("    " * (self.depth - 1) + line)

    def _value(self, rows: int, columns: int, text: str, *, is_half: bool = False) -> Tile:
        self.largest = max(self.largest, rows * columns)
        tile = Tile(self._name("v"), rows, columns, is_half)
        self._say(f"{tile.name} = {text}")
        self.pool.append(tile)
        return tile

    def _load(self, rows: int, columns: int) -> None:
        columns = min(columns, _MOST_TILE // rows)
        like = [one for one in self.matrices if (one.rows, one.columns) == (rows, columns)]
        if like and self.draw.random() < 0.2:
            matrix = self.draw.choice(like)
        else:
            matrix = self._matrix("x", rows, columns, is_half=self.draw.random() < 0.85)
        other = ", other=0.0" if self.draw.random() < 0.5 else ""
        mask = f", mask={self._mask(rows)}, other=0.0" if other else ""
        if matrix.has_descriptor:
            text = f"{matrix.name}_d.load({self._corner(matrix)})"
        else:
            text = f"tl.load({self._pointers(matrix)}{mask})"
        self._value(rows, columns, text, is_half=matrix.is_half)

    def _matrix(self, kind: str, rows: int, columns: int, *, is_half: bool) -> _Matrix:
        name = self._name(kind)
        axis = self.draw.choice((0, 1))
        has_descriptor = self.draw.random() < (_THROUGH_DESCRIPTOR if kind == "m" else 0.5)
        matrix = _Matrix(name, rows, columns, axis, is_half, has_descriptor)
        self.matrices += [matrix] if kind == "x" else []
        height, width = self._extent(matrix)
        dtype = self.half if is_half else "float32"
        if kind == "x":
            draw = f'torch.randint(-2, 3, ({height}, {width}), device="cuda")'
            self.inputs[name] = f"{draw}.to(torch.{dtype})"
        else:
            self.outputs[name] = (
                f'torch.zeros({height}, {width}, device="cuda", dtype=torch.{dtype})'
            )
        if has_descriptor:
            self.head.append(
                f"{name}_d = tl.make_tensor_descriptor({name}, [{height}, {width}], "
                f"[{width}, 1], [{rows}, {columns}])"
            )
        return matrix

    @property
    def _steps(self) -> int:
        return self.trips * self.outer

    def _extent(self, matrix: _Matrix) -> tuple[int, int]:
        if matrix.axis:
            return matrix.rows, matrix.columns * self._steps
        return matrix.rows * self._steps, matrix.columns

    def _corner(self, matrix: _Matrix, step: str | None = None) -> str:
        step = step or self.step
        row, column = f"{step} * {matrix.rows}", f"{step} * {matrix.columns}"
        return f"[0, {column}]" if matrix.axis else f"[{row}, 0]"

    def _pointers(self, matrix: _Matrix, step: str | None = None) -> str:
        step = step or self.step
        _, width = self._extent(matrix)
        rows, columns = f"r{matrix.rows}", f"r{matrix.columns}"
        if matrix.axis:
            columns = f"({step} * {matrix.columns} + {columns})"
        else:
            rows = f"({step} * {matrix.rows} + {rows})"
        return f"{matrix.name} + {rows}[:, None] * {width} + {columns}[None, :]"

    def _mask(self, rows: int) -> str:
        return f"r{rows}[:, None] < {rows - self.draw.randint(1, rows - 1)}"

    def _vector(self, rows: int) -> Tile:
        name, size = self._name("a"), self._steps * rows
        self.inputs[name] = f'torch.randint(1, 3, ({size},), device="cuda").to(torch.float32)'
        return self._value(rows, 0, f"tl.load({name} + {self.step} * {rows} + r{rows})")

    def _operand(self, tile: Tile, *, is_turned: bool) -> str:
        factor = "0.015625" if self.half == "float16" else "0.0625"
        text = tile.name if tile.is_half else f"({tile.name} * {factor}).to(tl.{self.half})"
        return f"tl.trans({text})" if is_turned else text

    def _product(self) -> tuple[int, int, str] | None:
        """Rows, columns and operands of a product of two tiles, either of them turned."""
        tiles = [tile for tile in (*self.pool, *self.totals) if tile.columns]
        pairs = []
        for left in tiles:
            for right in tiles:
                for turned in ((False, False), (True, False), (False, True), (True, True)):
                    rows, inner = (left.rows, left.columns)[:: -1 if turned[0] else 1]
                    height, columns = (right.rows, right.columns)[:: -1 if turned[1] else 1]
                    if inner == height and rows * columns <= _MOST_TILE:
                        # Late values are drawn more often: products that feed products.
                        pairs.append((left, right, turned, rows, columns))
        if not pairs:
            return None
        left, right, turned, rows, columns = self.draw.choice(pairs)
        pair = zip((left, right), turned, strict=True)
        operands = ", ".join(self._operand(tile, is_turned=t) for tile, t in pair)
        return rows, columns, operands

    def _dot(self) -> None:
        if made := self._product():
            rows, columns, operands = made
            self._value(rows, columns, f"tl.dot({operands})")

    def _total(self, rows: int, columns: int) -> Tile:
        like = [one for one in self.totals if (one.rows, one.columns) == (rows, columns)]
        if like and self.draw.random() < 0.7:
            return self.draw.choice(like)
        self.largest = max(self.largest, rows * columns)
        total = Tile(self._name("t"), rows, columns, is_half=False)
        self.totals.append(total)
        return total

    def _add_up(self) -> None:
        """A product into a total."""
        if made := self._product():
            rows, columns, operands = made
            name = self._total(rows, columns).name
            text = self.draw.choice(
                (
                    f"{name} = tl.dot({operands}, {name})",
                    f"{name} += tl.dot({operands})",
                    f"{name} = {name} * 0.5 + tl.dot({operands})",
                )
            )
            self._say(text)

    def _change(self) -> None:
        """A tile scaled, masked, added to another one, or held to a bound."""
        tile = self._pick(lambda one: one.columns > 0)
        if tile is None:
            return
        name, ways = tile.name, ["negated", "bound", "where"]
        like = self._pick(lambda one: (one.rows, one.columns) == (tile.rows, tile.columns))
        row = self._pick(lambda one: not one.columns and one.rows == tile.rows)
        column = self._pick(lambda one: not one.columns and one.rows == tile.columns)
        ways += ["sum"] * (like is not None) + ["rows"] * 2 * (row is not None)
        ways += ["columns"] * 2 * (column is not None)
        way = self.draw.choice(ways)
        texts = {
            "negated": f"-{name}",
            "bound": f"tl.maximum({name}, -1.0)",
            "where": f"tl.where(r{tile.rows}[:, None] >= r{tile.columns}[None, :], {name}, 0.0)",
            "sum": f"{name} + {like.name if like else ''}",
            "rows": f"{name} * {row.name if row else ''}[:, None]",
            "columns": f"{name} * {column.name if column else ''}[None, :]",
        }
        is_half = tile.is_half and way == "negated"
        text = texts[way] if is_half else f"({texts[way]}).to(tl.float32)"
        self._value(tile.rows, tile.columns, text, is_half=is_half)

    def _reduce(self) -> None:
        tile = self._pick(lambda one: one.columns > 0)
        if tile is None:
            return
        axis = self.draw.choice((0, 1))
        left = (tile.columns, tile.rows)[axis]
        wide = f"{tile.name}.to(tl.float32)" if tile.is_half else tile.name
        way = self.draw.choice(("sum", "max", "cumsum"))
        if way == "cumsum":
            self._value(tile.rows, tile.columns, f"tl.cumsum({wide}, {axis}) * 0.0625")
        else:
            self._value(left, 0, f"tl.{way}({wide}, {axis})")

    def _store(self) -> None:
        tile = self._pick(lambda one: one.columns > 0)
        if tile is not None:
            self._put(tile)

    def _put(self, tile: Tile) -> None:
        """Store a tile, or a vector, at the place of this step."""
        if not tile.columns:
            name = self._name("o")
            self.outputs[name] = f'torch.zeros({self._steps * tile.rows}, device="cuda")'
            self._say(f"tl.store({name} + {self.step} * {tile.rows} + r{tile.rows}, {tile.name})")
            return
        matrix = self._matrix("o", tile.rows, tile.columns, is_half=tile.is_half)
        if matrix.has_descriptor:
            self._say(f"{matrix.name}_d.store({self._corner(matrix)}, {tile.name})")
        else:
            self._say(f"tl.store({self._pointers(matrix)}, {tile.name})")

    def _through_memory(self) -> None:
        """A tile is stored and loaded again: at once, or what the step before has left."""
        tile = self._pick(lambda one: one.columns > 0)
        if tile is None:
            return
        matrix = self._matrix("m", tile.rows, tile.columns, is_half=tile.is_half)
        step = "0" if self.draw.random() < 0.6 else self.step
        if matrix.has_descriptor:
            corner = self._corner(matrix, step)
            store = f"{matrix.name}_d.store({corner}, {tile.name})"
            load = f"{matrix.name}_d.load({corner})"
        else:
            where = self._pointers(matrix, step)
            store, load = f"tl.store({where}, {tile.name})", f"tl.load({where})"
        is_before = self.draw.random() < 0.4
        if is_before:
            self._value(tile.rows, tile.columns, load, is_half=tile.is_half)
        # Other threads read what these wrote, and write what these read; without a copy engine a
        # descriptor is so many pointers.
        for line in ("tl.debug_barrier()", store, "tl.debug_barrier()"):
            self._say(line)
        if not is_before:
            self._value(tile.rows, tile.columns, load, is_half=tile.is_half)

    def _branch(self) -> None:
        """A use in a branch: a store, perhaps to places that were loaded, or a sum."""
        before, said = list(self.pool), len(self.body)
        ways = self.draw.choice(("scatter", "store", "sum", "product"))
        if ways == "scatter":
            self._scatter()
            return
        self._say("if step < limit:")
        self.depth += 1
        if ways == "store":
            self._store()
        elif ways == "product":
            self._add_up()
        elif tile := self._pick(lambda one: one.columns > 0):
            total = self._total(tile.rows, tile.columns)
            self._say(f"{total.name} += {tile.name}")
        self.depth -= 1
        self.pool = before
        if len(self.body) == said + 1:
            self.body.pop()

    def _scatter(self) -> None:
        rows = self.draw.choice((64, 128))
        places, out = self._name("p"), self._name("o")
        size = self._steps * rows
        self.inputs[places] = f'torch.randperm({size}, device="cuda", dtype=torch.int32)'
        self.outputs[out] = f'torch.zeros({size}, device="cuda", dtype=torch.int32)'
        name = self._name("w")
        self._say(f"{name} = tl.load({places} + {self.step} * {rows} + r{rows})")
        if self.draw.random() < 0.3:
            self._load(rows, 16)
        self._say("if step < limit:")
        self._say(f"    tl.store({out} + {name}, step * {rows} + r{rows})")

    def _carry(self) -> None:
        """A tile is used in the step after its own, too: two uses at different distances."""
        tile = self._pick(lambda one: one.columns > 0 and one.is_half)
        if tile is None:
            return
        kept = Tile(self._name("c"), tile.rows, tile.columns, is_half=True)
        self.head.append(f"{kept.name} = tl.zeros([{tile.rows}, {tile.columns}], tl.{self.half})")
        self.pool.append(kept)
        self.draw.choice((self._add_up, self._dot, self._store))()
        if self.draw.random() < 0.5:
            total = self._total(tile.rows, tile.columns)
            self._say(f"{total.name} += {kept.name}")
        self.pool.remove(kept)
        self._say(f"{kept.name} = {tile.name}")

    def _pick(self, fits: Callable[[Tile], bool]) -> Tile | None:
        tiles = [tile for tile in (*self.pool, *self.totals) if fits(tile)]
        # The newest more often, so that values depend on one another.
        tiles += [tile for tile in self.pool[-2:] if fits(tile)]
        return self.draw.choice(tiles) if tiles else None

    def _use_all(self) -> None:
        """What nothing uses goes into a total, or out."""
        text = "\n".join(self.body)
        for tile in list(self.pool):
            if text.count(tile.name) > 1 and _is_read(text, tile.name):
                continue
            if self.draw.random() < 0.5 or not tile.columns:
                self._put(tile)
            else:
                self._say(f"{self._total(tile.rows, tile.columns).name} += {tile.name}")

    def _store_total(self, total: Tile) -> Iterable[str]:
        name = self._name("o")
        size = total.rows * max(1, total.columns)
        self.outputs[name] = f'torch.zeros({size}, device="cuda")'
        where = f"r{total.rows}"
        if total.columns:
            where = f"r{total.rows}[:, None] * {total.columns} + r{total.columns}[None, :]"
        yield f"tl.store({name} + {where}, {total.name})"


def _is_read(text: str, name: str) -> bool:
    reads = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name))
    return any(node.id == name and isinstance(node.ctx, ast.Load) for node in reads)


def _ranges(text: str) -> Iterator[int]:
    """The sizes of the ranges `r16`, `r64`, ... that lines name."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Name) and node.id[0] == "r" and node.id[1:].isdigit():
            yield int(node.id[1:])


# What a kernel is made of, by which causes are distinguished.


def kernel_of(tree: ast.Module) -> ast.FunctionDef:
    """The kernel of a generated file."""
    functions = (node for node in tree.body if isinstance(node, ast.FunctionDef))
    return next(node for node in functions if node.name == KERNEL)


def words_of(text: str) -> Counter[str]:
    """The calls of a generated kernel, those in its loops apart, and the options of the loops."""
    words: Counter[str] = Counter()

    def look(node: ast.AST, place: str) -> None:
        if isinstance(node, ast.For):
            place = "loop "
            call = node.iter
            options = (
                [word.arg or "" for word in call.keywords] if isinstance(call, ast.Call) else []
            )
            words.update(options)
        elif isinstance(node, ast.If):
            words["branch"] += 1
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            owner = node.func.value
            is_of_triton = isinstance(owner, ast.Name) and owner.id in _LANGUAGES
            kind = "" if is_of_triton else "descriptor "
            word = node.func.attr
            if word in _TOLD:
                words[f"{place}{kind}{word}"] += 1
        for child in ast.iter_child_nodes(node):
            look(child, place)

    for statement in kernel_of(ast.parse(text)).body:
        look(statement, "")
    return words


_LANGUAGES = ("tl", "gl", "async_copy")
_TOLD = frozenset(
    {"load", "store", "dot", "sum", "max", "cumsum", "debug_barrier", "trans"}
    | {"associative_scan", "gather", "dot_fma", "allocate_shared_memory", "async_load"}
    | {"permute", "slice"}
)
