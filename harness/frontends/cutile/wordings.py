"""What the end of cuTile (1.3.0 to 1.7.0) and of tileiras (13.2 to 13.5) means, by their words."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from harness.frontends.wordings import judge_raising
from harness.judging.judge import after, death_signal, failed, judge_assembly, stopped
from harness.judging.ptxas.log import parse_ptxas_log
from harness.values.outcome import Assembly, Lowering, ProcessEnd, RaisedError, signal_name
from harness.values.verdict import Stage, Verdict, VerdictKind

if TYPE_CHECKING:
    from harness.judging.judge import CellEvidence


_FIRST = "cutile"
# What a user wrote and cuTile refuses: named otherwise up to 1.4.
_REFUSALS = frozenset(
    {
        *("TileSyntaxError", "TileTypeError", "TileValueError", "TileRecursionError"),
        *("UnsupportedSyntaxError", "TypeCheckingError", "InvalidValueError"),
        *("RecursionLimitError", "UnsupportedCallError"),
        *("TileStaticEvalError", "TileStaticAssertionError"),
        *("StaticEvalError", "StaticAssertionError"),
    }
)
_CANNOT = frozenset({"TileUnsupportedFeatureError", "UnsupportedFeatureError"})
# A name or an argument that another release has: the wordings of Python and of cuTile.
_OTHER_RELEASE = re.compile(
    r"[Mm]odule 'cuda\.tile[\w.]*' has no attribute '\w+'"
    r"|cannot import name '\w+' from 'cuda\.tile[\w.]*'"
    r"|No module named 'cuda\.tile[\w.]*'"
    r"|got an unexpected keyword argument '\w+'"
)
_UNSUPPORTED = re.compile(
    r"Cannot find option named '(?:sm_\w+)'"
    r"|unsupported Tile(?: IR bytecode)? version"
    r"|invalid GPU architecture"
)
_ENDED = re.compile(r"^ptxas ended with (\d+)$", re.MULTILINE)
_OF_PTXAS = re.compile(r"^ptxas(?: |$)")
_ERROR = re.compile(r"^(?:loc\(.*\): )?(?:tileiras: )?(?:error: )?(?P<text>.*)$")
# What it says whatever failed.
_SAYS_NOTHING = "failed to compile Tile IR program"


def judge_cutile(lowering: Lowering) -> Verdict:
    """The verdict on a lowering that raised or did not end well."""
    return judge_raising(
        lowering,
        "cuTile",
        line=lambda error: next(
            (line.strip() for line in error.message.splitlines() if line.strip()), error.type
        ),
        cannot=lambda error: bool(
            _CANNOT & set(error.kinds) or _OTHER_RELEASE.search(error.message)
        ),
        otherwise=_judge_raised,
    )


def _judge_raised(error: RaisedError, stage: Stage, line: str) -> Verdict:
    if _REFUSALS & set(error.kinds):
        reason = f"cuTile rejects the kernel: {line}"
        return failed(VerdictKind.REJECTED, stage, reason, message=line)
    reason = f"cuTile failed in stage {stage.value}: {error.type}: {line}"
    return failed(VerdictKind.PASS_FAILURE, stage, reason, message=f"{error.type}: {line}")


def judge_tileiras(evidence: CellEvidence) -> Verdict:
    """The verdict on a run of tileiras that left no cubin: its own end, or that of its ptxas."""
    assembly, stage = evidence.assembly, Stage.CUBIN
    assert assembly is not None, "it is asked about one that ran"
    if verdict := stopped(assembly.end, stage, "tileiras"):
        return verdict
    own, inner = _apart(assembly)
    if inner is not None and assembly.end.signal is None:
        log = parse_ptxas_log(inner.stderr)
        return judge_assembly(inner, log=log, entry=evidence.kernel, target=evidence.target)
    lines = [_ERROR.sub(r"\g<text>", line.strip()) for line in own.splitlines() if line.strip()]
    said = next((line for line in lines if line and line != _SAYS_NOTHING), "")
    number = death_signal(assembly.end)
    if number is not None:
        reason = f"tileiras {assembly.end.words}" + (after(said) or ", saying nothing")
        message = f"{signal_name(number)}: {said}"
        return failed(VerdictKind.COMPILER_CRASH, stage, reason, message=message)
    if assembly.end.ok:
        reason = "tileiras ended with exit code 0 and left no complete cubin"
        return failed(VerdictKind.PASS_FAILURE, stage, reason)
    if _UNSUPPORTED.search(said):
        reason = f"this tileiras cannot do it: {said}"
        return failed(VerdictKind.UNSUPPORTED, stage, reason, message=said)
    why = said or (lines[0] if lines else "it said nothing")
    reason = f"tileiras ended with {assembly.end.words} before it called ptxas: {why}"
    return failed(VerdictKind.PASS_FAILURE, stage, reason, message=why)


def _apart(assembly: Assembly) -> tuple[str, Assembly | None]:
    """What tileiras said itself, and the run of its ptxas where that failed."""
    lines = assembly.stderr.splitlines()
    own = "\n".join(line for line in lines if not _OF_PTXAS.match(line))
    ended = _ENDED.search(assembly.stderr)
    if ended is None:
        return own, None
    said = "\n".join(line for line in lines if _OF_PTXAS.match(line) and not _ENDED.match(line))
    end = ProcessEnd(exit_code=int(ended[1]))
    inner = Assembly(end=end, flags=assembly.flags, stdout="", stderr=said, has_cubin=False)
    return own, inner
