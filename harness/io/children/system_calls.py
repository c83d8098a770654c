"""The system calls that confined code does not get, or gets in part, by their numbers on x86-64.

The whole table of Linux was read for this, up to `NEWEST`: what is newer is denied unread.
"""


def _calls(table: str) -> tuple[int, ...]:
    """The numbers in a table, each of which follows the name of its call."""
    return tuple(map(int, table.split()[1::2]))


# Without `socket` there is nothing that a program could connect; an inherited socket is connected.
_NETWORK = _calls("socket 41 connect 42 accept 43 bind 49 listen 50 accept4 288 io_uring_setup 425")
# Landlock rules on the content of files and folders, not on their owners, modes and attributes.
_OWNERS_AND_MODES = _calls(
    """
    chmod 90 fchmod 91 chown 92 fchown 93 lchown 94 setxattr 188 lsetxattr 189 fsetxattr 190
    removexattr 197 lremovexattr 198 fremovexattr 199 fchownat 260 fchmodat 268 fchmodat2 452
    setxattrat 463 removexattrat 466 file_setattr 469
    """
)
_TIMES = _calls("utime 132 utimes 235 futimesat 261 utimensat 280")
# System V's and POSIX' objects outlive the process that makes them, and those of other programs
# of the user are reached by number.
_OBJECTS = _calls(
    """
    shmget 29 shmat 30 shmctl 31 semget 64 semop 65 semctl 66 semtimedop 220 msgget 68 msgsnd 69
    msgrcv 70 msgctl 71 mq_open 240 mq_unlink 241
    """
)
# Files that lie in memory, and count neither as that of a process nor as those of a folder.
_MEMORY = _calls("memfd_create 319 memfd_secret 447")
_OTHER_PROCESSES = _calls(
    """
    ptrace 101 process_vm_readv 310 process_vm_writev 311 kcmp 312 perf_event_open 298
    process_madvise 440 pidfd_getfd 438
    """
)
_CREDENTIALS = _calls("add_key 248 request_key 249 keyctl 250")
# In a namespace of its own a program has all capabilities; these are doors to the kernel.
_KERNEL = _calls("unshare 272 setns 308 bpf 321 userfaultfd 323")
# Root's own calls need no mention: confined, root has no right to them.
DENIED = (
    *(*_NETWORK, *_OWNERS_AND_MODES, *_TIMES, *_OBJECTS),
    *(*_MEMORY, *_OTHER_PROCESSES, *_CREDENTIALS, *_KERNEL),
)

NEWEST = 469
"""The newest call that was read, of Linux 6.17; a program takes a newer one for missing."""
MISSING = 435
"""`clone3`, whose flags a filter cannot read: without it, libraries call `clone`."""

# Those of files that change nothing, and of pipes and terminals: by `ioctl` file systems also make
# snapshots, encrypt, and change attributes, each by requests of its own.
_REQUESTS = (
    0x5401,  # TCGETS: `isatty`
    0x802C542A,  # TCGETS2: as above, since glibc 2.42
    0x5413,  # TIOCGWINSZ
    0x541B,  # FIONREAD
    0x5421,  # FIONBIO
    0x5450,  # FIONCLEX
    0x5451,  # FIOCLEX
    0x80086601,  # FS_IOC_GETFLAGS
)
_NAMESPACES = (
    0x7E020000  # CLONE_NEWNS, ..NEWCGROUP, ..NEWUTS, ..NEWIPC, ..NEWUSER, ..NEWPID, ..NEWNET
)
_ANY, _ITSELF = 0xFFFFFFFF, (0,)
LIMITED: dict[int, tuple[tuple[int, int, tuple[int, ...]], ...]] = {
    # A pair of datagram sockets would reach every listener that has a path (AF_UNIX, SOCK_STREAM).
    53: ((0, _ANY, (1,)), (1, 0xF, (1,))),  # socketpair
    16: ((1, _ANY, _REQUESTS),),  # ioctl
    56: ((0, _NAMESPACES, (0,)),),  # clone
    # How this process is scheduled, and what it may use, is its own affair.
    141: ((0, _ANY, (0,)), (1, _ANY, _ITSELF)),  # setpriority: PRIO_PROCESS
    251: ((0, _ANY, (1,)), (1, _ANY, _ITSELF)),  # ioprio_set: IOPRIO_WHO_PROCESS
    142: ((0, _ANY, _ITSELF),),  # sched_setparam
    144: ((0, _ANY, _ITSELF),),  # sched_setscheduler
    203: ((0, _ANY, _ITSELF),),  # sched_setaffinity
    256: ((0, _ANY, _ITSELF),),  # migrate_pages
    279: ((0, _ANY, _ITSELF),),  # move_pages
    302: ((0, _ANY, _ITSELF),),  # prlimit
    314: ((0, _ANY, _ITSELF),),  # sched_setattr
}
"""What the arguments of a call may be: `(which argument, mask, values)`, all of them."""
