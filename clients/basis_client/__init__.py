"""What a client of the basis daemon is built on: finding or starting it, calling it, following a session.

Imports nothing by itself. A command line takes `blocking` (standard library only, on the way to the first byte in a few
milliseconds); a program with an event loop takes `asynchronous` and `session`. Knows nothing of the daemon's code.
"""
