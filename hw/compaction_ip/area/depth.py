#!/usr/bin/env python3
"""Counts cells of a mapped netlist (Yosys write_json) and finds its longest path in levels.

A level is a LUT, a read of LUT RAM, or the entry into a carry chain; wide multiplexers (MUXF7, MUXF8) and the way
along a chain count nothing, as they have no routing between slices. Routing and clock-to-output are not in it: this
is a measure of logic between registers, no timing.

    depth.py NETLIST.json TOP [--path]
"""
import json
import sys

sys.setrecursionlimit(1_000_000)
STARTS = ("FDRE", "FDSE", "FDCE", "FDPE", "RAMB36E1", "RAMB18E1", "DSP48E1")
LUTS = ("LUT1", "LUT2", "LUT3", "LUT4", "LUT5", "LUT6", "INV")
FREE = ("MUXF7", "MUXF8", "BUFG", "IBUF", "OBUF")
# LUTs a LUT RAM occupies.
LUT_RAM = {"RAM32M": 4, "RAM64M": 4, "RAM32X1D": 2, "RAM64X1D": 2, "RAM128X1D": 4}
# Ports of LUT RAM that only matter at the clock's edge.
WRITE_PORTS = ("DIA", "DIB", "DIC", "DID", "ADDRD", "WE", "WCLK", "D")


def main():
    path_wanted = "--path" in sys.argv
    netlist, top = sys.argv[1:3]
    with open(netlist) as file:
        module = json.load(file)["modules"][top]
    cells = module["cells"]
    counts = {}
    driver = {}
    for name, cell in cells.items():
        counts[cell["type"]] = counts.get(cell["type"], 0) + 1
        for port, bits in cell["connections"].items():
            if cell["port_directions"].get(port) == "output":
                for bit in bits:
                    driver[bit] = (name, port)

    known = {}

    def through(name, port):
        """Levels at an output of a cell, and the cell before on the longest path."""
        key = (name, port if cells[name]["type"] == "CARRY4" else "")
        if key in known:
            return known[key][0]
        known[key] = (0, None)
        cell = cells[name]
        kind = cell["type"]
        if kind in STARTS:
            return 0
        best, before = 0, None
        for into, bits in cell["connections"].items():
            if cell["port_directions"].get(into) != "input":
                continue
            if kind in LUT_RAM and into in WRITE_PORTS:
                continue
            if kind == "CARRY4" and into == "CYINIT":
                continue
            cost = 0 if kind in FREE or (kind == "CARRY4" and into == "CI") else 1
            for bit in bits:
                level = cost + (through(*driver[bit]) if bit in driver else 0)
                if level > best:
                    best, before = level, bit
        known[key] = (best, before)
        return best

    longest, end = 0, None
    for name, cell in cells.items():
        kind = cell["type"]
        if kind not in STARTS and kind not in LUT_RAM:
            continue
        for port, bits in cell["connections"].items():
            if cell["port_directions"].get(port) != "input":
                continue
            if kind in LUT_RAM and port not in WRITE_PORTS:
                continue
            for bit in bits:
                if bit in driver:
                    level = through(*driver[bit])
                    if level > longest:
                        longest, end = level, (name, port, bit)

    logic = sum(counts.get(kind, 0) for kind in LUTS)
    memory = sum(counts.get(kind, 0) * luts for kind, luts in LUT_RAM.items())
    flip_flops = sum(counts.get(kind, 0) for kind in ("FDRE", "FDSE", "FDCE", "FDPE"))
    blocks = counts.get("RAMB36E1", 0) + counts.get("RAMB18E1", 0) / 2
    # A carry chain's cells sit beside LUTs that are counted already.
    print(f"{logic + memory}\t{memory}\t{flip_flops}\t{blocks:g}\t{longest}")
    if path_wanted and end:
        names = {}
        for net, value in module["netnames"].items():
            for bit in value["bits"]:
                if bit not in names or len(net) < len(names[bit]):
                    names[bit] = net
        print("ends at", end[0], cells[end[0]]["type"], end[1], names.get(end[2]))
        bit = end[2]
        while bit in driver:
            name, port = driver[bit]
            kind = cells[name]["type"]
            print("  ", kind, port, names.get(bit))
            if kind in STARTS:
                break
            bit = known[(name, port if kind == "CARRY4" else "")][1]
            if bit is None:
                break


main()
