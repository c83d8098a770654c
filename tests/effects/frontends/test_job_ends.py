from __future__ import annotations

from pathlib import Path

from harness.frontends.sessions import JobResult
from harness.values.outcome import ProcessEnd


def test_the_end_of_a_job_is_told_with_its_last_line(tmp_path: Path) -> None:
    job = JobResult(end=ProcessEnd(exit_code=70), result=None, progress=None, folder=tmp_path)
    assert job.words == "exit code 70"
    printed = tmp_path / "stderr"
    printed.write_text("Traceback (most recent call last):\n  ...\nKeyError: 'rows'\n\n")
    assert job.words == "exit code 70: KeyError: 'rows'"
    printed.write_bytes(b"\xff" * 10_000)
    assert len(job.words) < 450
    printed.write_text("")
    assert job.words == "exit code 70"
