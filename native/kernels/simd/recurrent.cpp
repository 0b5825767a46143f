// The cells of recurrent layers.
#include "kernels/recurrent.h"

#include "kernels/simd/epilogue.h"
#include "kernels/simd/math.h"

namespace dovetail::DOVETAIL_ISA {
namespace {

template <bool kHasPeepholes>
void lstm(const CellStep& row) {
    const float *in = row.gates + row.gate_offsets[0], *out = row.gates + row.gate_offsets[1];
    const float *forget = row.gates + row.gate_offsets[2], *cell = row.gates + row.gate_offsets[3];
    for (std::int64_t j = 0; j < row.size; j += kLanes) {
        const std::int64_t valid = row.size - j;
        const Floats before = load_partial(row.c + j, valid);
        // Returns the accumulators of a gate plus the state times the peephole at `index`.
        const auto gate = [&](const float* sums, std::int64_t index, Floats state) __attribute__((always_inline)) {
            const Floats sum = load_partial(sums + j, valid);
            return kHasPeepholes ? sum + load_partial(row.peepholes + index * row.size + j, valid) * state : sum;
        };
        const Floats i = sigmoid(gate(in, 0, before));
        const Floats f = row.input_forget ? 1.0f - i : sigmoid(gate(forget, 2, before));
        const Floats c = f * before + i * tanh(load_partial(cell + j, valid));
        store_partial(row.c + j, c, valid);
        store_partial(row.h + j, sigmoid(gate(out, 1, c)) * tanh(c), valid);
    }
}

void gru(const CellStep& row) {
    const std::int64_t size = row.size;
    for (std::int64_t j = 0; j < size; j += kLanes) {
        const std::int64_t valid = size - j;
        const auto gate = [&](std::int64_t index)
                              __attribute__((always_inline)) { return load_partial(row.gates + index * size + j, valid); };
        const auto input = [&](std::int64_t index)
                               __attribute__((always_inline)) { return load_partial(row.input + index * size + j, valid); };
        const Floats z = sigmoid(input(0) + gate(0)), r = sigmoid(input(1) + gate(1));
        Floats linear = gate(2);
        if (row.recurrent_bias != nullptr) linear += load_partial(row.recurrent_bias + j, valid);
        const Floats n = tanh(input(2) + r * linear);
        store_partial(row.h + j, (1.0f - z) * n + z * load_partial(row.h + j, valid), valid);
    }
}

void rnn_tanh(const CellStep& row) {
    for (std::int64_t j = 0; j < row.size; j += kLanes)
        store_partial(row.h + j, tanh(load_partial(row.gates + j, row.size - j)), row.size - j);
}

void rnn_relu(const CellStep& row) {
    for (std::int64_t j = 0; j < row.size; j += kLanes)
        store_partial(row.h + j, maximum(load_partial(row.gates + j, row.size - j), Floats{}), row.size - j);
}

}  // namespace

CellFunctions cell_functions() { return {lstm<false>, lstm<true>, gru, rnn_tanh, rnn_relu}; }

}  // namespace dovetail::DOVETAIL_ISA
