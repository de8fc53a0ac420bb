"""``python -m scripts.names``: writes docs/names.md.

--check    says whether the page is up to date, and lists names without an entry
--collect  writes the lists of names of the libraries that this Python has, here
--counts   prints how many names are present, hinted and declined
"""

from __future__ import annotations

import argparse
import sys

from .lists import collect
from .table import PAGE, page, rows


def main() -> int:
    """Does what the arguments say."""
    parser = argparse.ArgumentParser(prog="python -m scripts.names", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    what = parser.add_mutually_exclusive_group()
    for option in ("--check", "--collect", "--counts"):
        what.add_argument(option, action="store_true")
    given = parser.parse_args()
    if given.collect:
        for name in collect():
            print(f"scripts/names/{name}.txt written")
        return 0
    found = rows()
    lacking = [f"{row.module}.{row.name}" for row in found if row.state == "none"]
    if lacking:
        print(f"without an entry: {', '.join(lacking)}", file=sys.stderr)
        return 1
    text = page(found)
    if given.counts:
        print("|" + text.partition("\n\n|")[2].partition("\n\n")[0])
        return 0
    if given.check:
        if not PAGE.exists() or PAGE.read_text() != text:
            print(f"{PAGE} is not what python -m scripts.names writes", file=sys.stderr)
            return 1
        return 0
    PAGE.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
