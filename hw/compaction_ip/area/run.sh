#!/usr/bin/env bash
# Maps the compaction engine to the XC7Z045 with Yosys and prints a table: whole engine by number of inputs, then block
# by block. Post-synthesis estimates: no place and route, no timing. Netlists stay in target/area.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
out=${CARGO_TARGET_DIR:-$here/../../../target}/area
mkdir -p "$out"
command -v yosys >/dev/null || { echo "area: please install yosys (apt-get install yosys)" >&2; exit 1; }

row() { # block, N (or -)
    local netlist=$out/$1-$2.json size=()
    [ "$2" = - ] || size=("chparam -set N $2 $1;")
    nice yosys -q -p "read_verilog -sv $here/../rtl/*.sv; ${size[*]} synth_xilinx -family xc7 -flatten -top $1; write_json $netlist" \
        >"$out/$1-$2.log" 2>&1 || { tail -3 "$out/$1-$2.log" >&2; exit 1; }
    read -r luts memory flip_flops rams levels < <(python3 "$here/depth.py" "$netlist" "$1")
    printf '| %-15s | %3s | %6d | %5.1f | %6d | %6d | %5s | %6d |\n' "$1" "$2" "$luts" \
        "$(python3 -c "print($luts / 2186)")" "$memory" "$flip_flops" "$rams" "$levels"
}

yosys -V
echo '| block           |   N |   LUTs |   %   | of RAM |    FFs | BRAM  | levels |'
echo '|-----------------|-----|--------|-------|--------|--------|-------|--------|'
for n in ${SIZES:-1 2 4 9 13}; do row compaction_ip "$n"; done
[ -n "${WHOLE_ONLY:-}" ] && exit 0
for block in word_fifo decoder record_filter packer write_back; do row "$block" -; done
for block in desc_walker burst_issuer read_return merger encoder control; do row "$block" 9; done
