#!/usr/bin/env python3
"""Draws what a recorded simulation did (a VCD file), cycle by cycle, as SVG.

    draw.py FILE.vcd all       > whole.svg      the whole job
    draw.py FILE.vcd records   > part.svg       the first records, with the names of states

Every row is read from the recording; nothing is drawn by hand. A cycle's values are those at its end, when all that
the clock's edge exchanges has settled: the even time steps.
"""
import sys

TOP = "TOP.compaction_ip_sim.u_engine."
ENCODER = "idle head key trailer value discard restart count end flush done".split()
DECODER = "open fill head parse extend word trail value skip done fail".split()
FILTER = "idle key judge rule share size fit give".split()
MERGER = "wait compare key".split()

# States in which a unit waits: left blank.
IDLE = ("idle", "wait", "open")


def handshake(valid, ready):
    return lambda at: at(valid) & at(ready)


def input_state(number):
    """What the merger sees of an input."""

    def state(at):
        if at("u_merger.exhausted") >> number & 1:
            return "at its end"
        return "key" if at("head_valid") >> number & 1 else ""

    return state


def named(name, names):
    return lambda at: "" if names[at(name)] in IDLE else names[at(name)]


# Row: label, what it shows of a cycle (a bit, or words: nothing is drawn for none).
ROWS = [
    ("read address taken", handshake("u_issuer.ar_valid_o", "u_issuer.ar_ready_i")),
    ("read data taken", handshake("u_return.r_valid_i", "u_return.r_ready_o")),
    ("to queue of input 0", lambda at: at("queue_write") & 1),
    ("to queue of input 1", lambda at: at("queue_write") >> 1 & 1),
    ("decoder 0", named("gen_input[0].u_input.u_decoder.state_q", DECODER)),
    ("decoder 1", named("gen_input[1].u_input.u_decoder.state_q", DECODER)),
    ("input 0 offers", input_state(0)),
    ("input 1 offers", input_state(1)),
    ("merger", named("u_merger.state_q", MERGER)),
    ("record chosen", lambda at: at("record_begin")),
    ("filter", named("u_filter.state_q", FILTER)),
    ("dropped: shadowed", lambda at: at("u_filter.shadowed_o")),
    ("command taken", handshake("command_valid", "command_ready")),
    ("encoder", named("u_encoder.state_q", ENCODER)),
    ("chunk taken", handshake("chunk_valid", "chunk_ready")),
    ("block announced", handshake("block_valid", "block_ready")),
    ("write address taken", handshake("u_write_back.aw_valid_o", "u_write_back.aw_ready_i")),
    ("write data taken", handshake("u_write_back.w_valid_o", "u_write_back.w_ready_i")),
]


def read(path):
    """The signals under the engine: name to [(time, value), ...]."""
    codes, scopes, changes, time = {}, [], {}, 0
    with open(path) as file:
        for line in file:
            words = line.split()
            if not words:
                continue
            if words[0] == "$scope":
                scopes.append(words[2])
            elif words[0] == "$upscope":
                scopes.pop()
            elif words[0] == "$var":
                name = ".".join([*scopes, words[4]])
                codes.setdefault(words[3], []).append(name)
            elif words[0][0] == "#":
                time = int(words[0][1:])
            elif words[0][0] == "b":
                changes.setdefault(words[1], []).append((time, int(words[0][1:], 2)))
            elif words[0][0] in "01":
                changes.setdefault(words[0][1:], []).append((time, int(words[0][0])))
    return {name: changes.get(code, []) for code, names in codes.items() for name in names}


def sampled(signal, cycles):
    """A signal's value in each cycle."""
    values, value, at = [], 0, 0
    for cycle in range(cycles):
        while at < len(signal) and signal[at][0] <= 2 * cycle:
            value = signal[at][1]
            at += 1
        values.append(value)
    return values


def main():
    path, part = sys.argv[1:3]
    signals = read(path)
    cycles = max(changes[-1][0] for changes in signals.values() if changes) // 2 + 1
    known = {}

    def value(name, cycle):
        if name not in known:
            known[name] = sampled(signals[TOP + name], cycles)
        return known[name][cycle]

    busy = [cycle for cycle in range(cycles) if value("running", cycle)]
    first, last = busy[0], busy[-1]
    begins = [cycle for cycle in busy if value("record_begin", cycle)]
    start = first
    if part == "records":
        first, last = begins[0] - 4, begins[0] + 92
    scale = 1040 / (last - first + 1)
    rows = [(label, [show(lambda name: value(name, cycle)) for cycle in range(first, last + 1)]) for label, show in ROWS]
    draw(rows, first - start, scale, part)


def runs(values):
    """Equal neighbours together: (from, to, value)."""
    begin = 0
    for at in range(1, len(values) + 1):
        if at == len(values) or values[at] != values[begin]:
            yield begin, at, values[begin]
            begin = at


def draw(rows, first, scale, part):
    left, top, step, tall = 150, 34, 24, 14
    cycles = len(rows[0][1])
    height = top + step * len(rows) + 30
    print(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 1210 {height}" font-family="sans-serif" font-size="11" '
        f'role="img" aria-label="Waveforms of a merge of two inputs: {part}">'
    )
    print(f'<rect width="1210" height="{height}" fill="white"/>')
    every = 100 if cycles > 300 else 10
    print(f'<text x="{left - 8}" y="22" text-anchor="end">cycle</text>')
    for cycle in range(-first % every, cycles, every):
        at = left + cycle * scale
        print(f'<line x1="{at:.1f}" x2="{at:.1f}" y1="26" y2="{height - 26}" stroke="#ddd"/>')
        print(f'<text x="{at:.1f}" y="22" text-anchor="middle">{cycle + first}</text>')
    for number, (label, values) in enumerate(rows):
        y = top + step * number
        print(f'<text x="{left - 8}" y="{y + 12}" text-anchor="end">{label}</text>')
        if isinstance(values[0], str):
            boxes(values, left, y, tall, scale)
        else:
            wave(values, left, y, tall, scale)
    print(f'<text x="{left}" y="{height - 8}">recorded from the simulation by make waves</text>')
    print("</svg>")


def wave(values, left, y, tall, scale):
    points = []
    for begin, end, value in runs(values):
        level = y + (1 if value else tall)
        points += [f"{left + begin * scale:.1f},{level}", f"{left + end * scale:.1f},{level}"]
    print(f'<polyline points="{" ".join(points)}" fill="none" stroke="#1f5fa8"/>')


def boxes(values, left, y, tall, scale):
    for begin, end, value in runs(values):
        if not value:
            continue
        x, width = left + begin * scale, (end - begin) * scale
        print(f'<rect x="{x:.1f}" y="{y + 1}" width="{width:.1f}" height="{tall}" fill="#e4eefb" stroke="#1f5fa8" stroke-width="0.6"/>')
        size = 10 if width >= 5.6 * len(value) else 8
        if width >= 0.52 * size * len(value):
            print(f'<text x="{x + width / 2:.1f}" y="{y + 11}" text-anchor="middle" font-size="{size}">{value}</text>')


main()
