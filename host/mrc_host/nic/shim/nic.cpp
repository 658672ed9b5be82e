// The loop over the cycles: set the inputs, let them settle, take the outputs, give the clock edge.
#include "nic.h"

#include <algorithm>

namespace shim {

Nic::Nic(const Parameters& parameters)
    : p_(parameters),
      context_(std::make_unique<VerilatedContext>()),
      model_(std::make_unique<pins::Model>(context_.get())) {
    pins::Plane transmit[pins::PLANES];
    pins::Plane receive[pins::PLANES];
    pins::bind(*model_, transmit, receive);
    const ByteTime byte_time{p_.byte_numerator, p_.byte_denominator};
    for (int port = 0; port < pins::PLANES; port++)
        mac[port].configure(port, p_.period, byte_time, p_.fifo_bytes, transmit[port], receive[port]);
    memory.configure(*model_, p_.memory);
    registers.configure(*model_, p_.period);
    model_->PIN_LINK_UP = link_up_;
    if constexpr (pins::TRACE_BYTES > 0) pins::trace_ready(*model_) = 1;
    reset();
}

// The edges of the reset are outside simulated time: cycle 0 is the first one after it.
void Nic::reset() {
    model_->PIN_NOW = 0;
    model_->PIN_RST = 1;
    for (int i = 0; i < 4; i++) {
        model_->PIN_CLK = 0;
        model_->eval();
        model_->PIN_CLK = 1;
        model_->eval();
    }
    model_->PIN_RST = 0;
}

void Nic::change_links(int64_t time) {
    while (!links_.empty() && links_.begin()->first <= time) {
        const Link link = links_.begin()->second;
        links_.erase(links_.begin());
        link_up_ = (link_up_ & ~(1u << link.port)) | (link.up ? 1u << link.port : 0u);
        mac[link.port].set_link(link.up);
        model_->PIN_LINK_UP = link_up_;
        quiet_cycles_ = 0;
    }
}

void Nic::clock_cycle() {
    pins::Model& m = *model_;
    const int64_t time = cycle_ * p_.period;
    const int64_t tick = cycle_ / p_.cycles_per_tick;
    const int64_t fraction = (cycle_ % p_.cycles_per_tick) * 65536 / p_.cycles_per_tick;
    m.PIN_NOW = ((tick & 0xFFFFFFFF) << 16) | fraction;
    bool active = false;
    if (!links_.empty()) change_links(time);
    for (Mac& port : mac) active |= port.drive(cycle_, time);
    active |= registers.drive(cycle_);
    memory.drive(cycle_);
    m.PIN_CLK = 0;
    if (stimulus_) stimulus_->capture(m);
    m.eval();

    for (Mac& port : mac) port.sample(cycle_, time);
    registers.sample(time, accesses);
    memory.sample(cycle_, time, watches);
    if (m.PIN_EVENT_WAITING && !event_waiting_) interrupts.push_back(time);
    event_waiting_ = m.PIN_EVENT_WAITING;
    if constexpr (pins::TRACE_BYTES > 0) {
        if (pins::trace_valid(m)) {
            TraceRecord& record = traces.emplace_back();
            record.time = time;
            std::memcpy(record.payload, pins::trace_payload(m), pins::TRACE_BYTES);
        }
    }
    // Outputs before and after the edge count, and a deadline that is due is an input like any other.
    active |= !m.PIN_QUIESCENT || (m.PIN_DEADLINE_VALID && deadline_cycle() <= cycle_);
    m.PIN_CLK = 1;
    m.eval();
    quiet_cycles_ = m.PIN_QUIESCENT && !active && memory.idle() ? quiet_cycles_ + 1 : 0;
    cycle_++;
    clocked_++;
}

// First cycle of the tick in which the engine's deadline is due; deadlines are compared modulo 2^32 ticks.
int64_t Nic::deadline_cycle() const {
    const int64_t tick = cycle_ / p_.cycles_per_tick;
    const int32_t ahead = static_cast<int32_t>(model_->PIN_NEXT_DEADLINE - static_cast<uint32_t>(tick));
    return (tick + ahead) * p_.cycles_per_tick;
}

// First cycle at or after the present one in which a resting engine has to be clocked.
int64_t Nic::next_cycle() const {
    int64_t next = registers.next_cycle();
    for (const Mac& port : mac) next = std::min(next, port.next_cycle());
    if (!links_.empty()) next = std::min(next, divide_up(links_.begin()->first, p_.period));
    if (model_->PIN_DEADLINE_VALID) next = std::min(next, deadline_cycle());
    return std::max(next, cycle_);
}

int64_t Nic::next_activity() const {
    if (!resting()) return time_;
    const int64_t cycle = next_cycle();
    int64_t next = cycle == NEVER ? NEVER : cycle * p_.period;
    for (const Mac& port : mac) next = std::min(next, port.next_departure());
    return std::max(time_, next);
}

void Nic::run(int64_t until) {
    const int64_t end = divide_up(until, p_.period);
    while (cycle_ < end) {
        if (p_.skip_idle && resting()) {
            const int64_t target = std::min(next_cycle(), end);
            if (target > cycle_) {
                skipped_ += target - cycle_;
                cycle_ = target;
                continue;
            }
        }
        clock_cycle();
    }
    time_ = std::max(time_, until);
    collect(time_);
}

bool Nic::settle(int64_t cycles, bool quiet) {
    const int64_t end = cycle_ + cycles;
    const auto settled = [&] { return registers.done(cycle_) && (!quiet || resting()); };
    while (!settled() && cycle_ < end) clock_cycle();
    time_ = std::max(time_, cycle_ * p_.period);
    collect(time_);
    return settled();
}

void Nic::collect(int64_t until) {
    for (Mac& port : mac) port.flush(until, frames, frame_bytes);
}

Counters Nic::counters() const {
    Counters result{clocked_, skipped_, {}, memory.counters};
    for (const Mac& port : mac) {
        result.mac.underruns += port.counters.underruns;
        result.mac.lost_link_down += port.counters.lost_link_down;
        result.mac.receive_stalls += port.counters.receive_stalls;
        result.mac.transmit_bad += port.counters.transmit_bad;
    }
    return result;
}

}  // namespace shim
