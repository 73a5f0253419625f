#!/usr/bin/env bash
# Maps the compaction engine to the XC7Z045 with Yosys: the whole engine by number of inputs, then block by block, into
# docs/figures/compaction-engine-area.tsv, beside the plot that is drawn of it. Post-synthesis estimates: no place and
# route, no timing. Netlists, and the longest path of each, stay in target/area.
#   SIZES="1 4 9"   other numbers of inputs (then nothing in docs changes: the table goes to target/area)
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../../.." && pwd)
out=$(realpath -m "${CARGO_TARGET_DIR:-$root/target}")/area
figures=$root/docs/figures
table=$figures/compaction-engine-area.tsv
new=$out/area.tsv.new
[ -z "${SIZES:-}" ] || table=$out/area.tsv
mkdir -p "$out" "$figures"

row() { # block, N (or -)
    local netlist=$out/$1-$2.json log=$out/$1-$2.log top=cip_$1 size=()
    [ "$1" != compaction_ip ] || top=$1
    [ "$2" = - ] || size=("chparam -set NumInputs $2 $top;")
    yosys -q -p "read_verilog -sv $sources; ${size[*]} synth_xilinx -family xc7 -flatten -top $top; write_json $netlist" \
        >"$log" 2>&1 || { tail -3 "$log" >&2; exit 1; }
    # A type that this Yosys does not read becomes a wire of another width, or one without a driver: no error, other logic.
    if grep -E 'no driver|implicitly declared|Resizing cell port [^ ]*_[io] from' "$log" >&2; then exit 1; fi
    python3 "$here/depth.py" "$netlist" "$top" --path >"$out/$1-$2.path"
    printf '%s\t%s\t%s\n' "$1" "$2" "$(head -1 "$out/$1-$2.path")" | tee -a "$new" >&2
}

# Cells are named after their sources, and mapping depends a little on names: no paths in them, so that everybody gets the
# same numbers.
cd "$here/.."
sources=$(tr '\n' ' ' <compaction_ip.f)
rm -f "$new"
{
    echo "# $(yosys -V), synth_xilinx -family xc7 -flatten; made by: make area"
    printf 'block\tN\tLUTs\tof them RAM\tflip-flops\tRAMB36\tlevels\n'
} | tee "$new" >&2
for n in ${SIZES:-1 2 4 9 13}; do row compaction_ip "$n"; done
for block in word_fifo decoder record_filter packer write_back; do row "$block" -; done
for block in desc_walker burst_issuer read_return merger encoder control; do row "$block" 9; done
mv "$new" "$table"
python3 "$here/plot.py" "$table" >"${table%.tsv}.svg"
python3 "$here/table.py" "$table"
echo "the longest path of N=9, from its end:"
tail -n +2 "$out/compaction_ip-9.path" 2>/dev/null || true
