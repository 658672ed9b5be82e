// AXI4-Lite manager that carries out register accesses at their times, one after the other.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "clock.h"
#include "pins.h"

namespace shim {

enum class Access : int32_t { WRITE = 0, READ = 1 };

// Read by Python with this layout (access_record in verilated.py).
struct AccessRecord {
    int64_t time;     // begin of the cycle of the answer
    int64_t tag;
    uint32_t address;
    uint32_t value;   // read data, 0 for a write
    int32_t kind;
    int32_t response; // AXI response
};

class RegisterBus {
  public:
    struct Operation {
        Access kind;
        uint32_t address;
        uint32_t value;  // to write
        int64_t tag;     // below 0: only an error is reported
    };

    void configure(pins::Model& model, int64_t period) {
        model_ = &model;
        period_ = period;
        model.PIN_CONTROL_WSTRB = 15;
    }

    // Accesses of one time are carried out in the order of the calls.
    void schedule(int64_t time, const Operation& operation) { queue_.emplace(time, operation); }

    // No access is under way, and none is due by this cycle.
    bool done(int64_t cycle) const { return !busy_ && next_cycle() > cycle; }
    int64_t next_cycle() const { return queue_.empty() ? NEVER : divide_up(queue_.begin()->first, period_); }

    // Sets the input pins; true while an access is under way.
    bool drive(int64_t cycle) {
        pins::Model& m = *model_;
        if (!busy_ && next_cycle() <= cycle) {
            current_ = queue_.begin()->second;
            queue_.erase(queue_.begin());
            busy_ = true;
            begin();
        }
        m.PIN_CONTROL_AWVALID = address_waits_ && current_.kind == Access::WRITE;
        m.PIN_CONTROL_ARVALID = address_waits_ && current_.kind != Access::WRITE;
        m.PIN_CONTROL_WVALID = data_waits_;
        m.PIN_CONTROL_BREADY = busy_ && current_.kind == Access::WRITE;
        m.PIN_CONTROL_RREADY = busy_ && current_.kind != Access::WRITE;
        return busy_;
    }

    void sample(int64_t time, std::vector<AccessRecord>& log) {
        if (!busy_) return;
        const pins::Model& m = *model_;
        if (m.PIN_CONTROL_AWVALID && m.PIN_CONTROL_AWREADY) address_waits_ = false;
        if (m.PIN_CONTROL_ARVALID && m.PIN_CONTROL_ARREADY) address_waits_ = false;
        if (m.PIN_CONTROL_WVALID && m.PIN_CONTROL_WREADY) data_waits_ = false;
        if (m.PIN_CONTROL_BREADY && m.PIN_CONTROL_BVALID) finish(time, 0, m.PIN_CONTROL_BRESP, log);
        if (m.PIN_CONTROL_RREADY && m.PIN_CONTROL_RVALID) finish(time, m.PIN_CONTROL_RDATA, m.PIN_CONTROL_RRESP, log);
    }

  private:
    void begin() {
        address_waits_ = true;
        if (current_.kind == Access::WRITE) {
            model_->PIN_CONTROL_AWADDR = current_.address;
            model_->PIN_CONTROL_WDATA = current_.value;
            data_waits_ = true;
        } else {
            model_->PIN_CONTROL_ARADDR = current_.address;
        }
    }

    void finish(int64_t time, uint32_t value, int32_t response, std::vector<AccessRecord>& log) {
        busy_ = false;
        if (response || current_.tag >= 0)
            log.push_back({time, current_.tag, current_.address, value, static_cast<int32_t>(current_.kind), response});
    }

    pins::Model* model_ = nullptr;
    int64_t period_ = 1;
    std::multimap<int64_t, Operation> queue_;
    Operation current_{};
    bool busy_ = false;           // an access is under way
    bool address_waits_ = false;  // its address is not taken yet
    bool data_waits_ = false;
};

}  // namespace shim
