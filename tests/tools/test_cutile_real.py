"""cuTile through its real packages: launch code captured, lowered to Tile IR, assembled."""

from __future__ import annotations

import json
import subprocess

import pytest
from conftest import Triage

pytestmark = [pytest.mark.tools, pytest.mark.long]

# By kernel: the target, the verdict, the stage, and what the reason names.
SHOWN = {
    "ok": ("100a", "ok", None, ""),
    "sick_spills": ("90a", "sick", "cubin", "spills"),
    "rejected": ("100a", "rejected", "cutile", "ndefined variable undefined_name used"),
    "unsupported": ("80", "unsupported", "cutile", "float8_e4m3fn is not supported on sm_80"),
    "compiler_crash": ("100a", "compiler_crash", "cubin", "tileiras died by SIGSEGV"),
}


@pytest.mark.parametrize("version", ["1.4.0", "1.5.0"])
def test_a_kernel_of_our_own_for_each_verdict(module_triage: Triage, version: str) -> None:
    for name, (target, verdict, stage, said) in SHOWN.items():
        code = {"ok": 0, "sick": 0, "unsupported": 4}.get(verdict, 1)
        words = ("--kernel", f"cutile_{name}", "--sm", target)
        document = module_triage.compile(*words, "--compiler", f"cutile=={version}", code=code)
        (row,) = document["cells"]
        assert (row["verdict"], row["stage"]) == (verdict, stage), row["reason"]
        assert said in row["reason"]
        assert (row["compiler"], row["compiler_version"]) == ("cutile", version)
        assert (row["assembler"], row["ptxas"], row["ptxas_origin"]) == (
            "tileiras",
            "13.3.36",
            "bundled",
        )


@pytest.mark.parametrize("version", ["1.3.0", "1.6.0", "1.7.0"])
def test_other_versions(module_triage: Triage, version: str) -> None:
    words = ("--kernel", "cutile_ok", "--compiler", f"cutile=={version}")
    (row,) = module_triage.compile(*words, "--sm", "100a", code=0)["cells"]
    assert (row["verdict"], row["threads"], row["spill_stores"]) == ("ok", 128, 0)
    assert row["n_regs"]
    (again,) = module_triage.compile(*words, "--sm", "100a", code=0)["cells"]
    assert again["cached"]


def test_another_tileiras_and_the_ptx_that_it_wrote(module_triage: Triage) -> None:
    words = ("--kernel", "cutile_sick_spills", "--sm", "90a", "--compiler", "cutile==1.7.0")
    rows = []
    for version in ("13.3.36", "13.5.37"):
        document = module_triage.compile(*words, "--assembler", f"tileiras=={version}", code=0)
        rows += document["cells"]
    assert [row["ptxas"] for row in rows] == ["13.3.36", "13.5.37"]
    # Each gets the newest bytecode that it reads.
    assert rows[0]["program_sha256"] != rows[1]["program_sha256"]
    done = module_triage("show", rows[0]["short"], "--stage", "ptx")
    assert ".target sm_90a" in done.stdout
    (module_triage.folder / "left.ptx").write_text(done.stdout)
    (row,) = module_triage.compile(
        "--kernel", "left.ptx", "--sm", "90a", "--ptxas", "13.3.33", code=0
    )["cells"]
    # How much is spilled depends on options of tileiras' own, too.
    same = ("n_regs", "stack", "threads")
    assert [row[name] for name in same] == [rows[0][name] for name in same]
    (row,) = module_triage.compile(*words, "--assembler", "tileiras==13.2.86", code=4)["cells"]
    assert (row["verdict"], row["stage"]) == ("unsupported", "cubin")
    assert "Cannot find option named 'sm_90'" in row["reason"]


def test_tensor_memory(module_triage: Triage) -> None:
    """tileiras moves the columns into a register; the PTX that it leaves has both."""
    words = ("--kernel", "cutile_sick_spills", "--sm", "100a", "--compiler", "cutile==1.7.0")
    (row,) = module_triage.compile(*words, code=0)["cells"]
    # Two accumulators of 128 rows by 256 columns of 32 bits.
    assert row["tmem_size"] == 512
    done = module_triage("show", row["short"], "--stage", "ptx")
    (module_triage.folder / "alloc.ptx").write_text(done.stdout)
    (again,) = module_triage.compile("--kernel", "alloc.ptx", "--sm", "100a", code=0)["cells"]
    assert again["tmem_size"] == 512


def test_bisect_and_blame(module_triage: Triage) -> None:
    words = ("--kernel", "cutile_compiler_crash", "--sm", "100a")
    done = module_triage("bisect", "--json", *words)
    found = json.loads(done.stdout)
    assert (found["axis"], found["first_fixed"]) == ("tileiras", None)
    done = module_triage("blame", *words)
    assert "tileiras is to blame" in done.stdout


def test_the_least_source_that_fails(module_triage: Triage) -> None:
    words = ("--kernel", "cutile_compiler_crash", "--sm", "100a")
    done = module_triage("minimize", "--json", *words, "--out", "small")
    found = json.loads(done.stdout)
    assert (found["level"], found["verdict"], found["is_minimal"]) == (
        "source",
        "compiler_crash",
        True,
    )
    assert found["lines"] <= 5
    assert not found["drift"]
    # It fails where a user runs it, beside what comes from the index alone.
    repro = ["sh", str(module_triage.folder / "small" / "repro.sh")]
    ran = subprocess.run(repro, capture_output=True, text=True, check=False)
    assert (ran.returncode, "Return code -11" in ran.stdout) == (0, True), ran.stdout + ran.stderr
    (row,) = module_triage.compile(
        "--kernel", "small/min.py", "--sm", "100a", "--compiler", "cutile==1.5.0", code=1
    )["cells"]
    assert row["signature"] == found["signature"]
    done = module_triage("minimize", *words, "--level", "ptx")
    assert "a kernel of cuTile is reduced at source" in done.stderr


def test_what_a_file_of_one_launch_has(module_triage: Triage) -> None:
    """Helpers, closures and types of an argument; it is compiled to the same."""
    (module_triage.folder / "beside.py").write_text(BESIDE)
    (module_triage.folder / "many.py").write_text(MANY)
    words = ("--sm", "100a", "--compiler", "cutile==1.7.0")
    (row,) = module_triage.compile("--kernel", "many.py", *words, code=0)["cells"]
    asked = ("--while", "n_regs>=1", "--max-tries", "1", "--out", "of_many")
    module_triage("minimize", "--kernel", "many.py", *words, *asked)
    (again,) = module_triage.compile("--kernel", "of_many/original.py", *words, code=0)["cells"]
    same = ("n_regs", "instructions", "threads", "shared")
    assert [again[name] for name in same] == [row[name] for name in same]
    text = (module_triage.folder / "of_many/original.py").read_text()
    assert "compilation.ListConstraint(" in text
    assert "built.replace_hints(occupancy=2)" in text


BESIDE = """\
import cuda.tile as ct

SCALE = 2.5


@ct.function
def scaled(tile, by):
    return tile * by * SCALE
"""
MANY = """\
from __future__ import annotations

import math

import beside
import cuda.tile as tl
import torch
from cuda.tile import bid

ConstInt = tl.Constant[int]
OUT = torch.float32


def make(factor, kind):
    @tl.kernel(occupancy=tl.ByTarget(sm_100=2, default=1))
    def built(xs: list, y, alpha, size: ConstInt, flag: tl.Constant[bool], mode: tl.Constant):
        i = bid(0)
        total = tl.zeros((size,), dtype=OUT)
        for j in range(len(xs)):
            tile = tl.load(xs[j], index=(i,), shape=(size,))
            total = total + beside.scaled(tl.astype(tile, OUT), alpha)
        if flag:
            total = total * factor + math.pi
        tl.store(y, index=(i,), tile=tl.astype(total, kind))

    return built


def launch():
    xs = [torch.randn(4096, device="cuda") for _ in range(3)]
    y = torch.empty(4096, device="cuda", dtype=torch.float16)
    given = (xs, y, 1.5, 128, True, 3)
    tl.launch(torch.cuda.current_stream(), (32,), make(3, tl.float16), given)
"""


def test_what_is_exported_is_captured(module_triage: Triage) -> None:
    (module_triage.folder / "exporting.py").write_text(EXPORTING)
    exported = ("--kernel", "exporting.py", "--sm", "90a", "--compiler", "cutile==1.5.0")
    (row,) = module_triage.compile(*exported, code=0)["cells"]
    assert (row["compiler"], row["kernel"].rpartition("::")[2]) == ("cutile", "doubled")
    assert row["n_regs"]
    assert row["threads"]
    assert ".entry doubled" in module_triage("show", row["short"], "--stage", "ptx").stdout


EXPORTING = """\
import os

import cuda.tile as ct
from cuda.tile import compilation


@ct.kernel
def doubled(x, size: ct.Constant[int]):
    ct.store(x, index=(0,), tile=ct.load(x, index=(0,), shape=(size,)) * 2)


array = compilation.ArrayConstraint(
    ct.float32,
    1,
    index_dtype=ct.int32,
    stride_lower_bound_incl=0,
    alias_groups=(),
    may_alias_internally=False,
)
convention = compilation.CallingConvention.cutile_python_v1()
compilation.export_kernel(
    doubled,
    [compilation.KernelSignature([array, 128], convention)],
    os.devnull,
    gpu_code="sm_90",
    output_format="tileir_bytecode",
    bytecode_version="13.3",
)
"""
TUNED = """\
import cuda.tile as ct
import torch


@ct.kernel
def scaled(x, y, size: ct.Constant[int]):
    i = ct.bid(0)
    ct.store(y, index=(i,), tile=ct.load(x, index=(i,), shape=(size,)) * 2.0)


def launch():
    x = torch.randn(4096, device="cuda", dtype=torch.bfloat16)
    y = torch.empty_like(x)
    stream = torch.cuda.current_stream()
    found = ct.tune.exhaustive_search(
        [(64, 1), (100, 1), (128, 2)],
        stream,
        lambda config: (4096 // config[0],),
        scaled,
        lambda config: (x, y, config[0]),
        lambda config: {"occupancy": config[1]},
    )
    ct.launch(stream, (4096 // 64,), scaled, (x, y, found.best.config[0]))
"""


def test_a_tuner_in_a_file(module_triage: Triage) -> None:
    (module_triage.folder / "tuned.py").write_text(TUNED)
    words = ("--sm", "90a", "--compiler", "cutile==1.7.0")
    rows = module_triage.compile("--kernel", "tuned.py", *words, code=1)["cells"]
    assert [(row["config"], row["verdict"]) for row in rows] == [
        ({"config0": 64, "config1": 1}, "ok"),
        ({"config0": 100, "config1": 1}, "rejected"),
        ({"config0": 128, "config1": 2}, "ok"),
        ({}, "ok"),
    ]


@pytest.mark.parametrize(
    ("body", "code", "said"),
    [
        ("import os\n    os.abort()", 4, "ended its process"),
        ("raise ValueError('no')", 4, "raised ValueError: no"),
        ("pass", 4, "no cuTile kernel is launched"),
        ("import no_such_package", 4, "No module named 'no_such_package'"),
        ("print('x' * (1 << 24), flush=True)\n    raise ValueError('no')", 4, "ValueError: no"),
        ("ct.launch(torch.cuda.current_stream(), (1,), k, (torch.ones(4),))", 4, "not on a CUDA"),
        ("ct.launch(torch.cuda.current_stream(), (1,), k, ())", 4, "expects 1 argument "),
    ],
)
def test_launch_code_that_fails(module_triage: Triage, body: str, code: int, said: str) -> None:
    head = "import cuda.tile as ct\nimport torch\n\n\n@ct.kernel\ndef k(x):\n    ct.bid(0)\n\n\n"
    (module_triage.folder / "bad.py").write_text(f"{head}def launch():\n    {body}\n")
    words = ("--kernel", "bad.py", "--sm", "90a", "--compiler", "cutile==1.7.0")
    done = module_triage("compile", *words)
    assert done.returncode in (2, code), done.stderr
    assert said in done.stderr
    assert "Traceback" not in done.stderr


HOSTILE = """\
import os

import cuda.tile as ct
import torch


def forever():
    while True:
        pass


@ct.kernel
def hangs(x):
    ct.static_eval(forever())


@ct.kernel
def kills(x):
    ct.static_eval(os._exit(3))


@ct.kernel
def dies(x):
    ct.static_eval(os.abort())


@ct.kernel
def floods(x):
    ct.static_eval(print("x" * (1 << 24)))


@ct.kernel
def works(x):
    ct.store(x, index=(0,), tile=ct.load(x, index=(0,), shape=(128,)) * 2.0)


def launch():
    x = torch.empty(128, device="cuda")
    for kernel in (hangs, kills, dies, floods, works):
        ct.launch(torch.cuda.current_stream(), (1,), kernel, (x,))
"""


def test_what_a_kernel_does_to_its_compiler_is_no_harm_to_others(module_triage: Triage) -> None:
    (module_triage.folder / "hostile.py").write_text(HOSTILE)
    words = ("--kernel", "hostile.py", "--sm", "90a", "--compiler", "cutile==1.5.0")
    rows = module_triage.compile(*words, "--timeout", "30", code=1)["cells"]
    verdicts = {row["kernel"].partition("::")[2]: row["verdict"] for row in rows}
    assert verdicts == {
        "hangs": "timeout",
        "kills": "infra",
        "dies": "compiler_crash",
        "floods": "ok",
        "works": "ok",
    }
    assert all("\n" not in row["reason"] for row in rows)
