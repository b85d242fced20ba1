"""`basisctl cancel`: `stop` under its other name; the difference is the method called."""

from basisctl.commands.stop import main

__all__ = ["main"]
