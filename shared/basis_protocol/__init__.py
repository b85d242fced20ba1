"""The wire contract between the basis daemon and its clients.

Owns the typed messages, the one method table and the framing. Does no I/O and knows neither the daemon nor any client.
Import from the module that defines a name (`basis_protocol.sessions`, `basis_protocol.events`, …): this package imports
nothing by itself, so that a client that needs only `basis_protocol.framing` pays for nothing else.
"""

PROTOCOL_VERSION = 1
"""The version this build speaks. `version.py` holds the range and the negotiation."""
