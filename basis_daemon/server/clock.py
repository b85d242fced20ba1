"""Time as the wire writes it: RFC 3339, UTC, milliseconds."""

import time

_second = -1
_prefix = ""


def timestamp(at_s: float | None = None) -> str:
    """`at_s` (seconds since the epoch; now by default) as `2026-01-31T12:00:00.000Z`."""
    global _second, _prefix
    millis = int((time.time() if at_s is None else at_s) * 1000)
    second, rest = divmod(millis, 1000)
    if second != _second:
        # Events come in bursts within one second: formatting the date once a second is what makes this cheap.
        _prefix = time.strftime("%Y-%m-%dT%H:%M:%S.", time.gmtime(second))
        _second = second
    return f"{_prefix}{rest:03d}Z"


def seconds(at: str) -> float:
    """The reverse of `timestamp`. Raises `ValueError`."""
    import calendar

    return calendar.timegm(time.strptime(at[:19], "%Y-%m-%dT%H:%M:%S")) + float(f"0{at[19:-1]}" if at[19:-1] else 0)
