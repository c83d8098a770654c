from __future__ import annotations

import importlib.metadata
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest
from local_index import LINUX, LocalIndex, Served, tool_wheel, triton_wheel, wheel
from msgspec.structs import replace
from packaging.version import Version

from harness.io.files import locations
from harness.io.files import writing as folders
from harness.io.packages import wheels as wheel_install
from harness.io.toolchains import install as toolchain_contents
from harness.io.toolchains.install import (
    available_builds,
    available_wheels,
    describe_ptxas,
    every_nvdisasm,
    find_nvdisasm,
    install_nvdisasm,
    install_ptxas,
    install_triton,
    installed_triton,
    select_versions,
    verify,
    version_beside,
)
from harness.io.toolchains.installed import (
    MARKER,
    NVDISASM,
    PTXAS,
    TRITON,
    installed_versions,
    list_damaged,
    list_installed,
    remove,
    this_python,
)
from harness.values.errors import (
    InfrastructureError,
    IntegrityError,
    OfflineError,
    StorageError,
    UsageError,
)

pytest_plugins = ("local_index_fixtures",)

INSTALL = (
    "import sys; from harness.io.toolchains.install import install_ptxas; "
    "print(install_ptxas(sys.argv[1]))"
)


@pytest.fixture
def served(local_index: LocalIndex, empty_cache: Path) -> LocalIndex:
    local_index.add(*tool_wheel("13.1.115"))
    local_index.add(*tool_wheel("13.0.88"))
    local_index.add(*wheel("nvidia_cuda_nvcc", "0.0.1", {}))
    local_index.add(*tool_wheel("12.9.86", project="nvidia_cuda_nvcc_cu12"))
    local_index.add(*tool_wheel("13.5.37", project="nvidia_cuda_nvdisasm", tool="nvdisasm"))
    local_index.add(*tool_wheel("13.2.51", project="nvidia_cuda_nvdisasm", tool="nvdisasm"))
    local_index.add(*triton_wheel("3.6.0"))
    return local_index


def entries(cache: Path) -> list[str]:
    root = cache / "toolchains"
    names = [path.name for path in root.iterdir()] if root.is_dir() else []
    return sorted(name for name in names if name != ".locks")


def stalled_file(index: LocalIndex) -> tuple[Served, threading.Event]:
    """The wheel of 13.1.115, which will not come before the event is set."""
    (file,) = [file for name, file in index.projects["nvidia-cuda-nvcc"].items() if "115" in name]
    file.stall = threading.Event()
    return file, file.stall


def start_install(version: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", INSTALL, version],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_available(served: LocalIndex) -> None:
    assert [(wheel.version, wheel.name) for wheel in available_wheels(PTXAS)] == [
        (Version("12.9.86"), "nvidia-cuda-nvcc-cu12"),
        (Version("13.0.88"), "nvidia-cuda-nvcc"),
        (Version("13.1.115"), "nvidia-cuda-nvcc"),
    ]
    assert [wheel.version for wheel in available_wheels(NVDISASM)] == [
        Version("13.2.51"),
        Version("13.5.37"),
    ]
    assert [wheel.version for wheel in available_wheels(TRITON)] == [Version("3.6.0")]


def test_available_without_any_project(local_index: LocalIndex, empty_cache: Path) -> None:
    with pytest.raises(UsageError, match="no project nvidia-cuda-nvcc"):
        available_wheels(PTXAS)


def test_install_ptxas(
    served: LocalIndex, empty_cache: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    runs = tmp_path / "runs"
    monkeypatch.setenv("FAKE_TOOL_RUNS", str(runs))
    ptxas = install_ptxas("13.1.115")
    assert (ptxas.version, ptxas.origin, ptxas.build) == (
        "13.1.115",
        "nvidia-cuda-nvcc",
        "cuda_fake.r13.1.115",
    )
    assert ptxas.sha256 == folders.sha256_of(ptxas.path)
    assert os.access(ptxas.path, os.X_OK)
    folder = empty_cache / "toolchains" / "ptxas-13.1.115"
    assert sorted(path.name for path in folder.iterdir()) == [MARKER, "bin"]
    assert entries(empty_cache) == ["ptxas-13.1.115"]
    # A warm start asks nobody and runs nothing.
    served.down = True
    monkeypatch.setattr(toolchain_contents, "run_tool", None)
    monkeypatch.setattr(wheel_install, "run_tool", None)
    monkeypatch.setenv("TRIAGE_OFFLINE", "1")
    assert install_ptxas(Version("13.1.115")) == ptxas
    assert select_versions(PTXAS, "13.1.115") == [Version("13.1.115")]
    assert runs.read_text().count("run") == 1


def test_install_nvdisasm(served: LocalIndex, empty_cache: Path) -> None:
    assert install_nvdisasm("13.2.51").version == "13.2.51"
    assert find_nvdisasm().version == "13.2.51"
    newest = install_nvdisasm()
    assert (newest.name, newest.version) == ("nvdisasm", "13.5.37")
    assert find_nvdisasm() == newest


def test_install_triton_with_what_it_needs(served: LocalIndex, empty_cache: Path) -> None:
    served.add(*wheel("setuptools", "70.0", {"setuptools/__init__.py": ""}))
    served.add(*wheel("filelock", "3.0", {"filelock.py": ""}))
    requires = ("filelock", "torch", "cmake", "lit", 'old; python_version < "3"', 'x; extra == "t"')
    served.add(*triton_wheel("3.2.0", requires=requires, code="import setuptools"))
    triton = install_triton("3.2.0")
    assert triton.path is not None
    assert triton.path == empty_cache / "toolchains" / "triton-3.2.0" / "site"
    assert (triton.version, triton.origin) == ("3.2.0", "triton")
    names = {path.name for path in triton.path.iterdir()}
    assert {"triton", "setuptools", "filelock.py"} <= names
    (found,) = list_installed()
    assert found.dependencies == ("filelock==3.0", "setuptools==70.0")
    assert triton.sha256 == found.sha256
    assert verify("triton-3.2.0") == found


def _with_builds(index: LocalIndex) -> None:
    """Two builds of a distribution whose modules know each other by its own name."""
    modules = {
        "a": "from night_triton.b import Thing\nimport night_triton.b as b",
        "b/__init__": "class Thing: ...\nimport night_triton.b.c",
        "b/c": "import night_triton\nfrom night_triton import b",
    }
    for version in ("3.6.10.post20260709", "3.6.10.post20260710"):
        index.add(*triton_wheel(version, name="night_triton", modules=modules))


def test_a_triton_of_another_distribution(served: LocalIndex, empty_cache: Path) -> None:
    _with_builds(served)
    newest = Version("3.6.10.post20260710+night.triton")
    assert select_versions(TRITON, "night-triton>=3.6") == [
        Version("3.6.10.post20260709+night.triton"),
        newest,
    ]
    assert select_versions(TRITON, "Night_Triton==latest") == [newest]
    assert [str(build.version) for build in available_builds("night-triton")] == [
        "3.6.10.post20260709",
        "3.6.10.post20260710",
    ]
    triton = install_triton("night-triton==3.6.10.post20260710")
    assert (triton.version, triton.origin) == (str(newest), "night-triton")
    assert triton == install_triton(newest)
    assert triton == install_triton(str(newest), is_planned=True)
    # It is imported as Triton, and none of its modules is there twice.
    code = (
        "import triton.a, night_triton.b, triton.b.c; from triton.b import Thing; "
        "assert Thing is triton.a.Thing is night_triton.b.Thing; "
        "assert triton.a.b is triton.b is night_triton.b; "
        "assert Thing.__module__ == triton.b.__spec__.name == 'triton.b'; "
        "print(triton.__version__)"
    )
    assert triton.path is not None
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=triton.path, capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr) == ("3.6.10.post20260710\n", "")
    # A release is not mistaken for it, nor it for one.
    (found,) = list_installed()
    assert found.name == f"triton-{newest}"
    assert installed_versions("triton") == []
    assert verify(found.name) == found
    # Its disassembler is asked where it is named, and nowhere else.
    tool = triton.path / "triton" / "backends" / "nvidia" / "bin" / "nvdisasm"
    tool.parent.mkdir(parents=True)
    tool.write_text("an nvdisasm")
    assert tool in {each.path for each in every_nvdisasm(str(newest))}
    assert tool not in {each.path for each in every_nvdisasm("3.6.0")}
    (triton.path / "triton" / "a.py").write_text("changed")
    with pytest.raises(IntegrityError, match=r"\(a\.py\)"):
        verify(found.name)
    remove(found.name)
    assert entries(empty_cache) == []


def test_what_is_no_triton_of_another_distribution(served: LocalIndex, empty_cache: Path) -> None:
    _with_builds(served)
    served.add(*wheel("night_owl", "1.0", {"night_owl.py": ""}))
    with pytest.raises(UsageError, match=r"^night-owl 1\.0 holds no Triton$"):
        install_triton("night-owl==1.0")
    with pytest.raises(
        UsageError, match=r"^there is no night-triton 3\.7; the nearest is 3\.6\.10"
    ):
        select_versions(TRITON, "night-triton==3.7")
    with pytest.raises(UsageError, match="no project night-cap"):
        select_versions(TRITON, "night-cap==3.7")
    with pytest.raises(UsageError, match="is not a version of night-triton"):
        select_versions(TRITON, "night-triton==3.x")
    assert entries(empty_cache) == []


def _compiled_triton(abi: str) -> tuple[str, bytes]:
    """A Triton with modules that are compiled for one Python."""
    return triton_wheel("3.6.0", tag=f"{abi}-{abi}-manylinux2014_x86_64")


def test_each_python_has_a_triton_of_its_own(
    local_index: LocalIndex, empty_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = this_python()
    for abi in (own, "cp39"):
        local_index.add(*_compiled_triton(abi))
    triton = install_triton("3.6.0")
    assert entries(empty_cache) == [f"triton-3.6.0-{own}"]
    assert triton.path == empty_cache / "toolchains" / f"triton-3.6.0-{own}" / "site"
    # What another Python installed, under the name that folders had before they named a Python.
    other = empty_cache / "toolchains" / "triton-3.6.0"
    shutil.copytree(triton.path.parent, other)
    marker = json.loads((other / MARKER).read_bytes())
    marker["filename"] = _compiled_triton("cp39")[0]
    (other / MARKER).write_text(json.dumps(marker))
    monkeypatch.setenv("TRIAGE_OFFLINE", "1")
    assert install_triton("3.6.0") == triton
    assert [each.python for each in list_installed()] == [own]
    every = list_installed(of_any_python=True)
    assert [(each.name, each.python) for each in every] == [
        ("triton-3.6.0", own),
        ("triton-3.6.0", "cp39"),
    ]
    with pytest.raises(UsageError, match=r"for another Python \(cp39; this one is cp3\d+\)"):
        verify("triton-3.6.0-cp39")
    remove("triton-3.6.0")
    assert entries(empty_cache) == ["triton-3.6.0"]
    assert install_triton("3.6.0") == triton
    remove("triton-3.6.0-cp39")
    assert entries(empty_cache) == [f"triton-3.6.0-{own}"]


def test_a_folder_of_this_python_from_before_folders_named_one(
    local_index: LocalIndex, empty_cache: Path
) -> None:
    local_index.add(*_compiled_triton(this_python()))
    triton = install_triton("3.6.0")
    assert triton.path
    triton.path.parent.rename(empty_cache / "toolchains" / "triton-3.6.0")
    again = install_triton("3.6.0")
    assert again.path == empty_cache / "toolchains" / "triton-3.6.0" / "site"
    assert entries(empty_cache) == ["triton-3.6.0"]


def test_triton_that_cannot_be_imported(served: LocalIndex, empty_cache: Path) -> None:
    served.add(*triton_wheel("3.1.0", code="import module_that_is_not_there"))
    with pytest.raises(InfrastructureError, match="No module named 'module_that_is_not_there'"):
        install_triton("3.1.0")
    assert entries(empty_cache) == []


def test_what_would_be_installed(served: LocalIndex, empty_cache: Path) -> None:
    triton, ptxas = (
        install_triton("3.6.0", is_planned=True),
        install_ptxas("13.1.115", is_planned=True),
    )
    assert entries(empty_cache) == []
    assert install_triton("3.6.0") == triton
    installed = install_ptxas("13.1.115")
    # The hash of an executable that nobody has yet is not known.
    assert installed == replace(ptxas, sha256=installed.sha256, build=installed.build)
    assert install_ptxas("13.1.115", is_planned=True) == installed
    with pytest.raises(UsageError, match=r"no ptxas 13\.1\.100"):
        install_ptxas("13.1.100", is_planned=True)


def test_unknown_versions(served: LocalIndex) -> None:
    with pytest.raises(UsageError, match=r"no ptxas 13\.1\.100; the nearest are 13\.0\.88 and"):
        install_ptxas("13.1.100")
    with pytest.raises(UsageError, match=r"no Triton 9\.9; the nearest is 3\.6\.0"):
        install_triton("9.9")
    with pytest.raises(UsageError, match=r"no ptxas 13\.1; .*==13\.1\.\*"):
        select_versions(PTXAS, "13.1")
    with pytest.raises(UsageError, match="not one version of ptxas"):
        install_ptxas(">=13")


def test_two_spellings_of_one_version(served: LocalIndex, empty_cache: Path) -> None:
    served.add(*tool_wheel("13.2.0"))
    assert select_versions(PTXAS, "13.2") == [Version("13.2.0")]
    assert install_ptxas("13.2") == install_ptxas("13.2.0")
    assert entries(empty_cache) == ["ptxas-13.2.0"]
    assert str(select_versions(PTXAS, "13.2")[0]) == "13.2.0"


def test_uv_is_missing(served: LocalIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> str:
        raise FileNotFoundError

    monkeypatch.setattr("uv.find_uv_bin", missing)
    with pytest.raises(InfrastructureError, match="executable of uv is missing"):
        install_ptxas("13.1.115")


def test_yanked_is_found_by_name_only(served: LocalIndex) -> None:
    served.add(*tool_wheel("13.1.1"), yanked=True)
    assert Version("13.1.1") not in [wheel.version for wheel in available_wheels(PTXAS)]
    assert select_versions(PTXAS, "13.1.1") == [Version("13.1.1")]
    assert install_ptxas("13.1.1").version == "13.1.1"


def test_two_racing_installs_both_succeed(served: LocalIndex, empty_cache: Path) -> None:
    file, stall = stalled_file(served)
    racers = [start_install("13.1.115") for _ in range(2)]
    assert file.asked.wait(120)
    time.sleep(0.5)
    stall.set()
    answers = [racer.communicate(timeout=60) for racer in racers]
    assert [racer.returncode for racer in racers] == [0, 0], answers
    assert answers[0][0] == answers[1][0]
    assert file.gets == 1
    assert entries(empty_cache) == ["ptxas-13.1.115"]


def test_killed_install_is_cleaned_by_the_next(served: LocalIndex, empty_cache: Path) -> None:
    file, stall = stalled_file(served)
    victim = start_install("13.1.115")
    assert file.asked.wait(120)
    os.kill(victim.pid, signal.SIGKILL)
    victim.communicate(timeout=120)
    (left,) = entries(empty_cache)
    assert left.startswith(".partial-ptxas-13.1.115-")
    file.status = 500
    stall.set()
    until_no_child_works_in(left)
    file.status = 200
    # Any install cleans, not only one of the same version.
    install_ptxas("13.0.88")
    assert entries(empty_cache) == ["ptxas-13.0.88"]
    assert install_ptxas("13.1.115").path.is_file()
    assert entries(empty_cache) == ["ptxas-13.0.88", "ptxas-13.1.115"]


def until_no_child_works_in(folder: str) -> None:
    """The uv of a killed install runs on until its download ends."""
    deadline = time.monotonic() + 120
    while any(folder.encode() in command_line(path) for path in Path("/proc").glob("[0-9]*")):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def command_line(process: Path) -> bytes:
    try:
        return (process / "cmdline").read_bytes()
    except OSError:
        return b""


def test_uv_dies_with_an_install_that_is_killed(served: LocalIndex, empty_cache: Path) -> None:
    file, stall = stalled_file(served)
    victim = start_install("13.1.115")
    assert file.asked.wait(120)
    (left,) = entries(empty_cache)
    os.kill(victim.pid, signal.SIGKILL)
    victim.communicate(timeout=120)
    # Nothing is served to it: by itself it would wait.
    until_no_child_works_in(left)
    stall.set()


def test_child_that_outlives_a_killed_install(served: LocalIndex, empty_cache: Path) -> None:
    file, stall = stalled_file(served)
    victim = start_install("13.1.115")
    assert file.asked.wait(120)
    os.kill(victim.pid, signal.SIGKILL)
    victim.communicate(timeout=120)
    (left,) = entries(empty_cache)
    file.stall = None
    install_ptxas("13.0.88")
    stall.set()
    assert install_ptxas("13.1.115").path.is_file()
    until_no_child_works_in(left)
    install_nvdisasm()
    assert entries(empty_cache) == ["nvdisasm-13.5.37", "ptxas-13.0.88", "ptxas-13.1.115"]


def test_living_install_is_not_cleaned(served: LocalIndex, empty_cache: Path) -> None:
    file, stall = stalled_file(served)
    slow = start_install("13.1.115")
    assert file.asked.wait(120)
    install_ptxas("13.0.88")
    stall.set()
    out, err = slow.communicate(timeout=60)
    assert slow.returncode == 0, err
    assert "13.1.115" in out
    assert entries(empty_cache) == ["ptxas-13.0.88", "ptxas-13.1.115"]


def test_foreign_partial_folder_is_left_alone(served: LocalIndex, empty_cache: Path) -> None:
    foreign = empty_cache / "toolchains" / ".partial-ptxas-13.1.115-01234567"
    foreign.mkdir(parents=True)
    (foreign / "thesis.txt").touch()
    install_ptxas("13.1.115")
    assert (foreign / "thesis.txt").exists()


def test_something_foreign_in_the_way(served: LocalIndex, empty_cache: Path) -> None:
    (empty_cache / "toolchains" / "ptxas-13.1.115").mkdir(parents=True)
    with pytest.raises(UsageError, match="in the way"):
        install_ptxas("13.1.115")


def failing_install(expected: type[Exception], match: str, cache: Path) -> str:
    with pytest.raises(expected, match=match) as caught:
        install_ptxas("7.0.1")
    assert "\n" not in str(caught.value)
    assert "127.0.0.1" not in str(caught.value)
    assert entries(cache) == []
    return str(caught.value)


def test_wrong_sha256(local_index: LocalIndex, empty_cache: Path) -> None:
    local_index.add(*tool_wheel("7.0.1"), sha256="0" * 64)
    failing_install(IntegrityError, f"with sha256 [0-9a-f]{{64}}, not {'0' * 64}", empty_cache)


def test_truncated_download(local_index: LocalIndex, empty_cache: Path) -> None:
    served = local_index.add(*tool_wheel("7.0.1"))
    served.sent = 200
    failing_install(InfrastructureError, "nvidia-cuda-nvcc 7.0.1", empty_cache)
    served.sent = None
    assert install_ptxas("7.0.1").path.is_file()


def test_corrupted_wheel(local_index: LocalIndex, empty_cache: Path) -> None:
    name, body = tool_wheel("7.0.1")
    local_index.add(name, body[:-60] + b"\0" * 60)
    failing_install(InfrastructureError, "uv cannot install nvidia-cuda-nvcc 7.0.1", empty_cache)


def test_index_goes_away(local_index: LocalIndex, empty_cache: Path) -> None:
    local_index.add(*tool_wheel("7.0.1"))
    available_wheels(PTXAS)
    local_index.down = True
    failing_install(OfflineError, "cannot download nvidia-cuda-nvcc 7.0.1", empty_cache)


def test_wheel_without_the_tool(local_index: LocalIndex, empty_cache: Path) -> None:
    local_index.add(*wheel("nvidia_cuda_nvcc", "7.0.1", {"nvidia/readme": ""}, tag=LINUX))
    failing_install(InfrastructureError, "holds no ptxas", empty_cache)


def test_executable_that_says_another_version(local_index: LocalIndex, empty_cache: Path) -> None:
    local_index.add(*tool_wheel("7.0.1", says="Cuda compilation tools, release 6.0, V6.0.1"))
    failing_install(InfrastructureError, r"reports 6\.0\.1", empty_cache)


def test_offline(
    local_index: LocalIndex, empty_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    local_index.add(*tool_wheel("7.0.1"))
    monkeypatch.setenv("TRIAGE_OFFLINE", "1")
    failing_install(OfflineError, "TRIAGE_OFFLINE", empty_cache)
    monkeypatch.delenv("TRIAGE_OFFLINE")
    available_wheels(PTXAS)
    monkeypatch.setenv("TRIAGE_OFFLINE", "1")
    failing_install(OfflineError, "not installed and TRIAGE_OFFLINE forbids", empty_cache)


@pytest.mark.parametrize(
    ("stderr", "error", "words"),
    [
        (
            """\
error: Failed to download `x`
  cause: failed to write to file `/c/x`: No space left on device (os error 28)
""",
            StorageError,
            "the disk is full",
        ),
        (
            """\
error: Failed to initialize cache at `/c`
  cause: Permission denied (os error 13)
""",
            StorageError,
            "Permission denied",
        ),
        (
            """\
  \N{MULTIPLICATION SIGN} Failed to fetch
  ├─▶ error sending request for url (https://u:p@h/x)
  ╰─▶ Connection refused (os error 111)
""",
            OfflineError,
            "Connection refused",
        ),
        (
            """\
error: No solution found
  cause: Because a is not at (https://u:p@h/x) there is none.

hint: try https://u:p@h/y
""",
            InfrastructureError,
            "Because a is not at ((address)) there is none",
        ),
    ],
)
def test_what_uv_says(
    stderr: str, error: type[Exception], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TRIAGE_OFFLINE", raising=False)
    failure = wheel_install._failure("x 1.0", stderr, "exit code 1")
    assert type(failure) is error
    assert words in str(failure)
    assert "\n" not in str(failure)
    assert "u:p" not in str(failure)


def test_verify(served: LocalIndex) -> None:
    ptxas = install_ptxas("13.1.115")
    assert verify("ptxas-13.1.115").executable_sha256 == ptxas.sha256
    ptxas.path.write_text("#!/bin/sh\n")
    with pytest.raises(IntegrityError, match=r"ptxas-13\.1\.115 was changed"):
        verify("ptxas-13.1.115")
    ptxas.path.unlink()
    with pytest.raises(IntegrityError, match="was changed"):
        verify("ptxas-13.1.115")
    triton = install_triton("3.6.0")
    assert triton.path is not None
    (triton.path / "triton" / "__init__.py").write_text("__version__ = '3.6.0'")
    with pytest.raises(IntegrityError, match=r"__init__\.py"):
        verify("triton-3.6.0")


def test_remove(served: LocalIndex, empty_cache: Path) -> None:
    install_ptxas("13.1.115")
    install_ptxas("13.0.88")
    assert [each.name for each in list_installed()] == ["ptxas-13.0.88", "ptxas-13.1.115"]
    remove("ptxas-13.1.115")
    assert entries(empty_cache) == ["ptxas-13.0.88"]
    with pytest.raises(UsageError, match=r"not installed; installed: ptxas-13\.0\.88"):
        remove("ptxas-13.1.115")


@pytest.mark.parametrize("name", ["..", "ptxas-../..", "ptxas-", "gcc-1.0", ".locks", "ptxas-1/2"])
def test_remove_refuses_other_names(served: LocalIndex, empty_cache: Path, name: str) -> None:
    install_ptxas("13.1.115")
    with pytest.raises(UsageError, match="not the name of a toolchain"):
        remove(name)
    assert entries(empty_cache) == ["ptxas-13.1.115"]


def test_remove_refuses_what_is_not_ours(empty_cache: Path) -> None:
    folder = empty_cache / "toolchains" / "ptxas-1.0"
    folder.mkdir(parents=True)
    (folder / "thesis.txt").touch()
    with pytest.raises(UsageError, match="not deleted"):
        remove("ptxas-1.0")
    elsewhere = empty_cache / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / MARKER).touch()
    folder.with_name("ptxas-2.0").symlink_to(elsewhere)
    with pytest.raises(UsageError, match="not deleted"):
        remove("ptxas-2.0")
    assert (folder / "thesis.txt").exists()
    assert (elsewhere / MARKER).exists()


def test_damaged_marker(served: LocalIndex, empty_cache: Path) -> None:
    install_ptxas("13.1.115")
    (empty_cache / "toolchains" / "ptxas-13.1.115" / MARKER).write_text("{")
    install_ptxas("13.0.88")
    assert [each.name for each in list_installed()] == ["ptxas-13.0.88"]
    [(name, error)] = list_damaged().items()
    assert name == "ptxas-13.1.115"
    assert "marker of ptxas-13.1.115 is damaged" in str(error)
    with pytest.raises(StorageError, match="is damaged"):
        install_ptxas("13.1.115")
    with pytest.raises(StorageError, match="is damaged"):
        verify("ptxas-13.1.115")
    remove("ptxas-13.1.115")
    assert install_ptxas("13.1.115").version == "13.1.115"


READ_ONLY = """
from harness.io.toolchains.install import describe_ptxas, install_ptxas
from harness.io.toolchains.installed import list_installed
from harness.io.toolchains.install import available_wheels
from harness.values.errors import StorageError
print(install_ptxas("13.1.115").version, len(list_installed()))
print(describe_ptxas(install_ptxas("13.1.115").path, "bundled").version)
print(len(available_wheels("ptxas")))
try:
    install_ptxas("13.0.88")
except StorageError as error:
    print(error)
"""


def test_read_only_cache(served: LocalIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    # Root may write anywhere, unless it gives up the right to.
    shared = Path(tempfile.mkdtemp(prefix="read-only-"))
    try:
        monkeypatch.setenv("TRIAGE_CACHE_DIR", str(shared / "cache"))
        available_wheels(PTXAS)
        install_ptxas("13.1.115")
        for path in (shared, *shared.rglob("*")):
            path.chmod(0o555 if path.is_dir() or path.parent.name == "bin" else 0o444)
        bound = ["setpriv", "--bounding-set", "-dac_override,-dac_read_search"]
        child = subprocess.run(
            [*(bound if os.getuid() == 0 else []), sys.executable, "-c", READ_ONLY],
            capture_output=True,
            text=True,
            timeout=60,
        )
        lines = child.stdout.splitlines()
        assert lines[:3] == ["13.1.115 1", "13.1.115", "3"], child.stderr
        assert "read-only for this user" in lines[3]
    finally:
        for path in (shared, *shared.rglob("*")):
            path.chmod(0o755)
        shutil.rmtree(shared)


def test_locations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TRIAGE_CACHE_DIR", "sub/cache")
    monkeypatch.delenv("TRIAGE_HOME", raising=False)
    assert locations.cache_dir() == tmp_path / "sub" / "cache"
    assert locations.home_dir() == tmp_path / ".triage"
    (tmp_path / "file").touch()
    monkeypatch.setenv("TRIAGE_HOME", str(tmp_path / "file" / "x"))
    with pytest.raises(StorageError, match="Not a directory; check it or set TRIAGE_HOME"):
        locations.home_dir()


def test_describe_ptxas_runs_it_once(
    empty_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs, tool = tmp_path / "runs", tmp_path / "ptxas"
    monkeypatch.setenv("FAKE_TOOL_RUNS", str(runs))

    def says(version: str) -> str:
        banner = f"Cuda compilation tools, release 1.0, V{version}"
        return f'#!/bin/sh\necho run >> "$FAKE_TOOL_RUNS"\necho "{banner}"\n'

    tool.write_text(says("1.0.5"))
    tool.chmod(0o755)
    first = describe_ptxas(tool, "bundled")
    assert (first.version, first.build, first.label) == ("1.0.5", "", "1.0.5-bundled")
    assert describe_ptxas(tool, "bundled") == first
    os.utime(tool, (1, 1))
    assert describe_ptxas(tool, "bundled") == first
    assert runs.read_text().count("run") == 1
    tool.write_text(says("1.0.6"))
    assert describe_ptxas(tool, "bundled").version == "1.0.6"
    tool.write_text("#!/bin/sh\nexit 3\n")
    with pytest.raises(InfrastructureError, match="exit code 3"):
        describe_ptxas(tool, "bundled")
    with pytest.raises(StorageError, match="cannot read"):
        describe_ptxas(tmp_path / "none", "bundled")


@pytest.mark.parametrize("name", ["torch", "numpy", "triton", "click"])
def test_versions_of_packages_beside_triage(name: str) -> None:
    assert version_beside(name) == importlib.metadata.version(name)


def test_installed_triton(monkeypatch: pytest.MonkeyPatch) -> None:
    triton = installed_triton()
    assert (triton.origin, triton.path) == ("installed", None)
    assert triton.version == importlib.metadata.version("triton")

    monkeypatch.setattr(sys, "path", [])
    with pytest.raises(InfrastructureError, match="no Triton is installed"):
        installed_triton()
