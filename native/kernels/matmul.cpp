// Matrix products, batch by batch.
#include <algorithm>
#include <stdexcept>

#include "kernels/epilogue.h"
#include "kernels/kernels.h"
#include "kernels/runtime_packing.h"
#include "kernels/weight_packing.h"
#include "kernels/conv_prologue.h"

namespace dovetail {
namespace {

constexpr std::int64_t kTileFloats = kMostRows * kMostVectors * 16;
constexpr std::int64_t kChunkBytes = 512 << 10;  // of constant columns that stay in the second level of cache
constexpr std::int64_t kTasksPerThread = 6;
constexpr std::int64_t kAlone = std::int64_t{1} << 29;  // multiplications of one task of one thread
constexpr std::int64_t kSmallWork = 1 << 17;  // multiplications that are not worth waking a thread for
constexpr std::int64_t kBlockDepth = 1024;
constexpr std::int64_t kRowsWorthPacking = 24;

std::int64_t whole(std::int64_t value, std::int64_t unit) { return (value + unit - 1) / unit; }

std::int64_t up_to_line(std::int64_t floats) { return whole(floats, 16) * 16; }

// A stack of matrices: steps in floats.
struct Stack {
    std::vector<std::int64_t> batch;  // per batch axis of the result; zero repeats
    std::int64_t row = 0, column = 0;
};

Stack stack_of(const Spec& spec, const Operand& operand, const std::vector<std::int64_t>& batch, std::int64_t rows,
               std::int64_t columns) {
    std::vector<std::int64_t> sizes = batch;
    sizes.push_back(rows);
    sizes.push_back(columns);
    const auto strides = float_strides(spec, operand);
    if (operand.rank() > sizes.size()) throw std::invalid_argument(spec.kernel + ": an operand has more axes than the result");
    const std::size_t missing = sizes.size() - operand.rank();
    std::vector<std::int64_t> all(sizes.size(), 0);
    for (std::size_t i = 0; i < operand.rank(); ++i) {
        if (operand.sizes[i] != sizes[i + missing] && operand.sizes[i] != 1)
            throw std::invalid_argument(spec.kernel + ": the operands disagree");
        all[i + missing] = strides[i];
    }
    return {{all.begin(), all.end() - 2}, all[all.size() - 2], columns == 1 ? 1 : all.back()};
}

class MatMul : public Step {
public:
    MatMul(const Spec& spec, Store& store);
    void run(const Run& run) const override;
    std::size_t scratch_bytes() const override;
    std::string name() const override;

private:
    // How the second factor is read.
    enum class Columns { constant, in_place, packed, dots };
    struct Task {
        std::int64_t batch;
        std::size_t first_panel, last_panel;
        std::int64_t first_tile, last_tile;
        std::int64_t stride;  // chunks to the one that this thread will come to next
        std::int64_t a, y;    // floats to where its batch begins
    };
    struct Room {
        float *a, *b, *y, *added;
    };
    // Some rows of a panel of the second factor, and how far they are apart.
    struct Block {
        const float* from;
        std::int64_t step;
        std::int64_t first, depth;
        Ahead ahead;
    };

    void join_batches();
    void choose(const Spec& spec, Store& store);
    std::int64_t offset(const Stack& stack, std::int64_t batch) const;
    std::int64_t batches() const;
    std::int64_t row_of(std::int64_t tile) const { return tile * small_count_ + std::min(tile, large_tiles_); }
    void work(const Run& run, const Task& task, int worker) const;
    Room room_of(const Run& run, int worker) const;
    const float* rows_of(const Run& run, const Task& task, const Room& room, std::int64_t row, std::int64_t count) const;
    Block columns_of(const Run& run, const Task& task, const Room& room, std::size_t index) const;
    Block constant_columns(const Task& task, std::size_t index, std::int64_t block) const;
    Ahead ahead_of(const Task& task, std::size_t index, std::int64_t block) const;
    void take_block(ProductTile& tile, const Block& columns) const;
    void multiply(const Run& run, const Task& task, const Room& room, std::size_t panel, std::int64_t tile, const float* rows,
                  const Block& columns) const;
    void add_apart(const Run& run, const Task& task, ProductTile& tile, float* to, const Panel& panel, std::int64_t row,
                   std::int64_t count) const;
    void dot(const Run& run, const Task& task, const Room& room) const;

    Operand a_, b_, bias_operand_, y_;
    Finish finish_;
    const ProductTable& table_ = product_table();
    const PackTable& packs_ = pack_table();
    std::vector<std::int64_t> batch_;
    std::int64_t rows_ = 0, depth_ = 0, columns_ = 0;
    Stack a, b, y, bias, residual;
    bool has_bias_ = false;
    float scale_ = 1;
    std::vector<float> bias_row_;  // a constant bias that is the same for each row
    Columns way_ = Columns::constant;
    Cut cut_{};
    std::int64_t small_count_ = 0, large_tiles_ = 0;  // rows of a tile; tiles, the first of them, that have one more
    ProductTile common_{};                            // what all tiles have in common
    std::vector<Panel> panels_;
    std::int64_t chunk_panels_ = 1;
    std::int64_t blocks_ = 1;  // of the depth, for each of which rows and columns stay in cache
    std::vector<std::int64_t> row_offsets_;
    std::vector<std::shared_ptr<const float>> packed_;  // by batch, or one for all
};

MatMul::MatMul(const Spec& spec, Store& store)
    : a_(spec.inputs.at(0)), b_(spec.inputs.at(1)), y_(spec.outputs.at(0)), finish_(spec) {
    const std::size_t rank = y_.rank();
    if (rank < 2 || a_.rank() < 2 || b_.rank() < 2) throw std::invalid_argument("matmul: an operand is no matrix");
    batch_.assign(y_.sizes.begin(), y_.sizes.end() - 2);
    rows_ = y_.sizes[rank - 2];
    columns_ = y_.sizes[rank - 1];
    depth_ = a_.sizes.back();
    if (a_.sizes[a_.rank() - 2] != rows_ || b_.sizes.back() != columns_ || b_.sizes[b_.rank() - 2] != depth_)
        throw std::invalid_argument("matmul: the operands disagree");
    a = stack_of(spec, a_, batch_, rows_, depth_);
    b = stack_of(spec, b_, batch_, depth_, columns_);
    y = stack_of(spec, y_, batch_, rows_, columns_);
    bias.batch = residual.batch = std::vector<std::int64_t>(batch_.size(), 0);
    scale_ = static_cast<float>(spec.real("alpha", 1));
    has_bias_ = spec.integer("has_bias") != 0;
    if (has_bias_) {
        bias_operand_ = spec.inputs.at(2);
        bias = stack_of(spec, bias_operand_, batch_, rows_, columns_);
    }
    if (finish_.has_residual) residual = stack_of(spec, finish_.residual, batch_, rows_, columns_);
    if (y_.count() == 0) return;
    join_batches();
    choose(spec, store);
}

// Batches that share the second factor and whose rows go on evenly are more rows.
void MatMul::join_batches() {
    const Stack* const others[] = {&a, &y, &bias, &residual};
    while (!batch_.empty()) {
        const std::int64_t size = batch_.back();
        if (size != 1 && b.batch.back() != 0) return;
        for (const Stack* stack : others)
            if (size != 1 && rows_ != 1 && stack->batch.back() != stack->row * rows_) return;
        for (Stack* stack : {&a, &y, &bias, &residual}) {
            if (rows_ == 1 && size != 1) stack->row = stack->batch.back();
            stack->batch.pop_back();
        }
        b.batch.pop_back();
        rows_ *= size;
        batch_.pop_back();
    }
}

std::int64_t MatMul::batches() const {
    std::int64_t count = 1;
    for (const auto size : batch_) count *= size;
    return count;
}

std::int64_t MatMul::offset(const Stack& stack, std::int64_t batch) const {
    std::int64_t offset = 0;
    for (std::size_t i = batch_.size(); i-- > 0; batch /= batch_[i]) offset += batch % batch_[i] * stack.batch[i];
    return offset;
}

void MatMul::choose(const Spec& spec, Store& store) {
    cut_ = cut_of(rows_, columns_, a.column == 1 ? a.row : 0, std::min(depth_, kBlockDepth), table_);
    panels_ = panels_of(columns_, cut_.vectors, table_.lanes);
    small_count_ = rows_ / cut_.tiles;
    large_tiles_ = rows_ % cut_.tiles;
    common_.segments = 1;
    common_.scale = scale_;
    finish_.set(common_);
    // A product with one row reads each column once: no packing pays.
    const bool plain = !has_bias_ && !finish_.has_residual && a.column == 1 && finish_.activation == Activation::bounds;
    if (b_.is_constant())
        way_ = Columns::constant;
    else if (rows_ < 4 && b.row == 1 && plain)
        way_ = Columns::dots;
    else
        way_ = rows_ < kRowsWorthPacking && b.column == 1 ? Columns::in_place : Columns::packed;
    const bool added_last = finish_.has_residual && (scale_ != 1 || finish_.residual_last);
    const bool bias_added = has_bias_ && scale_ != 1;
    if (way_ == Columns::constant && cut_.tiles > 3 && depth_ > kBlockDepth * 3 / 2 && y.column == 1 && !added_last &&
        !bias_added)
        blocks_ = whole(depth_, kBlockDepth);
    if (way_ == Columns::constant)
        chunk_panels_ = std::max<std::int64_t>(kChunkBytes / (whole(depth_ + 1, blocks_) * cut_.vectors * table_.lanes * 4), 1);
    for (std::int64_t r = 0; r < kMostRows; ++r)
        row_offsets_.push_back(r * (a.column == 1 || depth_ == 1 ? a.row : up_to_line(depth_)));
    if (has_bias_ && bias_operand_.is_constant() && bias.row == 0 &&
        std::all_of(bias.batch.begin(), bias.batch.end(), [](auto step) { return step == 0; })) {
        const auto* from = reinterpret_cast<const float*>(bias_operand_.constant);
        for (std::int64_t j = 0; j < columns_; ++j) bias_row_.push_back(from[j * bias.column]);
        bias_row_.resize(bias_row_.size() + kMostVectors * 16);
    } else if (has_bias_ && finish_.residual_last)
        throw std::invalid_argument(spec.kernel + ": a bias by rows and a residual after the activation");
    if (way_ != Columns::constant) return;
    std::vector<std::int64_t> order;
    for (std::int64_t k = 0; k < depth_; ++k) order.push_back(k * b.row);
    for (std::int64_t i = 0; i < batches(); ++i)
        packed_.push_back(pack_once(store, "matmul",
                                    {reinterpret_cast<const float*>(b_.constant) + offset(b, i), order, b.column}, panels_,
                                    table_.lanes));
}

std::size_t MatMul::scratch_bytes() const {
    const std::int64_t a_floats = a.column == 1 ? 0 : kMostRows * up_to_line(depth_);
    const std::int64_t b_floats = way_ == Columns::constant ? 0 : (depth_ + 1) * kMostVectors * 16;
    return static_cast<std::size_t>(a_floats + up_to_line(b_floats) + 2 * kTileFloats) * sizeof(float);
}

std::string MatMul::name() const {
    static const char* const ways[] = {"constant", "in place", "packed", "dots"};
    return std::string("matmul ") + ways[static_cast<int>(way_)] + " " + name_of(isa());
}

void MatMul::run(const Run& run) const {
    if (y_.count() == 0) return;
    const auto panels = static_cast<std::int64_t>(panels_.size());
    const std::int64_t chunks = whole(panels, chunk_panels_), threads = run.pool->threads();
    const bool small = y_.count() * depth_ < kSmallWork;
    const std::int64_t work_alone = y_.count() / batches() * depth_ / chunks;
    const std::int64_t wanted = small           ? 1
                                : threads == 1 ? run.pool->parts(cut_.tiles, work_alone, kAlone)
                                               : whole(kTasksPerThread * threads, chunks * batches());
    const std::int64_t parts = std::min(cut_.tiles, wanted);
    const auto task = [&](std::int64_t index, int worker) {
        const std::int64_t part = index % parts, chunk = index / parts % chunks;
        const std::int64_t batch = index / parts / chunks;
        work(run,
             {batch, static_cast<std::size_t>(chunk * panels / chunks),
              static_cast<std::size_t>((chunk + 1) * panels / chunks), part * cut_.tiles / parts, (part + 1) * cut_.tiles / parts,
              parts == 1 ? threads : 1, offset(a, batch), offset(y, batch)},
             worker);
    };
    const std::int64_t tasks = parts * chunks * batches();
    if (small)
        for (std::int64_t i = 0; i < tasks; ++i) task(i, 0);
    else
        run.pool->each(tasks, task);
}

MatMul::Room MatMul::room_of(const Run& run, int worker) const {
    auto* y = reinterpret_cast<float*>(run.scratch_of(worker));
    auto* a_floats = y + 2 * kTileFloats;
    return {a_floats, a_floats + (a.column == 1 ? 0 : kMostRows * up_to_line(depth_)), y, y + kTileFloats};
}

void MatMul::work(const Run& run, const Task& task, int worker) const {
    const Room room = room_of(run, worker);
    if (way_ == Columns::dots) return dot(run, task, room);
    const auto rows = [&](std::int64_t tile) { return rows_of(run, task, room, row_of(tile), row_of(tile + 1) - row_of(tile)); };
    for (std::int64_t block = 0; way_ == Columns::constant && block < blocks_; ++block)
        for (std::int64_t tile = task.first_tile; tile < task.last_tile; ++tile) {
            const float* from = rows(tile);
            for (std::size_t panel = task.first_panel; panel < task.last_panel; ++panel)
                multiply(run, task, room, panel, tile, from, constant_columns(task, panel, block));
        }
    if (way_ == Columns::constant) return;
    for (std::size_t panel = task.first_panel; panel < task.last_panel; ++panel) {
        const Block columns = columns_of(run, task, room, panel);
        for (std::int64_t tile = task.first_tile; tile < task.last_tile; ++tile)
            multiply(run, task, room, panel, tile, rows(tile), columns);
    }
}

// Rows whose elements lie side by side: in place, or copied.
const float* MatMul::rows_of(const Run& run, const Task& task, const Room& room, std::int64_t row, std::int64_t count) const {
    const float* from = reinterpret_cast<const float*>(run.at(a_)) + task.a + row * a.row;
    if (a.column == 1) return from;
    // From many rows a position at a time: what lies side by side along the rows is read once.
    const std::int64_t pitch = up_to_line(depth_);
    for (std::int64_t k = 0; k < depth_; ++k)
        for (std::int64_t r = 0; r < count; ++r) room.a[r * pitch + k] = from[r * a.row + k * a.column];
    return room.a;
}

MatMul::Block MatMul::columns_of(const Run& run, const Task& task, const Room& room, std::size_t index) const {
    const Panel& panel = panels_[index];
    const std::int64_t width = static_cast<std::int64_t>(panel.vectors) * table_.lanes;
    const float* from = reinterpret_cast<const float*>(run.at(b_)) + offset(b, task.batch) + panel.first * b.column;
    if (way_ == Columns::in_place && panel.columns == width) return {from, b.row, 0, depth_, {}};
    packs_.pack(room.b, from, depth_, panel.columns, width, b.row, b.column);
    return {room.b, width, 0, depth_, {}};
}

MatMul::Block MatMul::constant_columns(const Task& task, std::size_t index, std::int64_t block) const {
    const Panel& panel = panels_[index];
    const std::int64_t width = static_cast<std::int64_t>(panel.vectors) * table_.lanes;
    const std::int64_t first = depth_ * block / blocks_, last = depth_ * (block + 1) / blocks_;
    return {packed_[static_cast<std::size_t>(task.batch)].get() + panel.first * depth_ + first * width, width, first,
            last - first, ahead_of(task, index, block)};
}

// What comes next: the next block of this panel, or of the panel in its place in the chunk that this thread will come to.
Ahead MatMul::ahead_of(const Task& task, std::size_t index, std::int64_t block) const {
    const auto chunk = static_cast<std::int64_t>(task.last_panel - task.first_panel);
    const bool over = block + 1 == blocks_;
    const auto next = static_cast<std::int64_t>(index) + (over ? chunk * task.stride : 0), after = over ? 0 : block + 1;
    if (next >= static_cast<std::int64_t>(panels_.size())) return {};
    const Panel& panel = panels_[static_cast<std::size_t>(next)];
    const std::int64_t width = static_cast<std::int64_t>(panel.vectors) * table_.lanes;
    const std::int64_t first = depth_ * after / blocks_, last = depth_ * (after + 1) / blocks_;
    return {packed_[static_cast<std::size_t>(task.batch)].get() + panel.first * depth_ + first * width, (last - first) * width,
            task.last_tile - task.first_tile};
}

// Of a depth in blocks, the first one goes on from the residual (which y may be), the others from the sums in y; the last finishes.
void MatMul::take_block(ProductTile& tile, const Block& columns) const {
    const bool first = columns.first == 0;
    tile.from = first ? tile.residual : tile.y;
    tile.from_stride = first ? tile.residual_stride : tile.y_stride;
    tile.residual = nullptr;
    tile.finishes = columns.first + columns.depth == depth_;
}

// A bias that is no constant row goes the way of a residual, together with it.
void MatMul::add_apart(const Run& run, const Task& task, ProductTile& tile, float* to, const Panel& panel, std::int64_t row,
                       std::int64_t count) const {
    const std::int64_t width = static_cast<std::int64_t>(panel.vectors) * table_.lanes;
    const auto place = [&](const Operand& operand, const Stack& stack) {
        return reinterpret_cast<const float*>(run.at(operand)) + offset(stack, task.batch) + row * stack.row +
               panel.first * stack.column;
    };
    const bool bias_apart = has_bias_ && bias_row_.empty();
    if (!bias_apart && !finish_.has_residual) return;
    tile.residual = to;
    tile.residual_stride = width;
    if (!bias_apart && residual.column == 1) {
        tile.residual = place(finish_.residual, residual);
        tile.residual_stride = residual.row;
        return;
    }
    const float* first = bias_apart ? place(bias_operand_, bias) : nullptr;
    const float* second = finish_.has_residual ? place(finish_.residual, residual) : nullptr;
    for (std::int64_t r = 0; r < count; ++r)
        for (std::int64_t j = 0; j < panel.columns; ++j)
            to[r * width + j] = (first ? first[r * bias.row + j * bias.column] : 0) +
                                (second ? second[r * residual.row + j * residual.column] : 0);
}

void MatMul::multiply(const Run& run, const Task& task, const Room& room, std::size_t index, std::int64_t tile_index,
                      const float* rows, const Block& columns) const {
    const Panel& panel = panels_[index];
    const std::int64_t row = row_of(tile_index), count = row_of(tile_index + 1) - row;
    const std::int64_t width = static_cast<std::int64_t>(panel.vectors) * table_.lanes;
    float* to = reinterpret_cast<float*>(run.at(y_)) + task.y + row * y.row + panel.first * y.column;
    ProductTile tile = common_;
    tile.base = rows + columns.first;
    tile.rows = row_offsets_.data();
    tile.length = columns.depth;
    tile.weights = columns.from;
    tile.weights_stride = columns.step;
    columns.ahead.set(tile, tile_index - task.first_tile, 0, 1);
    tile.y = y.column == 1 ? to : room.y;
    tile.y_stride = y.column == 1 ? y.row : width;
    tile.columns = panel.columns;
    tile.bias = bias_row_.empty() ? nullptr : bias_row_.data() + panel.first;
    add_apart(run, task, tile, room.added, panel, row, count);
    if (blocks_ > 1) take_block(tile, columns);
    table_.of[panel.vectors - 1][count - 1](tile);
    for (std::int64_t r = 0; y.column != 1 && r < count; ++r)
        for (std::int64_t j = 0; j < panel.columns; ++j) to[r * y.row + j * y.column] = room.y[r * width + j];
}

// Few rows times columns that lie side by side along their depth.
void MatMul::dot(const Run& run, const Task& task, const Room& room) const {
    const float* from = reinterpret_cast<const float*>(run.at(a_)) + task.a;
    const float* columns = reinterpret_cast<const float*>(run.at(b_)) + offset(b, task.batch);
    float* to = reinterpret_cast<float*>(run.at(y_)) + task.y;
    for (std::size_t index = task.first_panel; index < task.last_panel; ++index) {
        const Panel& panel = panels_[index];
        for (std::int64_t row = row_of(task.first_tile); row < row_of(task.last_tile); ++row) {
            packs_.dots(room.y, from + row * a.row, columns + panel.first * b.column, depth_, panel.columns, b.column);
            for (std::int64_t j = 0; j < panel.columns; ++j) {
                float value = room.y[j] * scale_;
                value = finish_.low > value ? finish_.low : value;
                to[row * y.row + (panel.first + j) * y.column] = finish_.high < value ? finish_.high : value;
            }
        }
    }
}

}  // namespace

std::unique_ptr<Step> make_matmul(const Spec& spec, Store& store) { return std::make_unique<MatMul>(spec, store); }

}  // namespace dovetail
