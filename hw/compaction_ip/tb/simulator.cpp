// The C interface of the simulated engine, as crates/waystation-drive/src/ip/ffi.rs declares it.
#include "machine.h"
#include "verilated.h"

uint64_t assertion_failures = 0;

// An assertion of the design failed: counted, and reported by the Rust side.
void vl_stop(const char*, int, const char*) { ++assertion_failures; }

std::unique_ptr<Simulator> make_compaction_ip_1();
std::unique_ptr<Simulator> make_compaction_ip_2();
std::unique_ptr<Simulator> make_compaction_ip_4();
std::unique_ptr<Simulator> make_compaction_ip_9();
std::unique_ptr<Simulator> make_compaction_ip_13();

extern "C" {
Simulator* waystation_ip_create(uint32_t inputs) {
    switch (inputs) {
        case 1: return make_compaction_ip_1().release();
        case 2: return make_compaction_ip_2().release();
        case 4: return make_compaction_ip_4().release();
        case 9: return make_compaction_ip_9().release();
        case 13: return make_compaction_ip_13().release();
        default: return nullptr;
    }
}
void waystation_ip_destroy(Simulator* simulator) { delete simulator; }
void waystation_ip_configure(Simulator* simulator, const MemorySettings* settings) { simulator->configure(*settings); }
void waystation_ip_resize(Simulator* simulator, size_t bytes) { simulator->memory.resize(bytes); }
uint8_t* waystation_ip_memory(Simulator* simulator) { return simulator->memory.data(); }
void waystation_ip_write_register(Simulator* simulator, uint8_t address, uint32_t value) {
    simulator->write_register(address, value);
}
uint32_t waystation_ip_read_register(Simulator* simulator, uint8_t address) { return simulator->read_register(address); }
int waystation_ip_run(Simulator* simulator, uint64_t cycles) { return simulator->run(cycles); }
void waystation_ip_traffic(const Simulator* simulator, Traffic* traffic) { *traffic = simulator->traffic; }
uint64_t waystation_ip_assertion_failures() { return assertion_failures; }
}
