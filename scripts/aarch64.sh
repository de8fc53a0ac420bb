#!/bin/sh
# Cross-builds for aarch64 and runs the tests of the crates below the facade under qemu.
#
#     scripts/aarch64.sh [--check]     (--check: only type-checks, which needs no linker and no qemu)
#
# Needs a Rust toolchain with the target, an aarch64 linker and qemu-user:
#
#     rustup target add aarch64-unknown-linux-gnu
#     apt-get install gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user
#
# Where rustup cannot fetch the target, Debian's packages do: with GIRIH_AARCH64_DEBS=FOLDER they
# are fetched there (dpkg --add-architecture arm64, then rustc-web, libstd-rust-web-dev of both
# architectures, and the libllvm they need), unpacked without being installed, and used.
set -eu
cd "$(dirname "$0")/.."

TARGET=aarch64-unknown-linux-gnu
CRATES="-p girih-linalg -p girih-ir -p girih-reference -p girih-kernel -p girih-exec -p girih-cpu"

fail() {
    echo "aarch64: $1" >&2
    exit 1
}

# Unpacks Debian's compiler and both standard libraries into $1/root.
unpack() {
    folder=$(mkdir -p "$1" && cd "$1" && pwd)
    if [ ! -x "$folder/root/usr/bin/rustc" ]; then
        dpkg --print-foreign-architectures | grep -q arm64 || fail "first: dpkg --add-architecture arm64 && apt-get update"
        (
            cd "$folder"
            std=$(apt-cache depends libstd-rust-web-dev | sed -n 's/.*Depends: \(libstd-rust-web-[0-9.]*\)$/\1/p' | head -1)
            llvm=$(apt-cache depends "$std" | sed -n 's/.*Depends: \(libllvm[0-9]*\)$/\1/p' | head -1)
            apt-get download -q rustc-web libstd-rust-web-dev libstd-rust-web-dev:arm64 "$std" "$llvm"
            for package in *.deb; do dpkg -x "$package" root; done
        )
    fi
    RUSTC="$folder/root/usr/bin/rustc"
    LD_LIBRARY_PATH=$(dirname "$(find "$folder/root" -name 'libLLVM.so*' | head -1)"):"$folder/root/usr/lib/x86_64-linux-gnu":"$folder/root/usr/lib"
    export RUSTC LD_LIBRARY_PATH
}

[ -z "${GIRIH_AARCH64_DEBS:-}" ] || unpack "$GIRIH_AARCH64_DEBS"

# A toolchain's targets lie beside each other.
libraries=$("${RUSTC:-rustc}" --print target-libdir --target "$TARGET")
ls "$libraries"/libstd-*.rlib >/dev/null 2>&1 ||
    fail "no standard library for $TARGET in $libraries: rustup target add $TARGET, or GIRIH_AARCH64_DEBS=FOLDER (see above)"

if [ "${1:-}" = --check ]; then
    # shellcheck disable=SC2086
    exec cargo check --quiet --target "$TARGET" $CRATES --all-targets
fi

command -v aarch64-linux-gnu-gcc >/dev/null || fail "no aarch64-linux-gnu-gcc: apt-get install gcc-aarch64-linux-gnu libc6-dev-arm64-cross"
command -v qemu-aarch64 >/dev/null || fail "no qemu-aarch64: apt-get install qemu-user"
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER="qemu-aarch64 -L /usr/aarch64-linux-gnu"
# shellcheck disable=SC2086
# Not the doctests: rustdoc may be of another toolchain, and runs nothing under qemu.
exec cargo test --quiet --target "$TARGET" $CRATES --lib --bins --tests "$@"
