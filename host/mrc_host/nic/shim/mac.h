// One Ethernet port: a MAC with a line rate, 24 bytes of overhead a frame and a transmit FIFO.
//
// Transmit: beats are taken while the FIFO has room for a whole one; bytes leave at line rate, as soon as
// they are there (cut through). A frame that the engine interrupts is stretched and counted as an underrun.
// Its time is that of its last bit, the end of the FCS.
// Receive: time zero of a frame is the first bit of its preamble. A beat is presented when its last byte has
// arrived; the last beat when the FCS has, because only then it is known whether the frame is good.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <deque>
#include <vector>

#include "clock.h"
#include "pins.h"

namespace shim {

constexpr int64_t PREAMBLE_BYTES = 8;
constexpr int64_t FCS_BYTES = 4;
constexpr int64_t GAP_BYTES = 12;
constexpr int64_t OVERHEAD_BYTES = PREAMBLE_BYTES + FCS_BYTES + GAP_BYTES;

// Read by Python with this layout (frame_record in verilated.py).
struct FrameRecord {
    int64_t time_last_bit;
    int64_t offset;
    int32_t length;
    int32_t port;
    int64_t sequence;
};

struct MacCounters {
    int64_t underruns = 0;         // beats that came too late for the line
    int64_t lost_link_down = 0;    // frames sent or received while the link was down
    int64_t receive_stalls = 0;    // beats the engine did not take; a MAC cannot wait
    int64_t transmit_bad = 0;      // frames the engine marked as bad: they leave with a wrong FCS, so never
};

class Mac {
  public:
    void configure(int port, int64_t period, ByteTime byte_time, int64_t fifo_bytes, const pins::Plane& transmit,
                   const pins::Plane& receive) {
        port_ = port;
        period_ = period;
        byte_ = byte_time;
        fifo_bytes_ = fifo_bytes;
        tx_ = transmit;
        rx_ = receive;
        *tx_.tready = 0;
        *rx_.tvalid = 0;
    }

    MacCounters counters;

    void set_link(bool up) { link_up_ = up; }

    // A frame whose first bit arrives at `time`; false when an earlier call had a later time.
    bool deliver(int64_t time, const uint8_t* bytes, int64_t length, bool bad) {
        if (time < last_delivered_) return false;
        last_delivered_ = time;
        received_.push_back({time, bad, std::vector<uint8_t>(bytes, bytes + length)});
        if (received_.size() == 1) begin_frame(0);
        return true;
    }

    // Cycle in which the next received beat is presented.
    int64_t next_cycle() const { return received_.empty() ? NEVER : beat_cycle_; }

    // Sets the input pins for a cycle that begins at `time`; true when a beat is presented.
    bool drive(int64_t cycle, int64_t time) {
        while (!fifo_.empty() && fifo_.front().leaves <= time) {
            occupied_ -= fifo_.front().bytes;
            fifo_.pop_front();
        }
        *tx_.tready = occupied_ + pins::DATA_BYTES <= fifo_bytes_;
        if (received_.empty() || cycle < beat_cycle_) {
            *rx_.tvalid = 0;
            return false;
        }
        const Received& frame = received_.front();
        const int64_t left = static_cast<int64_t>(frame.bytes.size()) - sent_bytes_;
        const int64_t count = std::min<int64_t>(left, pins::DATA_BYTES);
        if (count < pins::DATA_BYTES) std::memset(rx_.tdata, 0, pins::DATA_BYTES);
        std::memcpy(rx_.tdata, frame.bytes.data() + sent_bytes_, count);
        const uint64_t keep = count >= 64 ? ~uint64_t{0} : (uint64_t{1} << count) - 1;
        std::memcpy(rx_.tkeep, &keep, sizeof(pins::Keep));
        *rx_.tlast = left <= pins::DATA_BYTES;
        *rx_.tuser = left <= pins::DATA_BYTES && frame.bad;
        if (sent_bytes_ == 0 && !link_up_) swallow_ = true;
        *rx_.tvalid = !swallow_;
        sent_bytes_ += count;
        presented_ = true;
        return true;
    }

    // Takes what the engine put on the pins in this cycle.
    void sample(int64_t cycle, int64_t time) {
        if (presented_) {
            presented_ = false;
            if (*rx_.tvalid && !*rx_.tready) counters.receive_stalls++;
            advance_receive(cycle);
        }
        if (*tx_.tvalid && *tx_.tready) take_beat(time + period_);
    }

    // Moves the frames whose last bit left before `until` to the output.
    void flush(int64_t until, std::vector<FrameRecord>& records, std::vector<uint8_t>& bytes) {
        while (!sent_.empty() && sent_.front().time < until) {
            const Sent& frame = sent_.front();
            records.push_back({frame.time, static_cast<int64_t>(bytes.size()),
                               static_cast<int32_t>(frame.bytes.size()), port_, sequence_++});
            bytes.insert(bytes.end(), frame.bytes.begin(), frame.bytes.end());
            sent_.pop_front();
        }
    }

    // Time of the last bit of the next frame that is complete; it leaves without the engine's help.
    int64_t next_departure() const { return sent_.empty() ? NEVER : sent_.front().time; }

  private:
    struct Received {
        int64_t time;
        bool bad;
        std::vector<uint8_t> bytes;
    };
    struct Sent {
        int64_t time;
        std::vector<uint8_t> bytes;
    };
    struct Beat {
        int64_t leaves;
        int32_t bytes;
    };

    void begin_frame(int64_t earliest_cycle) {
        const Received& frame = received_.front();
        start_ = std::max(frame.time, line_free_);
        line_free_ = start_ + byte_.up(PREAMBLE_BYTES + frame.bytes.size() + FCS_BYTES);
        sent_bytes_ = 0;
        swallow_ = false;
        set_beat_cycle(earliest_cycle);
    }

    void set_beat_cycle(int64_t earliest_cycle) {
        const int64_t size = received_.front().bytes.size();
        int64_t arrived = PREAMBLE_BYTES + std::min(size, sent_bytes_ + pins::DATA_BYTES);
        if (sent_bytes_ + pins::DATA_BYTES >= size) arrived += FCS_BYTES;
        beat_cycle_ = std::max(earliest_cycle, divide_up(start_ + byte_.up(arrived), period_));
    }

    void advance_receive(int64_t cycle) {
        if (sent_bytes_ < static_cast<int64_t>(received_.front().bytes.size())) {
            set_beat_cycle(cycle + 1);
            return;
        }
        if (swallow_) counters.lost_link_down++;
        received_.pop_front();
        if (!received_.empty()) begin_frame(cycle + 1);
    }

    void take_beat(int64_t available) {
        uint64_t keep = 0;
        std::memcpy(&keep, tx_.tkeep, sizeof(pins::Keep));
        const int count = __builtin_popcountll(keep);
        if (building_.empty()) {
            frame_start_ = std::max(available, wire_free_);
        } else {
            const int64_t due = frame_start_ + byte_.up(PREAMBLE_BYTES + building_.size());
            if (available > due) {
                counters.underruns++;
                frame_start_ += available - due;
            }
        }
        const uint8_t* lanes = static_cast<const uint8_t*>(tx_.tdata);
        building_.insert(building_.end(), lanes, lanes + count);
        fifo_.push_back({frame_start_ + byte_.up(PREAMBLE_BYTES + building_.size()), count});
        occupied_ += count;
        if (!*tx_.tlast) return;
        // The gap is subtracted rounded down, so that slots as others compute them never overlap.
        wire_free_ = frame_start_ + byte_.up(OVERHEAD_BYTES + building_.size());
        if (*tx_.tuser) {
            counters.transmit_bad++;
        } else if (!link_up_) {
            counters.lost_link_down++;
        } else {
            sent_.push_back({wire_free_ - byte_.down(GAP_BYTES), building_});
        }
        building_.clear();
    }

    int port_ = 0;
    int64_t period_ = 1;
    ByteTime byte_{1, 1};
    int64_t fifo_bytes_ = 0;
    pins::Plane tx_{};
    pins::Plane rx_{};
    bool link_up_ = true;

    std::deque<Received> received_;
    int64_t last_delivered_ = 0;
    int64_t line_free_ = 0;   // end of the frame before on the receiving line
    int64_t start_ = 0;       // first bit of the frame that is received
    int64_t sent_bytes_ = 0;  // bytes of it that the engine has
    int64_t beat_cycle_ = 0;
    bool presented_ = false;
    bool swallow_ = false;

    std::deque<Beat> fifo_;
    int64_t occupied_ = 0;
    int64_t wire_free_ = 0;
    int64_t frame_start_ = 0;
    int64_t sequence_ = 0;
    std::vector<uint8_t> building_;
    std::deque<Sent> sent_;
};

}  // namespace shim
