#!/usr/bin/env python3
"""Prints the table of areas as the book shows it.

    table.py AREA.tsv
"""
import sys

LUTS = 218_600  # of the XC7Z045

with open(sys.argv[1]) as file:
    tool, _, *rows = file.read().splitlines()
print(tool.lstrip("# "))
print("| block | N | LUTs | % | of them RAM | FFs | BRAM | levels |")
print("|---|---|---|---|---|---|---|---|")
for row in rows:
    block, inputs, luts, ram, flip_flops, blocks, levels = row.split("\t")
    share = 100 * int(luts) / LUTS
    print(f"| {block} | {inputs} | {int(luts):,} | {share:.1f} | {int(ram):,} | {int(flip_flops):,} | {blocks} | {levels} |")
