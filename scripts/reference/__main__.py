"""``python -m scripts.reference``: what the reference lacks; outputs of examples; the site.

--check   lists what public names lack (the default)
--run     runs the examples
--update  writes the outputs of examples, of all pages or those named
--site    builds the site
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

# A build of the site must not depend on what an earlier run left on disk.
os.environ.setdefault("GIRIH_CACHE", "0")

from .entries import FOLDER, Reference, problems
from .examples import run, update
from .website import build


def main() -> int:
    """Does what the arguments say."""
    parser = argparse.ArgumentParser(prog="python -m scripts.reference", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    what = parser.add_mutually_exclusive_group()
    for option in ("--check", "--run", "--update", "--site"):
        what.add_argument(option, action="store_true")
    parser.add_argument("--out", type=Path, default=Path("docs-out"))
    parser.add_argument("pages", nargs="*", help="names of pages; all by default")
    given = parser.parse_args()
    if given.site:
        return build(given.out)
    if given.update:
        for path in sorted(FOLDER.glob("*.md")):
            if (not given.pages or path.stem in given.pages) and update(path):
                print(f"{path.name}: outputs written")
        return 0
    reference = Reference()
    if given.run:
        reports = [run(e.example, name, e.where, 0) for name, e in reference.entries.items()]
        found, well = [report for report in reports if report], "All examples print what they say."
    else:
        found, well = problems(reference), "Nothing is missing."
    print("\n".join(found) or well)
    return 1 if found else 0


sys.exit(main())
