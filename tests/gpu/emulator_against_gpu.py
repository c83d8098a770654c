"""Hold the emulator's functions against a GPU of sm_90: every bit, or units in the last place.

    PYTHONPATH=.:emulator:emulator/tests python3 tests/gpu/emulator_against_gpu.py
        [--out FILE.json] [--count N]

Needs a CUDA driver and numpy, no toolkit. Exact instructions must agree in every bit, and so must
the sums of the tensor cores; approximate ones are given as histograms. Exit code 1 if an exact one
differs.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import elementwise
import matrix_checks
import numpy as np
import tile_checks
from bands import BANDS
from cuda_driver import Device, DriverError

from gpu_emulator.numbers.formats import FORMATS, to_float64

_THREADS = 256


def ulps(
    kind: str, found: np.ndarray[Any, Any], expected: np.ndarray[Any, Any]
) -> np.ndarray[Any, Any]:
    """Distances in representable numbers; a NaN against a number counts as 2^40."""
    width = FORMATS[kind].width

    def order(bits: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        signed = bits.astype(np.int64)
        top = np.int64(1) << np.int64(width - 1)
        if width == 64:
            signed = bits.view(np.int64)
            return np.where(signed < 0, np.int64(-(2**63)) - signed, signed)
        return np.where(signed >= top, top - signed, signed)

    nan = np.isnan(to_float64(found, kind)), np.isnan(to_float64(expected, kind))
    distance = np.abs(order(found) - order(expected))
    return np.where(nan[0] & nan[1], 0, np.where(nan[0] != nan[1], 1 << 40, distance))


def outside_band(
    case: elementwise.Case,
    operand: np.ndarray[Any, Any],
    found: np.ndarray[Any, Any],
    expected: np.ndarray[Any, Any],
) -> float:
    """The largest error, in parts of what the PTX ISA allows around the rounded value.

    Half a unit for that rounding is added to the band; sin and cos count where it is promised.
    """
    kind = str(case.approximate)
    band = BANDS[case.opcode.split(".")[0], kind]
    got, wanted = to_float64(found, kind), to_float64(expected, kind)
    with np.errstate(all="ignore"):
        unit = np.spacing(np.abs(wanted).astype({"f32": np.float32}.get(kind, np.float64)))
        if kind in ("f16", "bf16"):
            form = FORMATS[kind]
            exponent = np.maximum(np.floor(np.log2(np.abs(wanted))), form.exponent_min)
            unit = np.exp2(exponent - form.mantissa)
        room = np.maximum(band.ulp * unit, band.relative * np.abs(wanted))
        room = np.maximum(room, band.absolute) + unit / 2
        part = np.abs(got - wanted) / room
        if case.opcode.startswith(("sin", "cos")):
            part = part[np.abs(to_float64(operand, kind)) <= np.pi]
    return float(np.nanmax(np.where(np.isfinite(part), part, 0.0)))


def run_case(device: Device, function: Any, case: elementwise.Case, count: int) -> dict[str, Any]:
    """Launch one instruction on its inputs and compare."""
    operands = elementwise.inputs(case, count)
    size = operands[0].size
    out = np.zeros(size, f"u{case.width // 8}")
    pointers = [device.upload(x) for x in (out, *operands)]
    device.launch(function, -(-size // _THREADS), _THREADS, [*pointers, size])
    found = device.download(pointers[0], out)
    device.free(*pointers)
    expected = np.asarray(case.compute(*operands)).astype(out.dtype, copy=False)
    row: dict[str, Any] = {"opcode": case.opcode, "elements": size}
    if case.approximate:
        distance = ulps(case.approximate, found, expected)
        counts = np.bincount(np.minimum(distance, 1000).astype(int), minlength=1)
        row["ulps"] = {int(d): int(counts[d]) for d in np.flatnonzero(counts)[:12]}
        row["worst"] = int(distance.max())
        row["band"] = outside_band(case, operands[0], found, expected)
        differing = distance > 8
    else:
        differing = found != expected
    row["differing"] = int(differing.sum())
    row["examples"] = [
        {
            "operands": [f"{int(x[i]):#x}" for x in operands],
            "gpu": f"{int(found[i]):#x}",
            "emulator": f"{int(expected[i]):#x}",
        }
        for i in np.flatnonzero(differing)[:6]
    ]
    return row


def run_elementwise(device: Device, count: int) -> list[dict[str, Any]]:
    """All instructions on scalars."""
    some = elementwise.cases()
    module = device.module(elementwise.module_text(some))
    rows = []
    for number, case in enumerate(some):
        rows.append(run_case(device, device.function(module, f"k{number}"), case, count))
    return rows


def show(rows: list[dict[str, Any]]) -> int:
    """Print what differs and the histograms; how many exact rows differ."""
    wrong = 0
    for row in rows:
        exact = "ulps" not in row
        if exact and not row["differing"]:
            continue
        wrong += exact
        print(json.dumps({k: v for k, v in row.items() if k != "elements"}))
    return wrong


def main() -> int:
    """Run everything and print it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--count", type=int, default=1 << 16)
    options = parser.parse_args()
    try:
        device = Device()
    except DriverError as error:
        print(error, file=sys.stderr)
        return 4
    start = time.perf_counter()
    rows = run_elementwise(device, options.count)
    middle = time.perf_counter()
    rows += [*matrix_checks.run(device), *tile_checks.run(device)]
    end = time.perf_counter()
    if options.out:
        options.out.write_text(json.dumps({"device": device.name, "rows": rows}, indent=1))
    wrong = show(rows)
    print(
        f"{device.name}: {len(rows)} checks, {wrong} exact ones differ; "
        f"{middle - start:.1f} s scalar, {end - middle:.1f} s matrices and tiles"
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
