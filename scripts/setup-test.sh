#!/usr/bin/env bash
# Installs the Debian packages the tests link against or run. Quiet when everything is there.
#   libleveldb-dev, libsnappy-dev   the real LevelDB: written by one, read by the other, and back
#   g++                             the linker, and C++ of build scripts
#   verilator                       the compaction engine, simulated
#   nodejs, npm                     JavaScript clients against the document server, and the server for Redis clients
#   redis-server, redis-tools       the real Redis, and its tools
#   python3-redis, golang-go        clients of Redis in Python and in Go
#   mosquitto (and its clients), openssl  MQTT ingest against the real broker, with and without TLS
#   chromium                        the console in a real browser
# With arguments: these packages instead (`make area` asks for yosys so).
set -euo pipefail
exec </dev/null
packages=(g++ make libleveldb-dev libsnappy-dev verilator redis-server redis-tools python3-redis mosquitto mosquitto-clients openssl chromium)
# Node and Go may have come another way than through apt.
command -v node >/dev/null && command -v npm >/dev/null || packages+=(nodejs npm)
command -v go >/dev/null || packages+=(golang-go)
[ $# -eq 0 ] || packages=("$@")

# The JavaScript clients, as package-lock.json names them, and the modules of Go, as go.sum does; nothing is done when they
# are there.
install_clients() {
    local crate clients lock
    for crate in waystation-server waystation-redis; do
        clients="$(dirname "$0")/../crates/$crate/tests/js"
        lock="$clients/node_modules/.package-lock.json"
        [ ! -e "$lock" ] || [ "$clients/package-lock.json" -nt "$lock" ] || continue
        echo "setup: installing JavaScript clients" >&2
        (cd "$clients" && npm ci --silent --no-audit --no-fund >/dev/null)
    done
    (cd "$(dirname "$0")/../crates/waystation-redis/tests/go" && go mod download)
}

if ! command -v dpkg-query >/dev/null; then
    echo "setup: this is no Debian; please install the equivalents of: ${packages[*]}" >&2
    echo "setup: tests against the real LevelDB are skipped where its library is missing" >&2
    exit 0
fi

missing=()
for package in "${packages[@]}"; do
    state=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
    [ "$state" = installed ] || missing+=("$package")
done
if [ ${#missing[@]} -eq 0 ]; then
    [ $# -gt 0 ] || install_clients
    exit 0
fi

as_root=()
if [ "$(id -u)" -ne 0 ]; then
    if ! command -v sudo >/dev/null || ! sudo -n true 2>/dev/null; then
        echo "setup: please run as root: apt-get install -y ${missing[*]}" >&2
        exit 1
    fi
    as_root=(sudo -n)
fi
echo "setup: installing ${missing[*]}" >&2
export DEBIAN_FRONTEND=noninteractive
"${as_root[@]}" apt-get -qq -o DPkg::Lock::Timeout=600 update
"${as_root[@]}" apt-get -qq -o DPkg::Lock::Timeout=600 install -y --no-install-recommends "${missing[@]}" >/dev/null
[ $# -gt 0 ] || install_clients
