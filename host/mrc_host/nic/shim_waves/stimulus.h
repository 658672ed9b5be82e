// Takes the place of the shim's stimulus.h in builds with waveforms: what sees every clocked cycle of the engine
// writes its signals into a VCD file, inside windows of time only.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <verilated_vcd_c.h>

#include "pins.h"

namespace shim {

class Stimulus {
  public:
    ~Stimulus() {
        if (file_) file_->close();
    }

    // Called with the inputs of a cycle set, before its clock edge.
    void capture(pins::Model& model) {
        const int64_t time = time_of(static_cast<uint64_t>(model.PIN_NOW));
        if (!inside(time)) return;
        if (!file_) open(model);
        model.eval();  // the shim evaluates once more with the same inputs, which changes nothing
        file_->dump(static_cast<uint64_t>(time));
        cycles_++;
    }

    void into(const char* path) { path_ = path; }
    void window(int64_t begin, int64_t end) { windows_.emplace_back(begin, end); }

    // Cycles written so far.
    int64_t cycles() const { return cycles_; }
    uint64_t replay(bool) const { return 0; }

  private:
    // The pin counts ticks of 128 ns with 16 bits of fraction.
    static int64_t time_of(uint64_t now) {
        return static_cast<int64_t>((now >> 16) * 128000 + ((now & 0xFFFF) * 128000 + 0x8000) / 0x10000);
    }

    bool inside(int64_t time) const {
        for (const auto& [begin, end] : windows_)
            if (begin <= time && time <= end) return true;
        return false;
    }

    void open(pins::Model& model) {
        model.contextp()->traceEverOn(true);
        file_ = std::make_unique<VerilatedVcdC>();
        model.trace(file_.get(), 99);
        file_->set_time_unit("1ps");
        file_->set_time_resolution("1ps");
        file_->open(path_.c_str());
    }

    std::string path_;
    std::vector<std::pair<int64_t, int64_t>> windows_;
    std::unique_ptr<VerilatedVcdC> file_;
    int64_t cycles_ = 0;
};

}  // namespace shim
