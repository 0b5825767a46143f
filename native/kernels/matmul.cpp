// Matrix multiplication: the choice of a variant, and products with floats.
#include <algorithm>
#include <stdexcept>

#include "kernels/conv_prologue.h"
#include "kernels/kernels.h"
#include "kernels/matmul_kernel.h"

namespace dovetail {
namespace {

constexpr std::int64_t kTileFloats = kMaxRows * kMaxVectors * 16;
constexpr std::int64_t kChunkBytes = 512 << 10;  // bytes of packed columns that stay in L2
constexpr std::int64_t kTasksPerThread = 6;
constexpr std::int64_t kSingleThreadTaskWork = std::int64_t{1} << 29;  // multiplications of one task with a single thread
constexpr std::int64_t kSmallWork = 1 << 17;                           // multiplications below which waking a thread does not pay
// Words of the depth of which a tile's rows stay in L1. In bf16 the arithmetic is twice as fast per word, so that L2 would bound
// it.
constexpr std::int64_t kBlockDepth = 1024, kBf16BlockDepth = 512;
constexpr std::int64_t kMinRowsForPacking = 24;
constexpr std::int64_t kMaxCopiedBytes = 64 << 20;  // of a transposed left operand whose rows are copied once
constexpr std::int64_t kCopiedRows = 16;            // rows of one task of that copy: a line of floats of the operand

BatchStrides batch_strides_of(const Spec& spec, const Operand& operand, const Sizes& batch, std::int64_t rows,
                              std::int64_t columns) {
    Sizes sizes = batch;
    sizes.push_back(rows);
    sizes.push_back(columns);
    const auto strides = float_strides(spec, operand);
    if (operand.rank() > sizes.size())
        throw std::invalid_argument(spec.kernel + ": an operand must not have more axes than the output");
    const std::size_t missing = sizes.size() - operand.rank();
    Sizes all(sizes.size());
    for (std::size_t i = 0; i < operand.rank(); ++i) {
        if (operand.sizes[i] != sizes[i + missing] && operand.sizes[i] != 1)
            throw std::invalid_argument(spec.kernel + ": the shapes of the operands disagree");
        all[i + missing] = strides[i];
    }
    return {Sizes(all.begin(), all.end() - 2), all[all.size() - 2], columns == 1 ? 1 : all.back()};
}

}  // namespace

MatMul::MatMul(const Spec& spec, WeightCache& cache)
    : a_(spec.inputs.at(0)), b_(spec.inputs.at(1)), y_(spec.outputs.at(0)), epilogue_(spec) {
    const std::size_t rank = y_.rank();
    if (rank < 2 || a_.rank() < 2 || b_.rank() < 2) throw std::invalid_argument("matmul: operands must have rank 2 or more");
    batch_.assign(y_.sizes.begin(), y_.sizes.end() - 2);
    rows_ = y_.sizes[rank - 2];
    columns_ = y_.sizes[rank - 1];
    depth_ = a_.sizes.back();
    const bool is_compressed = spec.has("format");
    if (a_.sizes[a_.rank() - 2] != rows_ ||
        (!is_compressed && (b_.sizes.back() != columns_ || b_.sizes[b_.rank() - 2] != depth_)))
        throw std::invalid_argument("matmul: the shapes of the operands disagree");
    a = batch_strides_of(spec, a_, batch_, rows_, depth_);
    if (is_compressed)
        b.batch = Sizes(batch_.size());
    else
        b = batch_strides_of(spec, b_, batch_, depth_, columns_);
    y = batch_strides_of(spec, y_, batch_, rows_, columns_);
    bias.batch = residual.batch = Sizes(batch_.size());
    scale_ = static_cast<float>(spec.real("alpha", 1));
    has_bias_ = spec.integer("has_bias") != 0;
    if (has_bias_) {
        bias_operand_ = spec.inputs.at(is_compressed ? 3 + static_cast<std::size_t>(spec.integer("has_points")) : 2);
        bias = batch_strides_of(spec, bias_operand_, batch_, rows_, columns_);
    }
    if (epilogue_.has_residual) residual = batch_strides_of(spec, epilogue_.residual, batch_, rows_, columns_);
    if (y_.count() == 0) return;
    if (is_compressed) {
        right_ = RightOperand::compressed;
        compressed_ = compress_weights(spec, cache, depth_, columns_, kernels_->lanes);
        const std::string rows = spec.text("rows", "f32");
        if (rows == "int8") {
            if (!has_consecutive_numbers(compressed_))
                throw std::invalid_argument("matmul: rows are rounded for weights of consecutive numbers only");
            byte_rows_ = vnni_byte_rows() ? vnni_byte_rows() : &compressed_kernels_.byte_rows;
        }
    }
    join_batches();
    choose_variant(spec, cache);
}

// If batches share the right operand and their rows are evenly spaced, the rows of all batches become the rows of one matrix.
void MatMul::join_batches() {
    const BatchStrides* const others[] = {&a, &y, &bias, &residual};
    while (!batch_.empty()) {
        const std::int64_t size = batch_.back();
        if (size != 1 && b.batch.back() != 0) return;
        for (const BatchStrides* strides : others)
            if (size != 1 && rows_ != 1 && strides->batch.back() != strides->row * rows_) return;
        for (BatchStrides* strides : {&a, &y, &bias, &residual}) {
            if (rows_ == 1 && size != 1) strides->row = strides->batch.back();
            strides->batch.pop_back();
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

std::int64_t MatMul::offset(const BatchStrides& strides, std::int64_t batch) const {
    std::int64_t offset = 0;
    for (std::size_t i = batch_.size(); i-- > 0; batch /= batch_[i]) offset += batch % batch_[i] * strides.batch[i];
    return offset;
}

void MatMul::choose_variant(const Spec& spec, WeightCache& cache) {
    // A product of few rows reads each column about once: packing does not pay.
    const bool is_plain = !has_bias_ && !epilogue_.has_residual && a.column == 1 && epilogue_.activation == Activation::bounds;
    const bool is_compressed = right_ == RightOperand::compressed;
    if (!is_compressed && b_.is_constant())
        right_ = RightOperand::constant;
    else if (!is_compressed && rows_ <= kMaxDotRows && b.row == 1 && is_plain && !is_reproducible_)
        right_ = RightOperand::dots;
    else if (!is_compressed)
        right_ = rows_ < kMinRowsForPacking && b.column == 1 ? RightOperand::in_place : RightOperand::packed;
    const bool is_packed = right_ == RightOperand::constant || right_ == RightOperand::packed;
    const bool is_decoded = is_compressed && byte_rows_ == nullptr && (is_reproducible_ || rows_ > compressed_kernels_.max_rows);
    if ((is_packed || is_decoded) && depth_ >= kMinBf16Depth && spec.text("precision") == "bf16") {
        bf16_ = &bf16_kernels();
        kernels_ = &bf16_->gemm;
    }
    words_ = bf16_ != nullptr ? ceil_div(depth_, 2) : depth_;
    copies_all_rows_ = is_packed && bf16_ == nullptr && a.column != 1 && depth_ > 1 && rows_ > kMaxRows &&
                       batches() * rows_ * copy_pitch() * 4 <= kMaxCopiedBytes;
    const std::int64_t row_step = bf16_ != nullptr ? row_floats() : a.column == 1 ? a.row : copies_all_rows_ ? copy_pitch() : 0;
    tiling_ = tiling_of(rows_, columns_, row_step, std::min(words_, kBlockDepth), *kernels_);
    if (byte_rows_ != nullptr) {
        // A row is read from a register or memory for one vector of columns at a time.
        const int vectors = kernels_->rows[1] != 0 ? 2 : 1;
        tiling_ = {vectors, ceil_div(rows_, kernels_->rows[vectors - 1]), 0};
    }
    panels_ = panels_of(columns_, tiling_.vectors, kernels_->lanes);
    small_count_ = rows_ / tiling_.tiles;
    large_tiles_ = rows_ % tiling_.tiles;
    shared_fields_.segments = 1;
    shared_fields_.scale = scale_;
    epilogue_.apply_to(shared_fields_);
    const bool adds_residual_last = epilogue_.has_residual && (scale_ != 1 || epilogue_.residual_last);
    const bool scales_bias = has_bias_ && scale_ != 1;
    const bool has_bias_row = has_bias_ && bias_operand_.is_constant() && bias.row == 0 &&
                              std::all_of(bias.batch.begin(), bias.batch.end(), [](auto step) { return step == 0; });
    // The first block would start from the residual, which is otherwise added last.
    const bool adds_first = epilogue_.has_residual || (has_bias_ && !has_bias_row);
    const std::int64_t block_depth = bf16_ != nullptr ? kBf16BlockDepth : kBlockDepth;
    if ((right_ == RightOperand::constant || is_compressed) && tiling_.tiles > 3 && words_ > block_depth * 3 / 2 &&
        byte_rows_ == nullptr && y.column == 1 && !adds_residual_last && !scales_bias && !(is_reproducible_ && adds_first))
        blocks_ = ceil_div(words_, block_depth);
    // The heads of a cache whose outermost axis is the length are read together, in the order of memory.
    interleaves_batches_ = right_ == RightOperand::dots && !batch_.empty() && b.column > depth_;
    for (std::int64_t i = 0; interleaves_batches_ && i < batches(); ++i)
        batch_offsets_.push_back({offset(a, i), offset(b, i), offset(y, i)});
    if (interleaves_batches_) chunk_panels_ = 2;
    if (is_compressed)
        chunk_panels_ = std::max<std::int64_t>(kChunkBytes / (compressed_.blocks * compressed_.block_bytes * tiling_.vectors), 1);
    if (right_ == RightOperand::constant)
        chunk_panels_ =
            std::max<std::int64_t>(kChunkBytes / (ceil_div(words_ + 1, blocks_) * tiling_.vectors * kernels_->lanes * 4), 1);
    row_offsets_.reserve(kMaxRows);
    for (std::int64_t r = 0; r < kMaxRows; ++r)
        row_offsets_.push_back(r * (copies_all_rows_                                     ? copy_pitch()
                                    : bf16_ == nullptr && (a.column == 1 || depth_ == 1) ? a.row
                                                                                         : row_floats()));
    if (has_bias_row) {
        const auto* from = reinterpret_cast<const float*>(bias_operand_.constant);
        // Tiles read whole vectors.
        const std::int64_t padded = columns_ + kMaxVectors * 16;
        const std::string key = packing_key(cache, from, "bias", {columns_, bias.column});
        bias_row_ = cache.get_or_create_floats(key, static_cast<std::size_t>(padded), [&] {
            const auto row = aligned_floats(static_cast<std::size_t>(padded));
            for (std::int64_t j = 0; j < padded; ++j) row.get()[j] = j < columns_ ? from[j * bias.column] : 0;
            return row;
        });
    } else if (has_bias_ && epilogue_.residual_last)
        throw std::invalid_argument(spec.kernel + ": a bias by row excludes a residual after the activation");
    if (right_ != RightOperand::constant) return;
    for (std::int64_t i = 0; i < batches(); ++i)
        packed_.push_back(pack_cached(cache, "matmul", reinterpret_cast<const float*>(b_.constant) + offset(b, i), depth_, b.row,
                                      b.column, panels_, kernels_->lanes, bf16_ != nullptr));
}

std::size_t MatMul::scratch_bytes() const {
    std::int64_t b_floats = right_ == RightOperand::constant ? 0 : (depth_ + 1) * kMaxVectors * 16;
    if (right_ == RightOperand::compressed) {
        b_floats = (ceil_div(depth_, blocks_) + 64) * kMaxVectors * 16;
        // The decoded weights, rounded to bf16.
        if (bf16_ != nullptr) b_floats += b_floats / 2;
        // Few rows, padded, and the sums of their blocks.
        if (byte_rows_)
            b_floats += kMaxRows * (row_pitch() / 4 + 16 + 2 * round_to_line(compressed_.blocks));
        else if (has_few_rows())
            b_floats += rows_ * (row_pitch() + round_to_line(compressed_.blocks));
    }
    return static_cast<std::size_t>(copied_rows() * row_floats() + round_to_line(b_floats) + 2 * kTileFloats) * sizeof(float);
}

std::size_t MatMul::shared_scratch_bytes() const {
    return copies_all_rows_ ? static_cast<std::size_t>(batches() * rows_ * copy_pitch()) * sizeof(float) : 0;
}

std::string MatMul::name() const {
    static const char* const modes[] = {"constant", "in place", "packed", "dots", "compressed"};
    const char* const rounding = byte_rows_ != nullptr ? " int8 " : bf16_ != nullptr ? " bf16 " : " ";
    return std::string("matmul ") + modes[static_cast<int>(right_)] + rounding + name_of(isa());
}

void MatMul::run(const Run& run) const {
    if (y_.count() == 0) return;
    const auto panels = static_cast<std::int64_t>(panels_.size());
    const std::int64_t chunks = ceil_div(panels, chunk_panels_), threads = run.pool->threads();
    const bool is_small = y_.count() * depth_ < kSmallWork;
    const std::int64_t work_alone = y_.count() / batches() * depth_ / chunks;
    const std::int64_t target_parts = is_small       ? 1
                                      : threads == 1 ? run.pool->task_count(tiling_.tiles, work_alone, kSingleThreadTaskWork)
                                                     : ceil_div(kTasksPerThread * threads, chunks * batches());
    const std::int64_t parts = std::min(tiling_.tiles, target_parts);
    const auto task = [&](std::int64_t index, int worker) {
        const std::int64_t part = index % parts, rest = index / parts;
        const std::int64_t chunk = rest % chunks, batch = rest / chunks;
        run_task(run,
                 {batch, static_cast<std::size_t>(chunk * panels / chunks),
                  static_cast<std::size_t>((chunk + 1) * panels / chunks), part * tiling_.tiles / parts,
                  (part + 1) * tiling_.tiles / parts, parts == 1 ? threads : 1, offset(a, batch), offset(y, batch)},
                 worker);
    };
    if (copies_all_rows_) copy_rows(run);
    const std::int64_t tasks = parts * chunks * (interleaves_batches_ ? 1 : batches());
    if (is_small)
        for (std::int64_t i = 0; i < tasks; ++i) task(i, 0);
    else
        run.pool->parallel_for(tasks, task);
}

void MatMul::copy_rows(const Run& run) const {
    auto* const to = reinterpret_cast<float*>(run.shared_scratch);
    const std::int64_t blocks = ceil_div(rows_, kCopiedRows), pitch = copy_pitch();
    const auto task = [&](std::int64_t index, int) {
        const std::int64_t batch = index / blocks, row = index % blocks * kCopiedRows;
        packing_.pack(to + (batch * rows_ + row) * pitch,
                      reinterpret_cast<const float*>(run.at(a_)) + offset(a, batch) + row * a.row,
                      std::min(kCopiedRows, rows_ - row), depth_, pitch, a.row, a.column);
    };
    if (y_.count() * depth_ < kSmallWork)
        for (std::int64_t i = 0; i < blocks * batches(); ++i) task(i, 0);
    else
        run.pool->parallel_for(blocks * batches(), task);
}

MatMul::Workspace MatMul::workspace_of(const Run& run, int worker) const {
    auto* y = reinterpret_cast<float*>(run.scratch_of(worker));
    auto* a_floats = y + 2 * kTileFloats;
    return {a_floats, a_floats + copied_rows() * row_floats(), y, y + kTileFloats};
}

void MatMul::run_task(const Run& run, const Task& task, int worker) const {
    const Workspace workspace = workspace_of(run, worker);
    if (right_ == RightOperand::dots) return multiply_dots(run, task, workspace);
    if (right_ == RightOperand::compressed) {
        if (byte_rows_) return multiply_byte_rows(run, task, workspace);
        if (has_few_rows()) return multiply_few_rows(run, task, workspace);
        if (bf16_) return multiply_decoded_in_bf16(run, task, workspace);
        for (std::size_t panel = task.first_panel; panel < task.last_panel; ++panel)
            decode_and_multiply(run, task, workspace, panel);
        return;
    }
    const auto rows = [&](std::int64_t tile) {
        return rows_of(run, task, workspace, row_of(tile), row_of(tile + 1) - row_of(tile));
    };
    for (std::int64_t block = 0; right_ == RightOperand::constant && block < blocks_; ++block)
        for (std::int64_t tile = task.first_tile; tile < task.last_tile; ++tile) {
            const float* from = rows(tile);
            for (std::size_t panel = task.first_panel; panel < task.last_panel; ++panel)
                multiply(run, task, workspace, panel, tile, from, constant_columns(task, panel, block));
        }
    if (right_ == RightOperand::constant) return;
    for (std::size_t panel = task.first_panel; panel < task.last_panel; ++panel) {
        const Block columns = columns_of(run, task, workspace, panel);
        for (std::int64_t tile = task.first_tile; tile < task.last_tile; ++tile)
            multiply(run, task, workspace, panel, tile, rows(tile), columns);
    }
}

// Floats of a copied row. In bf16 one line more avoids set conflicts between rows that are a power of two apart.
std::int64_t MatMul::row_floats() const {
    // Decoded blocks begin at multiples of 64 positions.
    if (right_ == RightOperand::compressed && bf16_ != nullptr) return round_to_line(ceil_div(words_, blocks_) + 32) + 16;
    if (bf16_ != nullptr) return round_to_line(words_) + 16;
    return a.column == 1 ? 0 : round_to_line(depth_);
}

// Returns rows with contiguous elements: the operand's rows themselves, or copies of them, which may be rounded to bf16.
const float* MatMul::rows_of(const Run& run, const Task& task, const Workspace& workspace, std::int64_t row,
                             std::int64_t count) const {
    if (copies_all_rows_) return reinterpret_cast<const float*>(run.shared_scratch) + (task.batch * rows_ + row) * copy_pitch();
    const float* from = reinterpret_cast<const float*>(run.at(a_)) + task.a + row * a.row;
    for (std::int64_t r = 0; bf16_ != nullptr && r < count; ++r)
        bf16_->prologue.run(workspace.a + r * row_floats(), from + r * a.row, depth_, a.column, {}, 0);
    if (bf16_ != nullptr) return workspace.a;
    if (a.column == 1) return from;
    // Copies position by position over all rows, so that elements contiguous along the rows are read once.
    const std::int64_t pitch = round_to_line(depth_);
    for (std::int64_t k = 0; k < depth_; ++k)
        for (std::int64_t r = 0; r < count; ++r) workspace.a[r * pitch + k] = from[r * a.row + k * a.column];
    return workspace.a;
}

MatMul::Block MatMul::columns_of(const Run& run, const Task& task, const Workspace& workspace, std::size_t index) const {
    const Panel& panel = panels_[index];
    const std::int64_t width = static_cast<std::int64_t>(panel.vectors) * kernels_->lanes;
    const float* from = reinterpret_cast<const float*>(run.at(b_)) + offset(b, task.batch) + panel.first * b.column;
    if (right_ == RightOperand::in_place && panel.columns == width) return {from, b.row, 0, depth_, {}};
    const auto pack = bf16_ != nullptr ? bf16_->pack : packing_.pack;
    pack(workspace.b, from, depth_, panel.columns, width, b.row, b.column);
    return {workspace.b, width, 0, words_, {}};
}

MatMul::Block MatMul::constant_columns(const Task& task, std::size_t index, std::int64_t block) const {
    const Panel& panel = panels_[index];
    const std::int64_t width = static_cast<std::int64_t>(panel.vectors) * kernels_->lanes;
    const std::int64_t first = words_ * block / blocks_, last = words_ * (block + 1) / blocks_;
    return {packed_[static_cast<std::size_t>(task.batch)].get() + panel.first * words_ + first * width, width, first,
            last - first, prefetch_of(task, index, block)};
}

// The weights to prefetch: the next block of this panel, or the corresponding panel of this thread's next chunk.
WeightPrefetch MatMul::prefetch_of(const Task& task, std::size_t index, std::int64_t block) const {
    const auto chunk = static_cast<std::int64_t>(task.last_panel - task.first_panel);
    const bool is_last_block = block + 1 == blocks_;
    const auto next = static_cast<std::int64_t>(index) + (is_last_block ? chunk * task.stride : 0),
               following = is_last_block ? 0 : block + 1;
    if (next >= static_cast<std::int64_t>(panels_.size())) return {};
    const Panel& panel = panels_[static_cast<std::size_t>(next)];
    const std::int64_t width = static_cast<std::int64_t>(panel.vectors) * kernels_->lanes;
    const std::int64_t first = words_ * following / blocks_, last = words_ * (following + 1) / blocks_;
    return {packed_[static_cast<std::size_t>(task.batch)].get() + panel.first * words_ + first * width, (last - first) * width,
            task.last_tile - task.first_tile};
}

// If the depth is divided into blocks, the first block starts from the residual (which may alias y), and each later block from
// the accumulators in y. The last block runs the epilogue.
void MatMul::set_initial(GemmTile& tile, const Block& columns) const {
    const bool first = columns.first == 0;
    tile.initial = first ? tile.residual : tile.y;
    tile.initial_stride = first ? tile.residual_stride : tile.y_stride;
    tile.residual = nullptr;
    tile.has_epilogue = columns.first + columns.depth == words_;
}

// A bias that is not a constant row is added to the residual.
void MatMul::set_residual(const Run& run, const Task& task, GemmTile& tile, float* to, const Panel& panel, std::int64_t row,
                          std::int64_t count) const {
    const std::int64_t width = static_cast<std::int64_t>(panel.vectors) * kernels_->lanes;
    const auto address = [&](const Operand& operand, const BatchStrides& strides) {
        return reinterpret_cast<const float*>(run.at(operand)) + offset(strides, task.batch) + row * strides.row +
               panel.first * strides.column;
    };
    const bool adds_bias = has_bias_ && bias_row_ == nullptr;
    if (!adds_bias && !epilogue_.has_residual) return;
    tile.residual = to;
    tile.residual_stride = width;
    if (!adds_bias && residual.column == 1) {
        tile.residual = address(epilogue_.residual, residual);
        tile.residual_stride = residual.row;
        return;
    }
    const float* first = adds_bias ? address(bias_operand_, bias) : nullptr;
    const float* second = epilogue_.has_residual ? address(epilogue_.residual, residual) : nullptr;
    for (std::int64_t r = 0; r < count; ++r)
        for (std::int64_t j = 0; j < panel.columns; ++j)
            to[r * width + j] = (first ? first[r * bias.row + j * bias.column] : 0) +
                                (second ? second[r * residual.row + j * residual.column] : 0);
}

void MatMul::multiply(const Run& run, const Task& task, const Workspace& workspace, std::size_t index, std::int64_t tile_index,
                      const float* rows, const Block& columns, const float* initial) const {
    const Panel& panel = panels_[index];
    const std::int64_t row = row_of(tile_index), count = row_of(tile_index + 1) - row;
    const std::int64_t width = static_cast<std::int64_t>(panel.vectors) * kernels_->lanes;
    float* to = reinterpret_cast<float*>(run.at(y_)) + task.y + row * y.row + panel.first * y.column;
    GemmTile tile = shared_fields_;
    tile.base = rows + columns.first;
    tile.rows = row_offsets_.data();
    tile.length = columns.depth;
    tile.weights = columns.from;
    tile.weights_stride = columns.step;
    columns.prefetch.set(tile, tile_index - task.first_tile, 0, 1);
    tile.y = y.column == 1 ? to : workspace.y;
    tile.y_stride = y.column == 1 ? y.row : width;
    tile.columns = panel.columns;
    tile.initial = initial;
    tile.initial_stride = width;
    tile.bias = bias_row_ == nullptr ? nullptr : bias_row_.get() + panel.first;
    set_residual(run, task, tile, workspace.addend, panel, row, count);
    if (blocks_ > 1) set_initial(tile, columns);
    kernels_->tile[panel.vectors - 1][count - 1](tile);
    for (std::int64_t r = 0; y.column != 1 && r < count; ++r)
        for (std::int64_t j = 0; j < panel.columns; ++j) to[r * y.row + j * y.column] = workspace.y[r * width + j];
}

// Dot products of few rows with columns that are contiguous along the depth. The columns of interleaved batches are read in the
// order of memory, one vector of columns of each batch at a time.
void MatMul::multiply_dots(const Run& run, const Task& task, const Workspace& workspace) const {
    const Panel& last = panels_[task.last_panel - 1];
    const std::int64_t end = last.first + last.columns, row = row_of(task.first_tile), rows = row_of(task.last_tile) - row;
    if (!interleaves_batches_) {
        const BatchOffsets offsets{task.a, offset(b, task.batch), task.y};
        const std::int64_t width = kMaxVectors * kernels_->lanes;
        for (std::int64_t column = panels_[task.first_panel].first; column < end; column += width)
            multiply_dots(run, offsets, workspace, row, rows, column, std::min(width, end - column));
        return;
    }
    for (std::int64_t column = panels_[task.first_panel].first; column < end; column += kernels_->lanes)
        for (const BatchOffsets& offsets : batch_offsets_)
            multiply_dots(run, offsets, workspace, row, rows, column, std::min<std::int64_t>(kernels_->lanes, end - column));
}

void MatMul::multiply_dots(const Run& run, const BatchOffsets& offsets, const Workspace& workspace, std::int64_t row,
                           std::int64_t rows, std::int64_t column, std::int64_t count) const {
    const std::int64_t width = kMaxVectors * kernels_->lanes;
    packing_.dots(workspace.y, width, reinterpret_cast<const float*>(run.at(a_)) + offsets.a + row * a.row, a.row, rows,
                  reinterpret_cast<const float*>(run.at(b_)) + offsets.b + column * b.column, depth_, count, b.column);
    float* to = reinterpret_cast<float*>(run.at(y_)) + offsets.y + row * y.row + column * y.column;
    for (std::int64_t r = 0; r < rows; ++r)
        for (std::int64_t j = 0; j < count; ++j) {
            float value = workspace.y[r * width + j] * scale_;
            value = epilogue_.low > value ? epilogue_.low : value;
            to[r * y.row + j * y.column] = epilogue_.high < value ? epilogue_.high : value;
        }
}

std::unique_ptr<Kernel> make_matmul(const Spec& spec, WeightCache& cache) { return std::make_unique<MatMul>(spec, cache); }

}  // namespace dovetail
