"""The accept loop: one task a connection, strangers turned away, no failure of one client ever that of another.

Owns accepting. The socket was bound before this process imported anything heavy: see `instance.py`.
"""

import asyncio
import errno
import logging
import os
import socket
import struct
import sys
from collections.abc import Callable

from basis_daemon.server.connection import Connection

log = logging.getLogger(__name__)

BACK_OFF_S = 0.5
"""Seconds to wait when the process is out of descriptors or memory: connections end meanwhile and give some back."""

_OUT_OF_RESOURCES = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class Listener:
    """Accepts clients of the daemon's own user and serves each in a task of its own."""

    def __init__(self, listening: socket.socket, connect: Callable[[], Connection]) -> None:
        self._socket = listening
        self._connect = connect
        self.connections: set[Connection] = set()

    async def run(self) -> None:
        """Accept until cancelled; then every connection is ended."""
        loop = asyncio.get_running_loop()
        async with asyncio.TaskGroup() as group:
            while True:
                try:
                    accepted, _ = await loop.sock_accept(self._socket)
                except OSError as error:
                    if error.errno in _OUT_OF_RESOURCES:
                        log.error("cannot accept a connection", extra={"problem": str(error)})
                        await asyncio.sleep(BACK_OFF_S)
                    # Anything else is about the one connection that was just lost.
                    continue
                group.create_task(self._serve(accepted))

    async def end(self) -> None:
        """End every connection, each with what it is owed, and return when they are gone."""
        connections = list(self.connections)
        for connection in connections:
            connection.end("the daemon is stopping")
        for connection in connections:
            await connection.channel.closed.wait()

    async def _serve(self, accepted: socket.socket) -> None:
        connection = self._connect()
        try:
            uid = peer_uid(accepted)
            if uid != os.getuid():
                log.warning("turned away another user", extra={"uid": uid})
                accepted.close()
                return
            self.connections.add(connection)
            await asyncio.get_running_loop().connect_accepted_socket(lambda: connection.channel, accepted)
            await connection.serve()
        except Exception:
            log.exception("a connection failed")
            accepted.close()
        finally:
            self.connections.discard(connection)
            log.debug("a client left", extra={"why": connection.channel.why_closed})


def peer_uid(connected: socket.socket) -> int:
    """The user at the other end, as the kernel says. Raises `OSError`."""
    if sys.platform == "darwin":
        # struct xucred of LOCAL_PEERCRED (1): version, uid, …
        return struct.unpack_from("=II", connected.getsockopt(0, 1, 76))[1]
    return struct.unpack("3i", connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[1]
