"""How a tool says that a call failed."""

from basis_daemon.errors import BasisError


class ToolError(BasisError):
    """A call that failed in a way the model should read. Any other exception becomes an error result too (TL-2)."""

    kind = "tool"
