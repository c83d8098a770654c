"""Hooks of a tuner that write to arguments which all configs share, against plain Triton."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import msgspec
import pytest
from conftest import HERE, Triage

pytestmark = pytest.mark.tools

HOOKED = HERE / "kernels" / "hooked.py"

# What plain Triton makes of each config: types of descriptors are written out, no launch code runs.
_PLAIN = """
import hashlib, importlib.util, json, sys
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

found = importlib.util.spec_from_file_location("hooked", sys.argv[1])
hooked = importlib.util.module_from_spec(found)
found.loader.exec_module(hooked)
made = []
for capability in (90, 100):
    for m, n, k, warps in hooked.BLOCKS:
        constants = {"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k}
        signature = {
            "a_desc": f"tensordesc<fp16[{m}, {k}]>",
            "b_desc": f"tensordesc<fp16[{k}, {n}]>",
            "c_desc": f"tensordesc<fp16[{m}, {n}]>",
            "K": "i32",
            **dict.fromkeys(constants, "constexpr"),
        }
        source = ASTSource(
            hooked.product.fn, signature, constants, {(3,): [["tt.divisibility", 16]]}
        )
        target = GPUTarget("cuda", capability, 32)
        compiled = triton.compile(source, target, {"num_warps": warps, "num_stages": 3})
        sha256 = hashlib.sha256(compiled.asm["ptx"].encode()).hexdigest()
        made.append([f"sm_{capability}a", m, n, k, warps, sha256, compiled.metadata.shared])
print(json.dumps(made))
"""


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[Any, ...], tuple[str, int]]:
    """The hash of the PTX and the shared memory of each config, by target and meta-parameters."""
    folder = tmp_path_factory.mktemp("plain")
    script = folder / "plain.py"
    script.write_text(_PLAIN)
    done = subprocess.run(
        [sys.executable, str(script), str(HOOKED)],
        env={**os.environ, "TRITON_CACHE_DIR": str(folder / "cache")},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    rows = msgspec.json.decode(done.stdout)
    return {tuple(row[:5]): (row[5], row[6]) for row in rows}


def _coordinates(cell: dict[str, Any]) -> tuple[Any, ...]:
    names = ("BLOCK_M", "BLOCK_N", "BLOCK_K", "num_warps")
    return (cell["target"], *(cell["config"][name] for name in names))


@pytest.mark.long
def test_each_config_is_compiled_as_its_own_hook_left_the_arguments(
    module_triage: Triage, plain: dict[tuple[Any, ...], tuple[str, int]]
) -> None:
    words = ["--kernel", f"{HOOKED}::product", "--triton", "installed"]
    document = module_triage.compile(*words, "--sm", "90a", "--sm", "100a", code=0)
    found = {_coordinates(cell): (cell["ptx_sha256"], cell["shared"]) for cell in document["cells"]}
    assert found == plain
    assert len(document["cells"]) == len(plain)


def test_one_descriptor_of_several_launches_is_as_it_was_at_each(module_triage: Triage) -> None:
    words = ["--kernel", f"{HOOKED}::move", "--triton", "installed", "--sm", "90a"]
    cells = module_triage.compile(*words, code=0)["cells"]
    # One tile of f16 lies in shared memory, on its way from one descriptor to the other.
    tiles = {cell["config"]["BLOCK"]: cell["shared"] // (2 * 32 * 32) for cell in cells}
    assert tiles == {64: 4, 32: 1}


@pytest.mark.long
def test_what_is_executed_is_what_plain_triton_compiles(
    module_triage: Triage, plain: dict[tuple[Any, ...], tuple[str, int]]
) -> None:
    words = ["run", "--kernel", f"{HOOKED}::product", "--sm", "90a"]
    done = module_triage(*words, "--triton", "installed", "--json")
    assert done.returncode == 0, done.stderr
    rows = msgspec.json.decode(done.stdout)["runs"]
    assert {row["run"] for row in rows} == {"right", "as_interpreted"}
    found = {_coordinates(row): row["ptx_sha256"] for row in rows}
    assert found == {key: sha256 for key, (sha256, _) in plain.items() if key[0] == "sm_90a"}


def test_hooks_that_write_to_tensors_prepare_each_config_alone(module_triage: Triage) -> None:
    words = ["run", "--kernel", f"{HOOKED}::add_up", "--sm", "80"]
    done = module_triage(*words, "--triton", "installed", "--json")
    # What the hooks prepare is another sum for each config, and that is said.
    assert done.returncode == 1, done.stderr
    rows = msgspec.json.decode(done.stdout)["runs"]
    assert [row["check"]["status"] for row in rows] == ["agrees", "differs"]
    found = [(row["config"]["BLOCK"], row["run"]) for row in rows]
    # The interpreter runs one of them; the other one's hook has prepared other tensors.
    assert found == [(32, "as_interpreted"), (64, "consistent")]
