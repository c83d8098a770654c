"""`triage log`: what a log says, and the commands to go on with.

Example:
  triage log server.log
  kubectl logs worker-3 | triage log -
  triage log trace.txt --sm 90a

Exit codes: 1 it says that something failed, 3 it says nothing that triage knows.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from harness.cells.log import Clue, LogReading, bundled_ptxas, read_log
from harness.cells.repros.cache_folders import write_repro
from harness.cells.repros.find import list_repros
from harness.cells.spelling import SelectionOptions, spell_command
from harness.cli.amounts import FilePath
from harness.cli.options import Options, argument, json_option, option, verb
from harness.cli.output import print_json, print_line
from harness.io.files.reading import read_regular
from harness.values.errors import EmptySelectionError, UsageError
from harness.values.target import Target

_MAX_BYTES = 256 << 20
_USUAL = Target.parse("H100")
_GUESSED = "  # for an H100; no GPU is named: give yours"


class _LogOptions(Options):
    file: Path = argument(type=FilePath(allow_dash=True))
    into: Path = option(
        type=FilePath(file_okay=False),
        default=Path("repros"),
        help="Where kernels that the log holds are written to, as repros.",
    )
    sm: str | None = option(
        metavar="SM", help="The GPU, where the log does not name it: 90a, sm_100a ..."
    )
    as_json: bool = json_option()


@verb()
def command(options: _LogOptions) -> int:
    """Read a log, a traceback or an issue's text: what failed, and the command to go on with.

    FILE is any text; `-` is standard input. Found are MLIR reproducers, PTX and ptxas' commands,
    kernels of Inductor, launches in tracebacks, errors of compilers, what a GPU has too little of,
    crashes, and the releases and GPUs that are named. Nothing of a log is ever executed.
    """
    asked = Target.parse(options.sm) if options.sm else None
    if str(options.file) == "-":
        data = sys.stdin.buffer.read(_MAX_BYTES + 1)
        if len(data) > _MAX_BYTES:
            raise UsageError(f"-: more than {_MAX_BYTES >> 20} MiB; give a part of the log")
    else:
        data = read_regular(options.file, _MAX_BYTES)
    reading = read_log(data.decode("utf-8", "replace"), list_repros()[0])
    if not reading.clues:
        raise EmptySelectionError(
            f"{options.file}: nothing that triage knows; `triage compile --kernel FILE.py` takes a "
            "script"
        )
    kernels = [clue.kernel for clue in reading.clues if clue.kernel]
    places = {
        kernel.name: str(write_repro(kernel, options.into, triton=None)[0]) for kernel in kernels
    }
    gpus = [str(target) for target in reading.targets]
    if options.as_json:
        clues = [
            {
                "line": clue.line,
                "what": clue.words,
                "repro": places[clue.kernel.name] if clue.kernel else None,
                "file": clue.file,
                "commands": list(_commands(clue, reading, options.into, asked)),
            }
            for clue in reading.clues
        ]
        print_json({"schema": 1, "found": clues, "gpus": gpus, "releases": reading.releases})
        return 1
    named = [f"{package} {version}" for package, version in reading.releases.items()]
    if named + gpus:
        print_line(f"The log names {', '.join(named + gpus)}.")
    for clue in reading.clues:
        print_line(f"line {clue.line}: {clue.words}")
        if clue.file and not Path(clue.file).exists():
            print_line(f"  {clue.file} is not on this machine; copy it here first")
        is_told = _target(clue, reading, asked) is not None
        for line in _commands(clue, reading, options.into, asked or _USUAL):
            print_line(f"  {line}{'' if is_told else _GUESSED}")
    return 1


def _target(clue: Clue, reading: LogReading, asked: Target | None) -> Target | None:
    """The GPU that the log tells, or else the user."""
    own = clue.kernel.target if clue.kernel else clue.target
    return own or next(iter(reading.targets), asked)


def _commands(clue: Clue, reading: LogReading, into: Path, asked: Target | None) -> Iterator[str]:
    """What to go on with; nothing where the log does not lead to a kernel, or to a GPU."""
    target = _target(clue, reading, asked)
    triton = reading.releases.get("triton")
    names, is_ptx = list(clue.names), False
    if clue.kernel:
        name = clue.kernel.name
        # `--kernel` knows what lies in ./repros by its name. The Triton stands in the repro.
        names = [name if into == Path("repros") else str(into / name)]
        is_ptx = ".ptx" in clue.kernel.files
    elif clue.file:
        names = names or [clue.file if Path(clue.file).exists() else Path(clue.file).name]
        is_ptx = clue.file.endswith(".ptx")
    for kernel in names if target else ():
        assert target is not None
        ptxas = bundled_ptxas(triton, target) if triton and is_ptx else None
        words = SelectionOptions(
            kernel=kernel,
            sm=[] if clue.kernel and clue.kernel.target else [str(target).removeprefix("sm_")],
            triton=[triton] if triton and not is_ptx and not clue.kernel else [],
            ptxas=[ptxas] if ptxas else [],
        )
        yield spell_command("compile", words)
