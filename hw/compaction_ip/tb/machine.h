// The engine beside a simulated memory: what the Rust crate waystation-drive drives.
//
// Memory answers reads in order after `latency` cycles and takes writes at once. Any channel may be made to hesitate
// with a probability (n of 256 per cycle, seeded), and every rule of the channels is checked in every cycle.
#pragma once
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <vector>
#if VM_TRACE
#include "verilated_vcd_c.h"
#endif

// How memory behaves. Mirrored by `Memory` in crates/waystation-drive/src/ip/ffi.rs.
struct MemorySettings {
    uint32_t latency;
    uint32_t hesitate_read_address;
    uint32_t hesitate_read_data;
    uint32_t hesitate_write_address;
    uint32_t hesitate_write_data;
    uint32_t reserved;
    uint64_t seed;
};

// What was seen on the channels. Mirrored by `Traffic` in the same file.
struct Traffic {
    uint64_t cycles;
    uint64_t read_bursts, read_words;
    uint64_t write_bursts, write_words;
    uint64_t violations;
};

class Simulator {
public:
    virtual ~Simulator() = default;
    virtual void configure(const MemorySettings& settings) = 0;
    virtual void write_register(uint8_t address, uint32_t value) = 0;
    virtual uint32_t read_register(uint8_t address) = 0;
    // Runs until the engine is no longer busy, at most `cycles`; whether it is still busy.
    virtual bool run(uint64_t cycles) = 0;
    std::vector<uint8_t> memory;
    Traffic traffic{};
};

extern uint64_t assertion_failures;

template <class Model>
class Machine final : public Simulator {
    struct Read {
        uint64_t due;
        uint32_t address;
        uint32_t words;
    };
    struct Write {
        uint32_t address;
        uint32_t words;
    };
    Model model;
    MemorySettings settings{8, 0, 0, 0, 0, 0, 1};
    std::deque<Read> reads;
    std::deque<Write> writes;
    uint32_t answers = 0;
    bool answers_bad = false;
    uint64_t random_state = 1;
    // The channels' payloads in the cycle before, where valid met no ready.
    bool held_ar = false, held_aw = false, held_w = false;
    uint64_t held_ar_bits = 0, held_aw_bits = 0, held_w_data = 0;
    bool held_w_last = false;

    bool hesitates(uint32_t of_256) {
        if (of_256 == 0) return false;
        random_state ^= random_state << 13;
        random_state ^= random_state >> 7;
        random_state ^= random_state << 17;
        return ((random_state >> 24) & 0xff) < of_256;
    }
    void violate(bool yes) { traffic.violations += yes; }
    bool inside(uint32_t address) const { return uint64_t{address} + 8 <= memory.size(); }

    void cycle() {
        // Memory's outputs, from its state.
        bool answer = !reads.empty() && reads.front().due <= traffic.cycles && (offered || !hesitates(settings.hesitate_read_data));
        model.r_valid_i = answer;
        if (answer) {
            const Read& read = reads.front();
            uint64_t word = 0;
            if (inside(read.address)) std::memcpy(&word, &memory[read.address], 8);
            model.r_error_i = !inside(read.address);
            model.r_data_i = word;
        }
        model.ar_ready_i = reads.size() < 16 && !hesitates(settings.hesitate_read_address);
        model.aw_ready_i = writes.size() < 4 && !hesitates(settings.hesitate_write_address);
        // Data may come before its address; then it waits.
        model.w_ready_i = !writes.empty() && !hesitates(settings.hesitate_write_data);
        model.b_valid_i = answers > 0;
        model.b_error_i = answers > 0 && answers_bad;
        model.clk_i = 0;
        model.eval();
        record(0);
        observe();
        model.clk_i = 1;
        model.eval();
        record(1);
        ++traffic.cycles;
    }

    // Signals go to the file that WAYSTATION_IP_VCD names, in builds with tracing: two steps a cycle, at the first of
    // which all that the coming edge exchanges has settled.
#if VM_TRACE
    VerilatedVcdC trace;
    uint64_t traced = 0;
    void open_trace() {
        const char* path = std::getenv("WAYSTATION_IP_VCD");
        if (path == nullptr) return;
        Verilated::traceEverOn(true);
        model.trace(&trace, 99);
        trace.open(path);
    }
    void record(int half) {
        if (trace.isOpen()) trace.dump(2 * traced + half);
        traced += half;
    }
#else
    void open_trace() {}
    void record(int) {}
#endif

    // What is exchanged at the coming edge.
    void observe() {
        if (answers > 0) {
            --answers;
            answers_bad = false;
        }
        if (model.r_valid_i && model.r_ready_o) {
            ++traffic.read_words;
            Read& read = reads.front();
            read.address += 8;
            if (--read.words == 0) reads.pop_front();
            offered = false;  // the next word may hesitate
        } else if (model.r_valid_i) {
            offered = true;
        }
        uint64_t ar_bits = uint64_t{model.ar_addr_o} << 8 | model.ar_beats_less_one_o;
        violate(held_ar && (!model.ar_valid_o || ar_bits != held_ar_bits));
        if (model.ar_valid_o) {
            uint32_t words = model.ar_beats_less_one_o + 1u;
            violate((model.ar_addr_o & 127) + words * 8 > 128 || (model.ar_addr_o & 7));
            if (model.ar_ready_i) {
                reads.push_back({traffic.cycles + settings.latency, model.ar_addr_o, words});
                ++traffic.read_bursts;
            }
        }
        held_ar = model.ar_valid_o && !model.ar_ready_i;
        held_ar_bits = ar_bits;

        uint64_t aw_bits = uint64_t{model.aw_addr_o} << 8 | model.aw_beats_less_one_o;
        violate(held_aw && (!model.aw_valid_o || aw_bits != held_aw_bits));
        if (model.aw_valid_o && model.aw_ready_i) {
            uint32_t words = model.aw_beats_less_one_o + 1u;
            violate((model.aw_addr_o & 127) + words * 8 > 128 || (model.aw_addr_o & 7));
            writes.push_back({model.aw_addr_o, words});
            ++traffic.write_bursts;
        }
        held_aw = model.aw_valid_o && !model.aw_ready_i;
        held_aw_bits = aw_bits;

        violate(held_w && (!model.w_valid_o || model.w_data_o != held_w_data || bool(model.w_last_o) != held_w_last));
        held_w = false;
        if (model.w_valid_o) {
            if (!writes.empty()) violate((writes.front().words == 1) != bool(model.w_last_o));
            if (model.w_ready_i) {
                Write& write = writes.front();
                ++traffic.write_words;
                if (inside(write.address)) std::memcpy(&memory[write.address], &model.w_data_o, 8);
                else answers_bad = true;
                write.address += 8;
                if (--write.words == 0) {
                    writes.pop_front();
                    ++answers;
                }
            } else {
                held_w = true;
                held_w_data = model.w_data_o;
                held_w_last = model.w_last_o;
            }
        }
    }
    bool offered = false;

public:
    Machine() {
        open_trace();
        model.clk_i = 0;
        model.rst_i = 1;
        model.csr_write_i = 0;
        model.csr_addr_i = 8;
        model.r_valid_i = 0;
        for (int i = 0; i < 4; i++) cycle();
        model.rst_i = 0;
    }
    ~Machine() override {
        model.final();
#if VM_TRACE
        trace.close();
#endif
    }
    void configure(const MemorySettings& chosen) override {
        settings = chosen;
        random_state = chosen.seed | 1;
        traffic = Traffic{};
        // What is under way keeps its order, not its date.
        for (Read& read : reads) read.due = 0;
    }
    void write_register(uint8_t address, uint32_t value) override {
        model.csr_write_i = 1;
        model.csr_addr_i = address;
        model.csr_data_i = value;
        cycle();
        model.csr_write_i = 0;
        model.csr_addr_i = 8;
    }
    uint32_t read_register(uint8_t address) override {
        model.csr_addr_i = address;
        cycle();
        uint32_t value = model.csr_data_o;
        model.csr_addr_i = 8;
        return value;
    }
    bool run(uint64_t cycles) override {
        model.csr_addr_i = 8;
        cycle();
        for (uint64_t i = 0; i < cycles; i++) {
            if (!(model.csr_data_o & 1)) return false;
            cycle();
        }
        return true;
    }
};
