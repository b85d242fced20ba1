"""`basis-daemon`: become the user's daemon, or find that there is one.

Owns the order of the start: places, lock, bound socket, and only then the imports that take time. Nothing here may
import more than the standard library's cheap modules.
"""

import os
import sys

USAGE = """\
usage: basis-daemon [--foreground] [--data-dir DIR] [--socket PATH] [--log-level LEVEL] [--version]

Starts the per-user daemon and returns when clients can connect. Does nothing when it runs already.

  --foreground        stay in this terminal and log to standard error
  --data-dir DIR      keep everything below DIR (default: $BASIS_DATA_DIR, else the platform's place)
  --socket PATH       listen on PATH (default: $BASIS_SOCKET, else the user's runtime directory)
  --log-level LEVEL   debug, info (default), warning or error
  --version           print the version
"""

EXIT_OK = 0
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_ANOTHER_RUNS = 75
"""Another daemon holds the lock of this data directory: whoever started this one has a daemon to talk to."""

NOT_THE_DAEMONS = ("BASIS_SESSION_ID", "BASIS_TASK_ID", "BASIS_PARENT_TASK_ID")
"""Variables of the command that happened to start the daemon; they name a run it is no part of (DM-10)."""

LOG_LEVELS = ("debug", "info", "warning", "error")


def main(argv: list[str] | None = None) -> int:
    """Run the command. Returns the exit code."""
    try:
        options = _parse(sys.argv[1:] if argv is None else argv)
    except ValueError as error:
        print(f"basis-daemon: {error}\n\n{USAGE}", file=sys.stderr, end="")
        return EXIT_USAGE
    if "help" in options:
        print(USAGE, end="")
        return EXIT_OK
    if "version" in options:
        from basis_daemon import __version__

        print(f"basis-daemon {__version__}")
        return EXIT_OK
    return _start(options)


def _parse(arguments: list[str]) -> dict[str, str]:
    """Flags by name, without argparse: its import would be a tenth of the time to the first connection."""
    options: dict[str, str] = {}
    rest = list(arguments)
    while rest:
        name, has_value, value = rest.pop(0).partition("=")
        match name:
            case "-h" | "--help" | "--version" | "--foreground" if not has_value:
                options[name.lstrip("-").replace("h", "help", name == "-h")] = ""
            case "--data-dir" | "--socket" | "--log-level":
                if not has_value:
                    if not rest:
                        raise ValueError(f"{name} needs a value")
                    value = rest.pop(0)
                options[name[2:]] = value
            case _:
                raise ValueError(f"unknown argument {name}")
    if options.get("log-level", "info") not in LOG_LEVELS:
        raise ValueError(f"--log-level must be one of {', '.join(LOG_LEVELS)}")
    return options


def _start(options: dict[str, str]) -> int:
    from basis_daemon.server import instance
    from basis_protocol import address

    # Nothing of the daemon's own is ever readable for others, not even while it is being made; what commands and tools
    # make in a repository has the person's usual mode.
    usual_umask = os.umask(0o077)
    for name in NOT_THE_DAEMONS:
        os.environ.pop(name, None)
    for option, variable in (("data-dir", "BASIS_DATA_DIR"), ("socket", "BASIS_SOCKET")):
        if option in options:
            os.environ[variable] = os.path.abspath(options[option])
    try:
        data, socket_path = address.find_data_dir(), address.find_socket()
        held = instance.claim(os.path.join(data, "daemon.lock"), socket_path)
    except instance.AlreadyRunning as running:
        if _is_in_terminal(options):
            print(f"basis-daemon: one is running already: {running}", file=sys.stderr)
        return EXIT_ANOTHER_RUNS
    except (instance.UnusablePlace, address.NoDataDirectory, OSError) as error:
        print(f"basis-daemon: {error}", file=sys.stderr)
        return EXIT_FAILED
    os.umask(usual_umask)
    # From here on whatever this process starts, and whatever it asks itself, agrees on the places.
    os.environ["BASIS_DATA_DIR"], os.environ["BASIS_SOCKET"] = data, socket_path
    foreground = "foreground" in options
    if _is_in_terminal(options) and not foreground and not _detach(address.find_log()):
        return EXIT_OK
    os.chdir("/")
    held.describe({"pid": os.getpid()})
    from basis_daemon.server.app import serve

    return serve(held, log_level=options.get("log-level", "info"), foreground=foreground)


def _is_in_terminal(options: dict[str, str]) -> bool:
    """Whether a person started this. A client or a service manager gives no terminal and keeps track of the process."""
    return "foreground" in options or os.isatty(0)


def _detach(log_path: str) -> bool:
    """Go on in a child of our own session without a terminal. Returns false in the parent, which has done its part: the
    socket is bound, so clients can connect."""
    if os.fork() > 0:
        return False
    os.setsid()
    os.makedirs(os.path.dirname(log_path), mode=0o700, exist_ok=True)
    null = os.open(os.devnull, os.O_RDWR)
    log = os.open(log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for fd, place in ((0, null), (1, log), (2, log)):
        os.dup2(place, fd)
    os.close(null)
    os.close(log)
    return True


if __name__ == "__main__":
    sys.exit(main())
