"""The ``girih`` command that the package installs; ``python -m girih`` runs it too."""

from __future__ import annotations

import sys

from ._girih import command


def main(argv: list[str] | None = None) -> int:
    """Runs the command with arguments, by default those of the process; returns the exit status."""
    status, out, err = command(sys.argv[1:] if argv is None else argv)
    sys.stdout.write(out)
    sys.stderr.write(err)
    return status


if __name__ == "__main__":
    sys.exit(main())
