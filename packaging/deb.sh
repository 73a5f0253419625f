#!/usr/bin/env bash
# Makes a Debian package of a release binary: packaging/deb.sh BINARY DIRECTORY
set -euo pipefail
binary=$1 target=$2
here=$(dirname "$0")
version=$("$binary" --version | awk '{print $2}')
architecture=$(dpkg --print-architecture)
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
install -Dm755 "$binary" "$root/usr/bin/waystation"
strip "$root/usr/bin/waystation"
install -Dm644 "$here/waystation.service" "$root/lib/systemd/system/waystation.service"
install -Dm640 "$here/waystation.toml" "$root/etc/waystation/waystation.toml"
install -d "$root/DEBIAN"
cat >"$root/DEBIAN/control" <<CONTROL
Package: waystation
Version: $version
Architecture: $architecture
Maintainer: The Waystation developers <waystation@example.invalid>
Depends: libc6, adduser
Section: database
Priority: optional
Description: storage engine and document database for the mobile edge
 Serves documents over HTTP as CouchDB does, and keys to Redis clients.
CONTROL
echo /etc/waystation/waystation.toml >"$root/DEBIAN/conffiles"
cat >"$root/DEBIAN/postinst" <<'POSTINST'
#!/bin/sh
set -e
if [ "$1" = configure ]; then
    getent passwd waystation >/dev/null || adduser --system --group --home /var/lib/waystation waystation >/dev/null
    chgrp waystation /etc/waystation/waystation.toml
    if [ -d /run/systemd/system ]; then systemctl daemon-reload; fi
fi
POSTINST
chmod 755 "$root/DEBIAN/postinst"
mkdir -p "$target"
dpkg-deb --root-owner-group --build "$root" "$target/waystation_${version}_$architecture.deb"
