"""The system calls that confined code does not get, by their numbers on x86-64."""

__all__ = ["DENIED", "PRLIMIT"]

_NETWORK = {"socket": 41, "io_uring_setup": 425}
# Landlock rules on the content of files and folders, not on their owners and modes.
_OWNERS_AND_MODES = {
    "chmod": 90,
    "fchmod": 91,
    "chown": 92,
    "fchown": 93,
    "lchown": 94,
    "setxattr": 188,
    "lsetxattr": 189,
    "fsetxattr": 190,
    "removexattr": 197,
    "lremovexattr": 198,
    "fremovexattr": 199,
    "fchownat": 260,
    "fchmodat": 268,
    "fchmodat2": 452,
    "setxattrat": 463,
    "removexattrat": 466,
}
_OTHER_PROCESSES = {
    "ptrace": 101,
    "process_vm_readv": 310,
    "process_vm_writev": 311,
    "pidfd_getfd": 438,
}
_CREDENTIALS = {"add_key": 248, "request_key": 249, "keyctl": 250}
# Root's own calls need no mention: confined, root has no right to them.
DENIED = tuple({**_NETWORK, **_OWNERS_AND_MODES, **_OTHER_PROCESSES, **_CREDENTIALS}.values())
PRLIMIT = 302
"""Gets and sets limits of a process: of this one where the first argument is 0."""
