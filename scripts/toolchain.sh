#!/bin/sh
# Installs a Rust toolchain with components unless rustup has it. The status is 1 if that is impossible:
# without rustup, or without a network.
#
#     scripts/toolchain.sh TOOLCHAIN [COMPONENT...]
set -eu
toolchain=$1
shift
host=$(rustc -vV | sed -n 's/^host: //p')
installed() {
    rustup toolchain list 2> /dev/null | grep -q "^$toolchain-$host" || return 1
    components=$(rustup component list --toolchain "$toolchain" --installed)
    for component in "$@"; do
        echo "$components" | grep -q "^$component" || return 1
    done
}
installed "$@" && exit 0
listed=$(echo "$@" | tr ' ' ',')
timeout 300 rustup toolchain install "$toolchain" --profile minimal ${listed:+--component "$listed"} \
    > /dev/null 2>&1 || exit 1
installed "$@"
