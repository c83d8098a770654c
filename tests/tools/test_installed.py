"""The wheels in an environment of their own, used from a folder elsewhere: first without torch."""

from __future__ import annotations

import os
import shutil
import subprocess
import venv
import zipfile
from pathlib import Path

import msgspec
import pytest
import uv
from conftest import HERE

from harness.io.packages.wheels import shared_packages

pytestmark = [pytest.mark.tools, pytest.mark.long]
ROOT = HERE.parent
PTX = """\
.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 out)
{ .reg .b64 %rd<2>; .reg .b32 %r<2>;
  ld.param.u64 %rd1, [out]; mov.u32 %r1, 7; st.global.u32 [%rd1], %r1; ret; }
"""


class Installed:
    """An environment with both wheels, and an empty folder to work in."""

    def __init__(self, folder: Path, wheels: list[Path], caches: Path) -> None:
        self.folder = folder / "elsewhere"
        self.folder.mkdir()
        venv.create(folder / "env", symlinks=True)
        python = folder / "env" / "bin" / "python"
        self.site = next((folder / "env").glob("lib/python*/site-packages"))
        words = [uv.find_uv_bin(), "pip", "install", "--quiet", "--python", str(python)]
        subprocess.run([*words, *map(str, wheels)], check=True, timeout=600)
        ours = ("PYTHONPATH", "VIRTUAL_ENV", "TRIAGE_")
        env = {name: text for name, text in os.environ.items() if not name.startswith(ours)}
        self.env = {
            **env,
            "PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}",
            "TRIAGE_CACHE_DIR": str(caches),
            "COLUMNS": "200",
        }

    def triage(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [shutil.which("triage", path=self.env["PATH"]) or "", *words],
            cwd=self.folder,
            env=self.env,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """As `make dist` makes them: of the sdists."""
    folder = tmp_path_factory.mktemp("dist")
    words = ["build", "--quiet", "--all-packages", "--out-dir", str(folder)]
    subprocess.run([uv.find_uv_bin(), *words], cwd=ROOT, check=True, timeout=600)
    made = sorted(folder.glob("*.whl"))
    assert [wheel.name.partition("-")[0] for wheel in made] == ["gpu_emulator", "kernel_triage"]
    return made


@pytest.fixture(scope="module")
def installed(
    wheels: list[Path], toolchain_cache: Path, tmp_path_factory: pytest.TempPathFactory
) -> Installed:
    return Installed(tmp_path_factory.mktemp("installed"), wheels, toolchain_cache)


def test_a_wheel_holds_our_data_and_no_more(wheels: list[Path]) -> None:
    for wheel in wheels:
        names = zipfile.ZipFile(wheel).namelist()
        tops = {name.partition("/")[0] for name in names if ".dist-info/" not in name}
        assert tops in ({"harness"}, {"gpu_emulator"})
        assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)
    data = [name for name in names if name.startswith("harness/data/")]
    for folder in ("repros", "templates"):
        tracked = [path for path in (ROOT / folder).rglob("*") if path.is_file()]
        kept = {name.removeprefix("harness/data/") for name in data}
        missing = {str(path.relative_to(ROOT)) for path in tracked if path.suffix != ".pyc"} - kept
        assert missing == set()


def test_without_torch(installed: Installed) -> None:
    (installed.folder / "k.ptx").write_text(PTX)
    assert "version" in installed.triage("--version").stdout
    done = installed.triage("compile", "--kernel", "k.ptx", "--sm", "80", "--ptxas", "13.1.115")
    assert done.returncode == 0, done.stderr
    assert "1 config: 1 compiles." in done.stdout
    kernels = msgspec.json.decode(installed.triage("kernels", "--json").stdout)
    assert len(kernels["kernels"]) > 100
    done = installed.triage("site", "--out", "pages")
    assert done.returncode == 0, done.stderr
    assert (installed.folder / "pages" / "index.html").is_file()
    # What needs it says so, before it installs anything.
    for kernel, words in (
        ("liger_geglu_fwd", "torch is not installed beside triage, and launch code needs it"),
        ("mamba3_mimo_fwd", "torch is not installed beside triage, and a compiler shares it"),
    ):
        done = installed.triage("compile", "--kernel", kernel, "--sm", "90a")
        assert (done.returncode, done.stdout) == (4, "")
        assert words in done.stderr.splitlines()[-1]
        assert "Traceback" not in done.stderr


def test_with_the_torch_that_is_here(installed: Installed) -> None:
    for package in shared_packages(["torch", "triton"]):
        info = f"{package.name.replace('-', '_')}-{package.version}.dist-info"
        for entry in {*package.entries, *(each.parent / info for each in package.entries)}:
            if entry.exists() and not (installed.site / entry.name).exists():
                (installed.site / entry.name).symlink_to(entry)
    kernel = (HERE / "kernels" / "small.py").read_text()
    (installed.folder / "small.py").write_text(kernel)
    done = installed.triage("compile", "small.py", "--sm", "80")
    assert done.returncode == 0, done.stderr
    assert "compile" in done.stdout
