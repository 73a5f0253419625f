// The C interface of the simulated engine, as crates/waystation-drive/src/ip/ffi.rs declares it.
#include "machine.h"
#include "verilated.h"

uint64_t assertion_failures = 0;

// An assertion of the design failed: counted, and reported by the Rust side.
void vl_stop(const char*, int, const char*) { ++assertion_failures; }


// SIZES is given by build.rs: F(1) F(2) ... for every number of inputs that was built.
#define F(n) std::unique_ptr<Simulator> make_compaction_ip_##n();
SIZES
#undef F

extern "C" {
Simulator* waystation_ip_create(uint32_t inputs) {
    switch (inputs) {
#define F(n) case n: return make_compaction_ip_##n().release();
        SIZES
#undef F
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
