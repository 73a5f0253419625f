#!/usr/bin/env bash
# Makes a Debian package of a release binary: packaging/deb.sh BINARY DIRECTORY
set -euo pipefail
binary=$1 target=$2
here=$(dirname "$0")
version=$("$binary" --version | awk '{print $2}')
architecture=$(dpkg --print-architecture)
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
chmod 755 "$root"
install -Dm755 "$binary" "$root/usr/bin/waystation"
strip "$root/usr/bin/waystation"
# A release binary needs libc and libgcc alone; others need the C++ library as well.
depends="libc6, adduser"
for library in $(ldd "$binary" | awk '{print $1}'); do
    case $library in
    linux-vdso.so.* | libc.so.* | libm.so.* | /lib*/ld-linux*) ;;
    libgcc_s.so.1) depends+=", libgcc-s1" ;;
    libstdc++.so.6) depends+=", libstdc++6" ;;
    *) echo "deb: $binary needs $library, and no package of it is known here" >&2; exit 1 ;;
    esac
done
install -Dm644 "$here/waystation.service" "$root/lib/systemd/system/waystation.service"
install -Dm640 "$here/waystation.toml" "$root/etc/waystation/waystation.toml"
install -d "$root/DEBIAN"
cat >"$root/DEBIAN/control" <<CONTROL
Package: waystation
Version: $version
Architecture: $architecture
Maintainer: The Waystation developers <waystation@example.invalid>
Depends: $depends
Section: database
Priority: optional
Description: storage engine and document database for the mobile edge
 Serves documents over HTTP as CouchDB does, keys to Redis clients, and readings
 that it takes from an MQTT broker. Configure it in
 /etc/waystation/waystation.toml, then: systemctl enable --now waystation
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
cat >"$root/DEBIAN/prerm" <<'PRERM'
#!/bin/sh
set -e
if [ "$1" = remove ] && [ -d /run/systemd/system ]; then systemctl stop waystation.service || true; fi
PRERM
cat >"$root/DEBIAN/postrm" <<'POSTRM'
#!/bin/sh
set -e
if [ -d /run/systemd/system ]; then systemctl daemon-reload; fi
POSTRM
chmod 755 "$root"/DEBIAN/{postinst,prerm,postrm}
mkdir -p "$target"
dpkg-deb --root-owner-group --build "$root" "$target/waystation_${version}_$architecture.deb"
