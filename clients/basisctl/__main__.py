"""`python -m basisctl` and the `basisctl` script."""

import sys

from basisctl.cli import main as run_command_line


def main() -> None:
    sys.exit(run_command_line())


if __name__ == "__main__":
    main()
