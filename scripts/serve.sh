#!/usr/bin/env bash
# Starts the daemon with a fleet that speaks real MQTT through a real Mosquitto, prints where the console is, and goes on until
# Ctrl-C. Everything lies in a directory that is removed at the end.
#   scripts/serve.sh PROGRAM [CARS] [READINGS_A_SECOND]
set -euo pipefail
# Each process started here leads a group, which ends with all that it started.
set -m
program=${1:?usage: serve.sh PROGRAM [CARS] [READINGS_A_SECOND]}
cars=${2:-50}
rate=${3:-200}
export PATH="$PATH:/usr/sbin"
for needed in mosquitto mosquitto_pub awk; do
    command -v "$needed" >/dev/null || { echo "serve: $needed is missing: run scripts/setup-test.sh" >&2; exit 1; }
done

dir=$(mktemp -d)
started=()
clean_up() {
    trap - EXIT
    trap "" INT TERM
    for process in "${started[@]}"; do kill -- "-$process" 2>/dev/null || true; done
    for process in "${started[@]}"; do wait "$process" 2>/dev/null || true; done
    rm -rf "$dir"
}
trap clean_up EXIT
trap 'exit 0' INT TERM

port=${MQTT_PORT:-18830}
cat > "$dir/mosquitto.conf" <<END
listener $port 127.0.0.1
allow_anonymous true
persistence false
END
mosquitto -c "$dir/mosquitto.conf" >"$dir/mosquitto.log" 2>&1 &
started+=($!)

# Waits until something listens at a port.
listens() {
    for _ in $(seq 100); do
        (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null && return
        sleep 0.1
    done
    echo "serve: nothing listens at port $1" >&2
    exit 1
}
listens "$port"

cat > "$dir/waystation.toml" <<END
directory = "$dir/data"

[http]
listen = "127.0.0.1:${HTTP_PORT:-5984}"
backups = "$dir/backups"

[redis]
listen = "127.0.0.1:${REDIS_PORT:-6380}"

[[database]]
name = "fleet"
extractor = "until/3a"
residency = "1m"

[mqtt]
broker = "mqtt://127.0.0.1:$port"
database = "fleet"

[[mqtt.readings]]
topic = "fleet/readings"
device = "\$.car"
value = "\$.data.*"
time = "\$.time"
time_unit = "s"

[[mqtt.depart]]
topic = "fleet/gone/{device}"
END
"$program" serve --config "$dir/waystation.toml" &
daemon=$!
started+=("$daemon")

# One line a reading. Every five seconds the car that has driven for longest is replaced.
fleet() {
    local first=0 second
    while second=$(date +%s); do
        awk -v first="$first" -v cars="$cars" -v rate="$rate" -v second="$second" 'BEGIN {
            srand(second)
            for (sent = 0; sent < rate; sent++) {
                car = first + int(rand() * cars)
                speed = 50 + 30 * sin(second / 20 + car) + rand()
                printf "{\"car\":\"car%d\",\"time\":%d.%06d,\"data\":{\"speed\":%.1f,\"rpm\":%d}}\n", \
                    car, second, sent * 1000000 / rate, speed, 800 + speed * 40
            }
        }'
        if ((second % 5 == 0)); then
            mosquitto_pub -p "$port" -q 1 -t "fleet/gone/car$first" -n
            first=$((first + 1))
        fi
        sleep 1
    done
}
(fleet | mosquitto_pub -p "$port" -q 1 -t fleet/readings -l) &
started+=($!)

listens "${HTTP_PORT:-5984}"
echo
echo "  console:  http://127.0.0.1:${HTTP_PORT:-5984}/_waystation/console"
echo "  figures:  http://127.0.0.1:${HTTP_PORT:-5984}/metrics"
echo "  publish:  mosquitto_pub -p $port -t fleet/readings -m '{\"car\":\"mine\",\"time\":$(date +%s),\"data\":{\"speed\":1}}'"
echo "  Ctrl-C stops everything and removes $dir"
wait "$daemon"
