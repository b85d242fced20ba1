"""A unix socket that passes bytes on to another, and can be cut: the network between a client and its daemon.

Owns nothing of what is said. Cutting ends every connection there is; new ones are taken as before.
"""

import socket
import threading
from contextlib import suppress
from pathlib import Path


class Relay:
    """Listens at `path` for `target`, from entering its context until leaving it."""

    def __init__(self, path: Path, target: str) -> None:
        self.path = str(path)
        self._target = target
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._threads: list[threading.Thread] = []
        self._held: list[str] = []
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)

    def __enter__(self) -> "Relay":
        self._listener.bind(self.path)
        self._listener.listen()
        self._run(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        # Closing alone does not wake the thread that accepts.
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self.cut()
        for thread in self._threads:
            thread.join(5)
        self._listener.close()

    def hold(self, *, requests: bool) -> None:
        """From now on bytes of one direction are swallowed, until the cut: requests, or else answers."""
        self._held = ["requests" if requests else "answers"]

    def cut(self) -> None:
        """End every connection at both ends."""
        self._held = []
        pairs, self._pairs = self._pairs, []
        for pair in pairs:
            for end in pair:
                with suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)

    def _run(self, target: object, *args: object) -> None:
        thread = threading.Thread(target=target, args=args, daemon=True)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
                try:
                    far.connect(self._target)
                except OSError:
                    near.close()
                    far.close()
                    continue
                self._pairs.append((near, far))
                self._run(self._pass_on, near, far)

    def _pass_on(self, near: socket.socket, far: socket.socket) -> None:
        """Both directions of one connection; both sockets are closed when either ends."""
        back = threading.Thread(target=self._pump, args=(far, near, "answers"), daemon=True)
        back.start()
        self._pump(near, far, "requests")
        back.join()
        near.close()
        far.close()

    def _pump(self, source: socket.socket, sink: socket.socket, direction: str) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                if direction not in self._held:
                    sink.sendall(data)
        for end in (source, sink):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
