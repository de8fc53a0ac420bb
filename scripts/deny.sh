#!/bin/sh
# Checks the dependencies by deny.toml with cargo-deny: licences, sources, required versions, and
# security advisories where their database, a git repository, can be fetched.
#
#     scripts/deny.sh FOLDER
#
# FOLDER is where cargo-deny is installed unless it is on the PATH.
set -eu
version=0.20.2
folder=$1
if ! cargo deny --version > /dev/null 2>&1; then
    PATH=$folder/bin:$PATH
    # A debug build takes a third of the time, and the checks take a second.
    if ! cargo deny --version 2> /dev/null | grep -q " $version\$"; then
        if ! cargo install --quiet --locked --debug --root "$folder" "cargo-deny@$version"; then
            echo "    cargo-deny cannot be installed: dependencies are not checked"
            exit 0
        fi
    fi
fi
cargo deny --log-level error check --hide-inclusion-graph bans licenses sources
# Git must not ask for a password.
if GIT_TERMINAL_PROMPT=0 timeout 60 cargo deny fetch db > /dev/null 2>&1; then
    cargo deny --log-level error check --hide-inclusion-graph advisories
else
    echo "    the database of advisories cannot be fetched"
fi
