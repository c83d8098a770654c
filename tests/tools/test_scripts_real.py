"""Scripts as a newcomer writes them, compiled at the first command, against plain Triton."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import msgspec
import pytest
from conftest import HERE, Triage

pytestmark = [pytest.mark.tools, pytest.mark.long]

SCRIPTS = HERE / "kernels" / "scripts"
TARGETS = ["--sm", "80", "--sm", "90a", "--sm", "100a"]

# Each kernel with its arguments written out; no launch code runs.
_PLAIN = """
import hashlib, importlib, json, sys, types
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

sys.path.insert(0, sys.argv[1])
sys.modules["matplotlib"] = sys.modules["matplotlib.pyplot"] = types.ModuleType("matplotlib")
hashes = []

def compile(function, kinds, integers, constants, warps):
    names = function.arg_names
    signature = dict(zip(names, [*kinds, *["constexpr"] * len(constants)]))
    aligned = [n for n, kind in signature.items() if kind[0] == "*"]
    aligned += [n for n, value in integers.items() if value % 16 == 0]
    attributes = {(names.index(n),): [["tt.divisibility", 16]] for n in aligned}
    for capability in (80, 90, 100):
        source = ASTSource(function, signature, constants, attributes)
        target = GPUTarget("cuda", capability, 32)
        ptx = triton.compile(source, target, {"num_warps": warps}).asm["ptx"]
        hashes.append(hashlib.sha256(ptx.encode()).hexdigest())

rows = importlib.import_module("rows").rows
for height, width, block in ((1823, 781, 1024), (4096, 256, 256), (4096, 500, 512)):
    sizes = {"height": height, "width": width, "stride": width}
    compile(rows, ["*fp32"] * 2 + ["i32"] * 3, sizes, {"BLOCK": block}, 4)
scale = importlib.import_module("tuned").scale.fn.fn
for n in (128, 1000):
    for block, warps in ((32, 2), (64, 4), (64, 2)):
        constants = {"BLOCK": block, "EVEN": n % block == 0}
        compile(scale, ["*fp32", "*fp32", "fp32", "i32"], {"n": n}, constants, warps)
print(json.dumps(hashes))
"""


def _compiled(triage: Triage, name: str, *words: str) -> list[dict[str, Any]]:
    words = ("--kernel", str(SCRIPTS / name), "--triton", "installed", *words)
    cells: list[dict[str, Any]] = triage.compile(*words, code=0)["cells"]
    return cells


def test_scripts_come_to_what_plain_triton_compiles(triage: Triage) -> None:
    (triage.folder / "plain.py").write_text(_PLAIN)
    done = subprocess.run(
        [sys.executable, "plain.py", str(SCRIPTS)],
        cwd=triage.folder,
        env={**os.environ, "TRITON_CACHE_DIR": str(triage.folder / "cache")},
        stdout=subprocess.PIPE,
        check=True,
    )
    hashes = msgspec.json.decode(done.stdout)
    cells = [*_compiled(triage, "rows.py", *TARGETS), *_compiled(triage, "tuned.py", *TARGETS)]
    assert len(cells) == len(hashes) == 27
    assert sorted(cell["ptx_sha256"] for cell in cells) == sorted(hashes)


def test_what_follows_the_launches_does_not_decide_the_exit_code(triage: Triage) -> None:
    cells = _compiled(triage, "trained.py", "--sm", "90a")
    assert {cell["verdict"] for cell in cells} == {"ok"}
    (triage.folder / "test_add.py").write_text((SCRIPTS / "pytest_file.py").read_text())
    done = triage("compile", "test_add.py", "--sm", "90a")
    assert done.returncode == 0, done.stderr
    assert "test_add.py: tests: 4 to the end, 1 skipped (needs Blackwell)" in done.stderr


def test_a_package_that_a_script_misses_is_named_with_what_installs_it(triage: Triage) -> None:
    (triage.folder / "far.py").write_text("import no_such_kernels\nno_such_kernels.launch()\n")
    done = triage("compile", "far.py", "--sm", "90a")
    assert done.returncode == 2
    assert "No module named 'no_such_kernels'; a package of that name: pip install" in done.stderr
