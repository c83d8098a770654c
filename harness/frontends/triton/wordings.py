"""What the end of a lowering means where the kernel may be of Gluon, a dialect of Triton. Pure."""

from __future__ import annotations

import re

from harness.judging.judge import failed, judge_lowering
from harness.judging.messages import essence, first_error, is_parser_error, is_refusal, line_of
from harness.values.outcome import Lowering, RaisedError
from harness.values.verdict import Stage, Verdict, VerdictKind

_GLUON = Stage("glir")
# Gluon is experimental: what one release has, another names or calls otherwise (Triton 3.4 - 3.9).
_OTHER_RELEASE = re.compile(
    r"has been removed|got an unexpected keyword argument '\w+'"
    r"|cannot import name '\w+' from 'triton\.experimental\.gluon[\w.]*'"
    r"|module 'triton\.experimental\.gluon[\w.]*' has no attribute '\w+'"
    r"|No module named 'triton\.experimental[\w.]*'"
)


def judge_dialects(lowering: Lowering) -> Verdict:
    """The verdict on a lowering that raised or did not end well."""
    verdict = judge_lowering(lowering)
    is_failure = verdict.kind is VerdictKind.PASS_FAILURE and verdict.stage is _GLUON
    if lowering.error is None or not is_failure:
        return verdict
    # No pass has run in the stage that reads the source.
    return _judge_gluon(lowering.error, lowering.log) or verdict


def _judge_gluon(error: RaisedError, log: str) -> Verdict | None:
    """The verdict on Gluon source that is not accepted; its interface differs by release."""
    line = essence(error)
    if found := _OTHER_RELEASE.search(error.message):
        said = line_of(error.message, found.start())
        reason = f"this Triton cannot do it: its Gluon has another interface: {said}"
        return failed(VerdictKind.UNSUPPORTED, _GLUON, reason)
    if is_refusal(error) or is_parser_error(error, log):
        said = line if is_refusal(error) else first_error(log) or line
        return failed(
            VerdictKind.REJECTED, _GLUON, f"Gluon rejects the kernel: {said}", message=said
        )
    return None
