"""Other machines: pieces of work are sent there, and what they answer comes back.

They are the workers of Dask's scheduler at an address, or processes of this machine. `distributed`
is an extra, and takes half a second to import: only what is asked for here does.
"""

from __future__ import annotations

import abc
import asyncio
import contextlib
import logging
import re
import secrets
import warnings
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from harness.io.files.writing import Scratch
from harness.values.errors import CannotGoOnError, InfrastructureError, UsageError

if TYPE_CHECKING:
    from distributed import Client, LocalCluster


class LostWorkersError(InfrastructureError):
    """The machines at work on one piece were lost, again and again: perhaps the piece did that."""


class MachinesGoneError(CannotGoOnError):
    """A command cannot go on without the machines that it was started with."""


class Machines(abc.ABC):
    """Machines that have this program and the package index, and nothing else of this one.

    `words` say which they are, `at_once` how many pieces of work they take side by side.
    `are_here`: they are processes of this machine, with as many compilers as it may have at once.
    """

    words: str
    at_once: int
    are_here: bool

    @abc.abstractmethod
    async def run(
        self, work: Callable[[bytes], bytes], message: bytes, *, name: str, rank: int
    ) -> bytes:
        """What one of our module-level functions answers to a message, on one of the machines.

        Work that was lost with its machine is done again on another. `name` is shown to who looks
        at the machines; of what waits, the least `rank` begins first.

        Raises:
            LostWorkersError: every machine that was at work on it was lost.
            InfrastructureError: what hands out the work cannot be reached any more.
        """


_LOCAL = re.compile(r"local:([1-9]\d{0,2})")
_ADDRESS = re.compile(r"(?:(?:tcp|tls|ws|wss)://)?(?:[\w.-]+|\[[0-9a-fA-F:.%]+\]):([0-9]{1,5})")
_CONNECT_SECONDS = 10.0
_ANSWER_SECONDS = 30.0
_GOODBYE_SECONDS = 2.0
# Threads of a process here load each compiler once, and do once what their tasks have in common; an
# interpreter keeps a handful of compilers busy.
_MOST_THREADS = 4
# Of processes of this machine: they are forks of one that has imported what all of them need, and
# look after themselves seldom. By default each imports it by itself, and each process wakes fifty
# times a second, for as long as a compiler runs.
_PREFERENCES = {
    "distributed.worker.multiprocessing-method": "forkserver",
    "distributed.worker.profile.enabled": False,
    "distributed.admin.system-monitor.interval": "10s",
    "distributed.admin.tick.interval": "1s",
    "distributed.scheduler.work-stealing-interval": "1s",
}


def local_workers(where: str) -> int | None:
    """How many compilers at once `local:N` asks for; None where it is an address.

    Raises:
        UsageError: it is neither.
    """
    if match := _LOCAL.fullmatch(where):
        return int(match[1])
    address = _ADDRESS.fullmatch(where)
    if where.startswith("local:") or not address or not 0 < int(address[1]) < 1 << 16:
        raise UsageError(
            f"--scheduler {where[:80]}: write tcp://HOST:PORT, or local:N with N from 1 to 999"
        )
    return None


@contextlib.asynccontextmanager
async def open_machines(where: str, *works: Callable[[bytes], bytes]) -> AsyncIterator[Machines]:
    """The workers of a scheduler, or processes here, for as long as the block lasts.

    `works` is what they will be asked for, which processes here load once for all.

    Raises:
        UsageError: Dask is not installed, or `where` is not an address.
        InfrastructureError: nothing answers there.
    """
    count = local_workers(where)
    try:
        import distributed  # noqa: PLC0415 - an extra, and 0.5 s
    except ImportError as error:
        raise UsageError(
            f"--scheduler needs Dask: pip install 'kernel-triage[dask]' ({error})"
        ) from error
    # What Dask logs is for who runs its machines. What matters to a result is checked there.
    for name in [
        logger for logger in logging.root.manager.loggerDict if logger.startswith("distributed")
    ]:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    warnings.filterwarnings("ignore", category=distributed.versions.VersionMismatchWarning)
    # Buffers of a launch travel once, with the one task that needs them.
    warnings.filterwarnings("ignore", message="Sending large graph")
    # The page of processes of this machine has no address that a user is given.
    warnings.filterwarnings("ignore", message="Port [0-9]+ is already in use")
    async with contextlib.AsyncExitStack() as opened:
        address: str | LocalCluster = where
        if count is not None:
            import dask  # noqa: PLC0415
            from distributed.utils import get_mp_context  # noqa: PLC0415

            chosen: contextlib.AbstractContextManager[object] = dask.config.set(_PREFERENCES)
            # It names what Dask itself needs, when it is first asked for.
            get_mp_context().set_forkserver_preload(
                ["distributed", *dict.fromkeys(work.__module__ for work in works)]
            )
            opened.enter_context(chosen)
            opened.enter_context(_folder())
            threads = next(n for n in range(_MOST_THREADS, 0, -1) if count % n == 0)
            address = await opened.enter_async_context(
                distributed.LocalCluster(
                    n_workers=count // threads,
                    threads_per_worker=threads,
                    processes=True,
                    asynchronous=True,
                    dashboard_address=None,
                    silence_logs=logging.CRITICAL,
                    # Compilers are processes of their own, each with its own limit.
                    memory_limit=None,
                )
            )
        client, there = await _connected(address, where)
        opened.push_async_callback(client.close, timeout=_GOODBYE_SECONDS)
        at_once = count or there or 1
        yield _DaskMachines(client=client, words=where, at_once=at_once, are_here=count is not None)


@contextlib.contextmanager
def _folder() -> Iterator[None]:
    """Where Dask and multiprocessing keep files: if this process is killed, the next run sweeps."""
    import multiprocessing  # noqa: PLC0415

    import dask  # noqa: PLC0415

    with Scratch() as folder, dask.config.set({"temporary-directory": str(folder)}):
        # There is no public way to name it; children inherit it.
        config = multiprocessing.current_process()._config  # type: ignore[attr-defined]  # noqa: SLF001
        before = config.get("tempdir")
        config["tempdir"] = str(folder)
        try:
            yield
        finally:
            config["tempdir"] = before


async def _connected(address: str | LocalCluster, where: str) -> tuple[Client, int]:
    """The client, and how many threads the workers have by now."""
    from distributed import Client  # noqa: PLC0415

    client = Client(address, asynchronous=True, timeout=_CONNECT_SECONDS, set_as_default=False)

    async def greet() -> int:
        await client
        return sum((await client.nthreads()).values())

    try:
        # Its own timeout is that of the connection: something else may listen there, and be silent.
        # What runs here answers, however busy this machine is.
        seconds = _ANSWER_SECONDS if isinstance(address, str) else None
        return client, await asyncio.wait_for(greet(), seconds)
    except TypeError as error:
        raise UsageError(f"--scheduler {where[:80]}: Dask is not set up for it: {error}") from error
    except (TimeoutError, OSError, ValueError) as error:
        raise InfrastructureError(
            f"no Dask scheduler answers at {where[:80]}; start one there, or use local:N"
        ) from error
    finally:
        if client.status != "running":
            with contextlib.suppress(Exception):
                await asyncio.wait_for(client.close(timeout=_GOODBYE_SECONDS), _GOODBYE_SECONDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class _DaskMachines(Machines):
    """As `Machines`: one task of Dask for each piece of work, which Dask gives to free workers."""

    client: Client
    words: str
    at_once: int
    are_here: bool
    # Another client's tasks may have the same names.
    suffix: str = field(default_factory=lambda: secrets.token_hex(4))

    async def run(
        self, work: Callable[[bytes], bytes], message: bytes, *, name: str, rank: int
    ) -> bytes:
        from distributed import CancelledError, KilledWorker  # noqa: PLC0415

        key = f"{name}-{self.suffix}{secrets.token_hex(4)}"
        try:
            future = self.client.submit(work, message, key=key, priority=-rank, pure=False)
            answer: bytes = await future
        except KilledWorker as error:
            raise LostWorkersError(
                f"{name}: the worker that was at work on it was lost"
                f" {error.allowed_failures + 1} times"
            ) from error
        except ModuleNotFoundError as error:
            raise InfrastructureError(
                f"the workers of {self.words} have no module {error.name}: install there what is"
                " installed here"
            ) from error
        except (CancelledError, OSError) as error:
            raise self._gone() from error
        except RuntimeError as error:
            # What Dask says of a client that was closed meanwhile.
            if self.client.status == "running":
                raise
            raise self._gone() from error
        return answer

    def _gone(self) -> InfrastructureError:
        return InfrastructureError(
            f"the scheduler at {self.words} is gone; what came back is stored, and the same"
            " command goes on from there"
        )
