"""The ACP bridge: the process an ACP editor starts. Not part of this version; `__main__` says so."""
