"""A package with Triton kernels in several releases, on an index of its own, and its repro."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from local_index import tar

if TYPE_CHECKING:
    from conftest import Triage
    from local_index import LocalIndex

__all__ = ["CHANGED", "OLDEST", "with_demo"]

# Two of three configs need 128 KiB of shared memory where the tile is transposed: more than a block
# of sm_120 may have, less than one of sm_80.
_OPS = """
import triton
import triton.language as tl

MORE = {{}}

@triton.jit
def _load(x, rows, columns, COLUMNS: tl.constexpr):
    return tl.load(x + rows[:, None] * COLUMNS + columns[None, :])

@triton.autotune(
    configs=[
        triton.Config({{"ROWS": rows}}, num_warps=warps)
        for rows, warps in ((16, 8), (128, 8), (128, 16))
    ],
    key=["COLUMNS"],
    **MORE,
)
@triton.jit
def {name}(x, y, COLUMNS: tl.constexpr, ROWS: tl.constexpr):
    rows, columns = tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    tile = _load(x, rows, columns, COLUMNS)
    {store}

@triton.autotune(configs=[triton.Config({{}}, num_warps=4)], key=[])
@triton.jit
def never_launched(x):
    tl.store(x, 1.0)
"""
_AS_IT_IS = "tl.store(y + rows[:, None] * COLUMNS + columns[None, :], tile)"
_TURNED = "tl.store(y + columns[:, None] * ROWS + rows[None, :], tl.trans(tile))"
_LAUNCH = """
import torch

def forward(*, columns=256):
    from demo_ops.turning import turned
    x = torch.empty(columns, columns, device="cuda")
    turned[(1,)](x, x, COLUMNS=columns)
"""
OLDEST, CHANGED, PINNED = "0.1", "0.3", "0.4"
TRITON = "3.6.0"
_RELEASES = {
    OLDEST: _OPS.format(name="turned", store=_AS_IT_IS),
    # Its launch raises: there is no such function.
    "0.2": _OPS.format(name="other_name", store=_AS_IT_IS),
    CHANGED: _OPS.format(name="turned", store=_TURNED),
    PINNED: _OPS.format(name="turned", store=_TURNED) + "\n# nothing else\n",
}


def with_demo(triage: Triage, index: LocalIndex, cache: Path) -> Triage:
    """The command line where an index has the package and `./repros` one of it; caches are new.

    `cache` has the toolchains; nothing that belongs to the index is written into it.
    """
    # While its own index is asked.
    installed = triage("toolchain", "install", f"triton-{TRITON}")
    assert installed.returncode == 0, installed.stderr
    for version, text in _RELEASES.items():
        top = f"demo_ops-{version}"
        files = {f"{top}/demo_ops/__init__.py": "", f"{top}/demo_ops/turning.py": text}
        index.add(f"{top}.tar.gz", tar(files))
    index.add("unreached-1.0.tar.gz", tar({"unreached-1.0/unreached.py": ""}))
    folder = triage.folder / "repros" / "demo_turning"
    folder.mkdir(parents=True)
    (folder / "launch.py").write_text(_LAUNCH)
    sha256 = index.projects["demo-ops"][f"demo_ops-{PINNED}.tar.gz"].sha256
    (folder / "repro.yaml").write_text(
        "kernels:\n  demo_turned: {kernel: turned, configs: 3}\n"
        f"source: {{package: demo-ops, version: '{PINNED}', sha256: {sha256}, "
        f"module: demo_ops.turning}}\ntriton: {TRITON}\ntargets: [sm_120a]\n"
    )
    mine = triage.folder / "cache"
    mine.mkdir()
    (mine / "toolchains").symlink_to(cache / "toolchains")
    ours = {"TRIAGE_CACHE_DIR": str(mine), "NO_PROXY": "127.0.0.1"}
    kept = {name: text for name, text in triage.env.items() if not name.endswith("INDEX_URL")}
    return replace(triage, env={**kept, **ours, "UV_DEFAULT_INDEX": index.url})
