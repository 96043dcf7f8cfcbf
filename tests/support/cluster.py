"""A cluster of three masters behind a proxy that gives each key the tag of its group, for clients that know neither."""

import asyncio
import binascii
import hashlib
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import hiredis

from tests.support.eventually import wait_until
from tests.support.fleet import free_port
from tests.support.repeated_scripts import name_of
from tests.support.store import Store

MASTERS = 3
SLOTS = 16384

_KEY = re.compile(rb"(?:vinoqueue:([a-z-]+)|arq:job)(?::(.*))?", re.DOTALL)
"""A key: its kind and its name."""

_LITERAL = re.compile(rb"(?<=')(?:vinoqueue:[a-z-]+|arq:job)(?=[:'])")
"""A key, or the prefix of keys, in the text of a script."""

_CROSSED = re.compile(rb"-.*(CROSSSLOT|do not hash to the same slot|non local key)")

GROUPS = {
    "model": "queue inflight claims sizes load serving ended booking dead-letters reaped moves fair-queue prefixes "
    "reserved noted state journal arq",
    "owner": "buckets spent spent-booked admitted",
    "stored": "stored stored-index stored-running stored-journal stored-sizes stored-owners stored-expiry",
    "files": "file file-index file-sizes files-folder batch batch-index batches",
    "admin": "keys teams audit replicas-closed",
    "fleet": "workers replicas nodes worker replica node models models-seen",
    "placements": "placements",
    "usage": "usage usage-booked",
}
"""The kinds of keys of each group. A group is of one model, of one API key or team, or of all."""

_GROUP_OF = {kind: group for group, kinds in GROUPS.items() for kind in kinds.split()}


@cache
def tag_of(group: str) -> bytes:
    """The tag of a group. Groups that are asked for one after the other are on different masters."""
    wanted = _tags.setdefault(group, len(_tags)) % MASTERS
    return next(tag for tag in (b"%s-%d" % (group.encode(), at) for at in range(SLOTS)) if master_of(tag) == wanted)


_tags: dict[str, int] = {}


def master_of(tag: bytes) -> int:
    """The number of the master with the slot of a tag."""
    return binascii.crc_hqx(tag, 0) % SLOTS * MASTERS // SLOTS


def group_of(key: bytes) -> str | None:
    """The group of a key; None for what is no key."""
    if (found := _KEY.match(key)) is None:
        return None
    kind, name = (found[1] or b"arq").decode(), (found[2] or b"").decode()
    group = None if kind in ("to-worker", "to-replica") else _GROUP_OF[kind]
    return f"owner:{name}" if group == "owner" else group


def tagged(key: bytes) -> bytes:
    """A key with the tag of its group; anything else as it is."""
    group = group_of(key)
    return key if group is None else b"{%s}%s" % (tag_of(group), key)


class Cluster:
    """Three masters and the proxy. ``crossed`` are the scripts that have touched two groups, and how."""

    def __init__(self, folder: Path, server: Path) -> None:
        options = ("--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf")
        self._masters = [Store(folder / str(at), free_port(), *options, server=server) for at in range(MASTERS)]
        self.crossed: dict[str, str] = {}
        self.ran: set[str] = set()
        self._texts: dict[bytes, bytes] = {}

    def start(self) -> None:
        """Start the masters, and wait until they are one cluster."""
        bounds = [-(-SLOTS * at // MASTERS) for at in range(MASTERS + 1)]
        for at, master in enumerate(self._masters):
            master.start()
            with master.client() as client:
                client.execute_command("CLUSTER", "ADDSLOTSRANGE", bounds[at], bounds[at + 1] - 1)
                client.execute_command("CLUSTER", "MEET", "127.0.0.1", self._masters[0].port)
        wait_until(lambda: all(map(_is_ready, self._masters)), "the cluster to form")

    def kill(self) -> None:
        """End it at once."""
        for master in self._masters:
            master.kill()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve a connection to the proxy."""
        links = [await asyncio.open_connection("127.0.0.1", master.port) for master in self._masters]
        requests = hiredis.Reader()
        queued: list[list[bytes]] | None = None
        try:
            while data := await reader.read(2**16):
                requests.feed(data)
                while command := requests.gets():
                    name = command[0].upper()
                    if name == b"MULTI":
                        queued, reply = [], b"+OK\r\n"
                    elif name == b"EXEC":
                        reply, queued = await _transaction(links, queued or []), None
                    elif queued is not None:
                        queued.append([*map(tagged, command)])
                        reply = b"+QUEUED\r\n"
                    else:
                        reply = await self._call(links, name, command)
                    writer.write(reply)
        except asyncio.CancelledError:
            pass  # the end of the test; the server would report it
        finally:
            for _, link in (*links, (reader, writer)):
                link.close()

    async def _call(self, links: "Sequence[Link]", name: bytes, command: list[bytes]) -> bytes:
        if name == b"FLUSHALL":
            for link in links:
                await _ask(link, [command])
            return b"+OK\r\n"
        if name == b"SCRIPT":
            digest = hashlib.sha1(command[2]).hexdigest().encode()
            self._texts[digest] = command[2]
            return b"$40\r\n%b\r\n" % digest
        if name != b"EVALSHA":
            return await _ask(_link_of(links, command), [[*map(tagged, command)]])
        if command[1] not in self._texts:
            return b"-NOSCRIPT No matching script.\r\n"
        text = self._texts[command[1]]
        script = name_of(text.decode())
        self.ran.add(script)
        groups = {group_of(argument) for argument in (*_LITERAL.findall(text), *command[3:])} - {None}
        text = _LITERAL.sub(lambda found: tagged(found[0]), text).replace(b"redis.pcall(", b"redis.call(")
        reply = await _ask(_link_of(links, command[3:]), [[b"EVAL", text, *map(tagged, command[2:])]])
        if len(groups) > 1 or _CROSSED.match(reply):
            self.crossed[script] = f"{sorted(map(str, groups))} {reply!r:.80}"
        return reply


Link = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def _link_of(links: Sequence[Link], arguments: Sequence[bytes]) -> Link:
    """The connection to the master of the first key in ``arguments``."""
    groups = filter(None, map(group_of, arguments))
    return links[next((master_of(tag_of(group)) for group in groups), 0)]


async def _transaction(links: Sequence[Link], commands: list[list[bytes]]) -> bytes:
    link = _link_of(links, [argument for command in commands for argument in command])
    commands = [[*map(tagged, command)] for command in commands]
    return await _ask(link, [[b"MULTI"], *commands, [b"EXEC"]])


async def _ask(link: Link, commands: Sequence[Sequence[bytes]]) -> bytes:
    """Send commands; return the last reply."""
    reader, writer = link
    for command in commands:
        writer.write(hiredis.pack_command(tuple(command)))  # type: ignore[arg-type] # its stub knows only pairs
    return [await _reply(reader) for _ in commands][-1]


async def _reply(reader: asyncio.StreamReader) -> bytes:
    """Read one reply, as it was sent."""
    line = await reader.readline()
    size = int(line[1:]) if line[:1] in b"$*" else -1
    if line[:1] == b"$" and size >= 0:
        return line + await reader.readexactly(size + 2)
    return line + b"".join([await _reply(reader) for _ in range(size)])


def _is_ready(master: Store) -> bool:
    with master.client() as client:
        state: bytes = client.execute_command("CLUSTER", "INFO", NEVER_DECODE=True)
        return b"cluster_state:ok" in state and b"cluster_known_nodes:%d" % MASTERS in state
