// The fused elementwise kernel: runs bytecode over tiles of elements that stay in L1.
//
// Registers are the inputs, then the constants, then the results of the instructions, each assigned once. A register whose
// elements are contiguous in memory is read and written there; any other has a slot of scratch memory.
#include "kernels/elementwise_bytecode.h"

#include <algorithm>

#include "copy/copy_kernels.h"
#include "int_math.h"
#include "kernels/kernels.h"
#include "kernels/strided_loop.h"

namespace dovetail {
namespace {

// Rows of fewer elements are packed into a slot, since a call per row would cost too much.
constexpr std::int64_t kShortRow = 12;
// Bytes of all slots together; the remainder of L1 is for operands that are accessed directly.
constexpr std::int64_t kSlotBytes = 24 * 1024;
constexpr std::int64_t kElementsPerTask = 16 * 1024;
// Minimum bytes of a row that is written with non-temporal stores.
constexpr std::int64_t kMinStreamedRow = 1024;
// Bytes of a result from which its stores are non-temporal, if all instructions are cheap: costly ones overlap with ordinary
// stores, but wait for non-temporal ones.
constexpr std::int64_t kMinStreamedBytes = std::int64_t{64} << 20;

// The strides of an operand along columns, rows and each outer axis.
struct Layout {
    Operand operand;
    std::int64_t column;
    std::int64_t row;
    std::vector<std::int64_t> outer;
};

// ---- overlap of operands ----

std::pair<std::int64_t, std::int64_t> extent(const Operand& operand) {
    std::int64_t low = operand.offset;
    std::int64_t high = operand.offset + operand.itemsize;
    for (std::size_t i = 0; i < operand.rank(); ++i)
        (operand.strides[i] < 0 ? low : high) += (operand.sizes[i] - 1) * operand.strides[i];
    return {low, high};
}

bool may_overlap(const Operand& a, const Operand& b) {
    if (a.is_constant() || b.is_constant() || a.buffer != b.buffer) return false;
    return extent(a).first < extent(b).second && extent(b).first < extent(a).second;
}

// ---- the kernel ----

class FusedElementwise : public Kernel {
public:
    explicit FusedElementwise(const Spec& spec) {
        Bytecode bytecode = parse_bytecode(spec);
        inputs_ = static_cast<int>(spec.inputs.size());
        registers_ = std::move(bytecode.registers);
        instructions_ = std::move(bytecode.instructions);
        results_ = std::move(bytecode.results);
        is_empty_ = spec.outputs.front().count() == 0;
        if (is_empty_) return;
        set_layouts(spec);
        assign_registers();
        choose_tiles();
    }

    std::string name() const override { return std::string("elementwise ") + name_of(isa()); }

    std::size_t scratch_bytes() const override { return static_cast<std::size_t>(slots_ * slot_bytes_); }

    void run(const Run& run) const override {
        if (is_empty_) return;
        const std::int64_t tasks =
            run.pool->task_count(std::min(tiles_, std::max<std::int64_t>(1, elements_ / kElementsPerTask)), elements_);
        if (tasks == 1) return run_tiles(run, 0, tiles_, 0);
        run.pool->parallel_for(tasks, [&](std::int64_t task, int worker) {
            run_tiles(run, task * tiles_ / tasks, (task + 1) * tiles_ / tasks, worker);
        });
    }

private:
    void set_layouts(const Spec& spec) {
        std::vector<const Operand*> inputs;
        std::vector<const Operand*> outputs;
        for (const Operand& operand : spec.inputs) inputs.push_back(&operand);
        for (const Operand& operand : spec.outputs) outputs.push_back(&operand);
        auto axes = common_axes(inputs, outputs);
        if (axes.size() == 1) axes.insert(axes.begin(), {1, std::vector<std::int64_t>(axes[0].strides.size(), 0)});
        columns_ = axes.back().size;
        rows_ = axes[axes.size() - 2].size;
        inputs.insert(inputs.end(), outputs.begin(), outputs.end());
        for (std::size_t i = 0; i < inputs.size(); ++i) {
            layouts_.push_back({*inputs[i], axes.back().strides[i], axes[axes.size() - 2].strides[i], {}});
            for (std::size_t axis = 0; axis + 2 < axes.size(); ++axis) layouts_.back().outer.push_back(axes[axis].strides[i]);
        }
        for (std::size_t axis = 0; axis + 2 < axes.size(); ++axis) outer_.push_back(axes[axis].size);
        is_packed_ = columns_ < kShortRow && rows_ > 1;
        elements_ = spec.outputs.front().count();
    }

    bool is_direct(const Layout& layout) const {
        if (layout.column != layout.operand.itemsize) return false;
        return !is_packed_ || layout.row == columns_ * layout.operand.itemsize;
    }

    // True if instruction `instruction` may write its result into the output, because no later instruction reads memory that this
    // would overwrite.
    bool may_write_directly(const Layout& output, int instruction) const {
        for (int i = 0; i < inputs_; ++i)
            if (registers_[static_cast<std::size_t>(i)].last_use > instruction &&
                may_overlap(layouts_[static_cast<std::size_t>(i)].operand, output.operand))
                return false;
        return true;
    }

    // True if the result is computed in a slot and copied from the slot with non-temporal stores.
    bool is_streamed(const Layout& output) const {
        if (elements_ < kMinStreamedBytes / output.operand.itemsize || columns_ < kMinStreamedRow / output.operand.itemsize)
            return false;
        for (const Instruction& entry : instructions_)
            if (!entry.is_cheap) return false;
        for (int i = 0; i < inputs_; ++i)
            if (may_overlap(layouts_[static_cast<std::size_t>(i)].operand, output.operand)) return false;
        return true;
    }

    void assign_registers() {
        for (Register& entry : registers_) max_itemsize_ = std::max(max_itemsize_, entry.itemsize);
        find_scalars();
        for (int i = 0; i < inputs_; ++i) assign_input(i);
        for (std::size_t i = static_cast<std::size_t>(inputs_); i < registers_.size() - instructions_.size(); ++i) {
            Register& constant = registers_[i];
            if (constant.is_typed) write_constant(constant.item, constant.element, constant.constant);
            if (!constant.is_scalar) constant.slot = slots_++;
            constant.row_repeats = !is_packed_;
        }
        for (const int result : results_)
            registers_[static_cast<std::size_t>(result)].last_use = static_cast<int>(instructions_.size());
        for (std::size_t i = 0; i < results_.size(); ++i) assign_output(static_cast<int>(i));
        std::vector<int> free;
        for (std::size_t at = 0; at < instructions_.size(); ++at) assign_destination(static_cast<int>(at), free);
    }

    // Finds scalar registers: constants, and inputs broadcast along columns, if only instructions of two operands read them.
    void find_scalars() {
        for (int i = 0; i < static_cast<int>(registers_.size() - instructions_.size()); ++i)
            registers_[static_cast<std::size_t>(i)].is_scalar =
                i >= inputs_ || (layouts_[static_cast<std::size_t>(i)].column == 0 && !is_packed_);
        for (const int result : results_) registers_[static_cast<std::size_t>(result)].is_scalar = false;
        for (const Instruction& entry : instructions_) {
            if (entry.arity == 2 && !registers_[static_cast<std::size_t>(entry.operands[1])].is_scalar) continue;
            // If both operands of an instruction are scalars, only the second one stays scalar. Instructions of one or three
            // operands support no scalars.
            for (int i = 0; i < (entry.arity == 2 ? 1 : entry.arity); ++i)
                registers_[static_cast<std::size_t>(entry.operands[i])].is_scalar = false;
        }
    }

    void assign_input(int index) {
        Register& entry = registers_[static_cast<std::size_t>(index)];
        const Layout& layout = layouts_[static_cast<std::size_t>(index)];
        entry.operand = index;
        entry.row_repeats = layout.row == 0 && !is_packed_;
        if (!is_direct(layout) && !entry.is_scalar) entry.slot = slots_++;
    }

    void assign_output(int index) {
        const int operand = inputs_ + index;
        Register& entry = registers_[static_cast<std::size_t>(results_[static_cast<std::size_t>(index)])];
        const int maker = results_[static_cast<std::size_t>(index)] - static_cast<int>(registers_.size() - instructions_.size());
        const Layout& layout = layouts_[static_cast<std::size_t>(operand)];
        const bool may_be_direct = maker >= 0 && entry.operand == kNone && is_direct(layout) && may_write_directly(layout, maker);
        if (may_be_direct && is_streamed(layout))
            streams_.push_back(index);
        else if (may_be_direct)
            entry.operand = operand;
        else
            copies_.push_back(index);
    }

    void assign_destination(int at, std::vector<int>& free) {
        const Instruction& instruction = instructions_[static_cast<std::size_t>(at)];
        Register& destination = registers_[static_cast<std::size_t>(instruction.destination)];
        // The result of an instruction reuses the slot of an operand of the same width that no later instruction reads: the
        // instruction works in place.
        for (const bool same_width : {true, false}) {
            for (int i = 0; i < instruction.arity; ++i) {
                const int index = instruction.operands[i];
                Register& operand = registers_[static_cast<std::size_t>(index)];
                if (index < static_cast<int>(registers_.size() - instructions_.size()) || operand.slot == kNone) continue;
                if (operand.last_use != at || (operand.itemsize == destination.itemsize) != same_width) continue;
                if (std::find(free.begin(), free.end(), operand.slot) == free.end()) free.push_back(operand.slot);
            }
            if (!same_width || destination.operand != kNone) continue;
            if (free.empty()) free.push_back(slots_++);
            destination.slot = free.back();
            free.pop_back();
        }
    }

    void choose_tiles() {
        const std::int64_t fitting = slots_ ? kSlotBytes / (slots_ * max_itemsize_) / 64 * 64 : 8192;
        const std::int64_t limit = std::clamp<std::int64_t>(fitting, 256, 8192);
        tile_columns_ = std::min(columns_, limit);
        tile_rows_ = std::min(rows_, std::max<std::int64_t>(1, limit / tile_columns_));
        // One extra cache line, so that the slots do not map to the same cache sets.
        slot_bytes_ = round_up(tile_rows_ * tile_columns_ * max_itemsize_, 64) + 64;
        column_tiles_ = ceil_div(columns_, tile_columns_);
        row_tiles_ = ceil_div(rows_, tile_rows_);
        tiles_ = column_tiles_ * row_tiles_;
        for (const std::int64_t size : outer_) tiles_ *= size;
    }

    // The addresses of all registers during one tile.
    struct TileState {
        std::byte* at[kMaxRegisters];
        std::int64_t step[kMaxRegisters];
        const std::byte* filled_from[kMaxRegisters];
        std::int64_t filled_rows[kMaxRegisters];
        std::int64_t filled_columns[kMaxRegisters];
        std::int64_t rows;
        std::int64_t columns;
    };

    void run_tiles(const Run& run, std::int64_t first, std::int64_t last, int worker) const {
        TileState state;
        std::byte* scratch = run.scratch_of(worker);
        for (std::size_t i = 0; i < registers_.size(); ++i) {
            state.filled_from[i] = nullptr;
            if (registers_[i].slot != kNone) state.at[i] = scratch + registers_[i].slot * slot_bytes_;
        }
        for (std::size_t i = static_cast<std::size_t>(inputs_); i < registers_.size() - instructions_.size(); ++i)
            fill_constant(i, state);
        for (std::int64_t tile = first; tile < last; ++tile) run_tile(run, tile, state);
        if (!streams_.empty()) copy_kernels().store_fence();
    }

    void fill_constant(std::size_t index, TileState& state) const {
        const Register& constant = registers_[index];
        if (!constant.is_typed) return;
        auto* item = const_cast<std::byte*>(constant.item);
        state.step[index] = 0;
        if (constant.is_scalar)
            state.at[index] = item;
        else
            copy_strided({state.at[index], 0, constant.itemsize}, {item, 0, 0}, 1,
                         is_packed_ ? tile_rows_ * tile_columns_ : tile_columns_, constant.itemsize);
    }

    struct Corner {
        std::int64_t row;
        std::int64_t column;
        std::int64_t outer;
    };

    std::byte* base_of(const Run& run, const Layout& layout, const Corner& corner) const {
        std::int64_t offset = corner.row * layout.row + corner.column * layout.column;
        std::int64_t remaining = corner.outer;
        for (std::size_t axis = outer_.size(); axis-- > 0; remaining /= outer_[axis])
            offset += remaining % outer_[axis] * layout.outer[axis];
        return run.at(layout.operand) + offset;
    }

    void run_tile(const Run& run, std::int64_t tile, TileState& state) const {
        const std::int64_t column_tile = tile % column_tiles_;
        const std::int64_t row_tile = tile / column_tiles_ % row_tiles_;
        const Corner corner{row_tile * tile_rows_, column_tile * tile_columns_, tile / column_tiles_ / row_tiles_};
        state.rows = std::min(tile_rows_, rows_ - corner.row);
        state.columns = std::min(tile_columns_, columns_ - corner.column);
        for (std::size_t i = 0; i < registers_.size(); ++i) locate(run, corner, i, state);
        for (const Instruction& entry : instructions_) execute(entry, state);
        for (const int result : copies_) copy_out(run, corner, result, state);
        for (const int result : streams_) stream_out(run, corner, result, state);
    }

    void locate(const Run& run, const Corner& corner, std::size_t index, TileState& state) const {
        const Register& entry = registers_[index];
        if (entry.slot == kNone) {
            if (entry.operand == kNone) return;
            const Layout& layout = layouts_[static_cast<std::size_t>(entry.operand)];
            state.at[index] = base_of(run, layout, corner);
            state.step[index] = layout.row;
            return;
        }
        state.step[index] = entry.row_repeats ? 0 : state.columns * entry.itemsize;
        if (entry.operand != kNone) gather(base_of(run, layouts_[static_cast<std::size_t>(entry.operand)], corner), index, state);
    }

    // Copies the elements of an input into the slot of its register, unless the slot already holds them from the previous tile.
    void gather(std::byte* from, std::size_t index, TileState& state) const {
        const Register& entry = registers_[index];
        const Layout& layout = layouts_[static_cast<std::size_t>(entry.operand)];
        const std::int64_t rows = entry.row_repeats ? 1 : state.rows;
        if (state.filled_from[index] == from && state.filled_rows[index] == rows && state.filled_columns[index] == state.columns)
            return;
        copy_strided({state.at[index], state.columns * entry.itemsize, entry.itemsize}, {from, layout.row, layout.column}, rows,
                     state.columns, entry.itemsize);
        state.filled_from[index] = from;
        state.filled_rows[index] = rows;
        state.filled_columns[index] = state.columns;
    }

    void execute(const Instruction& instruction, const TileState& state) const {
        InstructionTile tile;
        tile.rows = is_packed_ ? 1 : state.rows;
        tile.columns = is_packed_ ? state.rows * state.columns : state.columns;
        tile.to = state.at[instruction.destination];
        tile.to_step = state.step[instruction.destination];
        bool is_flat = tile.to_step == tile.columns * registers_[static_cast<std::size_t>(instruction.destination)].itemsize;
        for (int i = 0; i < instruction.arity; ++i) {
            const auto operand = static_cast<std::size_t>(instruction.operands[i]);
            tile.from[i] = state.at[operand];
            tile.from_step[i] = state.step[operand];
            tile.is_scalar[i] = registers_[operand].is_scalar;
            is_flat = is_flat && tile.from_step[i] == (tile.is_scalar[i] ? 0 : tile.columns * registers_[operand].itemsize);
        }
        if (is_flat) {
            tile.columns *= tile.rows;
            tile.rows = 1;
        }
        instruction.function(tile);
    }

    void copy_out(const Run& run, const Corner& corner, int result, const TileState& state) const {
        const auto index = static_cast<std::size_t>(results_[static_cast<std::size_t>(result)]);
        const Layout& layout = layouts_[static_cast<std::size_t>(inputs_ + result)];
        copy_strided({base_of(run, layout, corner), layout.row, layout.column},
                     {state.at[index], state.step[index], registers_[index].itemsize}, state.rows, state.columns,
                     layout.operand.itemsize);
    }

    void stream_out(const Run& run, const Corner& corner, int result, const TileState& state) const {
        const auto index = static_cast<std::size_t>(results_[static_cast<std::size_t>(result)]);
        const Layout& layout = layouts_[static_cast<std::size_t>(inputs_ + result)];
        const std::int64_t row_bytes = state.columns * layout.operand.itemsize;
        std::byte* const to = base_of(run, layout, corner);
        if (layout.row == row_bytes && state.step[index] == row_bytes)
            return copy_kernels().stream(to, state.at[index], static_cast<std::size_t>(state.rows * row_bytes));
        for (std::int64_t row = 0; row < state.rows; ++row)
            copy_kernels().stream(to + row * layout.row, state.at[index] + row * state.step[index],
                                  static_cast<std::size_t>(row_bytes));
    }

    int inputs_ = 0;
    bool is_empty_ = false;
    bool is_packed_ = false;
    std::vector<Register> registers_;
    std::vector<Instruction> instructions_;
    std::vector<int> results_;
    std::vector<int> copies_;      // results that no instruction writes directly to their output
    std::vector<int> streams_;     // results that are written by non-temporal stores
    std::vector<Layout> layouts_;  // of the inputs, then of the outputs
    std::vector<std::int64_t> outer_;
    std::int64_t rows_ = 1;
    std::int64_t columns_ = 1;
    std::int64_t elements_ = 0;
    std::int64_t tile_rows_ = 1;
    std::int64_t tile_columns_ = 1;
    std::int64_t row_tiles_ = 1;
    std::int64_t column_tiles_ = 1;
    std::int64_t tiles_ = 0;
    std::int64_t max_itemsize_ = 1;
    std::int64_t slot_bytes_ = 0;
    int slots_ = 0;
};

}  // namespace

std::unique_ptr<Kernel> make_elementwise(const Spec& spec, WeightCache&) { return std::make_unique<FusedElementwise>(spec); }

}  // namespace dovetail
