"""Live registers over the instructions of a kernel, as a curve that a template draws. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from harness.judging.origins import Origins, lines_of, sass_addresses
from harness.judging.ptxas.sass import LiveRegisters

WIDTH, HEIGHT = 1000.0, 160.0
_TOP = 10.0
_STEPS = 500
_NEAR = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Live:
    """What is known of a cell's live registers, and how many its threads have and could have.

    `problem` says why nothing is known; `tool` counted. `limit` is for a block of their size.
    """

    kernels: Mapping[str, LiveRegisters]
    tool: str = ""
    problem: str = ""
    registers: int | None = None
    limit: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveCurve:
    """The curve of one kernel, in units of a drawing of `WIDTH` by `HEIGHT`, its origin above left.

    `steps` are places of equal width with the least and the most live registers in each: x, y of
    the most, y of the least. `stores` and `loads` are where local memory is accessed, as x;
    `n_stores` and `n_loads` how often. `first` counts the instructions of the kernels before.
    `limit_y` is None where the limit is far above and nothing spills. `peak_line` is the source's.
    """

    kernel: str
    first: int
    instructions: int
    steps: tuple[tuple[float, float, float], ...]
    stores: tuple[int, ...]
    loads: tuple[int, ...]
    n_stores: int
    n_loads: int
    peak: int
    peak_address: str
    peak_line: int | None
    peak_anchor: str
    peak_x: float
    peak_y: float
    registers: int | None
    registers_y: float | None
    limit: int | None
    limit_y: float | None
    width: float = WIDTH
    height: float = HEIGHT


def live_margins(sass: str, live: Live) -> list[tuple[str, str]]:
    """For each line of a disassembly the live registers, "" for none, and its anchor at a peak."""
    counts = {
        (name, address): count
        for name, kernel in live.kernels.items()
        for address, count in zip(kernel.addresses, kernel.counts, strict=True)
    }
    peaks = {
        (name, kernel.peak_address): _anchor(index)
        for index, (name, kernel) in enumerate(live.kernels.items())
    }
    return [
        (str(counts[at]), peaks.get(at, "")) if at in counts else ("", "")
        for at in sass_addresses(sass)
    ]


def live_text(sass: str, live: Live) -> str:
    """A disassembly with the live registers before each instruction, and the peaks ahead of it."""
    heads = [
        f"# {name}: up to {kernel.peak:,} live registers, first at /*{kernel.peak_address:04x}*/; "
        f"counted by {live.tool}\n"
        for name, kernel in live.kernels.items()
    ]
    margins = live_margins(sass, live)
    lines = (f"{n:>4} {line}\n" for line, (n, _) in zip(lines_of(sass), margins, strict=True))
    return "".join([*heads, *lines])


def _anchor(index: int) -> str:
    return f"peak-{index + 1}"


def live_curves(sass: str, origins: Origins, live: Live) -> list[LiveCurve]:
    """A curve for each kernel of a disassembly, whose lines have these origins."""
    places = sass_addresses(sass)
    text = dict(zip(places, lines_of(sass), strict=True))
    lines = dict(zip(places, origins, strict=False))
    curves = []
    first = 0
    for index, (name, counted) in enumerate(live.kernels.items()):
        words = [text.get((name, address), "") for address in counted.addresses]
        line = lines.get((name, counted.peak_address))
        curves.append(_curve(name, counted, words, (first, line or None, _anchor(index)), live))
        first += len(counted.counts)
    return curves


def _curve(
    kernel: str,
    counted: LiveRegisters,
    words: Sequence[str],
    place: tuple[int, int | None, str],
    live: Live,
) -> LiveCurve:
    counts = counted.counts
    first, line, anchor = place
    stores = [at for at, text in enumerate(words) if " STL" in text]
    loads = [at for at, text in enumerate(words) if " LDL" in text]
    most = max(counted.peak, live.registers or 0)
    # A limit that is far away would flatten the curve; where something spills, that is the point.
    is_near = live.limit is not None and bool(stores or loads or live.limit <= most * _NEAR)
    top = max(most, live.limit or 0) if is_near else most

    def y(value: float) -> float:
        return round(_TOP + (1 - value / max(1, top)) * (HEIGHT - _TOP), 1)

    def x(at: float) -> float:
        return round((at + 0.5) / len(counts) * WIDTH, 1)

    width = -(-len(counts) // _STEPS)
    steps = [
        (x(at + (len(part) - 1) / 2), y(max(part)), y(min(part)))
        for at in range(0, len(counts), width)
        if (part := counts[at : at + width])
    ]
    return LiveCurve(
        kernel=kernel,
        first=first,
        instructions=len(counts),
        steps=tuple(steps),
        stores=_once(map(x, stores)),
        loads=_once(map(x, loads)),
        n_stores=len(stores),
        n_loads=len(loads),
        peak=counted.peak,
        peak_address=f"{counted.peak_address:04x}",
        peak_line=line,
        peak_anchor=anchor,
        peak_x=x(counts.index(counted.peak)),
        peak_y=y(counted.peak),
        registers=live.registers,
        registers_y=None if live.registers is None else y(live.registers),
        limit=live.limit,
        limit_y=y(live.limit) if live.limit is not None and is_near else None,
    )


def _once(places: Iterable[float]) -> tuple[int, ...]:
    return tuple(sorted({round(place) for place in places}))
