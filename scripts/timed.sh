#!/bin/sh
# Runs a command between its title and the seconds that it took.
#
#     scripts/timed.sh TITLE COMMAND [ARGUMENT...]
set -eu
title=$1
shift
echo "$title"
start=$(date +%s)
"$@"
echo "    $(($(date +%s) - start)) s"
