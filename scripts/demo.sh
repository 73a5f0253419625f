#!/usr/bin/env bash
# A tour on real input: an hour of vehicles crossing the radio cells of Bologna (data/README.md), ten times
# over at shifted times, loaded into a database, looked at, checked, compacted, and handed to LevelDB.
# usage: scripts/demo.sh <path of the waystation binary>
set -euo pipefail
cd "$(dirname "$0")/.."
waystation=$(realpath "$1")
work=${DEMO_DIR:-target/demo}
copies=${DEMO_COPIES:-10}
rm -rf "$work"
mkdir -p "$work"

say() { printf '\n\033[1m%s\033[0m\n' "$*"; }

# Prints the command, runs it, and says how long it took.
show() {
    printf '$ %s\n' "waystation $(printf '%q ' "$@")"
    local start=$EPOCHREALTIME
    "$waystation" "$@"
    awk -v a="$start" -v b="$EPOCHREALTIME" 'BEGIN { printf "  (%.2f s)\n", b - a }'
}

say "1. The input: rows t_s,device,cell,event"
gzip -dc data/bologna_hex250m.csv.gz | sed -n 1,3p
# One row becomes one entry: key car:sensor:time, value what happened. Copy c is another set of cars, 97 s later.
gzip -dc data/bologna_hex250m.csv.gz | awk -F, -v copies="$copies" 'NR > 1 {
    for (c = 0; c < copies; c++)
        printf "car%07d:cell:%06d%s\t{\"cell\":%d,\"event\":\"%s\"}\n",
            $2 + c * 100000, $1 + c * 97, $4, $3, ($4 == "A" ? "arrives" : "leaves")
}' > "$work/events.tsv"
echo "-> $(wc -l < "$work/events.tsv") entries, such as:"
head -2 "$work/events.tsv"

say "2. Load it, in the order in which it happened (keys arrive in no order)"
show import "$work/cars" "$work/events.tsv"

say "3. One car's hour, in order; and backwards"
show scan "$work/cars" --prefix car0001234: --limit 4
show scan "$work/cars" --prefix car0001234: --limit 2 --reverse

say "4. A correction, and the history of its key through every file"
key=$("$waystation" scan "$work/cars" --prefix car0001234: --limit 1 --keys-only)
show put "$work/cars" "$key" '{"cell":0,"event":"corrected"}' --sync
show find "$work/cars" "$key"

say "5. What the files hold"
show stats "$work/cars"

say "6. Every checksum, order, bound and count"
show check "$work/cars"

say "7. Everything into its final level"
show compact "$work/cars"
show check "$work/cars"

say "8. A plain LevelDB directory with the same content"
show export-leveldb "$work/cars" "$work/cars-leveldb"
ls -l "$work/cars-leveldb" | awk 'NR > 1 { print "  " $5, $9 }'

say "Done. The database is $work/cars; try: $1 --help"
