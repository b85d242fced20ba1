"""Rows of figures and how they are printed."""

import statistics
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Row:
    """One figure. `values` are single measurements; `floor` is what the least that could do the job took."""

    what: str
    unit: str
    values: list[float]
    floor: float | None = None
    floor_is: str = ""

    @property
    def median(self) -> float:
        return statistics.median(self.values)


def show(title: str, rows: list[Row]) -> None:
    """Print one suite."""
    print(f"\n{title}")
    for row in rows:
        spread = f"{min(row.values):.4g} … {max(row.values):.4g}" if len(row.values) > 1 else ""
        line = f"  {row.what:<58} {row.median:>10.4g} {row.unit:<13} {spread:<22}"
        if row.floor is not None:
            line += f" floor {row.floor:.4g} ({row.floor_is}), ratio {row.median / row.floor:.2f}"
        print(line.rstrip(), flush=True)
