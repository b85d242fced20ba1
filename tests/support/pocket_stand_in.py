"""A stand-in for the pocket model's process: the same line in, the same line out, the same socket, scripted replies.

Run as a file by `PocketServer(command=…)`. Takes the script, a JSON list, from its first argument's file. Each request
takes the next entry: text is streamed as one reply; an object can say more:
`{"text": …, "pieces": n, "finish": "length", "die": "before" | "after", "status": 400, "message": …}`.
`{"start": {…}}` as the first entry is answered instead of being ready. What was asked is appended to `<script>.asked`.
"""

import json
import os
import signal
import socketserver
import sys
import threading
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, cast

SCRIPT = Path(sys.argv[1])
ASKED = Path(f"{SCRIPT}.asked")


def take_turn() -> dict[str, Any]:
    """The next entry of the script; the count of requests so far is kept in a file, so that a restart goes on."""
    done = ASKED.read_text().count("\n") if ASKED.exists() else 0
    entry: Any = json.loads(SCRIPT.read_text())[done]
    return {"text": entry} if isinstance(entry, str) else entry


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        turn = take_turn()
        with ASKED.open("a") as asked:
            asked.write(json.dumps({"key": self.headers["authorization"], "pid": os.getpid(), **body}) + "\n")
        if turn.get("die") == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        if "status" in turn:
            self._send(turn["status"], json.dumps({"error": {"message": turn["message"]}}).encode())
            return
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        # As the engine does now and then: the connection is dropped after the answer, without a word.
        self.close_connection = True
        text, pieces = turn["text"], turn.get("pieces", 3)
        size = max(1, -(-len(text) // pieces))
        for start in range(0, len(text), size):
            self._event({"choices": [{"delta": {"content": text[start : start + size]}}]})
        if turn.get("die") == "after":
            os.kill(os.getpid(), signal.SIGKILL)
        self._event({"choices": [{"delta": {}, "finish_reason": turn.get("finish", "stop")}]})
        self._event({"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 3}})
        self._chunk(b"data: [DONE]\n\n")
        self._chunk(b"")

    def _event(self, value: dict[str, Any]) -> None:
        self._chunk(f"data: {json.dumps(value)}\n\n".encode())

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()

    def _send(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        return


def main() -> None:
    settings = json.loads(sys.stdin.buffer.readline())
    threading.Thread(target=lambda: (sys.stdin.buffer.read(), os._exit(0)), daemon=True).start()
    first: Any = json.loads(SCRIPT.read_text())[0]
    if isinstance(first, dict) and "start" in first:
        print(json.dumps(cast(dict[str, Any], first)["start"]), flush=True)
        return
    server = socketserver.ThreadingUnixStreamServer(settings["socket"], Handler)
    server.daemon_threads = True
    print(json.dumps({"ready": settings["socket"]}), flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
