"""The system calls that confined code does not get, by their numbers on x86-64."""

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
_TIMES = {"utime": 132, "utimes": 235, "futimesat": 261, "utimensat": 280}
# System V's and POSIX' objects outlive the process that makes them, and those of other programs
# of the user are reached by number.
_OBJECTS = {
    "shmget": 29,
    "shmat": 30,
    "shmctl": 31,
    "semget": 64,
    "semop": 65,
    "semctl": 66,
    "semtimedop": 220,
    "msgget": 68,
    "msgsnd": 69,
    "msgrcv": 70,
    "msgctl": 71,
    "mq_open": 240,
    "mq_unlink": 241,
}
# Files that lie in memory, and count neither as that of a process nor as those of a folder.
_MEMORY = {"memfd_create": 319, "memfd_secret": 447}
_OTHER_PROCESSES = {
    "ptrace": 101,
    "process_vm_readv": 310,
    "process_vm_writev": 311,
    "kcmp": 312,
    "perf_event_open": 298,
    "process_madvise": 440,
    "pidfd_getfd": 438,
}
_CREDENTIALS = {"add_key": 248, "request_key": 249, "keyctl": 250}
# Root's own calls need no mention: confined, root has no right to them.
_ALL = (_NETWORK, _OWNERS_AND_MODES, _TIMES, _OBJECTS, _MEMORY, _OTHER_PROCESSES, _CREDENTIALS)
DENIED = tuple(number for calls in _ALL for number in calls.values())
PRLIMIT = 302
"""Gets and sets limits of a process: of this one where the first argument is 0."""
