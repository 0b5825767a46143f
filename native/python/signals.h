// Signals of Python during a run.
#pragma once

#include <nanobind/nanobind.h>

#include "python/gil.h"
#include "thread_pool.h"

namespace dovetail {

// Polls Python for a signal whose handler raises, such as that of Ctrl-C. Only the main thread receives signals.
class Signals : public Interrupt {
public:
    Signals() : previous_(current()) { current() = this; }
    ~Signals() override { current() = previous_; }

    bool poll() override {
        const GilAcquire lock;
        return PyErr_CheckSignals() != 0;
    }

private:
    Interrupt* const previous_;
};

}  // namespace dovetail
