"""The ``girih`` command: ``python -m girih``."""

from __future__ import annotations

import sys

from ._girih import command


def main() -> int:
    """Runs the command on this process' arguments; returns the exit status."""
    status, out, err = command(sys.argv[1:])
    sys.stdout.write(out)
    sys.stderr.write(err)
    return status


if __name__ == "__main__":
    sys.exit(main())
