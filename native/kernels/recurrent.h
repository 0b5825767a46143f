// What a recurrent cell makes of its gates.
#pragma once

#include <cstdint>

#include "isa.h"

namespace dovetail {

// One row of a batch at one moment. `gates`: by gate `size` sums, the states' products in them; `h` and `c` are its states, which become
// the next.
struct CellRow {
    const float* gates;
    const float* now;    // what the input brings, where `gates` has it not in it
    const float* inner;  // what is added to the state's part of the last gate; null: nothing
    float* h;
    float* c;
    std::int64_t size;
    std::int64_t place[4];  // of the gates i, o, f, c, in floats
    bool input_forget;      // f is 1 - i
};

struct CellFunctions {
    void (*lstm)(const CellRow& row);
    void (*gru)(const CellRow& row);  // gates z, r, n, the reset after the product
    void (*tanh)(const CellRow& row);
    void (*relu)(const CellRow& row);
};

DOVETAIL_IN_EVERY_ISA(CellFunctions cell_functions();)

}  // namespace dovetail
