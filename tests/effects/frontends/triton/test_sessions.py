"""Capture and lower with the Triton beside us: what launch code may do, and cannot spoil."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import threading
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from harness.frontends import sessions
from harness.frontends.bench import Workbench
from harness.frontends.registry import OpenSessions
from harness.frontends.sessions import CaptureRequest, LaunchCode, LaunchSessions
from harness.frontends.triton.front_end import TRITON_FRONT_END
from harness.io.processes.hub import Hub, ResourceLimits
from harness.io.toolchains.install import describe_ptxas, installed_triton
from harness.store.store import Store
from harness.values.errors import CaptureError, InfrastructureError
from harness.values.limits import limits_of
from harness.values.outcome import Reads
from harness.values.target import Target
from harness.values.toolchain import BUNDLED, Compiler

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator

    from harness.frontends.sessions import JobResult
    from harness.values.outcome import Capture, Lowering

pytestmark = pytest.mark.tools

KERNELS = Path(__file__).parents[3] / "kernels"
ROOMY = ResourceLimits(timeout=120, memory=4 << 30)
CAPTURE_SECONDS = 60.0


open_sessions = partial(OpenSessions, timeout=CAPTURE_SECONDS, memory=0)


def lower(
    sessions: LaunchSessions,
    key: str,
    triton: Compiler,
    request: CaptureRequest,
    *,
    record: str,
    limits: ResourceLimits,
) -> Coroutine[Any, Any, JobResult]:
    """Compile one record as far as PTX, with the ptxas that this Triton picks."""
    asked = {"op": "lower", "key": record, "limits": limits.message()}
    message = {**asked, "ptxas": None, "dump": False}
    return sessions.run_job(triton, message, (key, request))


@dataclass
class Children:
    """One hub, and one server, for all tests of this module; it lives in a loop of its own."""

    loop: asyncio.AbstractEventLoop
    hub: Hub
    sessions: LaunchSessions

    def do(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(300)

    def request(self, file: str | Path, function: str | None, capability: int) -> CaptureRequest:
        limits = limits_of(capability)
        assert limits
        return CaptureRequest(
            file=KERNELS / file,
            function=function,
            overrides={},
            capability=capability,
            limits=limits,
        )

    def capture(
        self, file: str | Path, function: str | None = "launch", capability: int = 80
    ) -> Capture:
        key = f"{file}::{function}@{capability}"
        request = self.request(file, function, capability)
        found: Capture = self.do(self.sessions.capture(key, installed_triton(), request))
        return found

    def lower(
        self,
        file: str | Path,
        function: str | None = "launch",
        capability: int = 80,
        limits: ResourceLimits = ROOMY,
    ) -> list[JobResult]:
        key = f"{file}::{function}@{capability}"
        request = self.request(file, function, capability)
        records = self.capture(file, function, capability).records
        return [
            self.do(
                lower(
                    self.sessions, key, installed_triton(), request, record=each.key, limits=limits
                )
            )
            for each in records
        ]


@pytest.fixture(scope="module")
def children() -> Iterator[Children]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    hub = Hub()
    made = Children(loop, hub, open_sessions(hub))
    made.do(hub.__aenter__())
    yield made
    made.do(hub.__aexit__())
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


def ptx_of(result: JobResult) -> str:
    assert result.end.ok, (result.end, (result.folder / "stderr").read_text()[-2000:])
    assert result.result is not None
    assert result.result["error"] is None
    (file,) = result.folder.glob("cache/*/*.ptx")
    return file.read_text()


def test_a_plain_launch(children: Children) -> None:
    found = children.capture("plain.py")
    (record,) = found.records
    assert (record.kernel, record.config, record.autotuned) == ("double", {"BLOCK": 128}, False)
    assert record.grid == [8]
    assert found.error is None
    assert found.triton == installed_triton().version
    assert Path(found.ptxas).name.startswith("ptxas")
    assert found.reads == Reads()
    (result,) = children.lower("plain.py")
    assert ".visible .entry double(" in ptx_of(result)
    assert ".target sm_80" in ptx_of(result)
    assert result.result is not None
    assert "--gpu-name=sm_80" in result.result["flags"]
    assert result.result["metadata"]["num_warps"] == 4
    assert result.result["metadata"]["shared"] == 0
    assert {"ttir", "ttgir", "llir", "ptx"} <= result.result["seconds"].keys()


def test_injected_configs_take_the_place_of_the_tuners_own(children: Children) -> None:
    injected = {"prun*": [{"BLOCK": 32, "num_warps": 1, "maxnreg": 64}, {"BLOCK": 4096}]}
    request = replace(children.request("tuned.py", "launch", 80), injected=injected)
    sessions, triton = children.sessions, installed_triton()
    # The launch asserts what its own configs lead to; by then they all have been seen.
    found = children.do(sessions.capture("injected", triton, request))
    [record] = found.records
    # The kernel's own pruning still has its say.
    assert found.pruned == {"pruned": (1, 2)}
    assert {**record.config, "num_stages": 0} == {
        "BLOCK": 32, "num_warps": 1, "num_stages": 0, "maxnreg": 64
    }  # fmt: skip
    assert record.grid == [32]
    done = children.do(
        lower(sessions, "injected", triton, request, record=record.key, limits=ROOMY)
    )
    assert ".maxnreg 64" in ptx_of(done)
    # The next capture knows nothing of it.
    assert len(children.capture("tuned.py").records) == 4


def test_injected_options_of_a_kernel_without_a_tuner(children: Children) -> None:
    injected = {"double": [{"BLOCK": 64, "num_warps": 8}, {"maxnreg": 128}]}
    request = replace(children.request("plain.py", "launch", 80), injected=injected)
    found = children.do(children.sessions.capture("options", installed_triton(), request))
    configs = [record.config for record in found.records]
    # Its meta-parameters are the launch's to choose.
    assert configs == [
        {"BLOCK": 128, "num_warps": 8},
        {"BLOCK": 128, "maxnreg": 128},
        {"BLOCK": 128},
    ]
    assert not any(record.autotuned for record in found.records)


def test_autotune_with_a_pruning_function(children: Children) -> None:
    found = children.capture("tuned.py")
    assert found.error is None
    assert found.pruned == {"pruned": (4, 6)}
    configs = [(r.config["BLOCK"], r.config["num_warps"]) for r in found.records]
    assert configs == [(64, 2), (64, 4), (256, 2), (256, 4)]
    assert all(record.autotuned and "num_ctas" not in record.config for record in found.records)
    assert [record.grid for record in found.records] == [[16], [16], [4], [4]]
    warps = [".reqntid 64" in ptx_of(each) for each in children.lower("tuned.py")]
    assert warps == [True, False, True, False]


def test_heuristics_and_autotune_over_heuristics(children: Children) -> None:
    found = children.capture("tuned.py", "launch_heuristics")
    assert found.error is None
    texts = [ptx_of(each) for each in children.lower("tuned.py", "launch_heuristics")]
    assert ["0f40000000" in text or "1073741824" in text for text in texts] == [False, True]
    found = children.capture("tuned.py", "launch_both")
    assert [record.config["BLOCK"] for record in found.records] == [64, 128]
    assert [constexprs(record)["EVEN"] for record in found.records] == ["True", "False"]


def constexprs(record: Any) -> dict[str, str]:
    return {a["name"]: str(a["constexpr"]) for a in record.arguments if "constexpr" in a}


def test_one_server_shows_each_target_its_own_capability(children: Children) -> None:
    (a,) = children.lower("tensors.py", capability=80)
    (h,) = children.lower("tensors.py", capability=90)
    (b,) = children.lower("tensors.py", capability=100)
    assert ".target sm_80" in ptx_of(a)
    assert ".target sm_90a" in ptx_of(h)
    assert ".target sm_100a" in ptx_of(b)
    # 9.0 and 7.0: the constant was decided when the module was imported.
    nine = "1091567616"
    assert [nine in ptx_of(result) for result in (a, h, b)] == [False, True, False]


def test_views_keep_their_alignment(children: Children) -> None:
    found = children.capture("tensors.py", "launch_views")
    assert found.error is None
    seen = [(r.arguments[0]["tensor"], r.arguments[0]["aligned"]) for r in found.records]
    # The others launch code that was launched before.
    assert seen == [("float16", True), ("float16", False), ("float32", True)]
    assert len({record.key for record in found.records}) == len(found.records)


def test_what_stands_for_a_tensor_is_described_by_its_type(children: Children) -> None:
    found = children.capture("tensors.py", "launch_types")
    assert found.error is None
    assert [r.arguments[0]["tensor"] for r in found.records] == ["float16", "float32", "fp8e5"]
    assert found.passed_over == ""
    assert all(ptx_of(result) for result in children.lower("tensors.py", "launch_types"))


@pytest.mark.parametrize(
    ("file", "function", "kernels"),
    [
        ("tensors.py", "launch_devices", ["fill"]),
        ("tensors.py", "launch_backward", ["fill", "fill"]),
        ("tensors.py", "launch_item", ["fill"]),
        ("tensors.py", "launch_nonzero", ["fill"]),
        ("tensors.py", None, ["fill"]),
        ("descriptors.py", "launch", ["on_host"]),
        ("descriptors.py", "launch_device", ["on_device"]),
        ("trouble.py", "launch_exit_0", ["slow"]),
        ("trouble.py", "launch_prints", ["slow"]),
    ],
)
def test_launch_code_is_captured_and_lowered(
    children: Children, file: str, function: str | None, kernels: list[str]
) -> None:
    found = children.capture(file, function, 90)
    assert found.error is None, found.error.traceback
    assert [record.kernel for record in found.records] == kernels
    for result, kernel in zip(children.lower(file, function, 90), kernels, strict=True):
        assert f".entry {kernel}(" in ptx_of(result)


@pytest.mark.parametrize(
    ("function", "records", "kind", "says"), [("launch_raises", 1, "KeyError", "no such")]
)
def test_launch_code_that_raises_says_where_and_keeps_what_it_launched(
    children: Children, function: str, records: int, kind: str, says: str
) -> None:
    found = children.capture("tensors.py", function)
    assert found.error
    assert found.error.type == kind
    assert says in found.error.message
    lines = (KERNELS / "tensors.py").read_text().splitlines()
    assert found.error.line is not None
    assert found.error.line > lines.index(f"def {function}():")
    assert len(found.records) == records
    assert all(ptx_of(each) for each in children.lower("tensors.py", function))


def test_launch_code_that_leaves_is_an_error_with_its_code(children: Children) -> None:
    found = children.capture("trouble.py", "launch_exit")
    assert found.error
    assert (found.error.type, found.error.message, found.records) == ("SystemExit", "3", [])


@pytest.mark.parametrize(
    ("function", "says"),
    [("launch_abort", "died by SIGABRT"), ("launch_closes", "ended its process")],
)
def test_launch_code_that_takes_its_process_down(
    children: Children, function: str, says: str
) -> None:
    with pytest.raises(CaptureError, match=says):
        children.capture("trouble.py", function)
    # The server is still there.
    assert children.capture("plain.py").records


def test_launch_code_that_never_ends_or_eats_memory(children: Children) -> None:
    request = children.request("trouble.py", "launch_loop", 80)
    server = children.sessions._servers
    small = OpenSessions(children.hub, timeout=3, memory=900 << 20)
    small._servers = server
    error = children.do(small.capture("loop", installed_triton(), request)).error
    assert error.message.startswith("the launch code did not end within 3 s; it may compute")
    assert error.line
    # A call of C hears no signal.
    request = children.request("trouble.py", "launch_deaf", 80)
    with pytest.raises(CaptureError, match=r"trouble.py:\d+: .* did not end within 3 s"):
        children.do(small.capture("deaf", installed_triton(), request))
    # What was launched until then counts, where it hears of it the second time, too.
    for function in ("launch_and_loop", "launch_and_sulk"):
        request = children.request("trouble.py", function, 80)
        capture = children.do(small.capture(function, installed_triton(), request))
        assert (capture.error, capture.is_late, len(capture.records)) == (None, True, 1)
        assert re.match(
            r"trouble.py:\d+: the capture ends here: the launch code did not end within 3 s",
            capture.notes[0],
        )
    request = children.request("trouble.py", "launch_memory", 80)
    small._capture_timeout = 60
    with pytest.raises(CaptureError, match=r"killed at \d\.\d GiB"):
        children.do(small.capture("memory", installed_triton(), request))


def test_a_compilation_that_hangs_or_eats_memory_costs_only_itself(children: Children) -> None:
    key = "trouble.py::launch_slow@80"
    request = children.request("trouble.py", "launch_slow", 80)
    records = children.capture("trouble.py", "launch_slow").records
    limits = [
        ROOMY,
        ResourceLimits(timeout=3, memory=4 << 30),
        ResourceLimits(timeout=99, memory=1 << 30),
    ]

    async def together() -> list[JobResult]:
        triton = installed_triton()
        jobs = [
            lower(children.sessions, key, triton, request, record=r.key, limits=limit)
            for r, limit in zip(records, limits, strict=True)
        ]
        return list(await asyncio.gather(*jobs))

    fine, hangs, eats = children.do(together())
    assert ".entry slow(" in ptx_of(fine)
    assert (hangs.end.timed_out, hangs.end.over_memory, hangs.result) == (True, False, None)
    assert (eats.end.timed_out, eats.end.over_memory, eats.result) == (False, True, None)
    assert hangs.progress is not None
    assert hangs.progress["stage"] == "ttir"


def test_a_compilation_that_nothing_ends_at_its_limit_is_given_up(
    children: Children, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "_OVERTIME_SECONDS", 0.5)
    with pytest.raises(InfrastructureError, match="was not ended at its time limit: the launch"):
        children.lower(
            "trouble.py", "launch_holds", limits=ResourceLimits(timeout=1, memory=1 << 32)
        )
    # It was this session's trouble alone.
    assert children.capture("plain.py").records


def test_neighbours_of_a_config_that_kills_the_compiler_keep_their_results(
    children: Children, tmp_path: Path
) -> None:
    async def work(store: Store) -> dict[str, Lowering]:
        bench = Workbench(
            hub=children.hub, store=store, sessions=children.sessions, jobs=2, limits=ROOMY
        )
        file = KERNELS / "trouble.py"
        code = LaunchCode(
            file=file,
            function="launch",
            overrides={},
            paths=(),
            bare=(),
            identity={"file": file.read_text()},
        )
        limits = limits_of(80)
        assert limits
        target, triton = Target.parse("sm_80"), installed_triton()
        captured = await TRITON_FRONT_END.capture(bench, code, target, triton)
        records = captured.capture.value.records
        ptxas = describe_ptxas(Path(captured.capture.value.ptxas), BUNDLED)
        made = await asyncio.gather(
            *(TRITON_FRONT_END.lower(bench, captured, r, ptxas=ptxas) for r in records)
        )
        again = await asyncio.gather(
            *(TRITON_FRONT_END.lower(bench, captured, r, ptxas=ptxas) for r in records)
        )
        assert [kept.cached for kept in made] == [False] * 6
        assert [kept.cached for kept in again] == [True] * 6
        assert [kept.artifacts for kept in made] == [kept.artifacts for kept in again]
        assert all(("ptx" in kept.artifacts) == (kept.value.flags != ()) for kept in made)
        return {str(r.config["DEED"]): k.value for r, k in zip(records, made, strict=True)}

    async def with_store() -> dict[str, Lowering]:
        with Store.open(tmp_path / "home") as store:
            return await work(store)

    ends = children.do(with_store())
    assert (ends["none"].end.exit_code, ends["none"].error, ends["none"].attempts) == (0, None, 1)
    assert ends["print"].flags
    assert (ends["abort"].end.signal, ends["abort"].attempts) == (signal.SIGABRT, 2)
    assert (ends["segv"].end.signal, ends["segv"].attempts) == (signal.SIGSEGV, 2)
    assert (ends["leave"].end.exit_code, ends["leave"].attempts) == (1, 2)
    assert ends["exit"].error
    assert ends["exit"].error.type == "SystemExit"


def test_a_launch_that_is_no_longer_made_is_our_trouble(children: Children) -> None:
    children.capture("plain.py")
    request = children.request("plain.py", "launch", 80)
    with pytest.raises(InfrastructureError, match="no longer makes this launch"):
        children.do(
            lower(
                children.sessions,
                "plain.py::launch@80",
                installed_triton(),
                request,
                record="0" * 64,
                limits=ROOMY,
            )
        )
    assert children.lower("plain.py")


def test_a_launch_that_differs_for_no_reason_that_is_seen_is_captured_again(
    children: Children, tmp_path: Path
) -> None:
    """What decides the launch is read by no way that Python has: here, the time."""
    file = tmp_path / "fickle.py"
    text = (KERNELS / "plain.py").read_text()
    assert "BLOCK=block" in text
    file.write_text(f"import time\n{text.replace('BLOCK=block', 'BLOCK=time.time_ns() % 2**60')}")
    code = LaunchCode(
        file=file,
        function="launch",
        overrides={},
        paths=(),
        bare=(),
        identity={"file": file.read_text()},
    )
    target, triton, limits = Target.parse("sm_80"), installed_triton(), limits_of(80)
    assert limits

    async def work() -> None:
        with Store.open(tmp_path / "home") as store:
            bench = Workbench(
                hub=children.hub, store=store, sessions=children.sessions, jobs=1, limits=ROOMY
            )
            first = await TRITON_FRONT_END.capture(bench, code, target, triton)
            ptxas = describe_ptxas(Path(first.capture.value.ptxas), BUNDLED)
            await children.sessions.close(first.capture.key)
            stored = await TRITON_FRONT_END.capture(bench, code, target, triton)
            assert (stored.capture.cached, stored.capture.value) == (True, first.capture.value)
            (record,) = stored.capture.value.records
            with pytest.raises(
                InfrastructureError, match=r"no longer makes this launch.*run again"
            ):
                await TRITON_FRONT_END.lower(bench, stored, record, ptxas=ptxas)
            again = await TRITON_FRONT_END.capture(bench, code, target, triton)
            (new,) = again.capture.value.records
            assert new.key != record.key
            lowered = await TRITON_FRONT_END.lower(bench, again, new, ptxas=ptxas)
            assert lowered.value.stage

    children.do(work())


def test_a_fact_that_is_not_known_of_the_gpu_ends_the_capture(
    children: Children, tmp_path: Path
) -> None:
    file = tmp_path / "persistent.py"
    text = (KERNELS / "plain.py").read_text()
    asks = "torch.cuda.get_device_properties(0).multi_processor_count"
    file.write_text(text.replace("(triton.cdiv(n, block),)", f"({asks},)"))
    found = children.capture(file, "launch", 88)
    assert found.error
    assert found.error.type == "UnknownFactError"
    assert "asks for multi_processor_count of NVIDIA GPU, which is not known" in found.error.message
    assert [record.grid for record in children.capture(file, "launch", 86).records] == [[82]]


def test_a_server_that_is_killed_is_replaced(children: Children) -> None:
    children.capture("plain.py")
    for process in children.hub._processes:
        if process.returncode is None:
            os.kill(process.pid, signal.SIGKILL)
    (result,) = children.lower("plain.py")
    assert ptx_of(result)


def test_the_users_environment_reaches_the_child_but_cannot_break_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("json", "select", "torch", "triton", "harness", "subprocess", "socket", "ast"):
        (tmp_path / f"{name}.py").write_text(f"raise RuntimeError('the wrong {name}')\n")
    beside = tmp_path / "beside"
    (beside / "harness").mkdir(parents=True)
    (beside / "harness" / "__init__.py").write_text("MINE = 5\n")
    path = tmp_path / "path"
    path.mkdir()
    (path / "extra_of_the_user.py").write_text("N = 64\n")
    (beside / "data.txt").write_text("x")
    text = (KERNELS / "plain.py").read_text()
    (beside / "mine.py").write_text(
        text
        + "\nimport harness, extra_of_the_user, os\n"
        + "assert harness.MINE == 5 and open('data.txt').read() == 'x'\n"
        + "assert os.environ['TRITON_DEFAULT_FP_FUSION'] == '0'\n"
        + "assert 'TRITON_INTERPRET' not in os.environ\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{path}")
    monkeypatch.setenv("PYTHONHOME", "/nowhere")
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    monkeypatch.setenv("TRITON_DEFAULT_FP_FUSION", "0")
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))
    assert TRITON_FRONT_END.user_settings(installed_triton())["TRITON_DEFAULT_FP_FUSION"] == "0"
    assert "TRITON_INTERPRET" not in TRITON_FRONT_END.user_settings(installed_triton())

    async def work() -> None:
        async with Hub() as hub:
            children = Children(asyncio.get_running_loop(), hub, open_sessions(hub))
            request = children.request(beside / "mine.py", "launch", 80)
            triton = installed_triton()
            found = await children.sessions.capture("mine", triton, request)
            assert found.error is None, found.error.traceback
            assert str(path / "extra_of_the_user.py") in found.reads.files
            assert str(beside / "harness" / "__init__.py") in found.reads.files
            (record,) = found.records
            result = await lower(
                children.sessions, "mine", triton, request, record=record.key, limits=ROOMY
            )
            assert ".entry double(" in ptx_of(result)
            assert result.result is not None
            assert result.result["metadata"]["enable_fp_fusion"] is False

    asyncio.run(work())
    assert not (tmp_path / "cache").exists()


def test_configs_that_come_to_the_same_code_are_both_there(children: Children) -> None:
    records = children.capture("same_code.py").records
    assert [record.config["BLOCK"] for record in records] == [64, 128]
    assert len({record.key for record in records}) == 1
