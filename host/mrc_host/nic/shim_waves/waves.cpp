// What builds with waveforms add to the C interface of the shim.
#include "stimulus.h"

#pragma GCC visibility push(default)
extern "C" {

void mrc_waves_into(shim::Stimulus* waves, const char* path) { waves->into(path); }
void mrc_waves_window(shim::Stimulus* waves, int64_t begin, int64_t end) { waves->window(begin, end); }

}  // extern "C"
#pragma GCC visibility pop
