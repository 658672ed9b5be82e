// The C interface that Python calls through ctypes (library.py declares the same functions).
#include "nic.h"

using shim::Access;
using shim::Nic;
using shim::Stimulus;

// A flat array of records that stays valid until the next call on the same NIC.
struct View {
    const void* records;
    int64_t count;
};

struct Outputs {
    View frames;
    View frame_bytes;
    View watches;
    View accesses;
    View traces;
    View interrupts;
};

#pragma GCC visibility push(default)
extern "C" {

Nic* mrc_create(const shim::Parameters* parameters) { return new Nic(*parameters); }
void mrc_destroy(Nic* nic) { delete nic; }

void mrc_run(Nic* nic, int64_t until) { nic->run(until); }
int mrc_settle(Nic* nic, int64_t cycles, int quiet) { return nic->settle(cycles, quiet); }
int64_t mrc_time(const Nic* nic) { return nic->time(); }
int64_t mrc_next_activity(const Nic* nic) { return nic->next_activity(); }

int mrc_deliver(Nic* nic, int port, int64_t time, const uint8_t* bytes, int64_t length, int bad) {
    return nic->deliver(port, time, bytes, length, bad);
}
void mrc_schedule_link(Nic* nic, int64_t time, int port, int up) { nic->schedule_link(time, port, up); }
void mrc_schedule_access(Nic* nic, int64_t time, int kind, uint32_t address, uint32_t value, int64_t tag) {
    nic->registers.schedule(time, {static_cast<Access>(kind), address, value, tag});
}
void mrc_watch(Nic* nic, int64_t tag, int64_t address, int64_t length) { nic->memory.watch(tag, address, length); }
void mrc_unwatch(Nic* nic, int64_t tag) { nic->memory.unwatch(tag); }
void mrc_fail_memory(Nic* nic, int64_t address, int64_t length) { nic->memory.fail(address, length); }
void mrc_clear_memory_errors(Nic* nic) { nic->memory.clear_errors(); }

void mrc_outputs(const Nic* nic, Outputs* outputs) {
    const auto view = [](const auto& list) { return View{list.data(), static_cast<int64_t>(list.size())}; };
    *outputs = {view(nic->frames), view(nic->frame_bytes), view(nic->watches), view(nic->accesses),
                view(nic->traces), view(nic->interrupts)};
}
void mrc_clear_outputs(Nic* nic) {
    nic->frames.clear();
    nic->frame_bytes.clear();
    nic->watches.clear();
    nic->accesses.clear();
    nic->traces.clear();
    nic->interrupts.clear();
}
void mrc_counters(const Nic* nic, shim::Counters* counters) { *counters = nic->counters(); }

Stimulus* mrc_stimulus_create() { return new Stimulus(); }
void mrc_stimulus_destroy(Stimulus* stimulus) { delete stimulus; }
void mrc_record(Nic* nic, Stimulus* stimulus) { nic->record(stimulus); }
int64_t mrc_stimulus_cycles(const Stimulus* stimulus) { return stimulus->cycles(); }
uint64_t mrc_replay(const Stimulus* stimulus, int check) { return stimulus->replay(check); }

}  // extern "C"
#pragma GCC visibility pop
