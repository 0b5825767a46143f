// A recurrent layer after the product of all its inputs: moment by moment the states' product, and the cell.
#include "kernels/recurrent.h"

#include <algorithm>
#include <limits>
#include <stdexcept>

#include "kernels/kernels.h"
#include "kernels/weight_packing.h"

namespace dovetail {
namespace {

constexpr std::int64_t kRowsTogether = 6;  // of a batch: what the widest tile has registers for

std::int64_t up_to_line(std::int64_t floats) { return (floats + 15) / 16 * 16; }

class Recurrent : public Step {
public:
    Recurrent(const Spec& spec, Store& store) : table_(product_table()) {
        take_operands(spec);
        const std::string cell = spec.text("cell");
        const CellFunctions cells = DOVETAIL_CHOSEN(cell_functions)();
        cell_ = cell == "lstm" ? cells.lstm : cell == "gru" ? cells.gru : cell == "tanh" ? cells.tanh : cells.relu;
        is_gru_ = cell == "gru";
        has_c_ = cell == "lstm";
        name_ = "recurrent " + cell + " " + name_of(isa());
        gates_ = is_gru_ ? 3 : has_c_ ? 4 : 1;
        const std::string direction = spec.text("direction", "forward");
        first_backwards_ = direction == "reverse" ? 0 : 1;
        const std::string order = spec.text("gates", "iofc");
        check_sizes(spec);
        for (const char gate : {'i', 'o', 'f', 'c'})
            if (order.size() != 4 || order.find(gate) == std::string::npos) throw std::invalid_argument("recurrent: other gates");
        for (std::size_t i = 0; i < 4; ++i) row_.place[i] = static_cast<std::int64_t>(order.find("iofc"[i])) * hidden_;
        row_.input_forget = spec.integer("input_forget") != 0;
        row_.size = hidden_;
        const Operand& r = spec.inputs.at(1);
        if (!r.is_constant() || r.rank() != 3 || r.element != Element::f32)
            throw std::invalid_argument("recurrent: weights of the states are no constant");
        for (const auto stride : r.strides)
            if (stride % 4 != 0) throw std::invalid_argument("recurrent: a stride is no whole number of floats");
        if (r.sizes[0] != directions_ || r.sizes[1] != gates_ * hidden_ || r.sizes[2] != hidden_ ||
            moments_.sizes[2] != directions_ * gates_ * hidden_)
            throw std::invalid_argument("recurrent: the operands disagree");
        rows_ = std::min(batch_, kRowsTogether);
        int widest = kMostVectors;
        while (table_.rows[widest - 1] < rows_) --widest;
        panels_ = panels_of(gates_ * hidden_, widest, table_.lanes);
        std::vector<std::int64_t> order_of_depth;
        for (std::int64_t k = 0; k < hidden_; ++k) order_of_depth.push_back(k * r.strides[2] / 4);
        for (std::int64_t d = 0; d < directions_; ++d)
            weights_.push_back(pack_once(store, "recurrent",
                                         {reinterpret_cast<const float*>(r.constant + d * r.strides[0]), order_of_depth,
                                          r.strides[1] / 4},
                                         panels_, table_.lanes));
        for (std::int64_t row = 0; row < rows_; ++row) row_offsets_.push_back(row * hidden_);
    }

    std::string name() const override { return name_; }

    std::size_t scratch_bytes() const override {
        return static_cast<std::size_t>(2 * up_to_line(rows_ * hidden_) + up_to_line(rows_ * gates_ * hidden_)) * sizeof(float);
    }

    void run(const Run& run) const override {
        if (has_lengths_)
            for (std::int64_t row = 0; row < batch_; ++row)
                if (length(run, row) < 0 || length(run, row) > moments_.sizes[0]) return run.fail("recurrent.lengths");
        const std::int64_t blocks = (batch_ + kRowsTogether - 1) / kRowsTogether;
        const auto task = [&](std::int64_t index, int worker) {
            const std::int64_t block = index / directions_;
            layer(run, index % directions_, block * batch_ / blocks, (block + 1) * batch_ / blocks, worker);
        };
        run.pool->each(directions_ * blocks, task);
    }

private:
    void take_operands(const Spec& spec) {
        std::size_t next = 2;
        const auto take = [&](const char* name, Operand& into) {
            if (spec.integer(name) == 0) return false;
            into = spec.inputs.at(next++);
            return true;
        };
        moments_ = spec.inputs.at(0);
        has_inner_ = take("has_inner", inner_);
        has_lengths_ = take("has_lengths", lengths_);
        has_h0_ = take("has_h", h0_);
        has_c0_ = take("has_c", c0_);
        outputs_ = spec.outputs;
        const Operand& y = outputs_.at(0);
        if (moments_.rank() != 3 || y.rank() != 4) throw std::invalid_argument("recurrent: other axes");
        directions_ = y.sizes[1];
        batch_ = y.sizes[2];
        hidden_ = y.sizes[3];
        for (const auto* operands : {&spec.inputs, &spec.outputs})
            for (const Operand& each : *operands)
                if (each.element != Element::f32 && !(has_lengths_ && each.element == lengths_.element))
                    throw std::invalid_argument("recurrent: f32 alone");
        for (const Operand* each : std::initializer_list<const Operand*>{&moments_, &inner_, &y})
            if (each->rank() != 0 && each->sizes.back() != 1 && each->strides.back() != 4)
                throw std::invalid_argument("recurrent: rows of f32 that lie side by side");
        if (has_lengths_ && lengths_.element != Element::i32 && lengths_.element != Element::i64)
            throw std::invalid_argument("recurrent: lengths of another type");
    }

    // Every operand as the layer reads and writes it.
    void check_sizes(const Spec& spec) const {
        const std::vector<std::int64_t> states = {directions_, batch_, hidden_};
        const Operand& y = outputs_[0];
        bool agree = y.sizes[0] == moments_.sizes[0] && moments_.sizes[1] == batch_ && directions_ > 0 && directions_ <= 2;
        agree = agree && hidden_ > 0 && outputs_.size() <= (has_c_ ? 3U : 2U);
        agree = agree && spec.inputs.size() == 2U + has_inner_ + has_lengths_ + has_h0_ + has_c0_;
        for (std::size_t i = 1; i < outputs_.size(); ++i) agree = agree && outputs_[i].sizes == states;
        for (const auto& [is_there, state] : {std::pair{has_h0_, &h0_}, std::pair{has_c0_, &c0_}})
            agree = agree && (!is_there || state->sizes == states);
        agree = agree && (!has_lengths_ || lengths_.sizes == std::vector<std::int64_t>{batch_});
        agree = agree && (!has_inner_ || (inner_.rank() == 2 && inner_.sizes[0] == directions_ && inner_.sizes[1] >= hidden_));
        agree = agree && moments_.strides[1] % 4 == 0 && moments_.strides[0] % 4 == 0;
        if (!agree) throw std::invalid_argument("recurrent: the operands disagree");
    }

    std::int64_t length(const Run& run, std::int64_t row) const {
        const std::byte* at = run.at(lengths_) + row * lengths_.strides[0];
        if (lengths_.element == Element::i32) return *reinterpret_cast<const std::int32_t*>(at);
        return *reinterpret_cast<const std::int64_t*>(at);
    }

    static std::byte* place(const Run& run, const Operand& operand, std::int64_t first, std::int64_t second) {
        return run.at(operand) + first * operand.strides[0] + second * operand.strides[1];
    }

    // One direction for some rows of the batch, from the first moment to the last.
    void layer(const Run& run, std::int64_t direction, std::int64_t first, std::int64_t last, int worker) const {
        auto* h = reinterpret_cast<float*>(run.scratch_of(worker));
        float* c = h + up_to_line(rows_ * hidden_);
        float* gates = c + up_to_line(rows_ * hidden_);
        const std::int64_t count = last - first, moments = moments_.sizes[0];
        const auto bytes = static_cast<std::size_t>(hidden_) * sizeof(float);
        for (std::int64_t row = 0; row < count; ++row) {
            const bool is_any = !has_lengths_ || length(run, first + row) > 0;
            begin(run, h + row * hidden_, has_h0_ && is_any ? &h0_ : nullptr, direction, first + row);
            begin(run, c + row * hidden_, has_c0_ && is_any ? &c0_ : nullptr, direction, first + row);
        }
        for (std::int64_t k = 0; k < moments && count > 0; ++k) {
            const std::int64_t t = direction >= first_backwards_ ? moments - 1 - k : k;
            const auto* now = reinterpret_cast<const float*>(place(run, moments_, t, first)) + direction * gates_ * hidden_;
            multiply(h, gates, now, direction, count);
            for (std::int64_t row = 0; row < count; ++row) {
                const bool goes_on = !has_lengths_ || length(run, first + row) > t;
                auto* y = reinterpret_cast<float*>(place(run, outputs_[0], t, direction) + (first + row) * outputs_[0].strides[2]);
                if (!goes_on) {
                    std::fill(y, y + hidden_, 0.0f);
                    continue;
                }
                CellRow each = row_;
                each.gates = gates + row * gates_ * hidden_;
                each.now = now + row * moments_.strides[1] / 4;
                each.inner = has_inner_ ? reinterpret_cast<const float*>(run.at(inner_) + direction * inner_.strides[0]) : nullptr;
                each.h = h + row * hidden_;
                each.c = c + row * hidden_;
                cell_(each);
                std::copy_n(reinterpret_cast<const std::byte*>(each.h), bytes, reinterpret_cast<std::byte*>(y));
            }
        }
        for (std::size_t i = 1; i < outputs_.size(); ++i)
            for (std::int64_t row = 0; row < count; ++row) {
                const float* from = (i == 1 ? h : c) + row * hidden_;
                std::byte* to = place(run, outputs_[i], direction, first + row);
                for (std::int64_t j = 0; j < hidden_; ++j) *reinterpret_cast<float*>(to + j * outputs_[i].strides[2]) = from[j];
            }
    }

    void begin(const Run& run, float* state, const Operand* given, std::int64_t direction, std::int64_t row) const {
        if (given == nullptr) return std::fill(state, state + hidden_, 0.0f);
        const std::byte* from = place(run, *given, direction, row);
        for (std::int64_t j = 0; j < hidden_; ++j) state[j] = *reinterpret_cast<const float*>(from + j * given->strides[2]);
    }

    // gates = h @ r and, where the cell wants them together, what the moment brings.
    void multiply(const float* h, float* gates, const float* now, std::int64_t direction, std::int64_t count) const {
        ProductTile tile{};
        tile.base = h;
        tile.rows = row_offsets_.data();
        tile.segments = 1;
        tile.length = hidden_;
        tile.y_stride = gates_ * hidden_;
        tile.finishes = true;
        tile.scale = 1;
        tile.low = -std::numeric_limits<float>::infinity();
        tile.high = std::numeric_limits<float>::infinity();
        tile.residual_stride = moments_.strides[1] / 4;
        for (const Panel& panel : panels_) {
            tile.weights = weights_[static_cast<std::size_t>(direction)].get() + panel.first * hidden_;
            tile.weights_stride = static_cast<std::int64_t>(panel.vectors) * table_.lanes;
            tile.next = tile.weights;
            tile.y = gates + panel.first;
            tile.columns = panel.columns;
            tile.residual = is_gru_ ? nullptr : now + panel.first;
            table_.of[panel.vectors - 1][count - 1](tile);
        }
    }

    const ProductTable& table_;
    Operand moments_, inner_, lengths_, h0_, c0_;
    std::vector<Operand> outputs_;
    bool has_inner_ = false, has_lengths_ = false, has_h0_ = false, has_c0_ = false, has_c_ = false, is_gru_ = false;
    std::int64_t directions_ = 1, batch_ = 1, hidden_ = 1, gates_ = 1, rows_ = 1;
    std::int64_t first_backwards_ = 1;
    std::vector<Panel> panels_;
    std::vector<std::shared_ptr<const float>> weights_;  // by direction
    std::vector<std::int64_t> row_offsets_;
    CellRow row_{};
    void (*cell_)(const CellRow&) = nullptr;
    std::string name_;
};

}  // namespace

std::unique_ptr<Step> make_recurrent(const Spec& spec, Store& store) { return std::make_unique<Recurrent>(spec, store); }

}  // namespace dovetail
