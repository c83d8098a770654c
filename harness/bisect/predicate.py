"""The user's own predicate on one cell: a command that ends as `git bisect run` wants it."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import msgspec

from harness.bisect.search import Probe
from harness.frontends.bench.bench import Workbench
from harness.io.files.writing import scratch_disk
from harness.judging.answers import VerdictAnswer
from harness.values.errors import UsageError
from harness.values.row import Row
from harness.values.toolchain import PTXAS, Assembler

_SKIP, _ABORT = 125, 128
_READ = 4096
# What a shell ends with where a command is not executable, or not found.
_CANNOT_RUN = (126, 127)


async def check_script(bench: Workbench, script: str) -> None:
    """Refuse a command that the shell cannot read: it would end every version with an error.

    Raises:
        UsageError: it is malformed.
        InfrastructureError: the shell cannot be started.
    """
    folder = bench.hub.new_folder("script")
    words = ["/bin/sh", "-n", "-c", script]
    async with bench.slot():
        end = await bench.hub.execute(words, folder=folder, limits=bench.limits)
    complaint = _last_line(folder / "stderr")
    bench.hub.drop_folder(folder)
    if not end.ok:
        raise UsageError(f"--script: the shell cannot read it: {complaint or end.words}")


def _last_line(file: Path) -> str:
    with scratch_disk(), file.open("rb") as stream:
        stream.seek(max(0, file.stat().st_size - _READ))
        lines = stream.read().decode(errors="replace").split("\n")
    return next((line.strip()[:300] for line in reversed(lines) if line.strip()), "")


async def run_script(bench: Workbench, script: str, row: Row, ptxas: Assembler) -> Probe:
    """Ask the user's command, run by the shell in the user's folder, what this cell is.

    It gets `TRIAGE_ROW` (a file: the row as JSON), `TRIAGE_PTX` and `TRIAGE_CUBIN` (files; unset
    where there is none) and `TRIAGE_PTXAS` (the executable); of another assembler than ptxas,
    `TRIAGE_PROGRAM` and `TRIAGE_ASSEMBLER`. Exit code 0 means that it works,
    125 that it cannot be tested; 126 and 127 (it cannot be run), 128 and above end the search; any
    other that it fails. Ended at the time limit, it cannot be tested.

    Raises:
        UsageError: the command cannot be run.
        InfrastructureError: the shell cannot be started.
        UnusableArtifactError: what it would be shown is damaged.
    """
    folder = bench.hub.new_folder("script")
    tool = "TRIAGE_PTXAS" if ptxas.kind == PTXAS else "TRIAGE_ASSEMBLER"
    env = {**os.environ, "TRIAGE_ROW": str(folder / "row.json"), tool: str(ptxas.path)}
    files = {"ptx": row.ptx_sha256, "program": row.program_sha256, "cubin": row.cubin_sha256}
    with scratch_disk():
        (folder / "row.json").write_bytes(msgspec.json.encode(row))
        for name, sha256 in files.items():
            if sha256:
                (folder / f"kernel.{name}").write_bytes(bench.store.artifacts.get(sha256))
                env[f"TRIAGE_{name.upper()}"] = str(folder / f"kernel.{name}")
    # In a subshell: an `exec` or `exit` of the user's ends that only.
    # On lines of its own: a comment at its end is not a comment on the parenthesis.
    words = ["/bin/sh", "-c", f"cd {shlex.quote(str(Path.cwd()))} && (\n{script}\n)"]
    async with bench.slot():
        end = await bench.hub.execute(words, folder=folder, limits=bench.limits, env=env)
    complaint = _last_line(folder / "stderr")
    bench.hub.drop_folder(folder)
    said = f"script: {end.words}"
    if end.killed_by_us or end.exit_code == _SKIP:
        return Probe(outcome=VerdictAnswer.UNTESTABLE, verdict=said)
    if end.exit_code in _CANNOT_RUN:
        raise UsageError(f"the command of --script cannot be run: {complaint or end.words}")
    if end.exit_code is None or end.exit_code >= _ABORT:
        return Probe(outcome=VerdictAnswer.INFRA, verdict=said)
    return Probe(outcome=VerdictAnswer.SAME if end.exit_code else VerdictAnswer.OK, verdict=said)
