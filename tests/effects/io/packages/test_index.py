from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

import pytest
from local_index import LINUX, LocalIndex, tar, tool_wheel, wheel
from packaging.version import Version

from harness.io.packages import index
from harness.io.packages.index import download, endpoint_setting
from harness.values.errors import (
    ConfigurationError,
    InfrastructureError,
    IntegrityError,
    OfflineError,
    UsageError,
)

if TYPE_CHECKING:
    from pathlib import Path

pytest_plugins = ("local_index_fixtures",)

pytestmark = pytest.mark.usefixtures("empty_cache")
BUILT = "py3-none-win_amd64"


@pytest.fixture
def served(local_index: LocalIndex) -> LocalIndex:
    for version, tag in [("1.0", LINUX), ("1.0", BUILT), ("2.0", BUILT), ("3.0rc1", LINUX)]:
        local_index.add(*wheel("demo", version, {}, tag=tag))
    local_index.add(*wheel("demo", "1.5", {}, tag=LINUX), yanked=True)
    local_index.add(*wheel("demo", "0.0.1", {}))
    local_index.add("demo-1.0.tar.gz", tar({"demo-1.0/a": "a"}))
    local_index.add("demo-not_a_version.tar.gz", b"")
    local_index.add(*wheel("demo", "4.0", {})).requires_python = ">=99"
    return local_index


def versions(*, exact: str | None = None, prereleases: bool = False) -> list[str]:
    wanted = Version(exact) if exact else None
    releases = index.wheels("Demo", exact=wanted, prereleases=prereleases)
    return [str(release.version) for release in releases]


def age_listing(cache: Path, seconds: float) -> None:
    (path,) = (cache / "index").iterdir()
    listing = json.loads(path.read_text())
    path.write_text(json.dumps({**listing, "fetched": listing["fetched"] - seconds}))


@pytest.mark.parametrize("as_json", [False, True])
def test_offers_what_fits(served: LocalIndex, as_json: bool) -> None:
    served.as_json = as_json
    assert versions() == ["0.0.1", "1.0"]
    assert versions(prereleases=True) == ["0.0.1", "1.0", "3.0rc1"]
    assert versions(exact="1.5") == ["1.5"]
    assert versions(exact="3.0rc1") == ["3.0rc1"]
    assert versions(exact="2.0") == []
    (release,) = index.wheels("demo", exact=Version("1.0"))
    assert release.filename == f"demo-1.0-{LINUX}.whl"
    assert release.url == f"{served.url}/demo/{release.filename}"
    assert (release.size is not None) == as_json
    assert release.is_binary
    assert not release.is_pure


def test_sdist(served: LocalIndex) -> None:
    assert index.sdist("demo", Version("1.0")).filename == "demo-1.0.tar.gz"
    with pytest.raises(UsageError, match=r"no sdist of demo 2\.0; the nearest is 1\.0"):
        index.sdist("demo", Version("2.0"))


def test_unknown_project(local_index: LocalIndex) -> None:
    with pytest.raises(UsageError, match="no project demo") as caught:
        index.files("demo")
    assert "\n" not in str(caught.value)


def test_listing_is_asked_once_in_ten_minutes(served: LocalIndex, empty_cache: Path) -> None:
    versions()
    versions()
    assert served.listings == ["demo"]
    age_listing(empty_cache, 601)
    versions()
    assert served.listings == ["demo", "demo"]


def test_clock_set_back_asks_again(served: LocalIndex, empty_cache: Path) -> None:
    versions()
    age_listing(empty_cache, -3600)
    versions()
    assert served.listings == ["demo", "demo"]


def test_stale_listing_serves_when_the_index_is_down(
    served: LocalIndex, empty_cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    versions()
    age_listing(empty_cache, 10_000)
    served.down = True
    assert versions() == ["0.0.1", "1.0"]
    assert "using a cached listing" in caplog.text
    served.down = False
    assert versions() == ["0.0.1", "1.0"]
    assert served.listings == ["demo"], "an index that was down is not asked again and again"


def test_down_without_listing(served: LocalIndex) -> None:
    served.down = True
    with pytest.raises(OfflineError, match="does not answer for demo: no connection") as caught:
        versions()
    assert "127.0.0.1" not in str(caught.value)


def test_offline(served: LocalIndex, empty_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRIAGE_OFFLINE", "1")
    with pytest.raises(OfflineError, match="no listing of demo is cached"):
        versions()
    monkeypatch.setenv("TRIAGE_OFFLINE", "0")
    versions()
    age_listing(empty_cache, 10_000)
    monkeypatch.setenv("TRIAGE_OFFLINE", "1")
    assert versions() == ["0.0.1", "1.0"]
    assert served.listings == ["demo"]


def test_damaged_listing_is_asked_again(served: LocalIndex, empty_cache: Path) -> None:
    versions()
    (path,) = (empty_cache / "index").iterdir()
    path.write_text('{"fetched": 1')
    assert versions() == ["0.0.1", "1.0"]


def test_other_index_other_listing(served: LocalIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    versions()
    other = LocalIndex()
    monkeypatch.setenv("UV_DEFAULT_INDEX", other.url)
    with pytest.raises(UsageError):
        versions()
    other.close()


def test_index_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "PIP_INDEX_URL"):
        monkeypatch.delenv(variable, raising=False)
    assert endpoint_setting() is None
    monkeypatch.setenv("PIP_INDEX_URL", "http://c/simple")
    monkeypatch.setenv("UV_INDEX_URL", "http://b/simple")
    assert endpoint_setting() == "http://b/simple"
    monkeypatch.setenv("UV_DEFAULT_INDEX", "mirror=http://a/simple")
    assert endpoint_setting() == "http://a/simple"
    monkeypatch.setenv("UV_DEFAULT_INDEX", "/some/folder")
    with pytest.raises(ConfigurationError, match="UV_DEFAULT_INDEX"):
        endpoint_setting()


def test_file_without_sha256_is_not_offered(served: LocalIndex) -> None:
    served.projects["demo"][f"demo-1.0-{LINUX}.whl"].sha256 = ""
    assert versions() == ["0.0.1"]


def test_download(served: LocalIndex, tmp_path: Path) -> None:
    (release,) = index.wheels("demo", exact=Version("1.0"))
    target = tmp_path / "file"
    download(release, target, limit=1 << 20)
    assert target.read_bytes() == served.projects["demo"][release.filename].body
    with pytest.raises(InfrastructureError, match="over the limit"):
        download(release, target, limit=10)


def test_download_broken_off(local_index: LocalIndex, tmp_path: Path) -> None:
    served = local_index.add(*tool_wheel("1.2.3"))
    (release,) = index.wheels("nvidia-cuda-nvcc")
    served.sent = 100
    with pytest.raises(OfflineError, match="the connection broke off"):
        download(release, tmp_path / "file", limit=1 << 20)
    assert served.gets == 2
    served.sent, served.status = None, 403
    with pytest.raises(InfrastructureError, match="with status 403"):
        download(release, tmp_path / "file", limit=1 << 20)


def test_download_of_other_bytes(local_index: LocalIndex, tmp_path: Path) -> None:
    local_index.add(*tool_wheel("1.2.3"), sha256="0" * 64)
    (release,) = index.wheels("nvidia-cuda-nvcc")
    with pytest.raises(IntegrityError, match=f"sha256 [1-9a-f].*, not {'0' * 64}"):
        download(release, tmp_path / "file", limit=1 << 20)


def test_import_brings_no_network_library() -> None:
    import subprocess
    import sys

    code = "import harness.io.toolchains.install, harness.io.packages.archives, sys; "
    code += "assert not {'requests', 'pypi_simple', 'torch'} & sys.modules.keys()"
    started = time.monotonic()
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
    assert time.monotonic() - started < 30
