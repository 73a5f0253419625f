#!/usr/bin/env bash
# Builds what waystation-rivals links and cargo cannot fetch: LevelDB 1.23 from its
# source, as a release (-O2 -DNDEBUG, snappy, hardware CRC-32C). Debian's binary package will not do: it carries
# live assertions and a software checksum. The source comes through apt, which verifies its signature, and stays
# in the target directory. Snappy is the one that the rocksdb crate brings and links: both rivals share it.
# Needs no root where the packages below are installed. Quiet when all is there.
#   g++                 LevelDB and RocksDB are C++
#   libclang-dev        the rocksdb crate generates its bindings with it
set -euo pipefail
exec </dev/null
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
out=${WAYSTATION_RIVALS_DIR:-${CARGO_TARGET_DIR:-$root/target}/rivals}
jobs=${JOBS:-$(nproc)}

packages=(g++ make libclang-dev debian-archive-keyring)
missing=()
for package in "${packages[@]}"; do
    state=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
    [ "$state" = installed ] || missing+=("$package")
done
if [ ${#missing[@]} -gt 0 ]; then
    as_root=()
    if [ "$(id -u)" -ne 0 ]; then
        if ! sudo -n true 2>/dev/null; then
            echo "bench-build: please run as root: apt-get install -y ${missing[*]}" >&2
            exit 1
        fi
        as_root=(sudo -n)
    fi
    echo "bench-build: installing ${missing[*]}" >&2
    export DEBIAN_FRONTEND=noninteractive
    "${as_root[@]}" apt-get -qq update
    "${as_root[@]}" apt-get -qq -o DPkg::Lock::Timeout=600 install -y --no-install-recommends "${missing[@]}" >/dev/null
fi

flags=(-O2 -DNDEBUG -std=c++11 -fno-exceptions -fPIC -DLEVELDB_PLATFORM_POSIX=1
    -DHAVE_FDATASYNC=1 -DHAVE_O_CLOEXEC=1 -DHAVE_FULLFSYNC=0 -DHAVE_SNAPPY=1 -DHAVE_CRC32C=1)
# The rocksdb crate's source, where the package manager keeps it: the header of the snappy that will be linked.
metadata=$(cargo metadata --format-version 1 --features linked --manifest-path "$here/Cargo.toml")
rocksdb=$(grep -o '"manifest_path":"[^"]*/librocksdb-sys-[^"]*/Cargo.toml"' <<<"$metadata" | head -1 | cut -d '"' -f 4)
rocksdb=$(dirname "$rocksdb")
flags+=("-I$rocksdb" "-I$rocksdb/snappy")

stamp=$(cat "$0" "$here"/native/*.cc "$here"/native/crc32c/*.h <(echo "$rocksdb") | sha256sum)
if [ -f "$out/libleveldb.a" ] && [ "$(cat "$out/stamp" 2>/dev/null)" = "$stamp" ]; then
    exit 0
fi
mkdir -p "$out/apt/lists/partial" "$out/apt/parts" "$out/apt/archives/partial"

if [ ! -f "$out/source/include/leveldb/db.h" ]; then
    echo "bench-build: fetching the source of LevelDB 1.23" >&2
    echo "deb-src [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg]" \
        "http://deb.debian.org/debian bookworm main" >"$out/apt/sources.list"
    apt=(apt-get -qq -o "Dir::Etc::sourcelist=$out/apt/sources.list" -o "Dir::Etc::sourceparts=$out/apt/parts"
        -o "Dir::State::lists=$out/apt/lists" -o "Dir::Cache=$out/apt" -o APT::Sandbox::User=root)
    "${apt[@]}" update
    (cd "$out" && "${apt[@]}" source --download-only leveldb)
    rm -rf "$out/source"
    mkdir "$out/source"
    tar -xzf "$out"/leveldb_1.23.orig.tar.gz -C "$out/source" --strip-components=1
fi

echo "bench-build: compiling LevelDB 1.23 (a minute)" >&2
rm -rf "$out/objects"
mkdir "$out/objects"
compile() { # source object
    g++ "${flags[@]}" -I"$here/native" -I"$out/source" -I"$out/source/include" -c "$1" -o "$2"
}
export here out
export -f compile
{
    find "$out"/source/{db,table,util} -name '*.cc' \
        ! -name '*_test.cc' ! -name leveldbutil.cc ! -name testutil.cc ! -name 'env_windows.cc'
    find "$here/native" -name '*.cc'
} | while read -r source; do
    object=$out/objects/$(echo "${source#"$out/source/"}" | tr '/' '_' | sed 's/\.cc$/.o/')
    printf '%s\0%s\0' "$source" "$object"
done | xargs -0 -n 2 -P "$jobs" bash -c "flags=(${flags[*]}); "'compile "$1" "$2"' compile
rm -f "$out/libleveldb.a"
ar crs "$out/libleveldb.a" "$out"/objects/*.o
printf '%s\n' "${flags[*]}" >"$out/flags"
printf '%s' "$stamp" >"$out/stamp"
rm -rf "$out/objects" "$out/apt"
echo "bench-build: $out/libleveldb.a is ready" >&2
