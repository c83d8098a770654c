"""What a pack holds, before anyone executes it, and whether its program is ours."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.io.files.regular_files import open_regular
from harness.run.gpu.device.contents import Contents, PackError
from harness.run.gpu.packing import runner_files
from harness.values.errors import UsageError

_LARGEST = 1 << 34
_OURS = "that of this triage"
_FOREIGN = "another version's, or a changed one: read it before you execute it"


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspected:
    """A pack for people and for JSON; `is_ours`: its program is the one of this version."""

    lines: tuple[str, ...]
    document: dict[str, Any]
    is_ours: bool


def inspect_pack(path: Path) -> Inspected:
    """Read a pack; nothing of it is run.

    Raises:
        UsageError: it is none, or damaged.
    """
    try:
        with open_regular(path, _LARGEST) as file:
            pack = Contents(str(path), file)
            code = pack.members()
            for case in pack.cases:
                pack.blob(case["cubin"])
    except PackError as error:
        raise UsageError(str(error)) from error
    is_ours = code == runner_files()
    lines = [
        f"{path}: pack {pack.sha256[:12]}, {len(pack.cases)} cubins, {pack.repeats} runs each",
        f"limit: {pack.limit:g} s for one run",
        f"program: {_OURS if is_ours else _FOREIGN}",
    ]
    for number, launch in enumerate(pack.launches):
        shape = ", ".join(f"{name} {_sizes(launch[name])}" for name in ("grid", "block"))
        buffers = ", ".join(f"{each.get('name')} {each['size']} B" for each in launch["buffers"])
        lines.append(f"launch {number}: {shape}, shared {launch['shared']} B; {buffers}")
        lines += [
            f"  {case['cubin'][:12]} {case['entry']}  {case['name']}"
            for case in pack.cases
            if case["launch"] == number
        ]
    document = {
        "pack": pack.sha256,
        "is_ours": is_ours,
        "launches": pack.launches,
        "cases": pack.cases,
    }
    return Inspected(lines=tuple(lines), document=document, is_ours=is_ours)


def _sizes(sizes: list[int]) -> str:
    return "x".join(map(str, sizes))
