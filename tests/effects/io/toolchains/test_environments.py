"""Compilers in virtual environments of their own, from small wheels of an index on this machine."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import msgspec
import pytest
from local_index import LocalIndex, wheel
from msgspec import structs
from msgspec.structs import replace

from harness.frontends.bench import Workbench
from harness.frontends.sessions import run_program
from harness.io.packages import wheels as beside
from harness.io.packages import wheels as wheel_install
from harness.io.packages.wheels import shared_packages
from harness.io.processes.hub import Hub, ResourceLimits
from harness.io.toolchains.environments import (
    environments_of,
    install_environment,
    planned_environment,
)
from harness.io.toolchains.install import verify
from harness.io.toolchains.installed import VENV, list_damaged, list_installed, remove, site_of
from harness.store.store import Store
from harness.values.errors import (
    InfrastructureError,
    IntegrityError,
    OfflineError,
    StorageError,
    UsageError,
)
from harness.values.toolchain import Compiler, Environment, PackagePin

pytest_plugins = ("local_index_fixtures",)

INSTALL = (
    "import sys, msgspec; from harness.io.toolchains.environments import install_environment; "
    "from harness.values.toolchain import Environment; "
    "print(install_environment(msgspec.json.decode(sys.argv[1], type=Environment)).python)"
)
BREW = "import beans\n__version__ = {version!r}\ndef make():\n    return beans.KIND\n"


def declared(version: str = "1.0", beans: str = "3.1", **more: object) -> Environment:
    pins = PackagePin(name="brew", version=version), PackagePin(name="beans", version=beans)
    made = Environment(kind="brew", version=version, pins=pins, imports=("brew",))
    return structs.replace(made, **more)


@pytest.fixture
def served(local_index: LocalIndex, empty_cache: Path) -> LocalIndex:
    for version in ("1.0", "2.0"):
        # What it asks for is not looked at: the pins are all that there is.
        files = {"brew/__init__.py": BREW.format(version=version)}
        local_index.add(*wheel("brew", version, files, requires=("beans>=99", "sugar")))
    for version in ("3.0", "3.1"):
        code = f"KIND = 'beans of {version}'\n"
        local_index.add(*wheel("beans", version, {"beans/__init__.py": code}))
    return local_index


def entries(cache: Path) -> list[str]:
    return sorted(p.name for p in (cache / "toolchains").glob("*") if p.name != ".locks")


def says(compiler: Compiler, code: str) -> str:
    done = subprocess.run(
        [str(compiler.python), "-I", "-c", code], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def start_install(environment: Environment) -> subprocess.Popen[str]:
    words = [sys.executable, "-c", INSTALL, msgspec.json.encode(environment).decode()]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_an_environment_holds_its_pins_and_nothing_of_ours(
    served: LocalIndex, empty_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    brew = install_environment(declared())
    assert planned_environment(declared()) == brew
    assert (brew.label, brew.origin, brew.partners) == ("brew-1.0", "brew", ("beans==3.1",))
    assert brew.path is None
    assert says(brew, "import brew; print(brew.make())") == "beans of 3.1"
    with pytest.raises(subprocess.CalledProcessError):
        says(brew, "import msgspec")
    (name,) = entries(empty_cache)
    assert name == f"brew-1.0-e{(brew.sha256 or '')[:12]}"
    # A warm start asks nobody and runs nothing.
    served.down = True
    monkeypatch.setenv("TRIAGE_OFFLINE", "1")
    with monkeypatch.context() as patch:
        patch.setattr(wheel_install, "run_tool", None)
        assert install_environment(declared()) == brew
    with pytest.raises(OfflineError, match="TRIAGE_OFFLINE"):
        install_environment(declared("2.0"))
    assert entries(empty_cache) == [name]


def test_partners_are_part_of_what_it_is(served: LocalIndex, empty_cache: Path) -> None:
    old, new = install_environment(declared(beans="3.0")), install_environment(declared())
    assert old.version == new.version
    assert old.identity != new.identity
    assert says(old, "import brew; print(brew.make())") == "beans of 3.0"
    assert says(new, "import brew; print(brew.make())") == "beans of 3.1"
    assert {each.dependencies for each in environments_of("brew")} == {
        ("beans==3.0",),
        ("beans==3.1",),
    }
    assert environments_of("tea") == []
    with pytest.raises(UsageError, match="several partners; name one of brew"):
        verify("brew-1.0")
    remove(next(each.name for each in environments_of("brew") if "3.0" in each.dependencies[0]))
    (left,) = list_installed()
    assert verify("brew-1.0").name == left.name == entries(empty_cache)[0]
    (site_of(left.path / VENV) / "beans" / "__init__.py").write_text("KIND = 'tea'\n")
    with pytest.raises(IntegrityError, match="was changed since it was installed"):
        verify(left.name)


def test_shared_packages_are_linked_and_counted(
    served: LocalIndex, empty_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = install_environment(declared())
    brew = install_environment(declared(shared=("markdown-it-py",)))
    assert brew.sha256 != plain.sha256
    names = [each.partition("==")[0] for each in brew.partners]
    assert names == ["beans", "markdown-it-py", "mdurl"]
    assert says(brew, "import markdown_it, mdurl; print(mdurl.__name__)") == "mdurl"
    with pytest.raises(subprocess.CalledProcessError):
        says(plain, "import markdown_it")
    assert verify(f"brew-1.0-e{(brew.sha256 or '')[:12]}").shared == brew.partners[1:]
    # Another version of what is shared is another environment.
    (package,) = (each for each in shared_packages(["mdurl"]))
    newer = replace(package, version="99", record="another")
    monkeypatch.setattr(beside, "_shared", lambda name, found: newer)
    assert planned_environment(declared(shared=("mdurl",))).partners[-1] == "mdurl==99"
    with pytest.raises(InfrastructureError, match="no-such-package is not installed beside triage"):
        install_environment(declared(shared=("no_such_package",)))


def test_what_is_shared_may_go(
    served: LocalIndex, empty_cache: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "mint.py").write_text("")
    (package,) = shared_packages(["mdurl"])
    theirs = replace(package, entries=(tmp_path / "mint.py",))
    with monkeypatch.context() as patch:
        patch.setattr(beside, "_shared", lambda name, found: theirs)
        lost = install_environment(declared(shared=("mdurl",)))
    assert [each.version for each in environments_of("brew")] == ["1.0"]
    # As the environment of another triage that has the same cache.
    (tmp_path / "mint.py").unlink()
    assert environments_of("brew") == list_installed() == []
    ((name, error),) = list_damaged().items()
    assert name in str(lost.python)
    assert "shares mint.py with a triage that is gone" in str(error)
    new = install_environment(declared(shared=("mdurl",)))
    assert [each.name for each in environments_of("brew")] != [name]
    assert says(new, "import mdurl; print(mdurl.__name__)") == "mdurl"
    remove(name)
    assert list_damaged() == {}


def test_what_cannot_be_installed_leaves_nothing(
    served: LocalIndex, empty_cache: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    served.add(*wheel("beans", "3.2", {"beans/__init__.py": "import no_such_module\n"}))
    dies = "import os, signal\nos.kill(os.getpid(), signal.SIGABRT)\n"
    served.add(*wheel("brew", "3.0", {"brew/__init__.py": dies}))
    with pytest.raises(UsageError, match=r"there is no wheel of beans 4; the nearest is 3\.2"):
        install_environment(declared(beans="4"))
    with pytest.raises(InfrastructureError, match=r"Python 3\.1\.1"):
        install_environment(declared(python="3.1.1"))
    with pytest.raises(InfrastructureError, match=r"beside beans==3\.2 \(ModuleNotFoundError"):
        install_environment(declared(beans="3.2"))
    with pytest.raises(InfrastructureError, match=r"brew-3\.0 cannot be imported.*SIGABRT"):
        install_environment(declared("3.0", beans="3.0"))
    full = tmp_path / "uv"
    full.write_text("#!/bin/sh\necho 'error: No space left on device (os error 28)' >&2\nexit 2\n")
    full.chmod(0o755)
    monkeypatch.setattr("uv.find_uv_bin", lambda: str(full))
    with pytest.raises(StorageError, match="the disk is full"):
        install_environment(declared())
    assert entries(empty_cache) == []


def test_wrong_sha256(served: LocalIndex, empty_cache: Path) -> None:
    served.projects["beans"]["beans-3.1-py3-none-any.whl"].sha256 = "0" * 64
    with pytest.raises(IntegrityError, match="was downloaded with sha256"):
        install_environment(declared())
    assert entries(empty_cache) == []


def test_racing_and_killed_installs(served: LocalIndex, empty_cache: Path) -> None:
    file = served.projects["beans"]["beans-3.1-py3-none-any.whl"]
    file.stall = threading.Event()
    victim = start_install(declared())
    assert file.asked.wait(120)
    os.kill(victim.pid, signal.SIGKILL)
    victim.communicate(timeout=120)
    file.stall.set()
    file.stall = None
    racing = [start_install(declared()) for _ in range(2)]
    answers = [each.communicate(timeout=120) for each in racing]
    assert [each.returncode for each in racing] == [0, 0], answers
    assert answers[0][0] == answers[1][0]
    assert file.gets <= 2
    assert [each.startswith("brew-1.0-e") for each in entries(empty_cache)] == [True]


async def _asked(folder: Path, program: Path, compiler: Compiler) -> list[object]:
    with Store.open(folder / "store") as store:
        async with Hub() as hub:
            limits = ResourceLimits(timeout=60, memory=1 << 30)
            bench = Workbench(hub=hub, store=store, sessions=None, jobs=1, limits=limits)  # type: ignore[arg-type]
            done = await run_program(bench, compiler, program, {"sugar": 2})
            return [done.end.exit_code, done.result, (done.folder / "stdout").read_text()]


def test_a_child_program_runs_in_it(
    served: LocalIndex, empty_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "child.py"
    program.write_text(
        "import json, os, brew\n"
        "asked = json.load(open('request.json'))\n"
        "print(os.environ.get('SECRET_TOKEN'))\n"
        "json.dump({'made': brew.make(), **asked}, open('answer.json', 'w'))\n"
    )
    monkeypatch.setenv("SECRET_TOKEN", "mine")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    brew = install_environment(declared())
    made = asyncio.run(_asked(tmp_path, program, brew))
    assert made == [0, {"made": "beans of 3.1", "sugar": 2}, "None\n"]
    program.write_text(
        "import json\njson.dump([1], open('answer.json', 'w'))\nraise SystemExit(3)\n"
    )
    assert asyncio.run(_asked(tmp_path, program, brew)) == [3, None, ""]
    # An interpreter that went away is said in one line.
    missing = structs.replace(brew, python=tmp_path / "none")
    with pytest.raises(InfrastructureError, match="cannot start"):
        asyncio.run(_asked(tmp_path, program, missing))
    assert json.loads(
        (
            empty_cache / "toolchains" / entries(empty_cache)[0] / ".triage-toolchain.json"
        ).read_text()
    )["banner"].startswith("Python 3.")
