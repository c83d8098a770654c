"""`triage verify`: whether what an issue claims is so.

Example:
  triage verify issue.md
  triage verify issue.md --sm 100a --out checked --json

Exit code 0: every claim that can be checked holds. 1: one does not. 3: the issue claims nothing.
4: no claim can be checked here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from textwrap import shorten

from msgspec.structs import replace

from harness.cells.places import CompileOptions
from harness.cli.amounts import FilePath
from harness.cli.options import Options, argument, json_option, option, verb
from harness.cli.output import print_json, print_line, print_said
from harness.cli.progress.steps import narrating
from harness.cli.ptx_inputs import PtxOptions
from harness.cli.results import open_results
from harness.cli.running import execution_options, run_to_the_end, surroundings
from harness.io.files.reading import read_regular
from harness.tables.said import Tone, say
from harness.tables.summary import plural
from harness.values.errors import EmptySelectionError
from harness.values.target import Target
from harness.values.toolchain import PTX
from harness.verify.claims import IssueReading
from harness.verify.trials import Holds, Judged, judge, plan

_MAX_BYTES = 4 << 20
_LONGEST = 200
_TONES = {Holds.HOLDS: Tone.GOOD, Holds.NOT: Tone.BAD, Holds.UNCHECKED: Tone.FAINT}


class _VerifyOptions(Options):
    file: Path = argument(type=FilePath(read=True))
    sm: str | None = option(often=True, metavar="SM", help="The GPU where the issue names none.")
    inputs: PtxOptions
    out: Path | None = option(
        often=True,
        type=FilePath(file_okay=False),
        help="Where the issue's programs are written to. Default: verified/NAME.",
    )
    how: CompileOptions = execution_options()
    as_json: bool = json_option()


@verb()
def command(options: _VerifyOptions) -> int:
    """Try what an issue claims, and say of each claim whether it holds.

    FILE is an issue in Markdown, as a tracker shows it, or a report of `triage report`. Its code
    blocks are sorted into programs, logs and commands; its sentences, tables and logs are read for
    claims: "works on 3.5.1", "fails with -O3", "crashes on an H100", an assertion, "regression
    since 3.4.0". The programs are compiled on what the claims name, and executed without a GPU
    where a claim is about results. A claim holds, does not hold, or cannot be checked here.
    """
    # What executes loads numpy: 0.1 s.
    from harness.verify.trying import ProgramTrials, command_of, read_issue  # noqa: PLC0415

    text = read_regular(options.file, _MAX_BYTES).decode("utf-8", "replace")
    reading, releases = read_issue(text)
    if options.sm and reading.place.target is None:
        target = Target.parse(options.sm)
        reading = replace(reading, place=replace(reading.place, target=target))
    if not reading.claims:
        raise EmptySelectionError(
            f"{options.file}: it claims nothing that is understood; `triage log` reads a log, "
            "`triage compile` takes a program"
        )
    folder = options.out or Path("verified") / options.file.stem
    planned, lacks = plan(reading, releases)
    trials = [trial for each in planned for trial in (*each.trials, *each.otherwise)]
    is_ptx = any(t.is_run and reading.programs[t.program].compiler == PTX for t in trials)
    if is_ptx and not any(vars(options.inputs).values()):
        lacks.append("it names no inputs: they are guessed; give them by --buffer, --scalar ...")
    with open_results() as store, narrating("trying what the issue claims") as tell:
        attempt = ProgramTrials(
            programs=reading.programs,
            folder=folder,
            store=store,
            how=options.how,
            surroundings=surroundings(),
            inputs=options.inputs.named,
            tell=tell,
        )
        seen = run_to_the_end(attempt.see(trials))
    judged = judge(planned, seen)
    commands = [
        [command_of(trial, reading.programs[trial.program], folder) for trial in each.trials]
        for each in planned
    ]
    if options.as_json:
        print_json(
            {
                "schema": 1,
                "issue": str(options.file),
                "blocks": [{"line": block.line, "what": block.what} for block in reading.blocks],
                "lacks": lacks,
                "claims": [
                    {
                        "line": each.claim.line,
                        "text": each.claim.text,
                        "claim": each.claim.outcome.value,
                        "result": each.holds.value,
                        "why": each.why,
                        "commands": own,
                    }
                    for each, own in zip(judged, commands, strict=True)
                ],
                "not_understood": reading.unread,
            }
        )
    else:
        _print(options.file, reading, lacks, judged, commands)
    found = {each.holds for each in judged}
    return 1 if Holds.NOT in found else 0 if Holds.HOLDS in found else 4


def _print(
    file: Path,
    reading: IssueReading,
    lacks: Sequence[str],
    judged: Sequence[Judged],
    commands: Sequence[Sequence[str]],
) -> None:
    kinds = Counter(block.what for block in reading.blocks)
    found = ", ".join(f"{count} x {what}" for what, count in kinds.items()) or "no program"
    print_line(f"{file}: {plural(len(reading.blocks), 'code block')}: {found}")
    for words in lacks:
        print_line(f"  {words}")
    last = None
    for each, own in zip(judged, commands, strict=True):
        claim = each.claim
        if (claim.line, claim.text) != last:
            print_line("")
            print_line(f"line {claim.line}: {shorten(claim.text, _LONGEST, placeholder=' ...')}")
        last = (claim.line, claim.text)
        head = say(f"  {each.holds.value}", _TONES[each.holds])
        print_said([head + say(f" ({claim.outcome.value}): {each.why}")], whole_lines=True)
        for line in own if each.holds is Holds.NOT else ():
            print_line(f"    {line}")
    print_line("")
    if reading.unread:
        print_line(
            f"{plural(len(reading.unread), 'sentence')} with a version, a GPU or a level, and no "
            "outcome that is understood (--json has them)"
        )
    counts = Counter(each.holds for each in judged)
    print_line(", ".join(f"{counts[kind]} {kind.value}" for kind in Holds))
