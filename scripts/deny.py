"""Checks the crates that Girih depends on by deny.toml: licences, sources, and required versions.

Where cargo-deny is installed, it runs instead and checks security advisories too. The database of
advisories is a git repository; where it cannot be fetched, a line says so.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parent.parent
CRATES_IO = "registry+https://github.com/rust-lang/crates.io-index"


def accepted(expression: str, allowed: set[str]) -> bool:
    """Whether an SPDX expression holds if the allowed licences do."""
    # WITH binds a licence to its exception, AND binds more than OR; a slash is an old OR.
    tokens = re.findall(
        r"[()]|AND\b|OR\b|[\w.+-]+(?: WITH [\w.-]+)?", expression.replace("/", " OR ")
    )

    def either() -> bool:
        found = both()
        while tokens and tokens[0] == "OR":
            tokens.pop(0)
            found = both() or found
        return found

    def both() -> bool:
        found = one()
        while tokens and tokens[0] == "AND":
            tokens.pop(0)
            found = one() and found
        return found

    def one() -> bool:
        token = tokens.pop(0)
        if token != "(":
            return token in allowed
        found = either()
        tokens.pop(0)
        return found

    return either()


def problems(packages: list[dict[str, Any]], allowed: set[str]) -> list[str]:
    """What deny.toml does not accept of these packages of ``cargo metadata``."""
    found = []
    for package in packages:
        name = f"{package['name']} {package['version']}"
        if not package["license"] or not accepted(package["license"], allowed):
            found.append(f"{name} has the licence {package['license']}")
        if package["source"] not in (None, CRATES_IO):
            found.append(f"{name} comes from {package['source']}")
        found += [
            f"{name} requires any version of {dependency['name']}"
            for dependency in package["dependencies"]
            if dependency["req"] == "*" and "path" not in dependency
        ]
    return found


def cargo_deny() -> str:
    """Runs cargo-deny; returns what it has checked."""
    subprocess.run(["cargo", "deny", "check", "bans", "licenses", "sources"], check=True)
    # Git must not ask for a password.
    quiet = {**os.environ, "GIT_TERMINAL_PROMPT": "0"}
    fetch = ["cargo", "deny", "fetch", "db"]
    try:
        fetched = subprocess.run(fetch, env=quiet, capture_output=True, timeout=60, check=False)
        reached = fetched.returncode == 0
    except subprocess.TimeoutExpired:
        reached = False
    if not reached:
        return "licences and sources; the database of advisories cannot be fetched"
    subprocess.run(["cargo", "deny", "check", "advisories"], check=True)
    return "licences, sources and advisories"


def main() -> None:
    """Prints what is checked; exits with the crates that are not accepted."""
    installed = subprocess.run(["cargo", "deny", "--version"], capture_output=True, check=False)
    if installed.returncode == 0:
        print(f"    checked: {cargo_deny()}")
        return
    command = ["cargo", "metadata", "--format-version", "1", "--locked"]
    text = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout
    config = tomllib.loads((ROOT / "deny.toml").read_text())
    packages = json.loads(text)["packages"]
    if found := problems(packages, set(config["licenses"]["allow"])):
        sys.exit("\n".join(found))
    print(
        f"    checked: licences and sources of {len(packages)} crates; cargo-deny, which checks "
        "advisories, is not installed"
    )


if __name__ == "__main__":
    main()
