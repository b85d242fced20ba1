"""Measures what the daemon costs, each figure with its floor beside it from the same run.

    python tests/bench/run.py [cold] [run] [rounds] [loop] [memory] [events] [deltas] [first_token] [bodies] [--quick]

Machines are noisy, so nothing here passes or fails: compare the ratios. Every figure is a median unless it says
otherwise. Sockets, processes and files are real; the model is the scripted server of `tests/support/`.
"""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench import bodies, cold, deltas, events, first_token, loop, memory, rounds, run_wall
from bench.table import Row, show

SUITES: dict[str, Callable[[bool], list[Row]]] = {
    "cold": cold.measure,
    "run": run_wall.measure,
    "rounds": rounds.measure,
    "loop": loop.measure,
    "memory": memory.measure,
    "events": events.measure,
    "deltas": deltas.measure,
    "first_token": first_token.measure,
    "bodies": bodies.measure,
}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("suite", nargs="*", choices=[*SUITES, []], help="default: all of them")
    parser.add_argument("--quick", action="store_true", help="few repetitions: shows that it runs, not how fast")
    options = parser.parse_args(arguments)
    for name in options.suite or SUITES:
        show(name, SUITES[name](options.quick))
    return 0


if __name__ == "__main__":
    sys.exit(main())
