// Recorded input pins, for a bare loop over the same model: what the engine alone can do.
#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

#include "pins.h"

namespace shim {

// The changes of the input pins, cycle by cycle: count, then (pin, bytes) each.
class Stimulus {
  public:
    void capture(pins::Model& model) {
        const pins::Input* inputs = pins::inputs(model, table_);
        const size_t mark = changes_.size();
        changes_.push_back(0);
        if (last_.empty()) last_.resize(pins::INPUTS * MAXIMUM_BYTES, 0);
        for (int i = 0; i < pins::INPUTS; i++) {
            uint8_t* last = last_.data() + i * MAXIMUM_BYTES;
            if (cycles_ && !std::memcmp(last, inputs[i].bytes, inputs[i].size)) continue;
            std::memcpy(last, inputs[i].bytes, inputs[i].size);
            changes_.push_back(static_cast<uint8_t>(i));
            changes_.insert(changes_.end(), last, last + inputs[i].size);
            changes_[mark]++;
        }
        cycles_++;
    }

    int64_t cycles() const { return cycles_; }

    // Clocks a fresh model through the recording; returns a hash of its outputs over time, or 0 without `check`.
    uint64_t replay(bool check) const;

  private:
    static constexpr int MAXIMUM_BYTES = 64;

    std::vector<uint8_t> changes_;
    std::vector<uint8_t> last_;
    pins::Input table_[pins::INPUTS];
    int64_t cycles_ = 0;
};

}  // namespace shim
