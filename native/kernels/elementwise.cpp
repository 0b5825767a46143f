// A chain of elementwise instructions, run over tiles of elements that stay in the first-level cache.
//
// Registers: the inputs, then the constants, then what the instructions make, each made once. A register whose elements lie dense
// in memory is read and written there; any other has a slot of scratch memory.
#include "kernels/elementwise_bytecode.h"

#include <algorithm>

#include "kernels/kernels.h"
#include "kernels/strided_loop.h"

namespace dovetail {
namespace {

// Rows shorter than this are not worth a call of an instruction each: they are laid end to end in a slot.
constexpr std::int64_t kShortRow = 12;
// Slots together should leave room in a first-level cache for what is read and written directly.
constexpr std::int64_t kSlotBytes = 24 * 1024;
constexpr std::int64_t kElementsPerTask = 16 * 1024;

// Where one of the common axes' operands lies: a stride along columns, rows and each outer axis.
struct Layout {
    Operand operand;
    std::int64_t column;
    std::int64_t row;
    std::vector<std::int64_t> outer;
};

// ---- whether two operands may touch the same memory ----

std::pair<std::int64_t, std::int64_t> extent(const Operand& operand) {
    std::int64_t low = operand.offset;
    std::int64_t high = operand.offset + operand.itemsize;
    for (std::size_t i = 0; i < operand.rank(); ++i)
        (operand.strides[i] < 0 ? low : high) += (operand.sizes[i] - 1) * operand.strides[i];
    return {low, high};
}

bool may_touch(const Operand& a, const Operand& b) {
    if (a.is_constant() || b.is_constant() || a.buffer != b.buffer) return false;
    return extent(a).first < extent(b).second && extent(b).first < extent(a).second;
}

// ---- the step ----

class Chain : public Step {
public:
    explicit Chain(const Spec& spec) {
        ChainCode program = read_chain_code(spec);
        inputs_ = static_cast<int>(spec.inputs.size());
        registers_ = std::move(program.registers);
        instructions_ = std::move(program.instructions);
        results_ = std::move(program.results);
        is_empty_ = spec.outputs.front().count() == 0;
        if (is_empty_) return;
        lay_out(spec);
        place_registers();
        cut();
    }

    std::string name() const override { return std::string("chain ") + name_of(isa()); }

    std::size_t scratch_bytes() const override { return static_cast<std::size_t>(slots_ * slot_bytes_); }

    void run(const Run& run) const override {
        if (is_empty_) return;
        const std::int64_t tasks =
            run.pool->parts(std::min(tiles_, std::max<std::int64_t>(1, elements_ / kElementsPerTask)), elements_);
        if (tasks == 1) return walk(run, 0, tiles_, 0);
        run.pool->each(
            tasks, [&](std::int64_t task, int worker) { walk(run, task * tiles_ / tasks, (task + 1) * tiles_ / tasks, worker); });
    }

private:
    void lay_out(const Spec& spec) {
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

    // An output is written by the instruction that makes it, unless a later one still reads memory that this would overwrite.
    bool may_write_at(const Layout& output, int instruction) const {
        for (int i = 0; i < inputs_; ++i)
            if (registers_[static_cast<std::size_t>(i)].last_use > instruction &&
                may_touch(layouts_[static_cast<std::size_t>(i)].operand, output.operand))
                return false;
        return true;
    }

    void place_registers() {
        for (Register& each : registers_) widest_ = std::max(widest_, each.itemsize);
        find_ones();
        for (int i = 0; i < inputs_; ++i) place_input(i);
        for (std::size_t i = static_cast<std::size_t>(inputs_); i < registers_.size() - instructions_.size(); ++i) {
            Register& constant = registers_[i];
            if (constant.is_typed) write_constant(constant.item, constant.element, constant.constant);
            if (!constant.is_one) constant.slot = slots_++;
            constant.row_repeats = !is_packed_;
        }
        for (const int result : results_)
            registers_[static_cast<std::size_t>(result)].last_use = static_cast<int>(instructions_.size());
        for (std::size_t i = 0; i < results_.size(); ++i) place_result(static_cast<int>(i));
        std::vector<int> free;
        for (std::size_t at = 0; at < instructions_.size(); ++at) place_made(static_cast<int>(at), free);
    }

    // Constants, and inputs that are stretched along columns, where only instructions of two operands read them.
    void find_ones() {
        for (int i = 0; i < static_cast<int>(registers_.size() - instructions_.size()); ++i)
            registers_[static_cast<std::size_t>(i)].is_one =
                i >= inputs_ || (layouts_[static_cast<std::size_t>(i)].column == 0 && !is_packed_);
        for (const int result : results_) registers_[static_cast<std::size_t>(result)].is_one = false;
        for (const Instruction& each : instructions_) {
            if (each.arity == 2 && !registers_[static_cast<std::size_t>(each.operands[1])].is_one) continue;
            // Of two only the second stays; instructions of one operand or three take none.
            for (int i = 0; i < (each.arity == 2 ? 1 : each.arity); ++i)
                registers_[static_cast<std::size_t>(each.operands[i])].is_one = false;
        }
    }

    void place_input(int index) {
        Register& each = registers_[static_cast<std::size_t>(index)];
        const Layout& layout = layouts_[static_cast<std::size_t>(index)];
        each.operand = index;
        each.row_repeats = layout.row == 0 && !is_packed_;
        if (!is_direct(layout) && !each.is_one) each.slot = slots_++;
    }

    void place_result(int index) {
        const int operand = inputs_ + index;
        Register& each = registers_[static_cast<std::size_t>(results_[static_cast<std::size_t>(index)])];
        const int maker = results_[static_cast<std::size_t>(index)] - static_cast<int>(registers_.size() - instructions_.size());
        const Layout& layout = layouts_[static_cast<std::size_t>(operand)];
        if (maker >= 0 && each.operand == kNone && is_direct(layout) && may_write_at(layout, maker))
            each.operand = operand;
        else
            copies_.push_back(index);
    }

    void place_made(int at, std::vector<int>& free) {
        const Instruction& instruction = instructions_[static_cast<std::size_t>(at)];
        Register& made = registers_[static_cast<std::size_t>(instruction.destination)];
        // An operand of the same width that is read for the last time gives its slot at once: instructions work in place.
        for (const bool same_width : {true, false}) {
            for (int i = 0; i < instruction.arity; ++i) {
                const int index = instruction.operands[i];
                Register& operand = registers_[static_cast<std::size_t>(index)];
                if (index < static_cast<int>(registers_.size() - instructions_.size()) || operand.slot == kNone) continue;
                if (operand.last_use != at || (operand.itemsize == made.itemsize) != same_width) continue;
                if (std::find(free.begin(), free.end(), operand.slot) == free.end()) free.push_back(operand.slot);
            }
            if (!same_width || made.operand != kNone) continue;
            if (free.empty()) free.push_back(slots_++);
            made.slot = free.back();
            free.pop_back();
        }
    }

    void cut() {
        const std::int64_t fitting = slots_ ? kSlotBytes / (slots_ * widest_) / 64 * 64 : 8192;
        const std::int64_t limit = std::clamp<std::int64_t>(fitting, 256, 8192);
        tile_columns_ = std::min(columns_, limit);
        tile_rows_ = std::min(rows_, std::max<std::int64_t>(1, limit / tile_columns_));
        // One more cache line than the elements need, so that slots do not all begin at the same place of a cache's sets.
        slot_bytes_ = (tile_rows_ * tile_columns_ * widest_ + 63) / 64 * 64 + 64;
        column_tiles_ = (columns_ + tile_columns_ - 1) / tile_columns_;
        row_tiles_ = (rows_ + tile_rows_ - 1) / tile_rows_;
        tiles_ = column_tiles_ * row_tiles_;
        for (const std::int64_t size : outer_) tiles_ *= size;
    }

    // Where everything stands during one tile.
    struct Place {
        std::byte* at[kMaxRegisters];
        std::int64_t step[kMaxRegisters];
        const std::byte* filled_from[kMaxRegisters];
        std::int64_t filled_rows[kMaxRegisters];
        std::int64_t filled_columns[kMaxRegisters];
        std::int64_t rows;
        std::int64_t columns;
    };

    void walk(const Run& run, std::int64_t first, std::int64_t last, int worker) const {
        Place place;
        std::byte* scratch = run.scratch_of(worker);
        for (std::size_t i = 0; i < registers_.size(); ++i) {
            place.filled_from[i] = nullptr;
            if (registers_[i].slot != kNone) place.at[i] = scratch + registers_[i].slot * slot_bytes_;
        }
        for (std::size_t i = static_cast<std::size_t>(inputs_); i < registers_.size() - instructions_.size(); ++i)
            place_constant(i, place);
        for (std::int64_t tile = first; tile < last; ++tile) run_tile(run, tile, place);
    }

    void place_constant(std::size_t index, Place& place) const {
        const Register& constant = registers_[index];
        if (!constant.is_typed) return;
        auto* item = const_cast<std::byte*>(constant.item);
        place.step[index] = 0;
        if (constant.is_one)
            place.at[index] = item;
        else
            copy_grid({place.at[index], 0, constant.itemsize}, {item, 0, 0}, 1,
                      is_packed_ ? tile_rows_ * tile_columns_ : tile_columns_, constant.itemsize);
    }

    struct Corner {
        std::int64_t row;
        std::int64_t column;
        std::int64_t outer;
    };

    std::byte* base_of(const Run& run, const Layout& layout, const Corner& corner) const {
        std::int64_t offset = corner.row * layout.row + corner.column * layout.column;
        std::int64_t rest = corner.outer;
        for (std::size_t axis = outer_.size(); axis-- > 0; rest /= outer_[axis])
            offset += rest % outer_[axis] * layout.outer[axis];
        return run.at(layout.operand) + offset;
    }

    void run_tile(const Run& run, std::int64_t tile, Place& place) const {
        const std::int64_t column_tile = tile % column_tiles_;
        const std::int64_t row_tile = tile / column_tiles_ % row_tiles_;
        const Corner corner{row_tile * tile_rows_, column_tile * tile_columns_, tile / column_tiles_ / row_tiles_};
        place.rows = std::min(tile_rows_, rows_ - corner.row);
        place.columns = std::min(tile_columns_, columns_ - corner.column);
        for (std::size_t i = 0; i < registers_.size(); ++i) find(run, corner, i, place);
        for (const Instruction& each : instructions_) execute(each, place);
        for (const int result : copies_) copy_out(run, corner, result, place);
    }

    void find(const Run& run, const Corner& corner, std::size_t index, Place& place) const {
        const Register& each = registers_[index];
        if (each.slot == kNone) {
            if (each.operand == kNone) return;
            const Layout& layout = layouts_[static_cast<std::size_t>(each.operand)];
            place.at[index] = base_of(run, layout, corner);
            place.step[index] = layout.row;
            return;
        }
        place.step[index] = each.row_repeats ? 0 : place.columns * each.itemsize;
        if (each.operand != kNone) gather(base_of(run, layouts_[static_cast<std::size_t>(each.operand)], corner), index, place);
    }

    // Brings an input's elements into its slot, unless they stand there from the tile before.
    void gather(std::byte* from, std::size_t index, Place& place) const {
        const Register& each = registers_[index];
        const Layout& layout = layouts_[static_cast<std::size_t>(each.operand)];
        const std::int64_t rows = each.row_repeats ? 1 : place.rows;
        if (place.filled_from[index] == from && place.filled_rows[index] == rows && place.filled_columns[index] == place.columns)
            return;
        copy_grid({place.at[index], place.columns * each.itemsize, each.itemsize}, {from, layout.row, layout.column}, rows,
                  place.columns, each.itemsize);
        place.filled_from[index] = from;
        place.filled_rows[index] = rows;
        place.filled_columns[index] = place.columns;
    }

    void execute(const Instruction& instruction, const Place& place) const {
        Tile tile;
        tile.rows = is_packed_ ? 1 : place.rows;
        tile.columns = is_packed_ ? place.rows * place.columns : place.columns;
        tile.to = place.at[instruction.destination];
        tile.to_step = place.step[instruction.destination];
        bool is_flat = tile.to_step == tile.columns * registers_[static_cast<std::size_t>(instruction.destination)].itemsize;
        for (int i = 0; i < instruction.arity; ++i) {
            const auto operand = static_cast<std::size_t>(instruction.operands[i]);
            tile.from[i] = place.at[operand];
            tile.from_step[i] = place.step[operand];
            tile.is_one[i] = registers_[operand].is_one;
            is_flat = is_flat && tile.from_step[i] == (tile.is_one[i] ? 0 : tile.columns * registers_[operand].itemsize);
        }
        if (is_flat) {
            tile.columns *= tile.rows;
            tile.rows = 1;
        }
        instruction.function(tile);
    }

    void copy_out(const Run& run, const Corner& corner, int result, const Place& place) const {
        const auto index = static_cast<std::size_t>(results_[static_cast<std::size_t>(result)]);
        const Layout& layout = layouts_[static_cast<std::size_t>(inputs_ + result)];
        copy_grid({base_of(run, layout, corner), layout.row, layout.column},
                  {place.at[index], place.step[index], registers_[index].itemsize}, place.rows, place.columns,
                  layout.operand.itemsize);
    }

    int inputs_ = 0;
    bool is_empty_ = false;
    bool is_packed_ = false;
    std::vector<Register> registers_;
    std::vector<Instruction> instructions_;
    std::vector<int> results_;
    std::vector<int> copies_;      // results that no instruction writes where they belong
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
    std::int64_t widest_ = 1;
    std::int64_t slot_bytes_ = 0;
    int slots_ = 0;
};

}  // namespace

std::unique_ptr<Step> make_chain(const Spec& spec, Store&) { return std::make_unique<Chain>(spec); }

}  // namespace dovetail
