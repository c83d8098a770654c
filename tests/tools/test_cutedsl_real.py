"""CuTe DSL through its real packages: launch code captured, traced, lowered to PTX, assembled."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from conftest import Triage
from elftools.elf.elffile import ELFFile

pytestmark = [pytest.mark.tools, pytest.mark.long]

# By kernel: the target, the verdict, the stage, and what the reason names.
SHOWN = {
    "ok": ("90a", "ok", None, ""),
    "sick_spills": ("90a", "sick", "cubin", "spills"),
    "out_of_resources": ("90a", "out_of_resources", "launch", "409,600 B of shared memory"),
    "rejected": ("90a", "rejected", "mlir", "name 'undefined_name' is not defined"),
    "ptxas_error": ("90a", "ptxas_error", "cubin", "Unknown modifier '.op'"),
    "unsupported": ("80", "unsupported", "nvvm", "libNVVM: unsupported operation"),
}


@pytest.mark.parametrize("version", ["4.4.2", "4.5.2", "4.6.3", "4.8.1"])
def test_a_kernel_of_our_own_for_each_verdict(module_triage: Triage, version: str) -> None:
    for name, (target, verdict, stage, said) in SHOWN.items():
        code = {"ok": 0, "sick": 0, "unsupported": 4}.get(verdict, 1)
        words = ("--kernel", f"cutedsl_{name}", "--sm", target)
        document = module_triage.compile(*words, "--compiler", f"cutedsl=={version}", code=code)
        (row,) = document["cells"]
        assert (row["verdict"], row["stage"]) == (verdict, stage), row["reason"]
        assert said in row["reason"]
        assert (row["compiler"], row["compiler_version"]) == ("cutedsl", version)


def test_what_only_cutedsl_knows_and_any_ptxas(module_triage: Triage) -> None:
    words = ("--kernel", "cutedsl_ok", "--sm", "90a")
    (row,) = module_triage.compile(*words, code=0)["cells"]
    # 128 elements of single precision, of which the PTX says nothing.
    assert (row["shared"], row["threads"], row["ptxas"]) == (512, 128, "12.9.86")
    (again,) = module_triage.compile(*words, code=0)["cells"]
    assert again["cached"]
    (other,) = module_triage.compile(*words, "--ptxas", "13.1.115", code=0)["cells"]
    assert (other["ptxas"], other["n_regs"]) == ("13.1.115", row["n_regs"])
    done = module_triage("show", row["short"], "--stage", "mlir")
    assert "cuda.kernel @kernel_cutlass_reversed_kernel" in done.stdout


def test_launch_code_in_a_file(module_triage: Triage) -> None:
    text = (
        "import cutlass\nimport cutlass.cute as cute\nimport torch\n"
        "from cutlass.cute.runtime import from_dlpack\n\n\n"
        "class Twice:\n    @cute.jit\n    def __call__(self, x: cute.Tensor):\n"
        "        self.kernel(x).launch(grid=[1, 1, 1], block=[128, 1, 1])\n\n"
        "    @cute.kernel\n    def kernel(self, x: cute.Tensor):\n"
        "        thread, _, _ = cute.arch.thread_idx()\n        x[thread] = x[thread] * 2.0\n\n\n"
        "def launch():\n    x = from_dlpack(torch.ones(128, device='cuda'))\n    Twice()(x)\n"
    )
    (module_triage.folder / "twice.py").write_text(text)
    words = ("--sm", "90a", "--compiler", "cutedsl==4.5.2")
    (row,) = module_triage.compile("--kernel", "twice.py", *words, code=0)["cells"]
    assert row["cell"] == (
        "twice.py::Twice.kernel/launch/default@sm_90a/cutedsl-4.5.2/ptxas-12.9.86-bundled"
    )
    for body, code, said in (
        ("import os\n    os.abort()", 4, "ended its process"),
        ("raise ValueError('no')", 4, "raised ValueError: no"),
        ("pass", 4, "no CuTe DSL kernel is launched"),
    ):
        text = f"import cutlass\n\n\ndef launch():\n    {body}\n"
        (module_triage.folder / "bad.py").write_text(text)
        done = module_triage("compile", "--kernel", "bad.py", *words)
        assert done.returncode in (2, code), done.stderr
        assert said in done.stderr
        assert "Traceback" not in done.stderr


@pytest.mark.parametrize("version", ["4.4.2", "4.5.2", "4.8.1"])
def test_upstreams_step_kernel(module_triage: Triage, version: str) -> None:
    words = ("--kernel", "mamba3_step_fn", "--sm", "90a", "--compiler", f"cutedsl=={version}")
    (row,) = module_triage.compile(*words, code=0)["cells"]
    assert (row["n_regs"], row["threads"], row["shared"]) == (168, 64, 39_936)
    assert (row["spill_stores"], row["spill_loads"]) == (0, 0)


EMBEDDED = """\
import sys
import cutlass
import cutlass.cute as cute
from cutlass.cute.runtime import make_fake_compact_tensor

sys.path.insert(0, sys.argv[1])
from kernels import stir

given = [make_fake_compact_tensor(cutlass.Float32, (1024 * 96,)) for _ in range(2)]
options = f"--gpu-arch sm_90a --keep-cubin --keep-ptx --dump-dir {sys.argv[2]}"
try:
    cute.compile(stir, *given, 96, 8, options=options)
except Exception:
    pass  # there is no driver, which it finds out when all is written
"""


def machine_code(cubin: Path) -> dict[str, bytes]:
    with cubin.open("rb") as file:
        sections = ELFFile(file).iter_sections()
        return {each.name: each.data() for each in sections if each.name.startswith(".text.")}


@pytest.mark.parametrize("version", ["4.5.2", "4.8.1"])
def test_the_ptxas_beside_it_does_what_the_one_inside_does(
    module_triage: Triage, version: str
) -> None:
    words = ("--kernel", "cutedsl_sick_spills", "--sm", "90a")
    module_triage.compile(*words, "--compiler", f"cutedsl=={version}", code=0)
    cache = Path(module_triage.env["TRIAGE_CACHE_DIR"])
    # Other checkouts that have this cache have environments of their own; they may be gone.
    venvs = cache.glob(f"toolchains/cutedsl-{version}-*/venv")
    venv = next(each for each in venvs if is_whole(each))
    (ptxas,) = venv.glob("lib/python*/site-packages/nvidia/cu*/bin/ptxas")
    folder = module_triage.folder / f"embedded-{version}"
    folder.mkdir()
    (folder / "embedded.py").write_text(EMBEDDED)
    kernels = Path(__file__).parent.parent.parent / "repros" / "cutedsl_verdicts"
    python = [str(venv / "bin" / "python"), "-B", str(folder / "embedded.py")]
    subprocess.run([*python, str(kernels), str(folder)], check=True, timeout=300)
    (inside,), (ptx,) = folder.glob("*.cubin"), folder.glob("*.ptx")
    beside = folder / "beside.cubin"
    subprocess.run([str(ptxas), "-arch=sm_90a", str(ptx), "-o", str(beside)], check=True)
    code = machine_code(inside)
    assert len(code) == 1
    assert code == machine_code(beside)


def test_the_least_source_that_fails(module_triage: Triage) -> None:
    words = ("--kernel", "cutedsl_rejected", "--sm", "90a")
    done = module_triage("minimize", "--json", *words, "--out", "small")
    found = json.loads(done.stdout)
    assert (found["level"], found["verdict"], found["is_minimal"]) == ("source", "rejected", True)
    assert found["lines"] <= 6
    # It fails where a user runs it, beside what comes from the index alone.
    repro = ["sh", str(module_triage.folder / "small" / "repro.sh")]
    ran = subprocess.run(repro, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "undefined_name" in ran.stdout
    (row,) = module_triage.compile(
        "--kernel", "small/min.py", "--sm", "90a", "--compiler", "cutedsl==4.5.2", code=1
    )["cells"]
    assert row["signature"] == found["signature"]


def is_whole(venv: Path) -> bool:
    """Whether all is there that an environment shares with a checkout."""
    packages = venv.glob("lib/python*/site-packages/*")
    return all(each.exists() for each in packages if each.is_symlink())


KERNEL_OF_A_CLASS = """\
import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import from_dlpack

WIDTH = 128


class Base:
    def threads(self):
        return [WIDTH, 1, 1]


class Many(Base):
    def __init__(self, count, dtype):
        self.count, self.dtype, self.layout = count, dtype, None

    @cute.jit
    def __call__(self, x: cute.Tensor, y: cute.Tensor, stream: cuda.CUstream):
        if cutlass.const_expr(self.layout is None):
            self.layout = cute.make_layout(self.count)
        self.kernel(x, y, self.layout).launch(grid=[1, 1, 1], block=self.threads(), stream=stream)

    @cute.kernel
    def kernel(self, x: cute.Tensor, y: cute.Tensor, layout: cute.Layout):
        thread, _, _ = cute.arch.thread_idx()
        held = cute.make_rmem_tensor(layout, self.dtype)
        for i in cutlass.range_constexpr(self.count):
            held[i] = x[thread + WIDTH * i]
        for i in cutlass.range_constexpr(self.count):
            y[thread + WIDTH * i] = held[i] + held[self.count - 1 - i]


def launch():
    x, y = (torch.ones(128 * 48, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    many = Many(48, cutlass.BFloat16)
    given = from_dlpack(x, assumed_align=16).mark_layout_dynamic(), from_dlpack(y)
    cute.compile(many, *given, cuda.CUstream(0), options="--opt-level 2")
"""


def test_what_a_file_of_one_launch_has(module_triage: Triage) -> None:
    """A kernel of a class, with its attributes, helpers, options, and tensors by their types."""
    (module_triage.folder / "many.py").write_text(KERNEL_OF_A_CLASS)
    words = ("--sm", "90a", "--compiler", "cutedsl==4.5.2")
    (row,) = module_triage.compile("--kernel", "many.py", *words, code=0)["cells"]
    asked = ("--level", "source", "--while", "n_regs>=1", "--max-tries", "1", "--out", "of_many")
    module_triage("minimize", "--kernel", "many.py", *words, *asked)
    (again,) = module_triage.compile("--kernel", "of_many/original.py", *words, code=0)["cells"]
    same = ("n_regs", "instructions", "threads", "shared")
    assert [again[name] for name in same] == [row[name] for name in same]
    text = (module_triage.folder / "of_many/original.py").read_text()
    assert "made(Many, count=48, dtype=cutlass.BFloat16, layout=None)" in text
    assert "(cute.sym_int32(),)" in text
    assert "--opt-level 2" in text
    assert "torch" not in text
