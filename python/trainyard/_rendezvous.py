"""Who this process is among the others, and where they meet: from arguments and the environment.

Pure functions of a mapping: nothing is connected, resolved or read here.
"""
from __future__ import annotations

from typing import List, Mapping, NamedTuple, Optional, Sequence, Tuple

from trainyard._arguments import whole
from trainyard._errors import InvalidArgument

LOOPBACK = "127.0.0.1"


class Launcher(NamedTuple):
    """The variables in which a launcher tells a process its place."""

    name: str
    rank: str
    size: str
    local_rank: Optional[str]
    local_size: Optional[str]


# In order: the first whose rank is set counts.
LAUNCHERS: Tuple[Launcher, ...] = (
    Launcher("torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"),
    Launcher("Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
             "OMPI_COMM_WORLD_LOCAL_SIZE"),
    Launcher("MPI", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
    Launcher("SLURM", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", None),
)


class Place(NamedTuple):
    """This process among the others. Local: among those of its machine; None where nobody told."""

    rank: int
    size: int
    local_rank: Optional[int] = None
    local_size: Optional[int] = None
    told_by: str = "alone"


class Meeting(NamedTuple):
    """Where all ranks meet: rank 0 listens there. No secret: all of them are on this machine."""

    host: str
    port: int
    secret: Optional[str]


class Locality(NamedTuple):
    """This rank among those of its machine, and its machine among those that have such a rank."""

    local_rank: int
    local_size: int
    cross_rank: int
    cross_size: int


def find_place(environment: Mapping[str, str], rank: Optional[int] = None, size: Optional[int] = None,
               local_rank: Optional[int] = None, local_size: Optional[int] = None) -> Place:
    """The place of this process: of the arguments, else of its launcher, else alone.

    Raises:
        InvalidArgument: half of it is missing, not a number, or out of range.
    """
    if (rank is None) != (size is None):
        raise InvalidArgument("init: rank and size are given together or not at all")
    local_rank, local_size = (None if value is None else whole(value, f"init: {name}")
                              for name, value in (("local_rank", local_rank), ("local_size", local_size)))
    if rank is not None and size is not None:
        return _checked(Place(whole(rank, "init: rank"), whole(size, "init: size"), local_rank, local_size, "init()"))
    for launcher in LAUNCHERS:
        if launcher.rank in environment or (launcher is LAUNCHERS[0] and launcher.size in environment):
            found = _place_of(environment, launcher)
            return _checked(found._replace(
                local_rank=found.local_rank if local_rank is None else local_rank,
                local_size=found.local_size if local_size is None else local_size))
    return Place(0, 1, 0, 1)


def _place_of(environment: Mapping[str, str], launcher: Launcher) -> Place:
    for name in (launcher.rank, launcher.size):
        if name not in environment:
            other = launcher.size if name == launcher.rank else launcher.rank
            raise InvalidArgument(f"{name} is not set, but {other} is ({launcher.name})")
    rank, size = (_number(environment, name) for name in (launcher.rank, launcher.size))
    local_rank, local_size = (
        _number(environment, name) if name is not None and name in environment else None
        for name in (launcher.local_rank, launcher.local_size))
    return Place(rank, size, local_rank, local_size, launcher.name)


def _number(environment: Mapping[str, str], name: str) -> int:
    text = environment[name]
    try:
        return int(text)
    except ValueError:
        raise InvalidArgument(f"{name}: {text!r} is not a number") from None


def _checked(place: Place) -> Place:
    if place.size < 1:
        raise InvalidArgument(f"size: {place.size} is below 1 ({place.told_by})")
    if not 0 <= place.rank < place.size:
        raise InvalidArgument(f"rank: {place.rank} is not from 0 to {place.size - 1} ({place.told_by})")
    for name, value in (("local_rank", place.local_rank), ("local_size", place.local_size)):
        if value is not None and not 0 <= value <= place.size:
            raise InvalidArgument(f"{name}: {value} is not from 0 to {place.size} ({place.told_by})")
    return place


def find_meeting(environment: Mapping[str, str], place: Place, address: Optional[str] = None,
                 secret: Optional[str] = None) -> Optional[Meeting]:
    """Where the ranks meet; None for one that is alone.

    `address` ("host:port" of rank 0) comes first, then TRAINYARD_RENDEZVOUS, then MASTER_ADDR and the port after
    MASTER_PORT, which torch's store has. Without a secret (argument or TRAINYARD_SECRET) only on this machine:
    whoever reaches the port could join otherwise.

    Raises:
        InvalidArgument: nobody said where, or a secret is missing; the text says what to set.
    """
    if place.size == 1:
        return None
    host, port = _meeting_address(environment, place, address)
    secret = secret or environment.get("TRAINYARD_SECRET") or None
    if secret is None and not is_loopback(host):
        raise InvalidArgument(
            f"{host}:{port} is not on this machine: set TRAINYARD_SECRET to the same secret on all ranks "
            "(for example the output of `openssl rand -hex 32`)")
    return Meeting(host, port, secret)


def _meeting_address(environment: Mapping[str, str], place: Place, address: Optional[str]) -> Tuple[str, int]:
    if address is not None:
        return split_address(address, "address")
    named = environment.get("TRAINYARD_RENDEZVOUS")
    if named:
        return split_address(named, "TRAINYARD_RENDEZVOUS")
    host, port = environment.get("MASTER_ADDR"), environment.get("MASTER_PORT")
    if not host or not port:
        raise InvalidArgument(
            f"{place.size} ranks ({place.told_by}), and nobody said where they meet: set "
            "TRAINYARD_RENDEZVOUS=host:port on all of them, the host being that of rank 0 and the port free there "
            "(or MASTER_ADDR and MASTER_PORT)")
    after = _number(environment, "MASTER_PORT") + 1
    if not 1 < after <= 65535:
        raise InvalidArgument(f"MASTER_PORT: {port} and the port after it are not from 1 to 65535")
    # torchrun names this machine by its name in the network even where nobody else takes part.
    return (LOOPBACK if place.local_size == place.size else host), after


def split_address(text: str, where: str) -> Tuple[str, int]:
    """Host and port of "host:port" or "[IPv6]:port"."""
    host, colon, port = text.rpartition(":")
    host = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not colon or not host or not (port.isascii() and port.isdigit()) or not 0 < int(port) <= 65535:
        raise InvalidArgument(f"{where}: {text!r} is not host:port")
    return host, int(port)


def is_loopback(host: str) -> bool:
    """Whether nobody but this machine can be there. Names other than localhost are not resolved."""
    if host in ("localhost", "::1"):
        return True
    parts = host.split(".")
    return len(parts) == 4 and parts[0] == "127" and all(part.isdigit() for part in parts)


def listen_address(host: str) -> str:
    """The address on which a rank listens whose rank 0 is at `host`."""
    if is_loopback(host):
        return "::1" if ":" in host else LOOPBACK
    return "::" if ":" in host else "0.0.0.0"


def find_locality(addresses: Sequence[str], place: Place) -> Locality:
    """From all ranks' "host:port": ranks of one host are one machine. What the launcher told counts more."""
    hosts = [address.rpartition(":")[0] for address in addresses]
    local = [hosts[:rank].count(host) for rank, host in enumerate(hosts)]
    local_rank = local[place.rank] if place.local_rank is None else place.local_rank
    local_size = hosts.count(hosts[place.rank]) if place.local_size is None else place.local_size
    peers: List[int] = [rank for rank in range(place.size) if local[rank] == local[place.rank]]
    return Locality(local_rank, local_size, peers.index(place.rank), len(peers))
