"""What answers at the address of a scheduler: nothing, something silent, or no TLS."""

from __future__ import annotations

import asyncio
import socket
from contextlib import closing

import pytest

from harness.io.processes import cluster as dask_cluster
from harness.io.processes.cluster import open_machines
from harness.values.errors import InfrastructureError, UsageError


async def reach(address: str) -> None:
    async with open_machines(address):
        pass


def test_a_port_that_accepts_and_says_nothing_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dask_cluster, "_ANSWER_SECONDS", 1.0)
    with closing(socket.create_server(("127.0.0.1", 0))) as silent:
        address = f"tcp://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(InfrastructureError, match="no Dask scheduler answers at tcp://"):
            asyncio.run(asyncio.wait_for(reach(address), 30))


def test_tls_that_nobody_set_up_is_wrong_usage() -> None:
    with pytest.raises(UsageError, match=r"tls://127.0.0.1:1: Dask is not set up for it: TLS"):
        asyncio.run(reach("tls://127.0.0.1:1"))
