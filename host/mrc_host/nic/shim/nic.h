// A verilated engine between its MACs, its memory and its register bus.
#pragma once

#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <vector>

#include "clock.h"
#include "mac.h"
#include "memory.h"
#include "pins.h"
#include "register_bus.h"
#include "stimulus.h"

namespace shim {

// Set by Python with this layout (Parameters in library.py).
struct Parameters {
    int64_t period;           // ps
    int64_t cycles_per_tick;
    int64_t byte_numerator;   // ps of a byte on the wire
    int64_t byte_denominator;
    int64_t fifo_bytes;
    int64_t skip_idle;        // 0: clock every cycle
    MemoryParameters memory;
};

struct TraceRecord {
    int64_t time;
    uint8_t payload[24];
};

// Read by Python with this layout (Counters in library.py).
struct Counters {
    int64_t clocked;
    int64_t skipped;
    MacCounters mac;
    MemoryCounters memory;
};

class Nic {
  public:
    explicit Nic(const Parameters& parameters);

    void run(int64_t until);
    // Clocks until the register accesses that are due are done (and, with `quiet`, the engine rests); false
    // when `cycles` were not enough.
    bool settle(int64_t cycles, bool quiet);
    bool deliver(int port, int64_t time, const uint8_t* bytes, int64_t length, bool bad) {
        return mac[port].deliver(time, bytes, length, bad);
    }
    void schedule_link(int64_t time, int port, bool up) { links_.emplace(time, Link{port, up}); }
    void record(Stimulus* stimulus) { stimulus_ = stimulus; }

    int64_t time() const { return time_; }
    // Nothing moves before this time unless something is put in; the present time when the engine is busy.
    int64_t next_activity() const;
    Counters counters() const;

    Mac mac[pins::PLANES];
    Memory memory;
    RegisterBus registers;

    std::vector<FrameRecord> frames;
    std::vector<uint8_t> frame_bytes;
    std::vector<WatchRecord> watches;
    std::vector<AccessRecord> accesses;
    std::vector<TraceRecord> traces;
    std::vector<int64_t> interrupts;  // times at which the event queue ceased to be empty

  private:
    struct Link {
        int port;
        bool up;
    };

    // Blocks may report that they are idle some cycles late; so many quiet cycles are clocked before a skip.
    static constexpr int64_t GUARD_CYCLES = 16;

    void clock_cycle();
    void reset();
    void change_links(int64_t time);
    int64_t next_cycle() const;
    int64_t deadline_cycle() const;
    bool resting() const { return quiet_cycles_ >= GUARD_CYCLES; }
    void collect(int64_t until);

    Parameters p_;
    std::unique_ptr<VerilatedContext> context_;
    std::unique_ptr<pins::Model> model_;
    std::multimap<int64_t, Link> links_;
    uint32_t link_up_ = (1u << pins::PLANES) - 1;
    int64_t cycle_ = 0;
    int64_t time_ = 0;
    int64_t quiet_cycles_ = 0;
    int64_t clocked_ = 0;
    int64_t skipped_ = 0;
    bool event_waiting_ = false;
    Stimulus* stimulus_ = nullptr;
};

}  // namespace shim
