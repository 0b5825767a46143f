// The gates of recurrent cells.
#include "kernels/recurrent.h"

#include "kernels/simd/epilogue.h"
#include "kernels/simd/math.h"

namespace dovetail::DOVETAIL_ISA {
namespace {

void lstm(const CellRow& row) {
    const float *in = row.gates + row.place[0], *out = row.gates + row.place[1];
    const float *forget = row.gates + row.place[2], *cell = row.gates + row.place[3];
    for (std::int64_t j = 0; j < row.size; j += kLanes) {
        const std::int64_t some = row.size - j;
        const Floats i = sigmoid(load_some(in + j, some));
        const Floats f = row.input_forget ? 1.0f - i : sigmoid(load_some(forget + j, some));
        const Floats c = f * load_some(row.c + j, some) + i * tanh(load_some(cell + j, some));
        store_some(row.c + j, c, some);
        store_some(row.h + j, sigmoid(load_some(out + j, some)) * tanh(c), some);
    }
}

void gru(const CellRow& row) {
    const std::int64_t size = row.size;
    for (std::int64_t j = 0; j < size; j += kLanes) {
        const std::int64_t some = size - j;
        const auto gate = [&](std::int64_t place) __attribute__((always_inline)) {
            return load_some(row.gates + place * size + j, some);
        };
        const auto now = [&](std::int64_t place) __attribute__((always_inline)) {
            return load_some(row.now + place * size + j, some);
        };
        const Floats z = sigmoid(now(0) + gate(0)), r = sigmoid(now(1) + gate(1));
        Floats linear = gate(2);
        if (row.inner != nullptr) linear += load_some(row.inner + j, some);
        const Floats n = tanh(now(2) + r * linear);
        store_some(row.h + j, (1.0f - z) * n + z * load_some(row.h + j, some), some);
    }
}

void plain_tanh(const CellRow& row) {
    for (std::int64_t j = 0; j < row.size; j += kLanes)
        store_some(row.h + j, tanh(load_some(row.gates + j, row.size - j)), row.size - j);
}

void plain_relu(const CellRow& row) {
    for (std::int64_t j = 0; j < row.size; j += kLanes)
        store_some(row.h + j, maximum(load_some(row.gates + j, row.size - j), Floats{}), row.size - j);
}

}  // namespace

CellFunctions cell_functions() { return {lstm, gru, plain_tanh, plain_relu}; }

}  // namespace dovetail::DOVETAIL_ISA
