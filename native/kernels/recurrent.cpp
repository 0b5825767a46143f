// LSTM, GRU and RNN layers after the product of all inputs: for each time step the product of the state, then the cell.
#include "kernels/recurrent.h"

#include <algorithm>
#include <limits>
#include <stdexcept>

#include "int_math.h"
#include "kernels/kernels.h"
#include "kernels/weight_packing.h"

namespace dovetail {
namespace {

constexpr std::int64_t kMaxBatchRows = 6;  // batch rows that fit into the registers of the widest tile

std::int64_t round_to_line(std::int64_t floats) { return round_up(floats, 16); }

class Recurrent : public Kernel {
public:
    Recurrent(const Spec& spec, WeightCache& cache) : kernels_(gemm_kernels()) {
        read_operands(spec);
        const std::string cell = spec.text("cell");
        const CellFunctions cells = DOVETAIL_SELECT_ISA(cell_functions)();
        cell_ = cell == "lstm" ? cells.lstm : cell == "gru" ? cells.gru : cell == "tanh" ? cells.tanh : cells.relu;
        is_gru_ = cell == "gru";
        has_c_ = cell == "lstm";
        name_ = "recurrent " + cell + " " + name_of(isa());
        gates_ = is_gru_ ? 3 : has_c_ ? 4 : 1;
        const std::string direction = spec.text("direction", "forward");
        first_reverse_ = direction == "reverse" ? 0 : 1;
        const std::string order = spec.text("gates", "iofc");
        check_sizes(spec);
        for (const char gate : {'i', 'o', 'f', 'c'})
            if (order.size() != 4 || order.find(gate) == std::string::npos)
                throw std::invalid_argument("recurrent: gates must be a permutation of iofc");
        for (std::size_t i = 0; i < 4; ++i)
            cell_row_.gate_offsets[i] = static_cast<std::int64_t>(order.find("iofc"[i])) * hidden_;
        cell_row_.input_forget = spec.integer("input_forget") != 0;
        cell_row_.size = hidden_;
        const Operand& r = spec.inputs.at(1);
        if (!r.is_constant() || r.rank() != 3 || r.element != Element::f32)
            throw std::invalid_argument("recurrent: the recurrence weights must be a constant f32 tensor of rank 3");
        for (const auto stride : r.strides)
            if (stride % 4 != 0) throw std::invalid_argument("recurrent: strides must be multiples of 4 bytes");
        if (r.sizes[0] != directions_ || r.sizes[1] != gates_ * hidden_ || r.sizes[2] != hidden_ ||
            steps_.sizes[2] != directions_ * gates_ * hidden_)
            throw std::invalid_argument("recurrent: the shapes of the operands disagree");
        rows_ = std::min(batch_, kMaxBatchRows);
        int widest = kMaxVectors;
        while (kernels_.rows[widest - 1] < rows_) --widest;
        panels_ = panels_of(gates_ * hidden_, widest, kernels_.lanes);
        std::vector<std::int64_t> order_of_depth;
        for (std::int64_t k = 0; k < hidden_; ++k) order_of_depth.push_back(k * r.strides[2] / 4);
        for (std::int64_t d = 0; d < directions_; ++d)
            weights_.push_back(
                pack_cached(cache, "recurrent",
                            {reinterpret_cast<const float*>(r.constant + d * r.strides[0]), order_of_depth, r.strides[1] / 4},
                            panels_, kernels_.lanes));
        for (std::int64_t row = 0; row < rows_; ++row) row_offsets_.push_back(row * hidden_);
    }

    bool flushes_subnormals() const override { return true; }
    std::string name() const override { return name_; }

    std::size_t scratch_bytes() const override {
        return static_cast<std::size_t>(2 * round_to_line(rows_ * hidden_) + round_to_line(rows_ * gates_ * hidden_)) *
               sizeof(float);
    }

    void run(const Run& run) const override {
        if (has_lengths_)
            for (std::int64_t row = 0; row < batch_; ++row)
                if (length(run, row) < 0 || length(run, row) > steps_.sizes[0]) return run.fail("recurrent.lengths");
        const std::int64_t blocks = ceil_div(batch_, kMaxBatchRows);
        const auto task = [&](std::int64_t index, int worker) {
            const std::int64_t block = index / directions_;
            run_direction(run, index % directions_, block * batch_ / blocks, (block + 1) * batch_ / blocks, worker);
        };
        run.pool->parallel_for(directions_ * blocks, task);
    }

private:
    void read_operands(const Spec& spec) {
        std::size_t next = 2;
        const auto take = [&](const char* name, Operand& into) {
            if (spec.integer(name) == 0) return false;
            into = spec.inputs.at(next++);
            return true;
        };
        steps_ = spec.inputs.at(0);
        has_recurrent_bias_ = take("has_inner", recurrent_bias_);
        has_lengths_ = take("has_lengths", lengths_);
        has_h0_ = take("has_h", h0_);
        has_c0_ = take("has_c", c0_);
        outputs_ = spec.outputs;
        const Operand& y = outputs_.at(0);
        if (steps_.rank() != 3 || y.rank() != 4)
            throw std::invalid_argument("recurrent: the input must have rank 3 and the output rank 4");
        directions_ = y.sizes[1];
        batch_ = y.sizes[2];
        hidden_ = y.sizes[3];
        for (const auto* operands : {&spec.inputs, &spec.outputs})
            for (const Operand& operand : *operands)
                if (operand.element != Element::f32 && !(has_lengths_ && operand.element == lengths_.element))
                    throw std::invalid_argument("recurrent: operands must be f32");
        for (const Operand* operand : std::initializer_list<const Operand*>{&steps_, &recurrent_bias_, &y})
            if (operand->rank() != 0 && operand->sizes.back() != 1 && operand->strides.back() != 4)
                throw std::invalid_argument("recurrent: rows must be contiguous");
        if (has_lengths_ && lengths_.element != Element::i32 && lengths_.element != Element::i64)
            throw std::invalid_argument("recurrent: lengths must be i32 or i64");
    }

    // Checks the shapes of all operands.
    void check_sizes(const Spec& spec) const {
        const std::vector<std::int64_t> states = {directions_, batch_, hidden_};
        const Operand& y = outputs_[0];
        bool agree = y.sizes[0] == steps_.sizes[0] && steps_.sizes[1] == batch_ && directions_ > 0 && directions_ <= 2;
        agree = agree && hidden_ > 0 && outputs_.size() <= (has_c_ ? 3U : 2U);
        agree = agree && spec.inputs.size() == 2U + has_recurrent_bias_ + has_lengths_ + has_h0_ + has_c0_;
        for (std::size_t i = 1; i < outputs_.size(); ++i) agree = agree && outputs_[i].sizes == states;
        for (const auto& [is_there, state] : {std::pair{has_h0_, &h0_}, std::pair{has_c0_, &c0_}})
            agree = agree && (!is_there || state->sizes == states);
        agree = agree && (!has_lengths_ || lengths_.sizes == std::vector<std::int64_t>{batch_});
        agree = agree && (!has_recurrent_bias_ || (recurrent_bias_.rank() == 2 && recurrent_bias_.sizes[0] == directions_ &&
                                                   recurrent_bias_.sizes[1] >= hidden_));
        agree = agree && steps_.strides[1] % 4 == 0 && steps_.strides[0] % 4 == 0;
        if (!agree) throw std::invalid_argument("recurrent: the shapes of the operands disagree");
    }

    std::int64_t length(const Run& run, std::int64_t row) const {
        const std::byte* at = run.at(lengths_) + row * lengths_.strides[0];
        if (lengths_.element == Element::i32) return *reinterpret_cast<const std::int32_t*>(at);
        return *reinterpret_cast<const std::int64_t*>(at);
    }

    static std::byte* address(const Run& run, const Operand& operand, std::int64_t first, std::int64_t second) {
        return run.at(operand) + first * operand.strides[0] + second * operand.strides[1];
    }

    // Runs one direction for some rows of the batch, from the first time step to the last.
    void run_direction(const Run& run, std::int64_t direction, std::int64_t first, std::int64_t last, int worker) const {
        auto* h = reinterpret_cast<float*>(run.scratch_of(worker));
        float* c = h + round_to_line(rows_ * hidden_);
        float* gates = c + round_to_line(rows_ * hidden_);
        const std::int64_t count = last - first, steps = steps_.sizes[0];
        const auto bytes = static_cast<std::size_t>(hidden_) * sizeof(float);
        for (std::int64_t row = 0; row < count; ++row) {
            const bool has_steps = !has_lengths_ || length(run, first + row) > 0;
            load_state(run, h + row * hidden_, has_h0_ && has_steps ? &h0_ : nullptr, direction, first + row);
            load_state(run, c + row * hidden_, has_c0_ && has_steps ? &c0_ : nullptr, direction, first + row);
        }
        for (std::int64_t k = 0; k < steps && count > 0; ++k) {
            const std::int64_t t = direction >= first_reverse_ ? steps - 1 - k : k;
            const auto* input = reinterpret_cast<const float*>(address(run, steps_, t, first)) + direction * gates_ * hidden_;
            multiply(h, gates, input, direction, count);
            for (std::int64_t row = 0; row < count; ++row) {
                const bool is_active = !has_lengths_ || length(run, first + row) > t;
                auto* y =
                    reinterpret_cast<float*>(address(run, outputs_[0], t, direction) + (first + row) * outputs_[0].strides[2]);
                if (!is_active) {
                    std::fill(y, y + hidden_, 0.0f);
                    continue;
                }
                CellStep step = cell_row_;
                step.gates = gates + row * gates_ * hidden_;
                step.input = input + row * steps_.strides[1] / 4;
                step.recurrent_bias =
                    has_recurrent_bias_
                        ? reinterpret_cast<const float*>(run.at(recurrent_bias_) + direction * recurrent_bias_.strides[0])
                        : nullptr;
                step.h = h + row * hidden_;
                step.c = c + row * hidden_;
                cell_(step);
                std::copy_n(reinterpret_cast<const std::byte*>(step.h), bytes, reinterpret_cast<std::byte*>(y));
            }
        }
        for (std::size_t i = 1; i < outputs_.size(); ++i)
            for (std::int64_t row = 0; row < count; ++row) {
                const float* from = (i == 1 ? h : c) + row * hidden_;
                std::byte* to = address(run, outputs_[i], direction, first + row);
                for (std::int64_t j = 0; j < hidden_; ++j) *reinterpret_cast<float*>(to + j * outputs_[i].strides[2]) = from[j];
            }
    }

    void load_state(const Run& run, float* state, const Operand* operand, std::int64_t direction, std::int64_t row) const {
        if (operand == nullptr) return std::fill(state, state + hidden_, 0.0f);
        const std::byte* from = address(run, *operand, direction, row);
        for (std::int64_t j = 0; j < hidden_; ++j) state[j] = *reinterpret_cast<const float*>(from + j * operand->strides[2]);
    }

    // gates = h @ r, plus the input's contribution where the cell takes their sum.
    void multiply(const float* h, float* gates, const float* input, std::int64_t direction, std::int64_t count) const {
        GemmTile tile{};
        tile.base = h;
        tile.rows = row_offsets_.data();
        tile.segments = 1;
        tile.length = hidden_;
        tile.y_stride = gates_ * hidden_;
        tile.has_epilogue = true;
        tile.scale = 1;
        tile.low = -std::numeric_limits<float>::infinity();
        tile.high = std::numeric_limits<float>::infinity();
        tile.residual_stride = steps_.strides[1] / 4;
        for (const Panel& panel : panels_) {
            tile.weights = weights_[static_cast<std::size_t>(direction)].get() + panel.first * hidden_;
            tile.weights_stride = static_cast<std::int64_t>(panel.vectors) * kernels_.lanes;
            tile.next_weights = tile.weights;
            tile.y = gates + panel.first;
            tile.columns = panel.columns;
            tile.residual = is_gru_ ? nullptr : input + panel.first;
            kernels_.tile[panel.vectors - 1][count - 1](tile);
        }
    }

    const GemmKernels& kernels_;
    Operand steps_, recurrent_bias_, lengths_, h0_, c0_;
    std::vector<Operand> outputs_;
    bool has_recurrent_bias_ = false, has_lengths_ = false, has_h0_ = false, has_c0_ = false, has_c_ = false, is_gru_ = false;
    std::int64_t directions_ = 1, batch_ = 1, hidden_ = 1, gates_ = 1, rows_ = 1;
    std::int64_t first_reverse_ = 1;
    std::vector<Panel> panels_;
    std::vector<std::shared_ptr<const float>> weights_;  // by direction
    std::vector<std::int64_t> row_offsets_;
    CellStep cell_row_{};
    void (*cell_)(const CellStep&) = nullptr;
    std::string name_;
};

}  // namespace

std::unique_ptr<Kernel> make_recurrent(const Spec& spec, WeightCache& cache) { return std::make_unique<Recurrent>(spec, cache); }

}  // namespace dovetail
