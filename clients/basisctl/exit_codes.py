"""What `basisctl` ends with. Scripts rely on these numbers; docs/howto/basisctl.md lists them for people."""

OK = 0
"""Done; for a turn: it finished and nothing stood in its way."""

FAILED = 1
"""The turn failed, was cancelled by somebody else or was interrupted; or the daemon refused the request."""

USAGE = 2
"""Wrong invocation. Nothing was sent."""

BOUND = 3
"""A bound (deadline, tool budget, token budget) or a stop request ended the turn early, even if it has an answer."""

NEEDS_APPROVAL = 4
"""Something was denied only because nobody was there to be asked."""

UNREACHABLE = 5
"""No daemon could be reached or started."""

INTERRUPTED = 130
"""Ctrl-C: the turn was cancelled."""

BROKEN_PIPE = 141
"""Whoever read the output went away. The turn goes on."""

HUNG_UP = 129
"""The terminal was closed. The turn goes on."""

TERMINATED = 143
"""SIGTERM. The turn goes on."""
