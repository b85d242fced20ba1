"""`basis-acp`: says that the bridge is not there yet and what works today, on stderr, and exits with 2.

stdout stays empty: an ACP editor reads it as the protocol.
"""

import sys

MESSAGE = """\
basis-acp: the ACP bridge is not part of this version of basis-daemon.
What works today:
  basisctl run "…"        send a prompt from a terminal; basisctl --help has the rest
  basisctl attach         watch a session and answer its questions
Any LSP client can also speak to the daemon's socket; `basisctl status` shows where it is.
"""


def main() -> None:
    sys.stderr.write(MESSAGE)
    sys.exit(2)


if __name__ == "__main__":
    main()
