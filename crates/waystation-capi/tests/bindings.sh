#!/usr/bin/env bash
# Runs what was made for LevelDB on Waystation, unmodified: bindings.sh DIRECTORY
# The library lies in DIRECTORY/prefix. It is put where the bindings look for libleveldb.
#   the example in C         built with what pkg-config says
#   levigo (Go, cgo)         its own tests
#   lvldb (Python, ctypes)   examples/readings.py
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
work=$1
prefix=$work/prefix
posing=$work/posing
mkdir -p "$posing"
for name in libleveldb.so libleveldb.so.1 libleveldb.so.1d; do
    ln -sf "$prefix/lib/libwaystation.so" "$posing/$name"
done
ran=0
export LD_LIBRARY_PATH="$posing:$prefix/lib"
temporary=$(mktemp -d)
trap 'chmod -R u+w "$temporary"; rm -rf "$temporary"' EXIT

echo "bindings: C, by pkg-config"
if command -v pkg-config >/dev/null; then
    flags=$(PKG_CONFIG_PATH=$prefix/lib/pkgconfig pkg-config --cflags --libs waystation)
else
    echo "bindings: pkg-config is not installed: its file is not tried"
    flags="-I$prefix/include -L$prefix/lib -lwaystation"
fi
# shellcheck disable=SC2086 # several flags
${CC:-cc} -std=c11 -Wall -Wextra -Werror -o "$temporary/fleet" "$here/../examples/fleet.c" $flags
"$temporary/fleet" "$temporary/fleet.db"

if command -v go >/dev/null; then
    echo "bindings: levigo (Go), its own tests"
    mkdir "$temporary/go"
    (
        cd "$temporary/go"
        printf 'module bindings\n\ngo 1.18\n\nrequire github.com/jmhodges/levigo v1.0.0\n' >go.mod
        printf 'github.com/jmhodges/levigo v1.0.0 h1:q5EC36kV79HWeTBWsod3mG11EgStG3qArTKcvlksN1U=\n' >go.sum
        printf 'github.com/jmhodges/levigo v1.0.0/go.mod h1:Q6Qx+uH3RAqyK4rFQroq9RL7mdkABMcfhEI+nNuzMJQ=\n' >>go.sum
        export CGO_CFLAGS="-I$prefix/include" CGO_LDFLAGS="-L$posing -lpthread"
        go test -count=1 -v github.com/jmhodges/levigo
    )
    ran=$((ran + 1))
else
    echo "bindings: go is not installed: levigo is skipped"
fi

if command -v python3 >/dev/null; then
    echo "bindings: lvldb (Python)"
    if [ -f "$work/python/lvldb.py" ] ||
        python3 -m pip install --quiet --disable-pip-version-check --root-user-action=ignore \
            --no-deps --target "$work/python" lvldb==0.1.2; then
        PYTHONPATH="$work/python" python3 "$here/../examples/readings.py" "$temporary/readings.db"
        ran=$((ran + 1))
    else
        echo "bindings: lvldb could not be installed: it is skipped"
    fi
else
    echo "bindings: python3 is not installed: lvldb is skipped"
fi

if [ "$ran" -eq 0 ]; then
    echo "bindings: none could be run" >&2
    exit 1
fi
