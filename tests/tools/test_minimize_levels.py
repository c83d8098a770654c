"""Launches as files of their own, and failures made small above PTX, with the real compilers."""

from __future__ import annotations

import ast
import asyncio
import json
import os
import shlex
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest
from conftest import HERE, Triage

from harness.cells.evaluate import Evaluated, evaluate
from harness.cells.places import CompileOptions
from harness.cells.selection import select
from harness.cells.spelling import SelectionOptions
from harness.frontends.bench import Workbench
from harness.frontends.plan import PlannedCell, Selection
from harness.frontends.registry import OpenSessions, plan_launch
from harness.frontends.triton.front_end import TRITON_FRONT_END
from harness.frontends.triton.source import TritonForm
from harness.io.processes.hub import Hub
from harness.io.toolchains.install import install_triton, installed_triton
from harness.minimize.levels import export_source
from harness.minimize.reduction.interest import CompilerOracle
from harness.store.store import Store

FORM = TritonForm(TRITON_FRONT_END)
pytestmark = pytest.mark.tools

KERNELS = HERE / "kernels"
LATE = "3.6.0"
FollowedFailure = tuple[Selection, PlannedCell, Evaluated]
T = TypeVar("T")


@asynccontextmanager
async def workbench(home: Path) -> AsyncIterator[Workbench]:
    options = CompileOptions(jobs=2, timeout=120)
    async with Hub() as hub:
        with Store.open(home) as store:
            yield Workbench(
                hub=hub,
                store=store,
                sessions=OpenSessions(hub, timeout=120, memory=0),
                jobs=options.workers,
                limits=options.limits,
            )


async def follow(bench: Workbench, kernel: str, **options: object) -> FollowedFailure:
    """The first config that is captured, and what becomes of it."""
    selection = select(SelectionOptions(kernel=kernel, **options))  # type: ignore[arg-type]
    cell = (await plan_launch(bench, selection.place())).cells[0]
    return selection, cell, await evaluate(bench, cell)


@pytest.fixture
def with_bench(triage: Triage) -> Callable[[Callable[[Workbench], Awaitable[T]]], T]:
    """Runs something on a workbench with results of its own."""

    def run(work: Callable[[Workbench], Awaitable[T]]) -> T:
        async def inner() -> T:
            async with workbench(triage.folder / "levels") as bench:
                return await work(bench)

        return asyncio.run(inner())

    return run


def compiled(triage: Triage, file: Path, sm: str, triton: str, code: int) -> dict[str, object]:
    words = ["--kernel", str(file), "--sm", sm, "--triton", triton]
    [row] = triage.compile(*words, code=code)["cells"]
    return dict(row)


def imports_of(text: str) -> list[str]:
    names = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names.append(str(node.module))
    return names


EXPORTED = [
    (f"{KERNELS / 'small.py'}::add", "3.2.0"),
    pytest.param(f"{KERNELS / 'small.py'}::add", "3.9.0", marks=pytest.mark.long),
    pytest.param(f"{KERNELS / 'tensors.py'}::fill", LATE, marks=pytest.mark.long),
    pytest.param(f"{KERNELS / 'descriptors.py'}::on_host", LATE, marks=pytest.mark.long),
    pytest.param("mamba3_siso_fwd", LATE, marks=pytest.mark.long),
]


@pytest.mark.parametrize(("kernel", "triton"), EXPORTED)
def test_the_file_compiles_to_the_same_program(
    triage: Triage, with_bench: Callable[..., None], kernel: str, triton: str
) -> None:
    """Byte for byte, but for debug information."""

    async def work(bench: Workbench) -> None:
        _, cell, done = await follow(bench, kernel, sm=["90a"], triton=[triton])
        standalone = await export_source(bench, cell)
        text = FORM.render(standalone)
        assert FORM.read(text) == standalone
        assert cell.launch is not None
        reaction = await CompilerOracle(bench=bench, cell=cell).react(text, cell.launch.compiler)
        assert reaction.verdict.value == done.row.verdict
        assert reaction.fields["n_regs"] == done.row.n_regs
        file = triage.folder / "alone.py"
        file.write_text(text)
        row = compiled(triage, file, "90a", triton, code=0)
        assert row["ptx_body_sha256"] == done.row.ptx_body_sha256

    with_bench(work)


def test_the_file_needs_triton_and_nothing_else(
    triage: Triage, with_bench: Callable[..., str]
) -> None:
    async def work(bench: Workbench) -> str:
        _, cell, _ = await follow(bench, "verdict_trap_stub", sm=["100a"], triton=[LATE])
        return FORM.render(await export_source(bench, cell), header="Asks for too much.")

    text = with_bench(work)
    assert {name.partition(".")[0] for name in imports_of(text)} == {"triton"}
    file = triage.folder / "alone.py"
    file.write_text(text)
    site = install_triton(LATE).path
    program = "import sys, runpy; sys.modules['torch'] = None; "
    program += f"runpy.run_path({str(file)!r}, run_name='__main__')"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": str(site), "TRITON_CACHE_DIR": str(triage.folder / "c")},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert "tmem_size=784" in done.stdout


@pytest.mark.long
def test_what_has_no_source_is_told(triage: Triage, with_bench: Callable[..., None]) -> None:
    row = triage.compile("--kernel", "verdict_ok", "--sm", "90a", "--triton", LATE, code=0)
    ttir = triage.folder / "kernel.ttir"
    ttir.write_text(triage("show", row["cells"][0]["short"], "--stage", "ttir").stdout)

    async def work(bench: Workbench) -> None:
        _, cell, _ = await follow(bench, str(ttir), sm=["90a"], triton=[LATE])
        with pytest.raises(Exception, match="cannot be written as one file"):
            await export_source(bench, cell)

    with_bench(work)


def minimized(
    triage: Triage, kernel: str, sm: str, level: str, *more: str, triton: str = LATE
) -> dict[str, Any]:
    """The document of a reduction, held by the Triton beside triage and by no other.

    Asking every Triton that other tests have installed would take minutes.
    """
    words = ["--kernel", kernel, "--sm", sm, "--triton", triton]
    triage("compile", *words)
    few = triage.folder / "few"
    if not few.exists():
        (few / "toolchains").mkdir(parents=True)
        cache = Path(os.environ["TRIAGE_CACHE_DIR"])
        here = cache / "toolchains"
        for path in (*here.glob(f"triton-{triton}*"), *here.glob("nvdisasm-*")):
            (few / "toolchains" / path.name).symlink_to(path)
        # What launch code imports is there already.
        for name in ("index", "sources"):
            if (cache / name).is_dir():
                (few / name).symlink_to(cache / name)
    env = {**triage.env, "TRIAGE_OFFLINE": "1", "TRIAGE_CACHE_DIR": str(few)}
    words += [*more, "--level", level, "--jobs", "2", "--json"]
    done = Triage(triage.folder, env)("minimize", *words, timeout=1500)
    assert done.returncode == 0, done.stderr[-3000:]
    document: dict[str, Any] = msgspec.json.decode(done.stdout)
    assert document["drift"] == []
    assert len(document["versions"]) == 2
    return document


# There is no code for rounding towards zero to an eight-bit float.
MODULE = """\
module {
  tt.func public @convert(%x: !tt.ptr<f32>, %out: !tt.ptr<f8E4M3FN>) {
    %0 = tt.splat %x : !tt.ptr<f32> -> tensor<128x!tt.ptr<f32>>
    %1 = tt.load %0 : tensor<128x!tt.ptr<f32>>
    %2 = arith.addf %1, %1 : tensor<128xf32>
    %3 = tt.fp_to_fp %2, rounding = rtz : tensor<128xf32> -> tensor<128xf8E4M3FN>
    %4 = tt.splat %out : !tt.ptr<f8E4M3FN> -> tensor<128x!tt.ptr<f8E4M3FN>>
    tt.store %4, %3 : tensor<128x!tt.ptr<f8E4M3FN>>
    tt.return
  }
}
"""


@pytest.mark.long
def test_a_file_of_ir_is_reduced_as_ir(triage: Triage) -> None:
    (triage.folder / "kernel.ttir").write_text(MODULE)
    found = minimized(triage, "kernel.ttir", "90a", "auto", "--set", "num_warps=2")
    assert found["level"] == "ttgir"
    folder = triage.folder / found["path"]
    left = next(folder.glob("min.tt*ir")).read_text()
    assert "fp_to_fp" in left
    assert "addf" not in left
    assert repro(folder) == 0


@pytest.mark.long
def test_a_file_of_ir_is_reported_and_its_operations_are_counted_again(triage: Triage) -> None:
    (triage.folder / "kernel.ttir").write_text(MODULE)
    words = ["--sm", "90a", "--set", "num_warps=2", "--triton", LATE, "--for", "triton"]
    done = triage("report", "--kernel", "kernel.ttir", *words, "--json", timeout=1500)
    found = msgspec.json.decode(done.stdout)
    assert done.returncode == 0, found["defects"]
    assert found["statements_checked"] == found["statements"]
    assert "operations reduced to" in found["body"]


def repro(folder: Path, triton: str | None = LATE) -> int:
    """The exit status of its repro.sh, with an installed Triton, or a folder without one."""
    site = install_triton(triton).path if triton else folder
    env = {"PATH": os.environ["PATH"], "TRITON": str(site), "PYTHON": sys.executable}
    words = ["sh", str(folder / "repro.sh")]
    done = subprocess.run(words, env=env, capture_output=True, text=True, check=False)
    assert ("it shows: Triton" in done.stdout) is (done.returncode == 0), done.stdout + done.stderr
    assert ("cannot test: " in done.stderr) is (done.returncode == 125)
    return done.returncode


# Kernel, target, lines that are left of its functions at most.
REDUCED = [
    ("verdict_rejected", "90a", 3),
    pytest.param("verdict_pass_failure_recovered", "90a", 6, marks=pytest.mark.long),
    pytest.param("verdict_compiler_crash", "90a", 6, marks=pytest.mark.long),
    pytest.param("verdict_compiler_crash_ptxas", "90a", 6, marks=pytest.mark.long),
]


@pytest.mark.long
@pytest.mark.parametrize(("kernel", "sm", "lines"), REDUCED)
def test_a_failure_as_a_file_of_a_few_lines(
    triage: Triage, kernel: str, sm: str, lines: int
) -> None:
    """A refusal, a pass that fails, an abort, a crash of ptxas; a script shows each."""
    found = minimized(triage, kernel, sm, "source")
    assert found["is_minimal"]
    assert found["lines"] <= lines
    folder = triage.folder / found["path"]
    row = compiled(triage, folder / "min.py", sm, LATE, code=1)
    assert row["signature"] == found["signature"]
    assert repro(folder) == 0
    (folder / "min.py").write_text((folder / "min.py").read_text().replace("@triton.jit", "@jit"))
    assert repro(folder) == 1
    assert repro(folder, None) == 125


@pytest.mark.long
def test_a_triton_that_works_holds_the_failure(triage: Triage) -> None:
    """Triton 3.5 - 3.7 refuse this kernel; the newer one beside triage goes on compiling it."""
    kernel = str(KERNELS / "reported" / "dot_of_bytes.py")
    found = minimized(triage, kernel, "90", "source", "--max-tries", "40")
    beside = installed_triton().version
    assert found["fingerprint"]["accepted_by"] == [beside]
    table = json.loads((triage.folder / found["path"] / "versions.json").read_text())
    assert [(each["version"], each["minimized"]) for each in table["versions"]] == [
        (LATE, "same"),
        (beside, "accepts"),
    ]
    assert table["is_same_everywhere"] is True
    assert found["bytes"] < found["original"]["bytes"]


@pytest.mark.long
def test_the_trap_stub_of_the_main_kernel(triage: Triage) -> None:
    """At most forty lines of kernel, whose one fault is that they ask for too much."""
    config = ["--config", "num_warps=4,num_stages=1,maxnreg=none"]
    found = minimized(triage, "mamba3_siso_bwd_dqkv", "100a", "source", *config)
    assert found["lines"] <= 40
    assert found["original"]["lines"] > 120
    row = compiled(triage, triage.folder / found["path"] / "min.py", "100a", LATE, code=1)
    assert row["verdict"] == "trap_stub"
    assert isinstance(row["tmem_size"], int)
    assert row["tmem_size"] > 512


@pytest.mark.long
def test_the_smallest_launch(triage: Triage) -> None:
    """The three sums are what overflows: not the length of the products."""
    found = minimized(triage, "verdict_trap_stub", "100a", "config")
    assert found["is_minimal"]
    command = (triage.folder / found["path"] / "min.sh").read_text()
    assert "--set block_k=16 --set k=1 " in command
    [row] = triage.compile(*shlex.split(command)[2:], code=1)["cells"]
    assert row["signature"] == found["signature"]
    again = minimized(triage, "verdict_trap_stub", "100a", "config", "--resume")
    assert (again["tests"], again["is_minimal"]) == (found["tests"], True)
    assert (triage.folder / again["path"] / "min.sh").read_text() == command


@pytest.mark.long
def test_an_assertion_that_was_recovered_from_is_kept_in_a_module(triage: Triage) -> None:
    """The module shows the assertion that the source shows, and not another one of the pass."""
    kernel = str(KERNELS / "reported" / "dot_on_turing.py")
    found = minimized(triage, kernel, "75", "ttgir", triton="3.3.1")
    assert found["is_minimal"]
    [row] = triage.compile("--kernel", kernel, "--sm", "75", "--triton", "3.3.1", code=1)["cells"]
    assert row["signature"] == found["signature"]
    assert "Unsupported rounding mode" in row["reason"]
    assert repro(triage.folder / found["path"], "3.3.1") == 0


@pytest.mark.parametrize(
    ("kernel", "before", "after"),
    [
        pytest.param("verdict_trap_stub_assume", 12, 3, marks=pytest.mark.long),
        pytest.param("verdict_trap_stub", 81, 15, marks=pytest.mark.long),
    ],
)
def test_a_module_of_a_few_operations(triage: Triage, kernel: str, before: int, after: int) -> None:
    found = minimized(triage, kernel, "100a", "ttgir")
    assert found["original"]["lines"] >= before
    assert found["lines"] <= after
    assert repro(triage.folder / found["path"]) == 0
    row = compiled(triage, triage.folder / found["path"] / "min.ttgir", "100a", LATE, code=1)
    assert row["signature"] == found["signature"]


def test_a_file_that_compiles_a_source_itself_is_reduced(triage: Triage) -> None:
    (triage.folder / "own.py").write_text("""
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource


@triton.jit
def double(x, out):
    at = tl.arange(0, 64)
    odd = tl.arange(0, 3)
    tl.store(out + at, 2 * tl.load(x + at))


source = ASTSource(double, {"x": "*fp32", "out": "*fp32"}, {})
triton.compile(source, target=GPUTarget("cuda", 80, 32))
""")
    words = ["own.py", "--sm", "80", "--triton", "installed", "--level", "source"]
    done = triage("minimize", *words, "--out", "min", "--max-tries", "40")
    assert done.returncode == 0, done.stderr
    assert "tl.arange(0, 3)" in (triage.folder / "min" / "min.py").read_text()
