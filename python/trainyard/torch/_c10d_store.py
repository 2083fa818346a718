"""A group whose ranks find each other by a store of torch.distributed."""
from __future__ import annotations

import datetime
import secrets
import socket
from typing import Any, Mapping

from trainyard._errors import InvalidArgument
from trainyard._group import Group
from trainyard._join import Listener, Options, join
from trainyard._rendezvous import LOOPBACK, is_loopback

# Where packets would be sent from that leave this machine; nothing is sent to it.
_ELSEWHERE = "192.0.2.1"


def form_group(store: Any, rank: int, size: int, timeout: datetime.timedelta,
               environment: Mapping[str, str]) -> Group:
    """All ranks call it with one store of their own: each tells where it listens, and connects to the others.

    Args:
        timeout: of joining, and of one operation.

    Raises:
        trainyard.InvalidArgument: there is no such rank.
        trainyard.TimedOut, RankLost, Refused, Unreachable: the ranks do not come together.
    """
    if not 0 <= rank < size:  # the others would wait for the rank that nobody is
        raise InvalidArgument(f"rank {rank} of {size}: ranks are from 0 to {size - 1}")
    seconds = max(timeout.total_seconds(), 0.001)
    options = Options(join_timeout=seconds, timeout=seconds)
    if size == 1:
        return join(None, 0, 1, [], "", options)
    host = own_host(environment)
    with Listener(host) as listener:
        store.set(f"trainyard/address/{rank}", f"[{host}]:{listener.port}" if ":" in host else
                  f"{host}:{listener.port}")
        addresses = [store.get(f"trainyard/address/{each}").decode() for each in range(size)]
        return join(listener, rank, size, addresses, _secret(store, rank, environment), options)


def _secret(store: Any, rank: int, environment: Mapping[str, str]) -> str:
    """Without TRAINYARD_SECRET a random one in the store: who reads that could join torch's own groups too."""
    named = environment.get("TRAINYARD_SECRET")
    if named:
        return named
    if rank == 0:
        store.set("trainyard/secret", secrets.token_hex(32))
    return str(store.get("trainyard/secret").decode())


def own_host(environment: Mapping[str, str]) -> str:
    """This machine's address for the other ranks: TRAINYARD_HOST, else that from which MASTER_ADDR is reached."""
    named = environment.get("TRAINYARD_HOST")
    if named:
        return named
    master = environment.get("MASTER_ADDR", "localhost")
    one_machine = environment.get("LOCAL_WORLD_SIZE", "") == environment.get("WORLD_SIZE", "none")
    if one_machine or is_loopback(master):
        return LOOPBACK
    found = _source_address(master)
    # Rank 0 reaches its own name by the loopback device, and others do not reach it by that.
    if is_loopback(found):
        found = _source_address(_ELSEWHERE)
    return found


def _source_address(destination: str) -> str:
    try:
        family, kind, _, _, address = socket.getaddrinfo(destination, 1, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as probe:
            probe.connect(address)
            return str(probe.getsockname()[0])
    except OSError:
        return LOOPBACK
