// Host memory behind AXI4: a byte array with latency, back-pressure, errors and watched ranges.
//
// Several reads and writes are outstanding, answers come in order. A write changes the memory at its
// response and not before, so that a completion which overtakes its data is seen. Reads fetch a beat when it
// is presented.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <deque>
#include <vector>

#include "clock.h"
#include "pins.h"

namespace shim {

// Set by Python with this layout (MemoryParameters in library.py).
struct MemoryParameters {
    uint8_t* bytes;
    int64_t size;
    int64_t read_latency;    // cycles from the address to the first beat, at least 1
    int64_t write_latency;   // cycles from the last beat to the response, at least 1
    int64_t latency_jitter;  // up to so many cycles more, pseudo-random
    int64_t outstanding;     // reads, and writes, that are accepted before the first is answered
    int64_t stall_period;    // of every so many cycles ...
    int64_t stall_cycles;    // ... the first ones refuse a new transfer; 0: never
    int64_t stall_share;     // of 65536 cycles so many refuse, pseudo-random; 0: never
    uint64_t seed;
};

struct WatchRecord {
    int64_t time;
    int64_t tag;
    int64_t address;
    int64_t length;
};

struct MemoryCounters {
    int64_t reads = 0;
    int64_t writes = 0;
    int64_t read_beats = 0;
    int64_t write_beats = 0;
    int64_t outside = 0;     // bursts that left the memory, answered by DECERR
    int64_t violations = 0;  // bursts AXI4 forbids: across 4 KiB, wrong type or size, wrong last
};

class Memory {
  public:
    void configure(pins::Model& model, const MemoryParameters& parameters) {
        model_ = &model;
        p_ = parameters;
        model.PIN_MEMORY_READ_ARREADY = 0;
        model.PIN_MEMORY_READ_RVALID = 0;
        model.PIN_MEMORY_WRITE_AWREADY = 0;
        model.PIN_MEMORY_WRITE_WREADY = 0;
        model.PIN_MEMORY_WRITE_BVALID = 0;
    }

    MemoryCounters counters;

    void watch(int64_t tag, int64_t address, int64_t length) { watches_.push_back({tag, address, length}); }
    void unwatch(int64_t tag) {
        std::erase_if(watches_, [tag](const Range& range) { return range.tag == tag; });
    }
    void fail(int64_t address, int64_t length) { errors_.push_back({0, address, length}); }
    void clear_errors() { errors_.clear(); }

    bool idle() const { return reads_.empty() && addresses_.empty() && beats_.empty() && answers_.empty(); }

    void drive(int64_t cycle) {
        pins::Model& m = *model_;
        m.PIN_MEMORY_READ_ARREADY = static_cast<int64_t>(reads_.size()) < p_.outstanding && !stalled(cycle, 0);
        m.PIN_MEMORY_WRITE_AWREADY =
            static_cast<int64_t>(addresses_.size() + answers_.size()) < p_.outstanding && !stalled(cycle, 1);
        m.PIN_MEMORY_WRITE_WREADY = static_cast<int64_t>(beats_.size()) < BEATS && !stalled(cycle, 2);
        if (!reading_ && !reads_.empty() && reads_.front().ready <= cycle && !stalled(cycle, 3)) present_read();
        if (!answering_ && !answers_.empty() && answers_.front().ready <= cycle && !stalled(cycle, 4)) {
            answering_ = true;
            m.PIN_MEMORY_WRITE_BID = answers_.front().id;
            m.PIN_MEMORY_WRITE_BRESP = answers_.front().response;
        }
        m.PIN_MEMORY_READ_RVALID = reading_;
        m.PIN_MEMORY_WRITE_BVALID = answering_;
    }

    void sample(int64_t cycle, int64_t time, std::vector<WatchRecord>& log) {
        const pins::Model& m = *model_;
        if (m.PIN_MEMORY_READ_RVALID && m.PIN_MEMORY_READ_RREADY) {
            reading_ = false;
            counters.read_beats++;
            Read& read = reads_.front();
            read.address += pins::DATA_BYTES;
            if (--read.beats == 0) reads_.pop_front();
        }
        if (m.PIN_MEMORY_WRITE_BVALID && m.PIN_MEMORY_WRITE_BREADY) {
            answering_ = false;
            answer(time, log);
        }
        if (m.PIN_MEMORY_READ_ARVALID && m.PIN_MEMORY_READ_ARREADY) {
            const int64_t address = m.PIN_MEMORY_READ_ARADDR;
            const int64_t beats = m.PIN_MEMORY_READ_ARLEN + 1;
            check(address, beats, m.PIN_MEMORY_READ_ARSIZE, m.PIN_MEMORY_READ_ARBURST);
            counters.reads++;
            reads_.push_back({aligned(address), beats, cycle + p_.read_latency + jitter(cycle, 5),
                              response(aligned(address), beats * pins::DATA_BYTES), m.PIN_MEMORY_READ_ARID});
        }
        if (m.PIN_MEMORY_WRITE_AWVALID && m.PIN_MEMORY_WRITE_AWREADY) {
            const int64_t address = m.PIN_MEMORY_WRITE_AWADDR;
            const int64_t beats = m.PIN_MEMORY_WRITE_AWLEN + 1;
            check(address, beats, m.PIN_MEMORY_WRITE_AWSIZE, m.PIN_MEMORY_WRITE_AWBURST);
            counters.writes++;
            addresses_.push_back({aligned(address), beats, 0, 0, m.PIN_MEMORY_WRITE_AWID});
        }
        if (m.PIN_MEMORY_WRITE_WVALID && m.PIN_MEMORY_WRITE_WREADY) {
            counters.write_beats++;
            Beat& beat = beats_.emplace_back();
            std::memcpy(beat.data, &m.PIN_MEMORY_WRITE_WDATA, pins::DATA_BYTES);
            beat.strobes = m.PIN_MEMORY_WRITE_WSTRB;
            beat.last = m.PIN_MEMORY_WRITE_WLAST;
        }
        complete_writes(cycle);
    }

  private:
    static constexpr int64_t BEATS = 1024;
    static constexpr int OKAY = 0, SLVERR = 2, DECERR = 3;

    struct Range {
        int64_t tag, address, length;
        bool meets(int64_t from, int64_t size) const { return from < address + length && address < from + size; }
    };
    struct Read {
        int64_t address, beats, ready;
        int response;
        uint32_t id;
    };
    struct Write {
        int64_t address, beats, ready;
        int response;
        uint32_t id;
    };
    struct Beat {
        uint8_t data[pins::DATA_BYTES];
        uint64_t strobes;
        bool last;
    };

    static int64_t aligned(int64_t address) { return address / pins::DATA_BYTES * pins::DATA_BYTES; }

    bool stalled(int64_t cycle, int channel) const {
        if (p_.stall_cycles && cycle % p_.stall_period < p_.stall_cycles) return true;
        return p_.stall_share && static_cast<int64_t>(random(cycle, channel) & 0xFFFF) < p_.stall_share;
    }
    uint64_t random(int64_t cycle, int channel) const { return mix(mix(p_.seed + channel) + cycle); }
    int64_t jitter(int64_t cycle, int channel) const {
        return p_.latency_jitter ? random(cycle, channel) % (p_.latency_jitter + 1) : 0;
    }

    int response(int64_t address, int64_t length) {
        if (address < 0 || address + length > p_.size) {
            counters.outside++;
            return DECERR;
        }
        for (const Range& range : errors_)
            if (range.meets(address, length)) return SLVERR;
        return OKAY;
    }

    void check(int64_t address, int64_t beats, int size, int burst) {
        const int64_t last = aligned(address) + beats * pins::DATA_BYTES - 1;
        if (address >> 12 != last >> 12 || burst != 1 || 1 << size != pins::DATA_BYTES) counters.violations++;
    }

    void present_read() {
        pins::Model& m = *model_;
        const Read& read = reads_.front();
        if (read.response == OKAY) {
            std::memcpy(static_cast<void*>(&m.PIN_MEMORY_READ_RDATA), p_.bytes + read.address, pins::DATA_BYTES);
        } else {
            std::memset(static_cast<void*>(&m.PIN_MEMORY_READ_RDATA), 0xEE, pins::DATA_BYTES);
        }
        m.PIN_MEMORY_READ_RID = read.id;
        m.PIN_MEMORY_READ_RRESP = read.response;
        m.PIN_MEMORY_READ_RLAST = read.beats == 1;
        reading_ = true;
    }

    // A burst whose last beat is there gets its time of answer. Beats may come before their address.
    void complete_writes(int64_t cycle) {
        while (!addresses_.empty() &&
               static_cast<int64_t>(beats_.size()) - answered_beats_ >= addresses_.front().beats) {
            Write write = addresses_.front();
            addresses_.pop_front();
            for (int64_t i = 0; i < write.beats; i++)
                if (beats_[answered_beats_ + i].last != (i == write.beats - 1)) counters.violations++;
            answered_beats_ += write.beats;
            write.ready = cycle + p_.write_latency + jitter(cycle, 6);
            write.response = response(write.address, write.beats * pins::DATA_BYTES);
            answers_.push_back(write);
        }
    }

    void answer(int64_t time, std::vector<WatchRecord>& log) {
        const Write write = answers_.front();
        answers_.pop_front();
        int64_t first = -1, last = -1;
        for (int64_t i = 0; i < write.beats; i++) {
            const Beat& beat = beats_.front();
            const int64_t at = write.address + i * pins::DATA_BYTES;
            if (beat.strobes) {
                if (first < 0) first = at + __builtin_ctzll(beat.strobes);
                last = at + 63 - __builtin_clzll(beat.strobes);
            }
            if (write.response == OKAY) store(at, beat);
            beats_.pop_front();
        }
        answered_beats_ -= write.beats;
        if (first < 0 || write.response != OKAY) return;
        for (const Range& range : watches_)
            if (range.meets(first, last + 1 - first)) log.push_back({time, range.tag, first, last + 1 - first});
    }

    void store(int64_t address, const Beat& beat) {
        constexpr uint64_t all = pins::DATA_BYTES == 64 ? ~uint64_t{0} : (uint64_t{1} << (pins::DATA_BYTES % 64)) - 1;
        if (beat.strobes == all) {
            std::memcpy(p_.bytes + address, beat.data, pins::DATA_BYTES);
            return;
        }
        for (uint64_t left = beat.strobes; left; left &= left - 1) {
            const int lane = __builtin_ctzll(left);
            p_.bytes[address + lane] = beat.data[lane];
        }
    }

    pins::Model* model_ = nullptr;
    MemoryParameters p_{};
    std::vector<Range> watches_;
    std::vector<Range> errors_;
    std::deque<Read> reads_;
    std::deque<Write> addresses_;
    std::deque<Write> answers_;
    std::deque<Beat> beats_;
    bool reading_ = false;        // a beat of read data is presented
    bool answering_ = false;      // a write response is presented
    int64_t answered_beats_ = 0;  // beats at the front that belong to answers_
};

}  // namespace shim
