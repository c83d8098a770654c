"""A wheel of a library with real machine code: listed, compared with the next, its PTX again."""

from __future__ import annotations

import asyncio
import subprocess
import zipfile
from pathlib import Path
from typing import Any

import msgspec
import pytest
from conftest import Triage
from made_binaries import CUBIN, PTX, entry, fatbin, library

from harness.binaries.again import assemble_again
from harness.cells.places import CompileOptions
from harness.frontends.assemble import AssemblerRun
from harness.frontends.back_end import PTXAS_BACK_END
from harness.io.toolchains.install import install_ptxas
from harness.store.store import Store
from harness.values.binary import EmbeddedPtx, ReassembledKernel

pytestmark = pytest.mark.tools

NEWEST = "13.5.37"
PLAIN = """.visible .entry {name}(.param .u64 p) {{
  .reg .u64 %rd<3>; .reg .u32 %r<3>;
  ld.param.u64 %rd1, [p];
  cvta.to.global.u64 %rd2, %rd1;
  mov.u32 %r1, %tid.x;
  add.u32 %r2, %r1, {number};
  st.global.u32 [%rd2], %r2;
  ret;
}}
"""


def crowded(limit: int) -> str:
    """Loads that all stay alive: with fewer registers than that they spill."""
    loads = "".join(f"  ld.volatile.global.f32 %f{n}, [%rd2+{4 * n}];\n" for n in range(60))
    stores = "".join(f"  st.volatile.global.f32 [%rd2+{4 * n}], %f{n};\n" for n in range(60))
    return f""".visible .entry crowded(.param .u64 p)
.maxnreg {limit} {{
  .reg .u64 %rd<3>; .reg .f32 %f<60>;
  ld.param.u64 %rd1, [p];
  cvta.to.global.u64 %rd2, %rd1;
{loads}{stores}  ret;
}}
"""


def module(*kernels: str) -> bytes:
    return "\n".join((".version 8.7", ".target sm_90a", ".address_size 64", *kernels)).encode()


def code_of(text: bytes, folder: Path) -> bytes:
    (folder / "k.ptx").write_bytes(text)
    words = [str(install_ptxas(NEWEST).path), "-arch=sm_90a", "k.ptx", "-o", "k.cubin"]
    subprocess.run(words, cwd=folder, check=True)
    return (folder / "k.cubin").read_bytes()


def wheel(path: Path, text: bytes) -> None:
    held = fatbin(entry(CUBIN, code_of(text, path.parent), "lz4"), entry(PTX, text, "zstd"))
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("demo/lib.so", library({".nv_fatbin": held}))


@pytest.fixture
def builds(triage: Triage) -> Triage:
    one = PLAIN.format(name="_ZN4demo3oneEPj", number=1)
    wheel(triage.folder / "old.whl", module(one, crowded(128)))
    new = PLAIN.format(name="fresh", number=3)
    wheel(triage.folder / "new.whl", module(new, one, crowded(32)))
    return triage


def document(triage: Triage, *words: str, code: int) -> dict[str, Any]:
    done = triage("binaries", *words, "--json")
    assert done.returncode == code, done.stderr
    found: dict[str, Any] = msgspec.json.decode(done.stdout)
    assert found["problems"] == []
    return found


def test_a_wheel_is_listed_compared_and_its_ptx_assembled_again(builds: Triage) -> None:
    found = document(builds, "new.whl", code=0)
    kernels = {kernel["name"]: kernel for kernel in found["kernels"]}
    assert set(kernels) == {"fresh", "_ZN4demo3oneEPj", "crowded"}
    for kernel in kernels.values():
        assert (kernel["file"], kernel["target"]) == ("demo/lib.so", "sm_90a")
        assert (kernel["made_by"], kernel["ptx"]) == (NEWEST, ["sm_90a"])
    assert kernels["fresh"]["spills"] == 0
    assert kernels["crowded"]["n_regs"] == 32
    assert kernels["crowded"]["spills"] is None
    assert kernels["crowded"]["local_stores"] > 0

    # A kernel more moves the others' symbols, and not their code.
    found = document(builds, "old.whl", "new.whl", code=1)
    changes = {(change["newer"] or change["older"])["name"]: change for change in found["changes"]}
    assert found["same"] == 1
    assert {name: change["kind"] for name, change in changes.items()} == {
        "crowded": "worse",
        "fresh": "new",
    }

    words = ("--kernel", "crowded", "--ptxas", NEWEST)
    (row,) = document(builds, "new.whl", *words, code=0)["again"]
    assert row["shipped"]["name"] == row["name"] == "crowded"
    assert row["n_regs"] == row["shipped"]["n_regs"] == 32
    assert row["spills"] > 0
    shipped = row["shipped"]["local_stores"] + row["shipped"]["local_loads"]
    assert row["local_accesses"] == shipped

    done = builds("binaries", "new.whl", "--kernel", "crowded", "--sm", "80", "--ptxas", NEWEST)
    assert done.returncode == 1
    assert "crowded: SM version specified by .target is higher" in done.stdout


def test_what_was_assembled_again_is_kept_by_content(
    tmp_path: Path, toolchain_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = PTXAS_BACK_END.install(NEWEST)
    text = module(crowded(64))
    ptx = EmbeddedPtx(file="lib.so", target="sm_90a", entries=("crowded",), text=text)

    def unreachable(*_: object) -> None:
        raise AssertionError("assembled once more")

    with Store.open(tmp_path) as store:

        def again() -> list[ReassembledKernel]:
            selected = {"crowded": "crowded"}
            job = assemble_again(
                store, [ptx], [], selected, [tool], [], CompileOptions(), lambda _: None
            )
            return asyncio.run(job)

        rows = again()
        assert [(row.name, row.n_regs) for row in rows] == [("crowded", 64)]
        monkeypatch.setattr(AssemblerRun, "attempt", unreachable)
        assert again() == rows


def test_a_cubin_of_a_cache_has_the_ptx_that_lies_beside_it(triage: Triage) -> None:
    place = triage.folder / "cache" / "hash"
    place.mkdir(parents=True)
    (place / "k.cubin").write_bytes(code_of(module(crowded(64)), place))
    found = document(triage, "cache", "--ptxas", NEWEST, code=0)
    (kernel,) = found["kernels"]
    assert (kernel["file"], kernel["ptx"]) == ("hash/k.cubin", ["sm_90a"])
    (row,) = found["again"]
    assert row["shipped"] == kernel


def test_what_cannot_be_done_is_one_line(builds: Triage) -> None:
    (builds.folder / "text").write_text("nothing")
    for words, code, says in (
        (["text"], 2, "text: neither a cubin"),
        (["gone.so"], 2, "gone.so: no such file"),
        (["new.whl", "--kernel", "nobody"], 3, "none of the 3 kernels is selected"),
        (["new.whl", "old.whl", "new.whl"], 2, "3 paths"),
        (["new.whl", "old.whl", "--ptxas", NEWEST], 2, "--ptxas does not apply to two builds"),
        (["new.whl", "--jobs", "2"], 2, "--jobs goes with --ptxas"),
    ):
        done = builds("binaries", *words)
        assert done.returncode == code, done.stderr
        assert says in done.stderr
        assert done.stderr.count("triage: ") == 1
