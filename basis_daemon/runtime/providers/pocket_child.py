"""The pocket model's own process: llama.cpp's server on a private socket.

Run as a file, never imported: `python -P pocket_child.py`. It reads one line of JSON (see `Settings` in
`pocket_launch.py`) from its standard input, answers with one line of JSON on its standard output, and serves until it
is ended. A crash in here ends this process only. It ends by itself when its parent does: its input reaches the end of
file, and on Linux the kernel signals it. Standard library and the engine; nothing of the daemon.
"""

import contextlib
import ctypes
import importlib
import json
import os
import shutil
import signal
import sys
import threading
from typing import Any, NoReturn

PR_SET_PDEATHSIG = 1
"""From <linux/prctl.h>."""

QUIET = 1
"""llama.cpp's level for errors only: its log never holds what was asked."""


def main() -> None:
    settings: dict[str, Any] = json.loads(sys.stdin.buffer.readline())
    os.umask(0o077)

    def end(*_: object) -> NoReturn:
        shutil.rmtree(os.path.dirname(settings["socket"]), ignore_errors=True)
        os._exit(0)

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _tie_to(settings["parent"])

    def watch() -> None:
        while os.read(0, 4096):
            pass
        end()

    threading.Thread(target=watch, name="lifeline", daemon=True).start()
    try:
        server = _serve(settings)
    except ImportError as error:
        _answer(error="engine", text=str(error))
    except Exception as error:
        _answer(error="model", text=str(error) or type(error).__name__)
    else:
        _answer(ready=server.listening_address)
        threading.Event().wait()


def _tie_to(parent: int) -> None:
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:
        os._exit(0)


def _serve(settings: dict[str, Any]) -> Any:
    """Load the model and start serving. Raises what the engine raises; on return it accepts connections."""
    engine: Any = importlib.import_module("xllamacpp")
    params = engine.CommonParams()
    params.model.path = settings["model"]
    params.hostnames = [settings["socket"]]
    params.api_keys = [settings["api_key"]]
    params.n_ctx = settings["context_tokens"]
    # Two sequences in one context: what to do, and what a file says, each keep their prompt's beginning warm.
    params.n_parallel = 2
    params.kv_unified = True
    # The default keeps up to 8 GiB of old prompts in memory.
    params.cache_ram_mib = 0
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = settings["threads"]
    params.sleep_idle_seconds = settings["sleep_idle_s"]
    params.ui = False
    params.offline = True
    params.endpoint_slots = False
    params.verbosity = QUIET
    return engine.Server(params)


def _answer(**fields: str) -> None:
    print(json.dumps(fields), flush=True)


if __name__ == "__main__":
    main()
