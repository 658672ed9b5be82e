// A bare loop: the model, its recorded inputs, and nothing else. The reference for the speed of the shim.
#include <memory>

#include "clock.h"
#include "stimulus.h"

namespace shim {

uint64_t Stimulus::replay(bool check) const {
    auto context = std::make_unique<VerilatedContext>();
    auto model = std::make_unique<pins::Model>(context.get());
    pins::Plane transmit[pins::PLANES];
    pins::Plane receive[pins::PLANES];
    pins::bind(*model, transmit, receive);
    pins::Input inputs[pins::INPUTS];
    pins::inputs(*model, inputs);
    model->PIN_RST = 1;
    for (int i = 0; i < 4; i++) {
        model->PIN_CLK = 0;
        model->eval();
        model->PIN_CLK = 1;
        model->eval();
    }
    uint64_t hash = 0;
    const uint8_t* at = changes_.data();
    for (int64_t cycle = 0; cycle < cycles_; cycle++) {
        for (int count = *at++; count > 0; count--) {
            const pins::Input& input = inputs[*at++];
            std::memcpy(input.bytes, at, input.size);
            at += input.size;
        }
        model->PIN_CLK = 0;
        model->eval();
        if (check) {
            for (const pins::Plane& plane : transmit)
                if (*plane.tvalid && *plane.tready) {
                    uint64_t word;
                    std::memcpy(&word, plane.tdata, sizeof word);
                    hash = mix(hash ^ word ^ static_cast<uint64_t>(cycle));
                }
        }
        model->PIN_CLK = 1;
        model->eval();
    }
    return hash;
}

}  // namespace shim
