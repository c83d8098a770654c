"""`triage hunt --corpus` takes what it can read, and says what it leaves out."""

from __future__ import annotations

import os
from pathlib import Path

from fake_toolchains import FakeCache

PTX = """.version 7.0
.target sm_80
.address_size 64
.visible .entry kernel(.param .u64 out)
{
.reg .b32 %r<4>;
.reg .b64 %rd<2>;
ld.param.u64 %rd1, [out];
mov.u32 %r1, %tid.x;
add.u32 %r2, %r1, %r1;
st.global.u32 [%rd1], %r2;
ret;
}
"""


def test_a_pipe_a_device_a_large_file_and_no_text_are_left_out(tmp_path: Path) -> None:
    place = FakeCache(tmp_path)
    place.ptxas("13.0.88")
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    (corpus / "good.ptx").write_text(PTX)
    os.mkfifo(corpus / "pipe.ptx")
    (corpus / "device.ptx").symlink_to("/dev/zero")
    (corpus / "large.ptx").write_text(PTX + "// more\n" * 200_000)
    (corpus / "binary.ptx").write_bytes(b"\xff\xfe")
    words = ("hunt", "ptxas", "--sm", "80", "--ptxas", "13.0.88", "--corpus", str(corpus))
    done = place.triage(*words, "--for", "20s", "--max-tries", "16", "--jobs", "1", timeout=120)
    assert done.returncode in (0, 1), done.stderr
    for name in ("pipe", "device", "large", "binary"):
        [line] = [line for line in done.stderr.splitlines() if f"{name}.ptx" in line]
        assert "left out" in line
    assert "good.ptx" not in done.stderr
