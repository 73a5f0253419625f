// LevelDB takes a hardware CRC-32C from a library of this name. Here it is the function that Waystation itself
// computes its checksums with (the Rust crate crc32c), so that neither engine has the faster instruction.
#ifndef WAYSTATION_BENCH_CRC32C_H_
#define WAYSTATION_BENCH_CRC32C_H_

#include <stddef.h>
#include <stdint.h>

extern "C" uint32_t waystation_bench_crc32c(uint32_t crc, const uint8_t* data, size_t length);

namespace crc32c {
inline uint32_t Extend(uint32_t crc, const uint8_t* data, size_t length) {
  return waystation_bench_crc32c(crc, data, length);
}
}  // namespace crc32c

#endif  // WAYSTATION_BENCH_CRC32C_H_
