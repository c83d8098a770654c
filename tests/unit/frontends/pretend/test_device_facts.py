"""What is not known of a GPU is refused to launch code, and never made up."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from harness.frontends.launch_code import capture_request
from harness.frontends.pretend.gpu import DeviceProperties, DriverProperties, UnknownFactError
from harness.frontends.sessions import LaunchCode
from harness.frontends.triton.front_end import TRITON_FRONT_END
from harness.values.limits import Limits, limits_of
from harness.values.target import Target
from harness.values.toolchain import Compiler

CODE = LaunchCode(file=Path("k.py"), function=None, overrides={}, paths=(), bare=(), identity={})
TRITON = Compiler(version="3.6.0", origin="triton", path=Path("nowhere"))


def _limits(capability: int) -> Limits:
    found = limits_of(capability)
    assert found
    return found


def _device(capability: int) -> dict[str, Any]:
    target = Target.parse(f"sm_{capability}")
    message = capture_request(CODE, target, _limits(capability)).message()
    device: dict[str, Any] = message["device"]
    return device


def test_facts_that_are_known_are_given() -> None:
    properties = DeviceProperties(_device(90))
    assert (properties.multi_processor_count, properties.total_memory) == (132, 80 << 30)
    assert (properties.major, properties.minor, properties.L2_cache_size) == (9, 0, 50 << 20)
    assert DriverProperties(_device(90))["multiprocessor_count"] == 132
    assert DeviceProperties(_device(121)).is_integrated


@pytest.mark.parametrize(
    ("capability", "fact"),
    [(88, "multi_processor_count"), (80, "total_memory"), (103, "L2_cache_size"), (90, "uuid")],
)
def test_facts_that_are_not_known_are_refused(capability: int, fact: str) -> None:
    properties = DeviceProperties(_device(capability))
    with pytest.raises(
        UnknownFactError, match=rf"asks for {fact} of NVIDIA .*, which is not known"
    ):
        getattr(properties, fact)


def test_the_driver_of_triton_knows_no_clock_rates() -> None:
    with pytest.raises(UnknownFactError, match="mem_clock_rate"):
        DriverProperties(_device(90))["mem_clock_rate"]
    with pytest.raises(UnknownFactError, match="multiprocessor_count of NVIDIA GPU"):
        DriverProperties(_device(88))["multiprocessor_count"]


def test_a_name_that_no_device_has_is_no_attribute() -> None:
    assert not hasattr(DeviceProperties(_device(90)), "gpu_eu_count")


@pytest.mark.parametrize(
    "fact",
    [
        *("multiprocessors", "max_shared_per_block", "memory", "l2_cache", "registers_per_sm"),
        *("max_threads_per_sm", "shared_per_sm"),
    ],
)
def test_a_correction_of_the_device_table_is_another_capture(fact: str) -> None:
    correction: dict[str, Any] = {fact: 1}
    target = Target.parse("sm_90a")
    told = capture_request(CODE, target, _limits(90)).message()
    corrected = capture_request(CODE, target, replace(_limits(90), **correction)).message()
    key = partial(TRITON_FRONT_END.launch_key, "capture", CODE, compiler=TRITON)
    assert key(told) == key(told)
    assert key(told) != key(corrected)


def test_another_module_path_or_setting_is_another_capture(monkeypatch: pytest.MonkeyPatch) -> None:
    def key() -> str:
        request = capture_request(CODE, Target.parse("sm_90a"), _limits(90))
        return TRITON_FRONT_END.launch_key("capture", CODE, request.message(), TRITON)

    keys = {key()}
    for name, value in (
        ("PYTHONPATH", "/a"),
        ("PYTHONPATH", "/b"),
        ("TRITON_F32_DEFAULT", "ieee"),
        ("TORCHDYNAMO_DISABLE", "1"),
    ):
        monkeypatch.setenv(name, value)
        keys.add(key())
    assert len(keys) == 5
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert key() in keys
