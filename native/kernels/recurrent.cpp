// LSTM, GRU and RNN layers, given the products of all inputs with the input weights: each time step computes the product of the
// state with the recurrence weights, then the cell.
#include "kernels/recurrent.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>

#include "int_math.h"
#include "kernels/bf16_products.h"
#include "kernels/kernels.h"
#include "kernels/packed_bytes.h"
#include "kernels/quantized.h"
#include "kernels/weight_packing.h"

namespace dovetail {
namespace {

constexpr std::int64_t kMaxBatchRows = 6;  // batch rows that fit into the registers of the widest tile
constexpr std::int64_t kFewRows = 4;       // rows up to which vector instructions are faster than matrix tiles
// Bytes of recurrence weights from which several threads share the product of the weights with a state: the product then takes
// longer than waking the threads. Integer products take longer per byte, since their accumulators are also converted.
constexpr std::int64_t kSharedIntegers = 1 << 17, kSharedFloats = 1 << 20;

std::int64_t round_to_line(std::int64_t floats) { return round_up(floats, 16); }

class Recurrent : public Kernel {
public:
    Recurrent(const Spec& spec, WeightCache& cache) : kernels_(&gemm_kernels()) {
        read_operands(spec);
        const std::string cell = spec.text("cell");
        const CellFunctions cells = DOVETAIL_SELECT_ISA(cell_functions)();
        cell_ = cell == "lstm"   ? has_peepholes_ ? cells.lstm_with_peepholes : cells.lstm
                : cell == "gru"  ? cells.gru
                : cell == "tanh" ? cells.tanh
                                 : cells.relu;
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
        if (r.rank() != 3 || (is_quantized_ ? !r.is_constant() : r.element != Element::f32))
            throw std::invalid_argument("recurrent: the recurrence weights must be an f32 tensor of rank 3");
        for (const auto stride : r.strides)
            if (!is_quantized_ && stride % 4 != 0) throw std::invalid_argument("recurrent: strides must be multiples of 4 bytes");
        if (r.sizes[0] != directions_ || r.sizes[1] != gates_ * hidden_ || r.sizes[2] != hidden_ ||
            steps_.sizes[2] != directions_ * gates_ * hidden_)
            throw std::invalid_argument("recurrent: the shapes of the operands disagree");
        if (is_quantized_) {
            pack_bytes_of(spec, cache);
            return;
        }
        if (spec.text("precision") == "bf16" && hidden_ >= kMinBf16Depth) {
            bf16_ = &bf16_kernels();
            kernels_ = &bf16_->gemm;
            name_ += " bf16";
        }
        pack_floats(r, cache);
    }

    std::string name() const override { return name_; }

    std::size_t scratch_bytes() const override {
        return static_cast<std::size_t>(2 * round_to_line(rows_ * hidden_) + round_to_line(chunk_ * gates_ * hidden_)) *
                   sizeof(float) +
               static_cast<std::size_t>(is_quantized_ || bf16_ != nullptr ? kGridBytes + kAccumulatorBytes + codes_bytes() : 0);
    }

    std::size_t shared_scratch_bytes() const override {
        return is_packed_in_runs_ ? static_cast<std::size_t>(directions_ * packed_floats()) * sizeof(float) : 0;
    }

    void run(const Run& run) const override {
        if (has_lengths_)
            for (std::int64_t row = 0; row < batch_; ++row)
                if (length(run, row) < 0 || length(run, row) > steps_.sizes[0]) return run.fail("attribute.range");
        if (is_packed_in_runs_)
            of_run_.pack(*run.pool, reinterpret_cast<float*>(run.shared_scratch),
                         reinterpret_cast<const float*>(run.at(recurrence_)), panels_, kernels_->lanes);
        // All rows of a batch are quantized together.
        const std::int64_t blocks = is_quantized_ ? 1 : ceil_div(batch_, kMaxBatchRows), sequences = directions_ * blocks;
        const std::int64_t bytes = gates_ * hidden_ * hidden_ * (is_quantized_ ? 1 : 4);
        if (sequences > 0 && sequences < run.pool->threads() && bytes >= (is_quantized_ ? kSharedIntegers : kSharedFloats))
            return run_shared(run, blocks);
        run.pool->parallel_for(sequences, [&](std::int64_t index, int worker) {
            const Sequence sequence = sequence_of(run, index, blocks, worker);
            begin(run, sequence);
            for (std::int64_t k = 0; k < steps_.sizes[0]; ++k)
                for (std::int64_t row = 0; row < sequence.count; row += chunk_) {
                    begin_product(sequence, row);
                    multiply(run, sequence, k, row, 0, 1, worker);
                    run_cells(run, sequence, k, row);
                }
            end(run, sequence);
        });
    }

private:
    static constexpr std::int64_t kGridBytes = 64;
    static constexpr std::int64_t kPeepholes = 3;  // gates with a peephole
    static constexpr std::int64_t kAccumulatorBytes = kInt8Pixels * (kAccumulatorPitch + 1) * 4;

    // The work on a range of batch rows in one direction, over all time steps. `h` and `c` are the states of these rows.
    struct Sequence {
        std::int64_t direction, first, count;
        float *h, *c;
        float* gates;            // accumulators of a chunk of rows
        const float* weights;    // packed floats of the direction
        QuantizationGrid* grid;  // scale and zero point of h at the start of the time step
        std::byte* codes;        // h of a chunk of rows, quantized or in bf16
    };

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
        has_peepholes_ = take("has_peepholes", peepholes_);
        is_quantized_ = spec.integer("is_quantized") != 0;
        weights_end_ = next;
        outputs_ = spec.outputs;
        const Operand& y = outputs_.at(0);
        if (steps_.rank() != 3 || y.rank() != 4)
            throw std::invalid_argument("recurrent: the input must have rank 3 and the output rank 4");
        directions_ = y.sizes[1];
        batch_ = y.sizes[2];
        hidden_ = y.sizes[3];
        for (const auto* operands : {&spec.inputs, &spec.outputs})
            for (const Operand& operand : *operands)
                if (operand.element != Element::f32 && !(has_lengths_ && operand.element == lengths_.element) &&
                    !(is_quantized_ && operand.is_constant()))
                    throw std::invalid_argument("recurrent: operands must be f32");
        for (const Operand* operand : std::initializer_list<const Operand*>{&steps_, &recurrent_bias_, &peepholes_, &y})
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
        agree = agree && spec.inputs.size() == weights_end_ + (is_quantized_ ? 2U : 0U);
        for (std::size_t i = 1; i < outputs_.size(); ++i) agree = agree && outputs_[i].sizes == states;
        for (const auto& [is_there, state] : {std::pair{has_h0_, &h0_}, std::pair{has_c0_, &c0_}})
            agree = agree && (!is_there || state->sizes == states);
        agree = agree && (!has_lengths_ || lengths_.sizes == std::vector<std::int64_t>{batch_});
        agree = agree && (!has_recurrent_bias_ || (recurrent_bias_.rank() == 2 && recurrent_bias_.sizes[0] == directions_ &&
                                                   recurrent_bias_.sizes[1] >= hidden_));
        agree = agree &&
                (!has_peepholes_ || (has_c_ && peepholes_.sizes == std::vector<std::int64_t>{directions_, kPeepholes * hidden_}));
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

    // Returns a sequence whose states and buffers are in the scratch memory of a worker.
    Sequence sequence_of(const Run& run, std::int64_t index, std::int64_t blocks, int worker) const {
        const std::int64_t block = index / directions_, first = block * batch_ / blocks;
        auto* h = reinterpret_cast<float*>(run.scratch_of(worker));
        float* c = h + round_to_line(rows_ * hidden_);
        float* gates = c + round_to_line(rows_ * hidden_);
        auto* grid = reinterpret_cast<std::byte*>(gates + round_to_line(chunk_ * gates_ * hidden_));
        const std::int64_t direction = index % directions_;
        const float* weights = is_packed_in_runs_
                                   ? reinterpret_cast<const float*>(run.shared_scratch) + direction * packed_floats()
                               : is_quantized_ ? nullptr
                                               : weights_[static_cast<std::size_t>(direction)].get();
        return {direction,
                first,
                (block + 1) * batch_ / blocks - first,
                h,
                c,
                gates,
                weights,
                reinterpret_cast<QuantizationGrid*>(grid),
                grid + kGridBytes + kAccumulatorBytes};
    }

    // The accumulators of a worker.
    std::int32_t* accumulators_of(const Run& run, int worker) const {
        return reinterpret_cast<std::int32_t*>(reinterpret_cast<std::byte*>(sequence_of(run, 0, 1, worker).grid) + kGridBytes);
    }

    // Runs the sequences if there are fewer sequences than threads. All sequences advance step by step, and the threads share the
    // columns of each product. The states are in the scratch memory of the first workers.
    void run_shared(const Run& run, std::int64_t blocks) const {
        const std::int64_t sequences = directions_ * blocks, parts = ceil_div(run.pool->threads(), sequences);
        const auto sequence = [&](std::int64_t index) { return sequence_of(run, index, blocks, static_cast<int>(index)); };
        const Interrupt* const interrupt = Interrupt::current();
        for (std::int64_t i = 0; i < sequences; ++i) begin(run, sequence(i));
        for (std::int64_t k = 0; k < steps_.sizes[0]; ++k)
            for (std::int64_t row = 0; row < rows_; row += chunk_) {
                for (std::int64_t i = 0; i < sequences; ++i) begin_product(sequence(i), row);
                run.pool->parallel_for(sequences * parts, [&](std::int64_t task, int worker) {
                    multiply(run, sequence(task / parts), k, row, task % parts, parts, worker);
                });
                if (interrupt != nullptr && interrupt->is_set()) return;
                for (std::int64_t i = 0; i < sequences; ++i) run_cells(run, sequence(i), k, row);
            }
        for (std::int64_t i = 0; i < sequences; ++i) end(run, sequence(i));
    }

    void begin(const Run& run, const Sequence& own) const {
        for (std::int64_t row = 0; row < own.count; ++row) {
            const bool has_steps = !has_lengths_ || steps_.sizes[0] == 0 || length(run, own.first + row) > 0;
            load_state(run, own.h + row * hidden_, has_h0_ && has_steps ? &h0_ : nullptr, own.direction, own.first + row);
            load_state(run, own.c + row * hidden_, has_c0_ && has_steps ? &c0_ : nullptr, own.direction, own.first + row);
        }
    }

    // Writes the states after the last time step to the outputs.
    void end(const Run& run, const Sequence& own) const {
        for (std::size_t i = 1; i < outputs_.size(); ++i)
            for (std::int64_t row = 0; row < own.count; ++row) {
                const float* from = (i == 1 ? own.h : own.c) + row * hidden_;
                std::byte* to = address(run, outputs_[i], own.direction, own.first + row);
                for (std::int64_t j = 0; j < hidden_; ++j) *reinterpret_cast<float*>(to + j * outputs_[i].strides[2]) = from[j];
            }
    }

    // Quantizes the rows of a chunk of h, where all rows of the batch share one scale and zero point, or rounds them to bf16.
    void begin_product(const Sequence& own, std::int64_t row) const {
        for (std::int64_t i = 0; bf16_ != nullptr && i < own.count; ++i)
            bf16_->round(reinterpret_cast<float*>(own.codes) + i * row_floats(), own.h + i * hidden_, hidden_);
        if (!is_quantized_) return;
        if (row == 0) *own.grid = grid_of_state(own.h, own.count);
        for (std::int64_t i = 0; i < rows_of_chunk(own, row); ++i) {
            std::byte* codes = own.codes + i * codes_row();
            floats_.quantize(codes, own.h + (row + i) * hidden_, hidden_, own.grid->scale, own.grid->zero);
            std::fill(codes + hidden_, codes + codes_row(), std::byte{0});
        }
    }

    std::int64_t rows_of_chunk(const Sequence& own, std::int64_t row) const { return std::min(chunk_, own.count - row); }

    // The time step of iteration k.
    std::int64_t time_of(const Sequence& own, std::int64_t k) const {
        return own.direction >= first_reverse_ ? steps_.sizes[0] - 1 - k : k;
    }

    // Returns the contribution of the input to the gates of a row.
    const float* input_of(const Run& run, const Sequence& own, std::int64_t k, std::int64_t row) const {
        return reinterpret_cast<const float*>(address(run, steps_, time_of(own, k), own.first + row)) +
               own.direction * gates_ * hidden_;
    }

    // Computes one of `parts` equal parts of the gates of a chunk of rows.
    void multiply(const Run& run, const Sequence& own, std::int64_t k, std::int64_t row, std::int64_t part, std::int64_t parts,
                  int worker) const {
        const float* input = input_of(run, own, k, row);
        if (is_quantized_)
            multiply_codes(own, input, rows_of_chunk(own, row), part, parts, accumulators_of(run, worker));
        else
            multiply_floats(own, input, part, parts);
    }

    void run_cells(const Run& run, const Sequence& own, std::int64_t k, std::int64_t row) const {
        for (std::int64_t i = 0; i < rows_of_chunk(own, row); ++i)
            run_cell(run, own.direction, time_of(own, k), own.first, row + i, own.gates + i * gates_ * hidden_,
                     input_of(run, own, k, row + i), own.h, own.c);
    }

    // Computes one row of one time step.
    void run_cell(const Run& run, std::int64_t direction, std::int64_t t, std::int64_t first, std::int64_t row,
                  const float* gates, const float* input, float* h, float* c) const {
        auto* y = reinterpret_cast<float*>(address(run, outputs_[0], t, direction) + (first + row) * outputs_[0].strides[2]);
        if (has_lengths_ && length(run, first + row) <= t) return std::fill(y, y + hidden_, 0.0f);
        CellStep step = cell_row_;
        step.gates = gates;
        step.input = input;
        step.recurrent_bias =
            has_recurrent_bias_ ? reinterpret_cast<const float*>(run.at(recurrent_bias_) + direction * recurrent_bias_.strides[0])
                                : nullptr;
        step.peepholes =
            has_peepholes_ ? reinterpret_cast<const float*>(run.at(peepholes_) + direction * peepholes_.strides[0]) : nullptr;
        step.h = h + row * hidden_;
        step.c = c + row * hidden_;
        cell_(step);
        std::copy_n(step.h, hidden_, y);
    }

    void load_state(const Run& run, float* state, const Operand* operand, std::int64_t direction, std::int64_t row) const {
        if (operand == nullptr) return std::fill(state, state + hidden_, 0.0f);
        const std::byte* from = address(run, *operand, direction, row);
        for (std::int64_t j = 0; j < hidden_; ++j) state[j] = *reinterpret_cast<const float*>(from + j * operand->strides[2]);
    }

    // gates = h @ r, plus the contribution of the input if the cell takes the sum of both.
    void multiply_floats(const Sequence& own, const float* input, std::int64_t part, std::int64_t parts) const {
        GemmTile tile{};
        tile.base = bf16_ != nullptr ? reinterpret_cast<const float*>(own.codes) : own.h;
        tile.rows = row_offsets_.data();
        tile.segments = 1;
        tile.length = words();
        tile.y_stride = gates_ * hidden_;
        tile.has_epilogue = true;
        tile.scale = 1;
        tile.low = -std::numeric_limits<float>::infinity();
        tile.high = std::numeric_limits<float>::infinity();
        tile.residual_stride = steps_.strides[1] / 4;
        const auto panels = static_cast<std::int64_t>(panels_.size());
        for (std::int64_t i = part * panels / parts; i < (part + 1) * panels / parts; ++i) {
            const Panel& panel = panels_[static_cast<std::size_t>(i)];
            tile.weights = own.weights + panel.first * words();
            tile.weights_stride = static_cast<std::int64_t>(panel.vectors) * kernels_->lanes;
            tile.next_weights = tile.weights;
            tile.y = own.gates + panel.first;
            tile.columns = panel.columns;
            tile.residual = is_gru_ ? nullptr : input + panel.first;
            kernels_->tile[panel.vectors - 1][own.count - 1](tile);
        }
    }

    void pack_floats(const Operand& r, WeightCache& cache) {
        rows_ = chunk_ = std::min(batch_, kMaxBatchRows);
        int widest = kMaxVectors;
        while (kernels_->rows[widest - 1] < rows_) --widest;
        panels_ = panels_of(gates_ * hidden_, widest, kernels_->lanes);
        is_packed_in_runs_ = !r.is_constant();
        if (is_packed_in_runs_) {
            recurrence_ = r;
            of_run_ = {{nullptr, {}, r.strides[1] / 4, nullptr, bf16_ != nullptr}, directions_, r.strides[0] / 4};
            for (std::int64_t k = 0; k < hidden_; ++k) of_run_.matrix.order.push_back(k * r.strides[2] / 4);
            if (bf16_ != nullptr && hidden_ % 2 != 0) of_run_.matrix.order.push_back(Matrix::kZero);
        }
        for (std::int64_t d = 0; !is_packed_in_runs_ && d < directions_; ++d)
            weights_.push_back(pack_cached(cache, "recurrent", reinterpret_cast<const float*>(r.constant + d * r.strides[0]),
                                           hidden_, r.strides[2] / 4, r.strides[1] / 4, panels_, kernels_->lanes,
                                           bf16_ != nullptr));
        for (std::int64_t row = 0; row < rows_; ++row) row_offsets_.push_back(row * row_floats());
    }

    // Packed floats of a direction.
    std::int64_t packed_floats() const { return of_run_.packed_floats(panels_, kernels_->lanes); }

    bool flushes_subnormals() const override { return !is_quantized_; }

    // Packs 8-bit recurrence weights, with their scales and zero points, [directions, gates * hidden].
    void pack_bytes_of(const Spec& spec, WeightCache& cache) {
        const Operand &r = spec.inputs.at(1), &scale = spec.inputs.at(weights_end_), &zero = spec.inputs.at(weights_end_ + 1);
        if (!is_byte(r) || is_gru_ || has_lengths_)
            throw std::invalid_argument("recurrent: quantized weights must have 8 bits, without reset gate and lengths");
        rows_ = batch_;
        chunk_ = std::min(batch_, kInt8Pixels);
        floats_ = DOVETAIL_SELECT_ISA(dynamic_quantization)();
        bytes_ = DOVETAIL_SELECT_ISA(int8_kernels)();
        unit_ = amx_unit() ? amx_unit() : vnni_unit();
        if (chunk_ <= kFewRows && vnni_unit()) unit_ = vnni_unit();
        const char* rule = "recurrent: scales and zero points must be constant f32 and i32 tensors [directions, gates * hidden]";
        const std::vector<std::int64_t> sizes = {directions_, gates_ * hidden_};
        if (scale.sizes != sizes || zero.sizes != sizes) throw std::invalid_argument(rule);
        for (std::int64_t d = 0; d < directions_; ++d) {
            const auto row_of = [&](Operand row) {
                row.constant += row.constant ? d * row.strides[0] : 0;
                row.sizes = {row.sizes[1]};
                row.strides = {row.strides[1]};
                return row;
            };
            scales_.push_back(read_columns<float>(row_of(scale), Element::f32, gates_ * hidden_, rule));
            ByteMatrix matrix{r.constant + d * r.strides[0],
                              r.element,
                              {},
                              r.strides[1],
                              r.sizes[1],
                              1,
                              read_columns<std::int32_t>(row_of(zero), Element::i32, gates_ * hidden_, rule)};
            for (std::int64_t k = 0; k < hidden_; ++k) matrix.depth.push_back(k * r.strides[2]);
            packed_.push_back(pack_bytes(cache, matrix));
        }
        name_ += std::string(" ") + (unit_ ? unit_->name : name_of(isa())) + " i8";
    }

    std::int64_t codes_row() const { return round_up(hidden_, kInt8Depth); }
    std::int64_t codes_bytes() const { return chunk_ * (bf16_ != nullptr ? row_floats() * 4 : codes_row()); }
    // Floats of a row of h; in bf16 two elements take the place of a float.
    std::int64_t words() const { return bf16_ != nullptr ? ceil_div(hidden_, 2) : hidden_; }
    std::int64_t row_floats() const { return bf16_ != nullptr ? round_to_line(words()) : hidden_; }

    QuantizationGrid grid_of_state(const float* h, std::int64_t count) const {
        ValueRange range = {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity()};
        floats_.extend_range(range, h, count * hidden_);
        return grid_of(range);
    }

    // gates = (codes of h) @ r, rescaled, plus the contribution of the input.
    void multiply_codes(const Sequence& own, const float* input, std::int64_t rows, std::int64_t part, std::int64_t parts,
                        std::int32_t* accumulators) const {
        const PackedBytes& packed = *packed_[static_cast<std::size_t>(own.direction)];
        const std::vector<float>& scales = scales_[static_cast<std::size_t>(own.direction)];
        auto* totals = accumulators + kInt8Pixels * kAccumulatorPitch;
        const std::uint32_t x_zero = std::isnan(own.grid->zero) ? 0 : static_cast<std::uint32_t>(own.grid->zero);
        constexpr std::int64_t kNoOffset = 0;
        Int8Tile tile{};
        tile.x = own.codes;
        tile.step = codes_row();
        tile.offsets = &kNoOffset;
        tile.segments = 1;
        tile.blocks = packed.blocks;
        tile.last_depth = packed.last_depth;
        tile.pixels = static_cast<int>(rows);
        tile.accumulators = accumulators;
        if (!packed.zero.empty()) {
            bytes_.sum_pixels(tile, hidden_, totals);
            for (std::int64_t row = 0; row < rows; ++row)
                totals[row] = static_cast<std::int32_t>(static_cast<std::uint32_t>(totals[row]) -
                                                        x_zero * static_cast<std::uint32_t>(hidden_));
        }
        const std::int64_t pairs = ceil_div(packed.panels, std::int64_t{2});
        for (std::int64_t j = part * pairs / parts * 2; j < (part + 1) * pairs / parts * 2; j += 2) {
            const std::int64_t column = j * kInt8Columns;
            alignas(64) std::int32_t offset[2 * kInt8Columns];
            tile.panels = static_cast<int>(std::min<std::int64_t>(packed.panels - j, 2));
            for (std::int64_t i = 0; i < tile.panels * kInt8Columns; ++i)
                offset[i] = static_cast<std::int32_t>(0 - x_zero * packed.total[static_cast<std::size_t>(column + i)]);
            tile.offset = offset;
            tile.weights = tile.next = packed.weights() + j * packed.panel_bytes;
            (unit_ ? unit_->multiply : bytes_.multiply)(tile);
            if (!packed.zero.empty()) bytes_.subtract_outer(accumulators, totals, packed.zero.data() + column, rows);
            const std::int64_t columns = std::min(gates_ * hidden_ - column, 2 * kInt8Columns);
            for (std::int64_t row = 0; row < rows; ++row)
                floats_.dequantize({accumulators + row * kAccumulatorPitch, scales.data() + column,
                                    input + row * (steps_.strides[1] / 4) + column, own.grid->scale, columns, 1,
                                    reinterpret_cast<std::byte*>(own.gates + row * gates_ * hidden_ + column), 0});
        }
        if (unit_) unit_->end();
    }

    const GemmKernels* kernels_;
    const Bf16Kernels* bf16_ = nullptr;  // not null: weights and states are rounded to bf16 for the products
    Operand steps_, recurrent_bias_, lengths_, h0_, c0_, peepholes_;
    std::vector<Operand> outputs_;
    bool has_recurrent_bias_ = false, has_lengths_ = false, has_h0_ = false, has_c0_ = false, has_c_ = false, is_gru_ = false;
    bool has_peepholes_ = false;
    bool is_quantized_ = false;
    std::size_t weights_end_ = 2;  // number of operands before the scales
    std::int64_t directions_ = 1, batch_ = 1, hidden_ = 1, gates_ = 1;
    std::int64_t rows_ = 1, chunk_ = 1;  // rows of a task, and of a product
    std::int64_t first_reverse_ = 1;
    std::vector<Panel> panels_;
    std::vector<std::shared_ptr<const float>> weights_;  // constants, by direction
    bool is_packed_in_runs_ = false;                     // the weights are no constants
    Operand recurrence_;                                 // the weights, with is_packed_in_runs_
    MatricesOfRun of_run_{};                             // those of all directions
    std::vector<std::int64_t> row_offsets_;
    std::vector<std::shared_ptr<const PackedBytes>> packed_;  // by direction
    std::vector<std::vector<float>> scales_;
    DynamicQuantization floats_{};
    Int8Kernels bytes_{};
    const Int8Unit* unit_ = nullptr;
    CellStep cell_row_{};
    void (*cell_)(const CellStep&) = nullptr;
    std::string name_;
};

}  // namespace

std::unique_ptr<Kernel> make_recurrent(const Spec& spec, WeightCache& cache) { return std::make_unique<Recurrent>(spec, cache); }

}  // namespace dovetail
