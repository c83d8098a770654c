"""What tools say when they fail: their wordings, and the line of a log that tells why.

Wordings are data; what one means is `harness.logic.judge`'s. Compilers print the same words when
they recover, so none says by itself that something failed.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from harness.logic.ptxas_log import Message
    from harness.values.outcome import RaisedError

__all__ = [
    "LLVM_FATAL",
    "LLVM_UNKNOWN_PROCESSOR",
    "LLVM_UNSUPPORTED",
    "PASS_FAILED",
    "PTXAS_FILE_TROUBLE",
    "PTXAS_NO_MEMORY",
    "PTXAS_UNSUPPORTED",
    "TRITON_OVERFLOW",
    "TRITON_UNKNOWN_CAPABILITY",
    "TRITON_UNSUPPORTED",
    "essence",
    "first_error",
    "is_generic",
    "is_internal",
    "last_words",
    "line_of",
    "llvm_error",
    "without_name",
    "worst",
]

# Phrases with which a toolchain says that it cannot do a target, a PTX version or a partner,
# whatever the kernel. Wordings of ptxas 11.7 - 13.5: they speak of `.version`, `.target` and
# `--gpu-name` only. What speaks of a "Feature" or an "Instruction" (`Feature 'cp.async' requires
# .target sm_80 or higher`, `... requires PTX ISA .version 8.6 or later`, `Instruction 'wgmma.fence'
# not supported on .target 'sm_90'`) is not here: the kernel uses what its own header rules out, and
# another kernel would be assembled. Those are ptxas_error.
PTXAS_UNSUPPORTED = re.compile(
    r"Unsupported \.version"
    r"|Unsupported \.target"
    r"|PTX \.version [\d.]+ does not support \.target"
    r"|Value '[^']*' is not defined for option 'gpu-name'"
    r"|SM version specified by \.target is higher than default"
    r"|(?:PTX|Program) with \.target '[^']*' cannot be compiled (?:for|to)\b"
)
# What ptxas says when this machine fails it.
PTXAS_FILE_TROUBLE = re.compile(
    r"could not be opened|[Cc]ould not open|No space left on device|[Cc]an(?:no|')t open"
)
PTXAS_NO_MEMORY = re.compile(r"Memory allocation failure|[Oo]ut of memory")
_INTERNAL_ERROR = re.compile(r"\binternal (?:compiler )?error\b", re.IGNORECASE)
_INTERNAL = re.compile(r"\binternal\b", re.IGNORECASE)
_QUOTED = re.compile(r"'[^']*'")

# The same as `PTXAS_UNSUPPORTED`, of Triton 3.2 - 3.9, in the message of what it raises.
TRITON_UNSUPPORTED = re.compile(
    r"only support CUDA [\d.]+ or higher"
    r"|Unsupported CUDA version"
    r"|[Uu]nsupported (?:gpu|GPU) architecture"
    r"|Keyword argument \w+ was specified but unrecognised"
)
# Triton 3.2 aborts by this assertion on targets that it does not know.
TRITON_UNKNOWN_CAPABILITY = re.compile(r"computeCapability not supported")
PASS_FAILED = re.compile(r"PassManager::run failed|pass pipeline|Pipeline failed")
TRITON_OVERFLOW = re.compile(
    r"out of resource: ([\w ]{1,40}), Required: (\d{1,15}), Hardware limit: (\d{1,15})"
)
# LLVM only warns of a target that it does not know, goes on for an older one, and may then fail.
# LLVM 19 - 22 end the process by `exit(1)` after this, without a signal.
LLVM_FATAL = re.compile(r"LLVM ERROR")
LLVM_UNSUPPORTED = re.compile(r"PTX version [\d.]+ does not support target")
# A diagnostic of LLVM's code generator; those of MLIR name a place before the word.
_LLVM_ERROR = re.compile(r"^error: ([^\n]+)", re.MULTILINE)
LLVM_UNKNOWN_PROCESSOR = re.compile(r"'(sm_\w+)' is not a recognized processor")

_CARETS = re.compile(r"[\^~ ]+")
# The line of a traceback that names an exception: the first one started the chain.
_RAISED = re.compile(r"^(?:\w+\.)*\w+(?:Error|Exception|Failure)\b.*", re.MULTILINE)

# Words of a log that say why a process died, the telling ones first. Python's own report of the
# signal ("Fatal Python error: Aborted") is in no group: it says only that the process died.
_DEATH = (
    re.compile(r"LLVM ERROR|Assertion|UNREACHABLE|Unreachable executed"),
    re.compile(r"terminate called|what\(\):|(?<!Python )\berror: |\bfatal\b"),
)
_GENERIC_ERRORS = ("Failures have been detected while processing", "PassManager::run failed")


def is_internal(said: str, code: str | None) -> bool:
    """Whether ptxas blames itself; what is quoted are names of the kernel's."""
    words = _QUOTED.sub("", said)
    return bool(_INTERNAL_ERROR.search(words) or (code and _INTERNAL.search(words)))


def worst(messages: tuple[Message, ...]) -> Message | None:
    """The message that says what failed: the first fatal one with a code, an error, a fatal one.

    ptxas ends every failed run with a fatal line that only says so; the errors before it tell why.
    """
    fatal = [message for message in messages if message.severity == "fatal"]
    errors = [message for message in messages if message.severity == "error"]
    coded = [message for message in [*fatal, *errors] if message.code]
    return next(iter([*coded, *errors, *fatal]), None)


def without_name(said: str, name: str | None) -> str:
    """A message without the kernel's name, which is no part of the failure."""
    if name is None:
        return said
    return re.sub(rf"(?<![\w$]){re.escape(name)}(?![\w$])", "KERNEL", said)


def essence(error: RaisedError) -> str:
    """One line for an exception that Triton raised.

    Triton quotes source code first, underlined by a caret, and says what is wrong below. Where it
    says nothing there (Triton 3.2), the exception that started it all does.
    """
    lines = [line.strip() for line in error.message.splitlines() if line.strip()]
    carets = [number for number, line in enumerate(lines) if _CARETS.fullmatch(line)]
    said = lines[carets[-1] + 1 :] if carets else lines
    if said:
        return f"{error.type}: {said[0][:300]}"
    cause = _RAISED.search(error.traceback)
    return f"{error.type}: {cause[0][:300]}" if cause else error.type


def last_words(log: str) -> str:
    """The line of a log that says why a process died: the last one of the most telling kind."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    for telling in _DEATH:
        for number in reversed(range(len(lines))):
            if telling.search(lines[number]):
                # LLVM's "UNREACHABLE executed at FILE:LINE" comes below what it has to say.
                below = number and lines[number].startswith("UNREACHABLE")
                return (f"{lines[number - 1]}; " if below else "")[:300] + lines[number][:300]
    return ""


def first_error(log: str) -> str:
    """The first error that MLIR reports which says more than that a pass failed."""
    found = [match[1].strip()[:300] for match in re.finditer(r"\berror: ([^\n]+)", log)]
    telling = [text for text in found if not is_generic(text)]
    return next(iter([*telling, *found]), "")


def is_generic(said: str) -> bool:
    """Whether an error says no more than that a pass failed."""
    return said.startswith(_GENERIC_ERRORS)


def llvm_error(log: str) -> str | None:
    """The first error that LLVM's code generator reports without ending the process."""
    match = _LLVM_ERROR.search(log)
    return match[1].strip()[:300] if match else None


def line_of(text: str, position: int) -> str:
    """The line of a text around a position."""
    start = text.rfind("\n", 0, position) + 1
    end = text.find("\n", position)
    return text[start : end if end >= 0 else len(text)].strip()[:300]
