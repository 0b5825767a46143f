// The cells of recurrent layers.
#pragma once

#include <cstdint>

#include "isa.h"

namespace dovetail {

// The state of one batch row at one time step. `gates` holds `size` accumulators per gate: the products of the state with the
// recurrence weights. `h` and `c` are the states and are updated in place.
struct CellStep {
    const float* gates;
    const float* input;           // the contribution of the input, if `gates` does not include it
    const float* recurrent_bias;  // the recurrent bias of the last gate (linear_before_reset); null: none
    float* h;
    float* c;
    std::int64_t size;
    std::int64_t gate_offsets[4];  // offsets of the gates i, o, f, c in `gates`, in floats
    bool input_forget;             // f = 1 - i
    const float* peepholes;        // factors of c in the gates i, o, f, `size` of each; null: none
};

struct CellFunctions {
    void (*lstm)(const CellStep& row);
    void (*lstm_with_peepholes)(const CellStep& row);
    void (*gru)(const CellStep& row);  // gates z, r, n; the reset gate is applied after the product
    void (*tanh)(const CellStep& row);
    void (*relu)(const CellStep& row);
};

DOVETAIL_DECLARE_PER_ISA(CellFunctions cell_functions();)

}  // namespace dovetail
