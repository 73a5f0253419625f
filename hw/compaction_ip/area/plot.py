#!/usr/bin/env python3
"""Draws LUTs against the number of inputs, as SVG: the engine, the paper's one figure, and what the drive leaves.

    plot.py AREA.tsv > AREA.svg
"""
import sys

LUTS = 218_600  # of the XC7Z045
# The drive's own logic, in percent of the part: counted blocks, and an estimate with all they need around them.
BASE = (27, 40)
# The paper says "over 90 %" for nine inputs, and no more.
PAPER = (9, 90)
LEFT, TOP, WIDTH, HEIGHT = 62, 40, 560, 300
INPUTS_MAX = 14


def x(inputs):
    return LEFT + WIDTH * inputs / INPUTS_MAX


def y(percent):
    return TOP + HEIGHT * (1 - percent / 100)


def text(at_x, at_y, words, anchor="start", extra=""):
    print(f'<text x="{at_x:.1f}" y="{at_y:.1f}" text-anchor="{anchor}" {extra}>{words}</text>')


def engine(path):
    with open(path) as file:
        tool, _, *rows = file.read().splitlines()
    cells = [row.split("\t") for row in rows]
    return tool.lstrip("# "), [(int(c[1]), 100 * int(c[2]) / LUTS) for c in cells if c[0] == "compaction_ip"]


def main():
    tool, points = engine(sys.argv[1])
    print(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 660 424" font-family="sans-serif" font-size="12" '
        'role="img" aria-label="LUTs of the compaction engine against its number of inputs">'
    )
    print('<rect width="660" height="424" fill="white"/>')
    text(LEFT, 20, "LUTs, % of an XC7Z045 (218,600), after synthesis", extra='font-size="14"')
    # What is left beside the drive's own logic.
    low, high = 100 - BASE[1], 100 - BASE[0]
    print(f'<rect x="{LEFT}" y="{y(high):.1f}" width="{WIDTH}" height="{y(low) - y(high):.1f}" fill="#fbe9c6"/>')
    text(LEFT + 8, y(high) + 16, f"what the drive's own logic ({BASE[0]} to {BASE[1]} %) leaves")
    for percent in range(0, 101, 20):
        print(f'<line x1="{LEFT}" x2="{LEFT + WIDTH}" y1="{y(percent):.1f}" y2="{y(percent):.1f}" stroke="#ccc"/>')
        text(LEFT - 8, y(percent) + 4, percent, "end")
    for inputs in range(1, INPUTS_MAX):
        text(x(inputs), TOP + HEIGHT + 18, inputs, "middle")
    text(LEFT + WIDTH / 2, TOP + HEIGHT + 38, "inputs", "middle")
    line = " ".join(f"{x(inputs):.1f},{y(percent):.1f}" for inputs, percent in points)
    print(f'<polyline points="{line}" fill="none" stroke="#1f5fa8" stroke-width="2"/>')
    for inputs, percent in points:
        print(f'<circle cx="{x(inputs):.1f}" cy="{y(percent):.1f}" r="3.5" fill="#1f5fa8"/>')
        text(x(inputs), y(percent) - 9, f"{percent:.1f}", "middle", 'fill="#1f5fa8"')
    text(x(2), y(14), "this engine", extra='fill="#1f5fa8"')
    at_x, at_y = x(PAPER[0]), y(PAPER[1])
    print(f'<path d="M{at_x:.1f},{at_y:.1f} v-16 m-5,6 l5,-6 l5,6" fill="none" stroke="#b03030" stroke-width="2"/>')
    print(f'<circle cx="{at_x:.1f}" cy="{at_y:.1f}" r="4" fill="#b03030"/>')
    text(at_x - 10, at_y + 4, "the paper's engine: over 90", "end", 'fill="#b03030"')
    text(LEFT, 400, "The paper's is another design; nothing was placed or routed.", extra='font-size="10"')
    text(LEFT, 414, tool, extra='font-size="10"')
    print("</svg>")


main()
