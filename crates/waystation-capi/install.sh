#!/usr/bin/env bash
# Lays the built library out for C programs: install.sh DIRECTORY_OF_LIBRARIES PREFIX
set -euo pipefail
built=$1 prefix=$2
here=$(dirname "$0")
version=$(sed -n 's/^version = "\(.*\)"/\1/p' "$here/../../Cargo.toml" | head -1)
mkdir -p "$prefix/lib/pkgconfig" "$prefix/include/leveldb" "$prefix/include/waystation"
install -m 755 "$built/libwaystation_capi.so" "$prefix/lib/libwaystation_capi.so"
# What `-lwaystation` finds; programs then ask for the name that the library bears.
ln -sf libwaystation_capi.so "$prefix/lib/libwaystation.so"
install -m 644 "$built/libwaystation_capi.a" "$prefix/lib/libwaystation.a"
install -m 644 "$here/include/leveldb/c.h" "$prefix/include/leveldb/c.h"
install -m 644 "$here/include/waystation/c.h" "$prefix/include/waystation/c.h"
sed -e "s|@PREFIX@|$prefix|" -e "s|@VERSION@|$version|" "$here/waystation.pc.in" >"$prefix/lib/pkgconfig/waystation.pc"
echo "installed to $prefix"
