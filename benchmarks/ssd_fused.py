r"""The fused SSD kernel on a GPU: what it computes, and how long it takes beside five kernels.

    triage compile --kernel ssd_fused --kernel mamba2_chunk_scan_fwd    # fetches what it needs
    python benchmarks/ssd_fused.py PART... --out ROWS.jsonl \
        --packages SOURCES/mamba-ssm-*/tree --packages SOURCES/einops-*/tree

Needs torch, Triton and a GPU, and nothing of this repository but repros/ssd_fused. Each row is
written as soon as it is measured. Parts: `options` (every option and config against the recurrence
in float64), `numerics` (what state dtypes change), `launches` (a thousand, a large grid, a chip
that is half busy), `configs` (each, at 16k tokens), `times` (against mamba-ssm's five kernels,
everything tuned at each size, in turns), `waiting` (copies that leave something out),
`once` (launches for a profiler or a sanitizer); and without a GPU `table` (the Markdown of
docs/measured/ssd.md), `parts` (that of `waiting`) and `plot` (its pictures).
"""

# ruff: noqa: ANN001, ANN201, ANN401, FBT003, PLC0415, SLF001 - Triton's code, and mamba-ssm's own

from __future__ import annotations

import argparse
import importlib.machinery
import importlib.util
import json
import math
import statistics
import sys
import time
import types
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch
import triton
import triton.language as tl

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "repros" / "ssd_fused"))

import fused  # type: ignore[import-not-found]  # noqa: E402
import launch  # type: ignore[import-not-found]  # noqa: E402
import reference  # type: ignore[import-not-found]  # noqa: E402

PICTURES = ROOT / "docs" / "pictures"
SIZES = [1024 << i for i in range(9)]
CHUNKS = [64, 128, 256]
STATES = ["float32", "float16"]


class Rows:
    """A file that grows by a line for each thing that was measured."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def add(self, part: str, **row: Any) -> None:
        """Write one row down, and show its beginning."""
        line = json.dumps({"part": part, **row})
        with self.path.open("a") as file:
            file.write(line + "\n")
        print(line[:240], flush=True)


def in_float64(value: Any) -> Any:
    """The same numbers in float64; what is not a tensor of numbers as it is."""
    is_wide = isinstance(value, torch.Tensor) and value.is_floating_point()
    return value.double() if is_wide else value


def exact(arguments: Any, options: dict[str, Any]) -> Any:
    """What the recurrence gives in float64, for the options of `fused.ssd_fused`."""
    options = dict(options)
    least, most = options.pop("dt_limit", (0.0, float("inf")))
    ends = options.pop("cu_seqlens", None)
    wide = {name: in_float64(value) for name, value in options.items()}
    return reference.recurrence(
        *map(in_float64, arguments), **wide, dt_min=least, dt_max=most, cu_seqlens=ends
    )


def apart(actual: torch.Tensor, expected: torch.Tensor) -> dict[str, float]:
    """The measures of `triage run`, and those that people quote of relaxed dtypes."""
    left, right = actual.double(), expected.double()
    error = (left - right).abs()
    scale = right.abs() + right.square().mean().sqrt()
    bad = error > 0.1 + 0.1 * right.abs()

    def share(is_so: torch.Tensor) -> float:
        return float(is_so.double().mean())

    return {
        "rel_err": (error.norm() / right.norm()).item(),
        "stable_max_rel": (error / scale).max().item(),
        "bad_frac": share(bad),
        "max_abs": error.max().item(),
        "differ": share(error > 0),
        "within_1e-3": share(error <= 1e-3),
        "within_1e-2": share(error <= 1e-2),
        "within_0.1%": share(error <= 1e-3 * right.abs()),
        "within_1%": share(error <= 1e-2 * right.abs()),
    }


def shape(seqlen: int, dtype: torch.dtype = torch.bfloat16) -> tuple[Any, dict[str, Any]]:
    """Batch 1, 80 heads of 64, one group, dstate 128: arguments and options."""
    torch.manual_seed(0)
    arguments, options = launch._inputs(1, seqlen, 80, 64, 1, 128, dtype)
    options["D"] = torch.randn(80, device="cuda")
    return arguments, options


def chosen(config: triton.Config) -> dict[str, Any]:
    """A config as words of a launch."""
    words = {"num_warps": config.num_warps, "num_stages": config.num_stages}
    return {**config.kwargs, **words, "maxnreg": config.maxnreg}


def fused_with(
    arguments: Any, options: dict[str, Any], chunk: int, state: str, **words: Any
) -> Any:
    """A call without arguments that launches the kernel, in a workspace of its own."""
    dtype = getattr(torch, state)
    space = fused.workspace(1, 80, 64, 128, dtype, "cuda")
    return lambda: fused.ssd_fused(
        *arguments, chunk, **options, state_dtype=dtype, space=space,
        return_final_states=True, **words,
    )  # fmt: skip


def five_kernels() -> tuple[Any, list[Any]]:
    """mamba-ssm's forward pass, and its tuners. Its __init__, which needs CUDA C++, is not run."""
    name = "mamba_ssm"
    spec = importlib.machinery.PathFinder.find_spec(name)
    package = types.ModuleType(name)
    assert spec is not None
    package.__path__ = list(spec.submodule_search_locations or ())
    sys.modules[name] = package
    from mamba_ssm.ops.triton import (  # type: ignore[import-not-found]
        ssd_bmm,
        ssd_chunk_scan,
        ssd_chunk_state,
        ssd_combined,
        ssd_state_passing,
    )

    tuners = [
        ssd_chunk_state._chunk_cumsum_fwd_kernel,
        ssd_chunk_state._chunk_state_fwd_kernel,
        ssd_state_passing._state_passing_fwd_kernel,
        ssd_bmm._bmm_chunk_fwd_kernel,
        ssd_chunk_scan._chunk_scan_fwd_kernel,
    ]
    return ssd_combined._mamba_chunk_scan_combined_fwd, tuners


def tune_quickly(tuner: Any) -> None:
    """From the next launch on, choose the config again."""
    tuner.cache.clear()
    tuner.__dict__.pop("do_bench", None)
    tuner._do_bench = lambda call, quantiles: triton.testing.do_bench(
        call, warmup=3, rep=15, quantiles=quantiles
    )


def timed(calls: dict[str, Any], runs: int) -> dict[str, list[float]]:
    """Milliseconds of each call, in turns, each a CUDA graph; L2 is overwritten before."""
    flush = torch.empty(64 << 20, dtype=torch.int32, device="cuda")
    replays = {}
    for name, call in calls.items():
        call()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            call()
        replays[name] = graph
    samples: dict[str, list[float]] = {name: [] for name in calls}
    for run in range(runs + 1):
        for name, graph in replays.items():
            flush.zero_()
            begin, end = torch.cuda.Event(True), torch.cuda.Event(True)
            begin.record()
            graph.replay()
            end.record()
            end.synchronize()
            if run:
                samples[name].append(round(begin.elapsed_time(end), 5))
    return samples


def times(rows: Rows, sizes: list[int], chunks: list[int]) -> None:
    """Both state dtypes and the five kernels, each with its best config for the size."""
    forward, tuners = five_kernels()
    for seqlen in sizes:
        arguments, options = shape(seqlen)
        for chunk in chunks:
            calls: dict[str, Any] = {}
            best: dict[str, Any] = {}
            for state in STATES:
                tune_quickly(fused.tuned)
                call = fused_with(arguments, options, chunk, state)
                call()
                best[state] = chosen(fused.tuned.best_config)
                calls[state] = fused_with(
                    arguments, options, chunk, state, kernel=fused.ssd_fused_kernel, **best[state]
                )
            # Their offsets have 32 bits: states of more elements than that are out of reach.
            if seqlen // chunk * 80 * 64 * 128 < 1 << 31:
                for tuner in tuners:
                    tune_quickly(tuner)
                calls["five"] = partial(forward, *arguments, chunk, **options)
                calls["five"]()
                best["five"] = [str(tuner.best_config) for tuner in tuners]
            samples = timed(calls, 20 if seqlen <= 65536 else 10)
            rows.add("times", seqlen=seqlen, chunk=chunk, samples=samples, configs=best)
            torch.cuda.empty_cache()


def configs(rows: Rows) -> None:
    """Every config at the repro's own shape."""
    arguments, options = shape(16384)
    for chunk in CHUNKS:
        kept = fused.fits(fused.CONFIGS, {"CHUNK": chunk})
        words = [chosen(config) for config in kept]
        calls = {
            f"{state} {json.dumps(word)}": fused_with(
                arguments, options, chunk, state, kernel=fused.ssd_fused_kernel, **word
            )
            for word in words
            for state in STATES
        }
        rows.add("configs", seqlen=16384, chunk=chunk, samples=timed(calls, 10))


def numerics(rows: Rows, seqlen: int, chunks: list[int]) -> None:
    """Each state dtype and the five kernels against each other, and against float64."""
    forward, _ = five_kernels()
    for dtype in (torch.float16, torch.bfloat16):
        arguments, options = shape(seqlen, dtype)
        right = exact(arguments, options)[0]
        for chunk in chunks:
            results = {"five": forward(*arguments, chunk, **options)[0]}
            for state in STATES:
                word = chosen(fused.fits(fused.CONFIGS, {"CHUNK": chunk})[0])
                call = fused_with(
                    arguments, options, chunk, state, kernel=fused.ssd_fused_kernel, **word
                )
                results[state] = call()[0]
            pairs = [("float16", "float32"), ("float32", "five"), ("float16", "five")]
            facts = {f"{a} against {b}": apart(results[a], results[b]) for a, b in pairs}
            facts |= {f"{a} against float64": apart(results[a], right) for a in results}
            rows.add("numerics", dtype=str(dtype), seqlen=seqlen, chunk=chunk, measures=facts)


def options(rows: Rows, states: list[str], chunks: list[int]) -> None:
    """Each config with everything, and with packed sequences."""
    for state in states:
        for chunk in chunks:
            for number, config in enumerate(fused.fits(fused.CONFIGS, {"CHUNK": chunk})):
                dtype = [torch.bfloat16, torch.float16, torch.bfloat16][number % 3]
                for name in ("everything", "varlen"):
                    arguments, words = inputs_of(name, dtype)
                    got = fused.ssd_fused(
                        *arguments, chunk, **words, state_dtype=getattr(torch, state),
                        kernel=fused.ssd_fused_kernel, **chosen(config), return_final_states=True,
                        return_varlen_states="cu_seqlens" in words,
                    )  # fmt: skip
                    wanted = wanted_of(name, dtype)
                    facts = [apart(a, b) for a, b in zip(got, wanted, strict=False)]
                    keys = ("rel_err", "stable_max_rel")
                    rows.add(
                        "options", name=name, dtype=str(dtype), state=state, chunk=chunk,
                        config=chosen(config), measures=[[f[k] for k in keys] for f in facts],
                    )  # fmt: skip


def inputs_of(name: str, dtype: torch.dtype) -> tuple[Any, dict[str, Any]]:
    """Small inputs with everything, or of packed sequences."""
    torch.manual_seed(1)
    if name == "everything":
        arguments, words = launch._inputs(2, 600, 4, 64, 2, 128, dtype)
        words["D"] = torch.randn(4, 64, device="cuda")
        words["z"] = torch.randn_like(arguments[0])
        words["initial_states"] = 0.1 * torch.randn(2, 4, 64, 128, device="cuda")
        words["dt_limit"] = (0.001, 0.5)
        return arguments, words
    arguments, words = launch._inputs(1, 600, 4, 64, 1, 128, dtype)
    ends = torch.tensor([0, 130, 131, 331, 395, 600])
    index = torch.repeat_interleave(torch.arange(5), ends.diff())
    words["D"] = torch.randn(4, device="cuda")
    words["seq_idx"] = index.to(torch.int32)[None].cuda()
    words["cu_seqlens"] = ends.to(torch.int32).cuda()
    return arguments, words


# Copies of the kernel that leave something out: replacements in its text. Their results are wrong.
LEFT_OUT = {
    "does not wait": {
        'while tl.atomic_add(flag, 0, sem="acquire") < chunk:':
            'while tl.atomic_add(flag, 0, sem="acquire") < 0:',
    },
    "does not hand over": {
        "    if chunk > 0:\n        while": "    if chunk > nchunks:\n        while",
        "    if chunk < nchunks - 1:": "    if chunk < -1:",
        "        if final_states is not None:\n            tl.store(final":
            "        if final_states is None:\n            tl.store(final",
    },
    "no outputs": {
        "    for tile in range(0, CHUNK, BLOCK_ROWS):\n        part = tile + part_rows":
            "    for tile in range(0, 0, BLOCK_ROWS):\n        part = tile + part_rows",
    },
}  # fmt: skip


def without(name: str, folder: Path) -> Any:
    """A copy of the kernel that leaves something out."""
    source = Path(fused.__file__).read_text()
    for old, other in LEFT_OUT[name].items():
        assert source.count(old) == 1, old
        source = source.replace(old, other)
    copy = folder / f"fused_{name.replace(' ', '_')}.py"
    copy.write_text(source)
    spec = importlib.util.spec_from_file_location(copy.stem, copy)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.ssd_fused_kernel


@triton.jit  # type: ignore[untyped-decorator]
def handing_over(handed, counters, lanes, nchunks, cells: tl.constexpr):  # type: ignore[no-untyped-def]
    """What the kernel does with the states of chunks, and nothing else."""
    ticket = tl.atomic_add(counters, 1, sem="relaxed")
    if ticket == lanes * nchunks - 1:
        tl.atomic_xchg(counters, 0, sem="relaxed")
    chunk, lane = ticket // lanes, ticket % lanes
    flag = counters + 1 + lane
    places = handed + lane * cells + tl.arange(0, cells)
    carried = tl.zeros((cells,), tl.float32)
    if chunk > 0:
        while tl.atomic_add(flag, 0, sem="acquire") < chunk:
            pass
        before = places + (chunk + 1) % 2 * lanes * cells
        carried = tl.load(before, cache_modifier=".cg").to(tl.float32)
    if chunk < nchunks - 1:
        state = (carried * 0.5 + 1.0).to(handed.dtype.element_ty)
        tl.store(places + chunk % 2 * lanes * cells, state)
        tl.debug_barrier()
        tl.atomic_xchg(flag, chunk + 1, sem="release")
    else:
        tl.atomic_xchg(flag, 0, sem="relaxed")


def waiting(rows: Rows) -> None:
    """The kernel, copies that leave something out, and the handing over of states alone."""
    kernels = {name: without(name, rows.path.parent) for name in LEFT_OUT}
    kernels = {"whole": fused.ssd_fused_kernel} | kernels
    for seqlen in (1024, 16384, 65536):
        arguments, options = shape(seqlen)
        for chunk, number in ((128, 0), (256, 4)):
            word = chosen(fused.CONFIGS[number])
            for state in STATES:
                calls = {
                    name: fused_with(arguments, options, chunk, state, kernel=kernel, **word)
                    for name, kernel in kernels.items()
                }
                space = fused.workspace(1, 80, 64, 128, getattr(torch, state), "cuda")
                count = seqlen // chunk
                calls["hands over alone"] = partial(
                    handing_over[(80 * count,)], *space, 80, count, cells=64 * 128, num_warps=8
                )
                facts = {"seqlen": seqlen, "chunk": chunk, "state": state, "config": word}
                rows.add("waiting", **facts, samples=timed(calls, 15))


def parts(path: Path) -> None:
    """Markdown of `waiting`: medians in milliseconds, and microseconds for each chunk of a head."""
    names = ["whole", *LEFT_OUT, "hands over alone"]
    print(f"| tokens | states, chunk | {' | '.join(names)} |\n|---|---|{'---|' * len(names)}")
    for line in path.read_text().splitlines():
        row = json.loads(line)
        if row["part"] == "waiting" and "whole" in row["samples"]:
            chunks = row["seqlen"] / row["chunk"]
            ms = [statistics.median(row["samples"][name]) for name in names]
            cells = " | ".join(f"{one:.3f} ({1000 * one / chunks:.1f})" for one in ms)
            print(f"| {row['seqlen']:,} | {row['state']}, {row['chunk']} | {cells} |")


def table(path: Path) -> None:
    """Markdown of the measured times: medians in milliseconds, and the ratios."""
    found: dict[int, dict[str, tuple[float, int]]] = {}
    for line in path.read_text().splitlines():
        row = json.loads(line)
        if row["part"] == "times":
            best = found.setdefault(row["seqlen"], {})
            for name, samples in row["samples"].items():
                value = (statistics.median(samples), row["chunk"])
                best[name] = min(best.get(name, value), value)
    print("| tokens | five kernels | float32 states | ratio | float16 states | ratio |")
    print("|---|---|---|---|---|---|")
    for seqlen, best in sorted(found.items()):
        five = best["five"][0]
        cells = [f"{ms:.3f} ({chunk})" for ms, chunk in (best[n] for n in ("five", *STATES))]
        wide, narrow = (f"{five / best[name][0]:.2f}" for name in STATES)
        print(f"| {seqlen:,} | {cells[0]} | {cells[1]} | {wide} | {cells[2]} | {narrow} |")


# Of middle brightness: on a white page and on a black one.
COLOURS = ["#3b82d0", "#d9622b", "#2f9e60", "#a566cc"]
GREY = "#808080"


class Picture:
    """A drawing in SVG, 640 by 340: a logarithmic axis of x and a linear one of y.

    `xs` and `ys` are the ticks with their labels; the first and the last are the ends of the axis.
    """

    def __init__(self, title: str, names: str, xs: dict[float, str], ys: dict[float, str]) -> None:
        x_name, y_name = names.split(" / ")
        self.xs, self.ys = list(xs), list(ys)
        self.parts = [
            '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 640 340" width="640">',
            f'<g font-family="sans-serif" font-size="12" fill="{GREY}">',
            f"<title>{title}</title>",
            f'<text x="255" y="334" text-anchor="middle">{x_name}</text>',
            f'<text transform="translate(13 155) rotate(-90)" text-anchor="middle">{y_name}</text>',
        ]
        for x, label in xs.items():
            at = self.x(x)
            self.line([(at, 290), (at, 295)], GREY)
            self.parts.append(f'<text x="{at}" y="310" text-anchor="middle">{label}</text>')
        for y, label in ys.items():
            at = self.y(y)
            self.line([(60, at), (450, at)], GREY, "stroke-opacity='.35'" if y > self.ys[0] else "")
            self.parts.append(f'<text x="53" y="{at + 4}" text-anchor="end">{label}</text>')

    def x(self, value: float) -> float:
        """Where a value stands."""
        first, last = self.xs[0], self.xs[-1]
        return round(70 + 370 * math.log(value / first) / math.log(last / first), 1)

    def y(self, value: float) -> float:
        """Where a value stands."""
        return round(290 - 270 * (value - self.ys[0]) / (self.ys[-1] - self.ys[0]), 1)

    def line(self, points: list[tuple[float, float]], colour: str, more: str = "") -> None:
        """A line through points of the drawing."""
        places = " ".join(f"{x},{y}" for x, y in points)
        self.parts.append(f'<polyline points="{places}" fill="none" stroke="{colour}" {more}/>')

    def curve(
        self, number: int, name: str, values: dict[int, float], colour: str, dash: str
    ) -> None:
        """Values by `x`, and line `number` of the legend."""
        points = [(self.x(x), self.y(y)) for x, y in sorted(values.items())]
        at = 30 + 20 * number
        more = f'stroke-width="2" stroke-dasharray="{dash}"'
        self.line(points, colour, more)
        self.line([(465, at), (495, at)], colour, more)
        self.parts += [f'<circle cx="{x}" cy="{y}" r="3" fill="{colour}"/>' for x, y in points]
        self.parts.append(f'<text x="502" y="{at + 4}">{name}</text>')

    def write(self, path: Path) -> None:
        """Leave the file."""
        path.write_text("\n".join([*self.parts, "</g></svg>"]) + "\n")


DASHES = {64: "2 4", 128: "none", 256: "8 4"}


def plot(path: Path) -> None:
    """The pictures of docs/measured/ssd.md: speed-up by size, and how near float16 states are."""
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    times = [row for row in rows if row["part"] == "times"]
    medians = {
        (row["seqlen"], row["chunk"], name): statistics.median(samples)
        for row in times
        for name, samples in row["samples"].items()
    }
    sizes = sorted({row["seqlen"] for row in times})
    five = {
        size: min(ms for (other, _, name), ms in medians.items() if (other, name) == (size, "five"))
        for size in sizes
    }
    picture = Picture(
        "How many times as fast as five kernels",
        "tokens / five kernels' time, best chunk, over this one's",
        {size: f"{size // 1024}k" for size in sizes},
        {tick / 4: f"{tick / 4:g}" for tick in range(2, 9)},
    )
    for number, (state, chunk) in enumerate((s, c) for s in STATES for c in CHUNKS):
        ratios = {size: five[size] / medians[size, chunk, state] for size in sizes}
        colour = COLOURS[STATES.index(state)]
        picture.curve(number, f"{state}, chunk {chunk}", ratios, colour, DASHES[chunk])
    picture.write(PICTURES / "ssd-speed-up.svg")

    picture = Picture(
        "How many elements float16 states leave near those of float32 states",
        "chunk size / share of elements, 8,192 tokens, bfloat16 outputs",
        {chunk: str(chunk) for chunk in CHUNKS},
        {tick / 100: f"{tick} %" for tick in range(93, 101)},
    )
    kept = {
        row["chunk"]: row["measures"]["float16 against float32"]
        for row in rows
        if row["part"] == "numerics" and row["dtype"] == "torch.bfloat16"
    }
    shares = {
        "within 0.01": {chunk: facts["within_1e-2"] for chunk, facts in kept.items()},
        "within 1 %": {chunk: facts["within_1%"] for chunk, facts in kept.items()},
        "within 0.001": {chunk: facts["within_1e-3"] for chunk, facts in kept.items()},
        "equal": {chunk: 1 - facts["differ"] for chunk, facts in kept.items()},
    }
    for number, (name, values) in enumerate(shares.items()):
        picture.curve(number, name, values, COLOURS[number], "none")
    picture.write(PICTURES / "ssd-float16-states.svg")


@cache
def wanted_of(name: str, dtype: torch.dtype) -> Any:
    """What is right for `inputs_of`."""
    return exact(*inputs_of(name, dtype))


@triton.jit
def spinning(out, turns):  # type: ignore[no-untyped-def]
    """Keep a block busy."""
    value = tl.arange(0, 1024).to(tl.float32)
    for _ in range(turns):
        value = value * 1.0001 + 0.5
    tl.store(out + tl.program_id(0) * 1024 + tl.arange(0, 1024), value)


def launches(rows: Rows) -> None:
    """That it comes to its end, with the same bits, whatever else the chip does."""
    arguments, options = shape(4096)
    call = fused_with(arguments, options, 128, "float16")
    first = [tensor.clone() for tensor in call()]
    torch.cuda.synchronize()
    began = time.monotonic()
    results = [call() for _ in range(1000)]
    torch.cuda.synchronize()
    same = all(torch.equal(a, b) for pair in results for a, b in zip(pair, first, strict=True))
    rows.add("launches", name="1,000 in a row", same_bits=same, s=time.monotonic() - began)
    del results
    out = torch.empty(1024 * 1024, device="cuda")
    sms = torch.cuda.get_device_properties(0).multi_processor_count
    other = torch.cuda.Stream()
    # 32 warps of 64 registers: no block of the kernel fits on an SM beside it.
    spin = {"num_warps": 32, "maxnreg": 64}
    spinning[(1,)](out, 10, **spin)
    torch.cuda.synchronize()
    for _ in range(20):
        with torch.cuda.stream(other):
            spinning[(sms // 2,)](out, 4_000_000, **spin)
        half = call()
        torch.cuda.current_stream().synchronize()
        spins = not other.query()
        torch.cuda.synchronize()
        same = all(torch.equal(a, b) for a, b in zip(half, first, strict=True))
        rows.add("launches", name="half busy", same_bits=same, still_spinning=spins)
    for seqlen, chunk in ((131072, 64), (262144, 64)):
        arguments, options = shape(seqlen)
        call = fused_with(arguments, options, chunk, "float16")
        one, two = call(), call()
        torch.cuda.synchronize()
        same = all(torch.equal(a, b) for a, b in zip(one, two, strict=True))
        finite = bool(one[0].isfinite().all())
        blocks = seqlen // chunk * 80
        rows.add("launches", name="large grid", blocks=blocks, same_bits=same, finite=finite)


def once(seqlen: int, chunk: int, state: str) -> None:
    """The best config of that chunk, three times; small ones with all options, for sanitizers."""
    if seqlen:
        arguments, options = shape(seqlen)
        word = chosen(fused.fits(fused.CONFIGS, {"CHUNK": chunk})[0])
        if chunk == 256:
            word = {**word, "BLOCK_ROWS": 64, "num_warps": 4, "num_stages": 2, "maxnreg": None}
        call = fused_with(arguments, options, chunk, state, kernel=fused.ssd_fused_kernel, **word)
        for _ in range(3):
            call()
    else:
        for name in ("everything", "varlen"):
            arguments, words = inputs_of(name, torch.bfloat16)
            for config in fused.fits(fused.CONFIGS, {"CHUNK": chunk}):
                fused.ssd_fused(
                    *arguments, chunk, **words, state_dtype=getattr(torch, state),
                    kernel=fused.ssd_fused_kernel, **chosen(config), return_final_states=True,
                    return_varlen_states="cu_seqlens" in words,
                )  # fmt: skip
    torch.cuda.synchronize()


def main() -> None:
    """Measure the parts that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("parts", nargs="+")
    parser.add_argument("--out", type=Path, default=Path("ssd_fused.jsonl"))
    parser.add_argument("--packages", action="append", default=[])
    parser.add_argument("--sizes", type=int, nargs="*", default=SIZES)
    parser.add_argument("--chunks", type=int, nargs="*", default=CHUNKS)
    parser.add_argument("--states", nargs="*", default=STATES)
    asked = parser.parse_args()
    sys.path[:0] = asked.packages
    rows = Rows(asked.out)
    for part in asked.parts:
        if part == "times":
            times(rows, asked.sizes, asked.chunks)
        elif part == "once":
            once(asked.sizes[0], asked.chunks[0], asked.states[0])
        elif part == "table":
            table(asked.out)
        elif part == "parts":
            parts(asked.out)
        elif part == "plot":
            plot(asked.out)
        elif part == "numerics":
            numerics(rows, asked.sizes[0], asked.chunks)
        elif part == "options":
            options(rows, asked.states, asked.chunks)
        else:
            {"waiting": waiting, "launches": launches, "configs": configs}[part](rows)


if __name__ == "__main__":
    main()
