"""One trip to a GPU: launches with their inputs, and the cubins that get them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from gpu_emulator.values import TensorMap
from harness.run.jobs import Emulation, Passed
from harness.run.launch import Launch
from harness.values.cell import CellId
from harness.values.row import Row

REPEATS = 2
"""Runs of each cubin: it is compared with another one only where it agrees with itself."""

LIMIT = 10.0
"""Seconds that one run may take until it counts as a hang; small launches take microseconds."""

SAMPLES = 30
"""Timed runs of each cubin; fewer of one that takes long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TripCase:
    """One cell: its row of a compile, and which launch its cubin gets.

    `problem` says why there is no cubin, or no launch for it. A `witness` is a cubin of the same
    PTX that was not asked for: it may confirm what the emulator says.
    """

    cell: CellId
    compiled: Row
    launch: int | None = None
    problem: str | None = None
    is_witness: bool = False

    @property
    def words(self) -> str:
        """Its assembler: `ptxas 13.0.88 -O3`."""
        tool, _, flags = self.cell.ptxas.partition(",")
        return " ".join(filter(None, ("ptxas", tool, flags.replace("_", " "))))

    @property
    def cubin(self) -> str | None:
        """The cubin's sha256, where it is to be launched."""
        return self.compiled.cubin_sha256 if self.launch is not None else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Trip:
    """What goes to a GPU together, and the command that asked for it.

    `timings` are numbers of `cases` that are timed in turns, `samples` times each. `sanitize`: each
    case goes through compute-sanitizer's tools, too.
    """

    launches: tuple[Launch, ...] = ()
    cases: tuple[TripCase, ...] = ()
    command: str
    limit: float = LIMIT
    repeats: int = REPEATS
    timings: tuple[tuple[int, ...], ...] = ()
    samples: int = SAMPLES
    sanitize: bool = False

    @property
    def carried(self) -> list[TripCase]:
        """The cases that are launched, in the order of the manifest."""
        return [case for case in self.cases if case.cubin]

    @property
    def blobs(self) -> list[str]:
        """The sha256 of all that is needed there: cubins and buffers; and the PTX, to be read."""
        names: list[str] = []
        for launch in self.launches:
            names += [each.file for each in launch.emulation.buffers if each.file]
            names.append(launch.emulation.ptx)
        names += [case.cubin for case in self.carried if case.cubin]
        return list(dict.fromkeys(names))


def manifest(trip: Trip) -> dict[str, Any]:
    """What `pack.json` says: all that the runner needs, and no more."""
    place = {id(case): number for number, case in enumerate(trip.carried)}
    timings = [
        [place[id(trip.cases[n])] for n in group if trip.cases[n].cubin] for group in trip.timings
    ]
    return {
        "pack": 1,
        "limit": trip.limit,
        "repeats": trip.repeats,
        "samples": trip.samples,
        **({"sanitize": True} if trip.sanitize else {}),
        "timings": [group for group in timings if group],
        "launches": [{**_launch(each.emulation), "digest": each.digest} for each in trip.launches],
        "cases": [
            {
                "name": str(case.cell),
                "launch": case.launch,
                "entry": trip.launches[case.launch or 0].emulation.entry,
                "cubin": case.cubin,
            }
            for case in trip.carried
        ],
    }


def _launch(emulation: Emulation) -> dict[str, Any]:
    return {
        "ptx": emulation.ptx,
        "grid": emulation.grid,
        "block": emulation.block,
        "cluster": emulation.cluster,
        "shared": emulation.dynamic_shared,
        "buffers": [
            {"name": each.name, "file": each.file, "size": each.size} for each in emulation.buffers
        ],
        "arguments": _arguments(emulation.arguments),
    }


def _arguments(arguments: Sequence[Passed]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for each in arguments:
        if each.scalar is not None:
            found.append({"scalar": each.scalar.hex()})
        elif each.pointer is not None:
            found.append({"pointer": [each.pointer.allocation, each.pointer.offset]})
        elif each.tensor_map is not None:
            found.append({"map": _map(each.tensor_map.tensor_map)})
        else:
            found.append({})
    return found


def _map(wanted: TensorMap) -> dict[str, Any]:
    words = asdict(wanted)
    return {"pointer": [words.pop("allocation"), words.pop("offset")], **words}
