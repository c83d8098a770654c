"""A full disk under the results, or under scratch files: what frees space and what reads works."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import Triage
from fake_toolchains import FakeCache
from nights import night, row

from harness.store.store import Store

PTX = """.version 7.0
.target sm_80
.address_size 64
.visible .entry kernel(.param .u64 out)
{
.reg .b64 %rd<2>;
ld.param.u64 %rd1, [out];
st.global.u32 [%rd1], 1;
ret;
}
"""


def fill(ballast: Path) -> None:
    """With all that is left, in pieces: one write takes what there is, and the next is refused."""
    with ballast.open("wb", buffering=0) as file, pytest.raises(OSError, match="No space"):
        file.writelines(bytes(4096) for _ in range(10_000))


@pytest.mark.parametrize("small_disk", ["3m"], indirect=True)
def test_a_full_disk_is_read_and_trimmed(triage: Triage, small_disk: Path) -> None:
    home = small_disk / "home"
    night(home, [row("ptxas_ice", "s")])
    with Store.open(home) as store:
        kept = store.artifacts.put(b"a pack")
        store.keep_record("batch", "pack", {}, artifacts=[kept])
        for number in range(100):
            name = store.artifacts.put(bytes([number]) * 3000 + str(number).encode() * 999)
            store.put_evidence("lower", str(number), b"{}", {"ptx": name})
    fill(small_disk / "ballast")
    triage = Triage(triage.folder, {**triage.env, "TRIAGE_HOME": str(home)})
    for words in (("bugs",), ("site", "--out", str(triage.folder / "pages")), ("cache",)):
        done = triage(*words)
        assert done.returncode == 0, (words, done.stderr)
    refused = triage("bugs", "set", "1", "expected")
    assert refused.returncode == 4
    assert "run `triage cache --trim 1GB`" in refused.stderr
    done = triage("cache", "--trim", "0")
    assert done.returncode == 0, done.stderr
    assert "deleted 100 pieces of evidence and 100 artifacts" in done.stdout
    # There is room again, and what is no cache is still there.
    done = triage("bugs", "set", "1", "expected")
    assert done.returncode == 0, done.stderr
    with Store.open(home) as store:
        assert store.artifacts.get(kept) == b"a pack"
        assert list(store.records("batch", dict)) == ["pack"]


def test_scratch_files_that_have_no_space_are_one_line(tmp_path: Path, small_disk: Path) -> None:
    place = FakeCache(tmp_path)
    place.ptxas("13.0.88")
    (tmp_path / "kernel.ptx").write_text(PTX)
    triage = Triage(tmp_path, {**place.triage.env, "TMPDIR": str(small_disk)})
    done = triage("run", "kernel.ptx", "--buffer", "out=u32[1000000]:0", "--jobs", "1")
    assert done.returncode == 4, done.stderr
    assert f"cannot write scratch files in {small_disk}: No space left on device" in done.stderr
    assert "Traceback" not in done.stderr
