// Time of the simulation: integer picoseconds and the cycles of the core clock.
//
// Cycle n is the interval [n * period, (n + 1) * period). An input whose time is t is seen by the engine
// in the first cycle that begins at or after t.
#pragma once

#include <cstdint>

namespace shim {

constexpr int64_t NEVER = INT64_MAX;

inline int64_t divide_up(int64_t value, int64_t by) { return value / by + (value % by > 0); }

// Time of a byte on the wire in picoseconds, as an exact fraction.
struct ByteTime {
    int64_t numerator;
    int64_t denominator;

    int64_t up(int64_t bytes) const { return divide_up(bytes * numerator, denominator); }
    int64_t down(int64_t bytes) const { return bytes * numerator / denominator; }
};

// The final mix of splitmix64: pseudo-random stalls depend on (seed, channel, cycle) and on nothing else,
// so that skipped cycles do not shift them.
inline uint64_t mix(uint64_t value) {
    value += 0x9E3779B97F4A7C15u;
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9u;
    value = (value ^ (value >> 27)) * 0x94D049BB133111EBu;
    return value ^ (value >> 31);
}

}  // namespace shim
