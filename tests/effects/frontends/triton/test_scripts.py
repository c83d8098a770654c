"""Scripts as they are: what follows a launch decides nothing, and is passed over."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from test_sessions import KERNELS, Children, children

from harness.cells.repros.launch_files import launches_of_script
from harness.frontends.plan import raised_words
from harness.frontends.registry import OpenSessions
from harness.io.children.launch_code import TESTS
from harness.io.toolchains.install import installed_triton
from harness.values.kernel import Repro

if TYPE_CHECKING:
    from harness.values.outcome import Capture

pytestmark = pytest.mark.tools
__all__ = ["children"]


def kernels_of(capture: Capture) -> dict[str, int]:
    return dict(Counter(record.kernel for record in capture.records))


def test_a_script_that_asks_the_compiled_kernel_and_plots_is_captured_to_its_end(
    children: Children,
) -> None:
    capture = children.capture("scripts/rows.py", None, 90)
    assert capture.error is None, capture.error.traceback
    # As wide as 781, 256 and 500; and 500 is no multiple of 16.
    assert [record.config["BLOCK"] for record in capture.records] == [1024, 256, 512]
    # The grid is that of the launch, not of the warm-up; it follows from registers and memory.
    assert all(record.grid and record.grid[0] > 132 for record in capture.records)
    assert capture.notes == []
    assert capture.passed_over == (
        "rows.py: nothing is executed here; skipped matplotlib (line 3), "
        "allclose (line 66), elapsed_time (line 76), showing values (line 76), "
        "perf_report (line 77), do_bench (line 55)"
    )


def test_a_tuner_prunes_models_and_prepares_as_it_does_with_a_gpu(children: Children) -> None:
    capture = children.capture("scripts/tuned.py", None, 90)
    assert capture.error is None, capture.error.traceback
    tried = [(r.config["BLOCK"], r.config["num_warps"]) for r in capture.records]
    # The three that the model of speed puts first; of 128 elements, none that is larger.
    assert tried == [(32, 2), (64, 4), (64, 2), (32, 2), (64, 4), (64, 2)]
    assert capture.pruned == {"scale": (3, 5)}
    expected = "allclose (line 48), assert_close (line 50), assert (line 51), equal (line 52)"
    assert capture.passed_over.endswith(f"here; skipped {expected}")


def test_what_torch_would_compile_runs_uncompiled(children: Children) -> None:
    capture = children.capture("scripts/compiled.py", None, 90)
    assert capture.error is None, capture.error.traceback
    assert kernels_of(capture) == {"add_one": 1}
    expected = "torch.compile (line 14), assert_close (line 28), do_bench (line 30)"
    assert capture.passed_over.endswith(f"here; skipped {expected}")


def test_a_capture_ends_where_a_number_is_needed_to_go_on(children: Children) -> None:
    capture = children.capture("scripts/trained.py", None, 90)
    assert capture.error is None, capture.error.traceback
    assert kernels_of(capture) == {"square": 1, "square_backward": 1}
    # Its own assertion, which asks for numbers, fails: the gradient is that of another step.
    [how, end] = capture.notes
    assert capture.passed_over.endswith("here; skipped allclose (line 49)")
    assert how == f"trained.py: {INTERPRETED}"
    assert end == "trained.py:50: the capture ends here: Not equal to tolerance rtol=1e-07, atol=0"


COMPUTED = "it reads values of tensors before a launch; torch computes them on the CPU"
INTERPRETED = (
    "it reads what its kernels leave before a launch; Triton's interpreter computes that, and "
    "torch all else, on the CPU"
)


@pytest.mark.parametrize(
    ("function", "blocks", "last", "words"),
    [
        ("launch_lengths", [64, 32], "computed", COMPUTED),
        ("launch_default", [16], "computed", COMPUTED),
        ("launch_results", [32, 64, 128], "interpreted", INTERPRETED),
        ("launch_mask", [64, 32], "interpreted", INTERPRETED),
        ("launch_index", [32, 64], "interpreted", INTERPRETED),
        ("launch_gradient", [128, 64], "interpreted", INTERPRETED),
    ],
)
def test_values_that_are_read_before_a_launch_are_computed(
    children: Children, function: str, blocks: list[int], last: str, words: str
) -> None:
    capture = children.capture("values.py", function)
    assert capture.error is None, capture.error.traceback
    assert [record.config["BLOCK"] for record in capture.records] == blocks
    assert (capture.records[0].values, capture.records[-1].values) == ("computed", last)
    assert capture.notes == [f"values.py: {words}"]
    assert capture.needs == ""


def test_values_of_small_tensors_are_had_beside_tensors_that_no_memory_holds(
    children: Children,
) -> None:
    capture = children.capture("values.py", "launch_beside_large")
    assert capture.error is None
    [record] = capture.records
    assert record.values == "computed"
    [n] = [argument for argument in record.arguments if argument["name"] == "n"]
    assert n["value"] == 4000
    # What the kernel may have written is still not known.
    assert any("a condition asks for the values of a GPU tensor" in n for n in capture.notes)


def test_a_launch_is_the_same_with_values_and_without(children: Children) -> None:
    # Without a value that is asked for, and with one.
    plain, computed = (
        children.capture("values.py", function).records[0]
        for function in ("launch_plain", "launch_gradient")
    )
    assert (plain.values, computed.values) == ("", "computed")
    assert plain.key == computed.key
    assert plain.arguments == computed.arguments


def test_a_capture_ends_where_no_value_can_be_had_and_what_it_has_counts(
    children: Children,
) -> None:
    capture = children.capture("values.py", "launch_large")
    assert capture.error is None
    assert [(record.config["BLOCK"], record.values) for record in capture.records] == [
        (1, "computed")
    ]
    [_, end] = capture.notes
    assert ": the capture ends here: a condition asks for the values of a GPU tensor" in end
    assert end.endswith("(double is too large to be interpreted: 5,000 programs)")
    capture = children.capture("values.py", "launch_wrong")
    assert capture.error
    assert (capture.error.type, len(capture.records)) == ("KeyError", 1)


def test_values_that_take_too_long_end_the_capture_where_it_ended_without(
    children: Children,
) -> None:
    request = children.request("values.py", "launch_endless", 80)
    short = OpenSessions(children.hub, timeout=6, memory=0)
    short._servers = children.sessions._servers
    capture = children.do(short.capture("endless", installed_triton(), request))
    assert [record.config["BLOCK"] for record in capture.records] == [64]
    [end, why] = capture.notes
    assert ": the capture ends here: a condition asks for the values of a GPU tensor" in end
    assert why.startswith("with values, ")
    assert "did not end within 6 s; it may compute on real values (see --timeout)" in why
    children.do(short.close("endless"))


@pytest.mark.parametrize(
    ("line", "asks"),
    [
        ("y[1, 3, best[1, 3]]", "an index"),
        ("y[1, : best[1, 3]]", "an index"),
        ("[7, 8, 9][best[1, 3]]", "an index"),
        ("range(best[1, 3])", "an index"),
        ("int(best[1, 3])", "int()"),
        ("torch.empty(best[1, 3])", "torch's empty"),
        ("torch.repeat_interleave(best.flatten())", "torch's repeat_interleave"),
        ("3 in best", "`in`"),
        ("not best.any()", "a condition"),
    ],
)
@pytest.mark.parametrize("size", [4, 20_000])
def test_what_asks_for_a_number_in_c_gets_it_or_ends_the_capture(
    children: Children, tmp_path: Path, line: str, asks: str, size: int
) -> None:
    shutil.copy(KERNELS / "scripts/compiled.py", tmp_path)
    file = tmp_path / "indexed.py"
    file.write_text(
        f"""
import torch
from compiled import launched

y = torch.zeros(4, 4, {size}, device="cuda")
best = launched(y).argmax(-1)
{line}
"""
    )
    capture = children.capture(str(file), None, 90)
    assert capture.error is None, capture.error.traceback
    assert kernels_of(capture) == {"add_one": 1}
    end = capture.notes[-1]
    if size == 4:
        assert end == f"indexed.py: {INTERPRETED}"
        return
    words = f"{asks} asks for the values of a GPU tensor, and there is no GPU"
    why = "add_one is too large to be interpreted: 1,250 programs"
    assert end == f"indexed.py:7: the capture ends here: {words} ({why})"


def test_an_operator_of_torch_runs_as_it_does_on_a_gpu(children: Children) -> None:
    capture = children.capture("scripts/operators.py", None, 90)
    assert capture.error is None, capture.error.traceback
    # One that derives: forward and backward.
    assert [record.config["BLOCK"] for record in capture.records] == [16, 32, 64, 128, 256]


def test_what_torch_asks_of_a_gpu_in_c_is_passed_over(children: Children, tmp_path: Path) -> None:
    shutil.copy(KERNELS / "scripts/compiled.py", tmp_path)
    file = tmp_path / "streams.py"
    file.write_text(
        """
import torch
from compiled import launched

torch.cuda.set_sync_debug_mode("warn")
x = torch.zeros(64, device="cuda")
stream = torch.cuda.Stream()
with torch.cuda.stream(stream):
    launched(x)
x.record_stream(stream)
assert torch.cuda.get_sync_debug_mode() == 0


class Launching(torch.nn.Module):
    def forward(self, x):
        return launched(x) + x


x = torch.zeros(9, device="cuda", requires_grad=True)
torch.nn.DataParallel(Launching().cuda())(x).sum().backward()
"""
    )
    capture = children.capture(str(file), None, 90)
    assert capture.error is None, capture.error.traceback
    assert kernels_of(capture) == {"add_one": 2}


def test_a_module_of_a_package_runs_as_its_module(children: Children, tmp_path: Path) -> None:
    shutil.copy(KERNELS / "scripts/compiled.py", tmp_path)
    package = tmp_path / "kernels" / "copies"
    package.mkdir(parents=True)
    (package.parent / "__init__.py").write_text("SIZE = 64\n")
    (package / "__init__.py").write_text("from .. import SIZE\n")
    (package / "again.py").write_text("from compiled import launched\n")
    file = package / "copied.py"
    file.write_text(
        """
import torch

from . import SIZE
from .again import launched

if __name__ == "__main__":
    launched(torch.zeros(SIZE, device="cuda"))
"""
    )
    capture = children.capture(str(file), None, 90)
    assert capture.error is None, capture.error.traceback
    assert kernels_of(capture) == {"add_one": 1}


def test_pytest_runs_the_tests_of_a_file_each_as_far_as_it_comes(
    children: Children, tmp_path: Path
) -> None:
    # Not beside the conftest.py of these tests.
    file = shutil.copy(KERNELS / "scripts/pytest_file.py", tmp_path / "test_add.py")
    capture = children.capture(file, TESTS, 90)
    assert capture.error is None, capture.error.traceback
    # Two element types with two sizes, of which one is a multiple of 16; then what comes first.
    blocks = [(record.kernel, record.config["BLOCK"]) for record in capture.records]
    assert blocks == [("add", 256)] * 4 + [("add", 16)]
    [tests, _] = capture.notes
    counts = "5 to the end, 1 skipped (needs Blackwell)"
    assert tests == f"test_add.py: tests: {counts}"
    assert "assert_close (line 24), assert (line 25)" in capture.passed_over


@pytest.mark.parametrize("name", ["conftest.py", "test_add.py"])
def test_what_keeps_pytest_from_collecting_a_file_is_the_error_of_the_launch_code(
    children: Children, tmp_path: Path, name: str
) -> None:
    file = shutil.copy(KERNELS / "scripts/pytest_file.py", tmp_path / "test_add.py")
    with (tmp_path / name).open("a") as stream:
        stream.write("\nimport a_package_that_is_missing\n")
    error = children.capture(file, TESTS, 90).error
    assert error is not None
    assert error.type == "ModuleNotFoundError"
    assert error.message == "No module named 'a_package_that_is_missing'"
    # Where it is not the file's own line, that of the other file.
    line = (tmp_path / name).read_text().count("\n")
    words = raised_words(Repro(name="x", kernel=None, folder=tmp_path, file=Path(file)), error)
    place = f"{file}:{line}" if name == "test_add.py" else f"{file}: {tmp_path / name}:{line}"
    assert words.startswith(f"{place}: the launch raised ModuleNotFoundError: No module named")


def test_an_assertion_of_the_launch_code_ends_the_capture(
    children: Children, tmp_path: Path
) -> None:
    shutil.copy(KERNELS / "scripts/compiled.py", tmp_path)
    head = "import os\nimport torch\nfrom compiled import launched\n"
    file = tmp_path / "asserted.py"
    launch = 'launched(torch.zeros(64, device="cuda"))'
    file.write_text(f"{head}{launch}\nassert not os.listdir('.'), 'no files'\n")
    capture = children.capture(str(file), None, 90)
    assert capture.error is None, capture.error.traceback
    assert kernels_of(capture) == {"add_one": 1}
    assert capture.notes == ["asserted.py:5: the capture ends here: no files"]
    # The error of another test says more.
    file = tmp_path / "test_asserted.py"
    tests = f"""
class CheckedTest(unittest.TestCase):
    def test_a(self):
        {launch}
        self.assertEqual(1, 2)

    def test_b(self):
        launched(no_such_tensor)

if __name__ == "__main__":
    unittest.main()
"""
    file.write_text(f"import unittest\n{head}{tests}")
    [launches] = launches_of_script(file)
    assert launches.function == TESTS
    capture = children.capture(str(file), TESTS, 90)
    assert capture.notes == ["test_asserted.py: tests: 1 until AssertionError, 1 until NameError"]
    assert capture.error is not None
    assert capture.error.type == "NameError"
    file.write_text(file.read_text().replace("no_such_tensor", 'torch.zeros(9, device="cuda")'))
    capture = children.capture(str(file), TESTS, 80)
    assert capture.error is None, capture.error.traceback
    assert capture.notes[0].endswith("1 until AssertionError, 1 to the end")
    assert capture.notes[1].endswith("the capture ends here: 1 != 2")


def test_why_pytest_skips_a_whole_file_is_said(children: Children, tmp_path: Path) -> None:
    file = tmp_path / "test_add.py"
    file.write_text("import pytest\n\npytest.importorskip('missing')\n\ndef test_add(): ...\n")
    [tests] = children.capture(str(file), TESTS, 90).notes
    assert tests.startswith("test_add.py: tests: 1 skipped (Skipped: could not import 'missing'")


def test_launches_of_a_tuner_that_differ_in_a_flag_or_an_option_are_all_kept(
    children: Children,
) -> None:
    capture = children.capture("scripts/tutorial_products.py", None, 100)
    assert capture.error is None, capture.error.traceback
    # A flag (causal, activation) and an option (maxnreg) decide the code, too; pruned where causal.
    assert kernels_of(capture) == {
        "multiply": 12,
        "attention": 14,
        "multiply_groups": 2,
        "multiply_tma": 4,
        "multiply_persistent": 8,
        "multiply_own_descriptors": 8,
    }


def test_pytest_formats_no_traceback_that_nobody_reads(children: Children, tmp_path: Path) -> None:
    shutil.copy(KERNELS / "scripts/compiled.py", tmp_path)
    file = tmp_path / "test_shown.py"
    file.write_text(
        """
import linecache

import torch
from compiled import launched

def test_fails():
    torch.optim.SGD([], lr=1)

def test_launches():
    if not any("torch/optim/" in name for name in linecache.cache):
        launched(torch.zeros(64, device="cuda"))
"""
    )
    capture = children.capture(str(file), TESTS, 90)
    assert capture.error is not None
    assert capture.error.type == "ValueError"
    assert kernels_of(capture) == {"add_one": 1}


def test_files_that_a_script_writes_beside_itself_are_kept_for_it_and_touch_none_of_the_users(
    children: Children, tmp_path: Path
) -> None:
    shutil.copy(KERNELS / "scripts/compiled.py", tmp_path)
    (tmp_path / "times.csv").write_text("before\n")
    file = tmp_path / "writes.py"
    file.write_text(
        """
import os
from pathlib import Path

import torch
from compiled import launched

x = torch.zeros(64, device="cuda")
os.makedirs("results/today", exist_ok=True)
with open("results/today/log.txt", "w") as log:
    log.write("one\\n")
with open("times.csv", "a") as log:
    log.write("after\\n")
os.replace("results/today/log.txt", "results/log.txt")
Path("results/log.txt").chmod(0o600)
texts = Path("results/log.txt").read_text(), Path("times.csv").read_text()
assert texts == ("one\\n", "before\\nafter\\n"), texts
assert sorted(os.listdir("results")) == ["log.txt", "today"], os.listdir("results")
assert Path("results").is_dir() and not os.path.exists("results/today/log.txt")
try:
    open("no/such/folder", "w")
except FileNotFoundError:
    launched(x)
os.remove("results/log.txt")
assert not Path("results/log.txt").exists()
launched(torch.zeros(9, device="cuda"))
"""
    )
    before = {path.name for path in tmp_path.iterdir()}
    capture = children.capture(str(file), None, 90)
    assert capture.error is None, capture.error.traceback
    assert capture.notes == []
    assert kernels_of(capture) == {"add_one": 2}
    assert capture.passed_over.endswith(", writing files (line 9)")
    assert {path.name for path in tmp_path.iterdir()} - {"__pycache__"} == before
    assert (tmp_path / "times.csv").read_text() == "before\n"


def test_a_capture_builds_no_extension_and_goes_on_until_one_is_called(
    children: Children, tmp_path: Path
) -> None:
    shutil.copy(KERNELS / "scripts/compiled.py", tmp_path)
    file = tmp_path / "extended.py"
    file.write_text(
        """
import torch
from compiled import launched
from torch.utils.cpp_extension import load_inline

module = load_inline(name="twice", cpp_sources="this is no C++", functions=["twice"])
launched(torch.zeros(64, device="cuda"))
module.twice(torch.zeros(64))
"""
    )
    capture = children.capture(str(file), None, 90)
    assert capture.error is None, capture.error.traceback
    assert kernels_of(capture) == {"add_one": 1}
    words = "twice.twice() is of a C++ extension, and none is built here"
    assert capture.notes == [f"extended.py:8: the capture ends here: {words}"]
    assert capture.passed_over.endswith(", building a C++ extension (line 6)")
