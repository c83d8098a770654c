"""What tools say when they fail: their wordings, and the line of a log that tells why.

Wordings are data; what one means is `harness.judging.judge`'s. Compilers print the same words when
they recover, so none says by itself that something failed.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from harness.values.outcome import RaisedError

if TYPE_CHECKING:
    from harness.judging.ptxas.ptxas_log import Message


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
# And with which it says that the code uses what its target does not have: ptxas 11.7 - 13.5.
PTXAS_NOT_ON_TARGET = re.compile(
    r"requires \.target|not supported on \.target|cannot be compiled for architecture"
)
# What ptxas says when this machine fails it.
PTXAS_FILE_TROUBLE = re.compile(
    r"could not be opened|[Cc]ould not open|No space left on device|[Cc]an(?:no|')t open"
)
# And where there was no memory for it: ptxas 11.7 - 13.5, LLVM 19 - 22, the library of C++.
NO_MEMORY = re.compile(r"Memory allocation failure|[Oo]ut of memory|\bstd::bad_alloc\b")
_INTERNAL_ERROR = re.compile(r"\binternal (?:compiler )?error\b", re.IGNORECASE)
_INTERNAL = re.compile(r"\binternal\b", re.IGNORECASE)
_QUOTED = re.compile(r"'[^']*'")

# The same as `PTXAS_UNSUPPORTED`, of Triton 3.2 - 3.9, in the message of what it raises.
TRITON_UNSUPPORTED = re.compile(
    r"only support CUDA [\d.]+ or higher"
    r"|Unsupported CUDA version"
    r"|[Uu]nsupported (?:gpu|GPU) architecture"
)
# A launch passes what neither the kernel nor this Triton knows: Triton 3.2 - 3.9.
TRITON_UNKNOWN_KEYWORD = re.compile(r"Keyword argument (\w+) was specified but unrecognised")
# Settings of a launch that only some of Triton 3.2 - 3.9 know (fields of `CUDAOptions`, and those
# that `triton.Config` takes). Any other keyword is a mistake of the launch.
_OPTIONS = frozenset(
    (
        *("arch", "clc", "cluster_dims", "enable_reflect_ftz", "fpsan_homomorphic_casts"),
        *("instrumentation_mode", "ir_override", "launch_cooperative_grid", "launch_pdl"),
        *("maxnreg", "min_shared_mem", "num_buffers_warp_spec", "num_consumer_groups"),
        *("ptx_options", "reg_dec_producer", "reg_inc_consumer", "warp_size"),
    )
)
# Triton 3.2 aborts by this assertion on targets that it does not know.
TRITON_UNKNOWN_CAPABILITY = re.compile(r"computeCapability not supported")
# The kernel uses a function that came with a later release, or went with one: Triton 3.2 - 3.9.
TRITON_OTHER_RELEASE = re.compile(r"module 'triton(?:\.language[\w.]*)?' has no attribute '\w+'")
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

# Lines with which LLVM, or an assertion of the C library, ends what was running: the process, or
# the pass, where MLIR recovers (Triton 3.3 - 3.9). The assertion names the program, the file, the
# line, and the function with its whole type, which may be longer than the rest.
_CRASH = re.compile(r"^(?:LLVM ERROR\b|UNREACHABLE executed\b|Unreachable executed\b)")
ASSERTION = re.compile(
    r"(?:^|[\s/])(?P<file>[\w.+-]{1,200}\.(?:cpp|cc|c|h|hpp|inc|td)):(?P<line>\d+): "
    r"(?:[^\n]{0,8000}?: )?(?P<said>Assertion [`'][^\n]{1,2000}?' failed)\.?\s*$"
)
# The parser of MLIR, in the message of what Triton 3.2 - 3.9 raises when it reads a file of IR.
_PARSER = re.compile(r"Parse MLIR file failed|failed to parse", re.IGNORECASE)

_CARETS = re.compile(r"[\^~ ]+")
# The line of a traceback that names an exception: the first one started the chain.
_RAISED = re.compile(r"^(?:\w+\.)*\w+(?:Error|Exception|Failure)\b.*", re.MULTILINE)

# Words of a log that say why a process died, the telling ones first. Python's own report of the
# signal ("Fatal Python error: Aborted") is in no group: it says only that the process died.
_DEATH = (
    re.compile(r"LLVM ERROR|Assertion|UNREACHABLE|Unreachable executed"),
    re.compile(r"terminate called|what\(\):|(?<!Python )\berror: |\bfatal\b"),
)
_CAUGHT = "A signal was caught while processing the MLIR module"
_GENERIC_ERRORS = (
    "Failures have been detected while processing",
    "PassManager::run failed",
    "RuntimeError: PassManager::run failed",
    _CAUGHT,
)
# The assertion without words that started a chain of exceptions, as its source code has it.
_BARE_ASSERTION = re.compile(r"^ +(assert [^\n]+)\n(?: +[~^]+ *\n)?AssertionError *$", re.MULTILINE)
# Classes by which Python code says what is wrong with what it was given; and those that it raises
# where no author thought of it, whatever wraps them.
_REFUSALS = frozenset({"ValueError", "TypeError", "NotImplementedError", "AssertionError"})
_OWN_ERRORS = re.compile(
    r"(?:KeyError|UnboundLocalError|SystemError|RecursionError|ModuleNotFoundError)\b"
)
_RAISE_STATEMENT = re.compile(r"^ +raise \w", re.MULTILINE)


def is_internal(message: str, code: str | None) -> bool:
    """Whether ptxas blames itself; what is quoted are names of the kernel's."""
    words = _QUOTED.sub("", message)
    return bool(_INTERNAL_ERROR.search(words) or (code and _INTERNAL.search(words)))


def worst(messages: tuple[Message, ...]) -> Message | None:
    """The message that says what failed: the first fatal one with a code, an error, a fatal one.

    ptxas ends every failed run with a fatal line that only says so; the errors before it tell why.
    """
    fatal = [message for message in messages if message.severity == "fatal"]
    errors = [message for message in messages if message.severity == "error"]
    coded = [message for message in [*fatal, *errors] if message.code]
    return next(iter([*coded, *errors, *fatal]), None)


def without_name(message: str, name: str | None) -> str:
    """A message without the kernel's name, which is not part of the failure."""
    if name is None:
        return message
    return re.sub(rf"(?<![\w$]){re.escape(name)}(?![\w$])", "KERNEL", message)


def essence(error: RaisedError) -> str:
    """One line for an exception that Triton raised.

    Triton quotes source code first, underlined by a caret, and says what is wrong below. Where it
    says nothing there (Triton 3.2), the exception that started it all does.
    """
    lines = [line.strip() for line in error.message.splitlines() if line.strip()]
    carets = [number for number, line in enumerate(lines) if _CARETS.fullmatch(line)]
    words = lines[carets[-1] + 1 :] if carets else lines
    if words:
        return f"{error.type}: {words[0][:300]}"
    cause = _cause(error)
    if cause and (bare := _BARE_ASSERTION.search(error.traceback)):
        cause = f"AssertionError: {bare[1]}"
    return f"{error.type}: {cause[:300]}" if cause else error.type


def _cause(error: RaisedError) -> str:
    """The line of the traceback that names the exception which started it all."""
    match = _RAISED.search(error.traceback)
    return match[0] if match else ""


def is_refusal(error: RaisedError) -> bool:
    """Whether Triton says what is wrong with the source, and has not tripped over itself.

    Its own error class says so, unless it wraps an exception that is never raised on purpose; so
    does an exception of Python with words for the user.
    """
    if "CompilationError" in error.kinds or "TritonError" in error.kinds:
        words = essence(error).partition(": ")[2]
        return not (_OWN_ERRORS.match(words) or _OWN_ERRORS.match(_cause(error)))
    if not error.message.strip():
        return False
    # What C++ raises as a RuntimeError has no such statement.
    on_purpose = error.type == "RuntimeError" and _RAISE_STATEMENT.search(
        error.traceback.rpartition("\n  File ")[2]
    )
    return error.type in _REFUSALS or bool(on_purpose)


def is_option(keyword: str) -> bool:
    """Whether some Triton knows this keyword of a launch."""
    return keyword in _OPTIONS


def is_parser_error(error: RaisedError, log: str) -> bool:
    """Whether Triton's reader of IR refused its text."""
    return bool(_PARSER.search(error.message)) or (
        error.type == "RuntimeError" and bool(first_error(log))
    )


def last_words(log: str) -> str:
    """The line of a log that says why a process died: the last one of the most telling kind."""
    return _last_line(log, *(pattern.search for pattern in _DEATH))


def crash_words(log: str) -> str:
    """The line by which LLVM or an assertion ended a pass or the process; empty without one.

    An assertion is shortened to its file and expression.
    """
    return _last_line(log, lambda line: _CRASH.match(line) or ASSERTION.search(line))


def _last_line(log: str, *telling: Callable[[str], object]) -> str:
    """The last line for which the first of these says so that does for any."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    numbers = (n for tells in telling for n in reversed(range(len(lines))) if tells(lines[n]))
    number = next(numbers, None)
    if number is None:
        return ""
    if assertion := ASSERTION.search(lines[number]):
        return f"{assertion['file']}: {assertion['said']}"
    # LLVM's "UNREACHABLE executed at FILE:LINE" comes below what it has to say.
    below = number and lines[number].startswith("UNREACHABLE")
    return (f"{lines[number - 1]}; " if below else "")[:300] + lines[number][:300]


def first_error(log: str) -> str:
    """The first error that MLIR reports which says more than that a pass failed."""
    errors = [match[1].strip()[:300] for match in re.finditer(r"\berror: ([^\n]+)", log)]
    telling = [text for text in errors if not is_generic(text)]
    return next(iter([*telling, *errors]), "")


def is_generic(message: str) -> bool:
    """Whether an error says no more than that a pass failed."""
    return message.startswith(_GENERIC_ERRORS)


def is_crash(message: str) -> bool:
    """Whether MLIR says that a pass died, and not only that it failed."""
    return message.startswith(_CAUGHT)


def llvm_error(log: str) -> str | None:
    """The first error that LLVM's code generator reports without ending the process."""
    match = _LLVM_ERROR.search(log)
    return match[1].strip()[:300] if match else None


def line_of(text: str, position: int) -> str:
    """The line of a text around a position."""
    start = text.rfind("\n", 0, position) + 1
    stop = text.find("\n", position)
    return text[start : stop if stop >= 0 else len(text)].strip()[:300]
