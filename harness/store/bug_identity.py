"""Which bug a failure belongs to. Pure.

A signature says what failed, and equal signatures are one bug in every kernel, as long as they say
anything. A *wordless* failure (an internal error without a message, a crash that says nothing)
says only that something failed, and what a run did (a store out of bounds, an output that differs)
says not why: it is one bug for each program, until evidence joins them.

- The program is the kernel: its configs, targets and versions belong together, though each has PTX
  of its own, and a bug outlives a change of the source. For raw PTX it is the PTX itself: the file,
  byte for byte, and what it is without its `.version` and debug information. What was tried of it
  on other targets, whose `.target` is another one, is the same program. Of a kernel that is named
  by a file, it is that file: by its path, and by its text, so that it can be edited, or moved.
- What fails in ptxas is known by its PTX as well: the same PTX that fails in the same way is the
  same bug, whichever kernel or file it comes from. That is conclusive, and the only rule by which
  bugs are joined unasked.

A bisection or a reduction stays with one program (or what is left of it): there, equal signatures
are the same failure.
"""

from __future__ import annotations

import hashlib
import re

from harness.values.cell import program_of
from harness.values.row import BugFacts
from harness.values.verdict import Signature, Stage

_DIGITS = 16

# Templates that say that something failed, and not what: no two of them are the same bug for that.
_WORDLESS = re.compile(
    r"(?:SIG[A-Z0-9]+: ?)?"
    r"(?:"
    r"|Internal (?:compiler )?error\.?"
    r"|Ptx assembly aborted due to errors"
    r"|(?:RuntimeError: )?PassManager::run failed"
    r"|Failures have been detected while processing.*"
    r"|A signal was caught while processing the MLIR module.*"
    r"|ptxas ended with exit code N(?: and left no complete cubin|: it said nothing)"
    r"|.* (?:timed out|out of memory)"
    r"|lowered to a trap|the kernel only traps"
    r")",
    re.IGNORECASE,
)


def is_wordless(signature: Signature) -> bool:
    """Whether a failure says nothing that separates it from another one of its kind."""
    is_run = signature.stage == Stage.RUN.value
    return is_run or _WORDLESS.fullmatch(signature.template) is not None


def identities(
    signature: Signature,
    *,
    kernel: str,
    triton: str | None,
    ptx: str | None,
    program: str | None = None,
    file: str | None = None,
) -> tuple[str, ...]:
    """The keys of the bug that a failure belongs to: all of them are one bug's.

    `ptx` is the hash of the program in the PTX, None where there is no PTX; `triton` is None for
    raw PTX, whose `program` is that of the cell that was selected. `file` is as in `Row`.
    """
    if not is_wordless(signature):
        return (signature.key,)
    programs = []
    if triton or not ptx:
        places = [f" {place}" for place in file.split(":")] if file else [""]
        names = [f"{kernel}{place}".encode() for place in places]
        programs += [f"kernel-{hashlib.sha256(name).hexdigest()[:_DIGITS]}" for name in names]
    elif program:
        programs.append(f"file-{program}")
    if ptx:
        programs.append(f"ptx-{ptx[:_DIGITS]}")
    return tuple(f"{signature.key}@{program}" for program in programs)


def bug_key(facts: BugFacts, signature: Signature | None) -> str | None:
    """The key of the bug that a failure belongs to; None where it has no signature.

    Where the parts of the signature were not kept, its key has to do.
    """
    if signature is None:
        return facts.signature
    keys = identities(
        signature,
        kernel=facts.kernel,
        triton=facts.compiler_version,
        ptx=facts.ptx_body_sha256,
        program=program_of(facts.probe_of or facts.cell),
        file=facts.file,
    )
    return keys[0]


def signature_of(key: str) -> str:
    """The key of the signature in a bug's key."""
    return key.partition("@")[0]


def same_program(key: str) -> str:
    """Why two bugs that both have this key are one."""
    if "@ptx-" not in key:
        return "the same file fails in the same way in both"
    return f"the same PTX ({key.partition('@ptx-')[2]}) fails in the same way in both"
