// Matrix multiplication with weights of few bits: decoded in registers for few rows, by panels for more, or multiplied by rows
// that are rounded to 8 bits.
#include <algorithm>
#include <cmath>

#include "kernels/matmul_kernel.h"

namespace dovetail {
namespace {

// A sum in eight parts, which the compiler adds in vectors.
float sum_of(const float* from, std::int64_t count) {
    float parts[8] = {};
    std::int64_t i = 0;
    for (; i + 8 <= count; i += 8)
        for (int j = 0; j < 8; ++j) parts[j] += from[i + j];
    for (; i < count; ++i) parts[0] += from[i];
    return ((parts[0] + parts[1]) + (parts[2] + parts[3])) + ((parts[4] + parts[5]) + (parts[6] + parts[7]));
}

}  // namespace

// The first position of a block of the depth. Blocks begin at whole words of codes.
std::int64_t MatMul::first_position(std::int64_t block) const {
    return block == blocks_ ? depth_ : depth_ * block / blocks_ / 64 * 64;
}

MatMul::Block MatMul::decoded_columns(const Workspace& workspace, std::size_t index, std::int64_t block) const {
    const Panel& panel = panels_[index];
    const std::int64_t width = static_cast<std::int64_t>(panel.vectors) * kernels_->lanes;
    const std::int64_t first = first_position(block), last = first_position(block + 1);
    for (int v = 0; v < panel.vectors; ++v)
        compressed_kernels_.decode[static_cast<int>(compressed_.format)](workspace.b + v * kernels_->lanes, width, compressed_,
                                                                         compressed_.strip(panel.first / kernels_->lanes + v),
                                                                         first, last);
    if (bf16_ == nullptr) return {workspace.b, width, first, last - first, {}};
    float* pairs = after_decoded(workspace);
    bf16_->pack(pairs, workspace.b, last - first, width, width, width, 1);
    return {pairs, width, first / 2, ceil_div(last - first, 2), {}};
}

void MatMul::decode_and_multiply(const Run& run, const Task& task, const Workspace& workspace, std::size_t panel) const {
    for (std::int64_t block = 0; block < blocks_; ++block) {
        const Block columns = decoded_columns(workspace, panel, block);
        for (std::int64_t tile = task.first_tile; tile < task.last_tile; ++tile) {
            const std::int64_t row = row_of(tile);
            multiply(run, task, workspace, panel, tile, rows_of(run, task, workspace, row, row_of(tile + 1) - row), columns);
        }
    }
}

// As decode_and_multiply(). A block of the rows is rounded once for all panels.
void MatMul::multiply_decoded_in_bf16(const Run& run, const Task& task, const Workspace& workspace) const {
    const float* from = reinterpret_cast<const float*>(run.at(a_)) + task.a;
    const std::int64_t pitch = row_floats();
    for (std::int64_t begin = task.first_tile; begin < task.last_tile; begin += kDecodedTiles) {
        const std::int64_t end = std::min(begin + kDecodedTiles, task.last_tile), first_row = row_of(begin);
        for (std::int64_t block = 0; block < blocks_; ++block) {
            const std::int64_t first = first_position(block), count = first_position(block + 1) - first;
            for (std::int64_t row = first_row; row < row_of(end); ++row)
                bf16_->prologue.run(workspace.a + (row - first_row) * pitch, from + row * a.row + first * a.column, count,
                                    a.column, {}, 0);
            for (std::size_t panel = task.first_panel; panel < task.last_panel; ++panel) {
                const Block columns = decoded_columns(workspace, panel, block);
                for (std::int64_t tile = begin; tile < end; ++tile)
                    multiply(run, task, workspace, panel, tile, workspace.a + (row_of(tile) - first_row) * pitch - columns.first,
                             columns);
            }
        }
    }
}

// Decodes the weights in registers. Sums that are not finite are computed again with decoded weights, since the order of
// operations decides which of them are infinite and which are NaN.
void MatMul::multiply_few_rows(const Run& run, const Task& task, const Workspace& workspace) const {
    const float* rows = rows_of(run, task, workspace, 0, rows_);
    std::int64_t pitch = row_offsets_[1];
    const std::int64_t block = compressed_.block, padded = compressed_.padded_block(), blocks = compressed_.blocks;
    float* copy = after_decoded(workspace);
    float* sums = copy + rows_ * row_pitch();
    const bool is_wide = bits_of(compressed_.format) == 4;
    auto kernel = compressed_kernels_.few_rows_of_consecutive[is_wide ? 1 : 0][rows_ - 1];
    const bool is_consecutive = kernel != nullptr && bits_of(compressed_.format) < 8 && has_consecutive_numbers(compressed_);
    if (!is_consecutive) kernel = compressed_kernels_.few_rows[static_cast<int>(compressed_.format)][rows_ - 1];
    for (std::int64_t r = 0; (is_consecutive || compressed_.has_points) && r < rows_; ++r)
        for (std::int64_t i = 0; i < blocks; ++i)
            sums[r * blocks + i] = sum_of(rows + r * pitch + i * block, std::min(block, depth_ - i * block));
    if (padded * blocks != depth_) {
        for (std::int64_t r = 0; r < rows_; ++r)
            for (std::int64_t i = 0; i < blocks; ++i) {
                const float* from = rows + r * pitch + i * block;
                const std::int64_t length = std::min(block, depth_ - i * block);
                float* to = std::copy(from, from + length, copy + r * row_pitch() + i * padded);
                std::fill(to, to + (padded - length), 0.0f);
            }
        rows = copy;
        pitch = row_pitch();
    }
    for (std::size_t index = task.first_panel; index < task.last_panel; ++index) {
        const Panel& panel = panels_[index];
        const std::int64_t width = static_cast<std::int64_t>(panel.vectors) * kernels_->lanes;
        bool is_finite = true;
        for (int v = 0; v < panel.vectors; ++v) {
            float* to = workspace.y + v * kernels_->lanes;
            kernel({&compressed_, compressed_.strip(panel.first / kernels_->lanes + v), rows, pitch, sums, to, width});
            for (std::int64_t r = 0; r < rows_; ++r)
                for (std::int64_t j = 0; j < kernels_->lanes; ++j) is_finite &= std::isfinite(to[r * width + j]);
        }
        if (is_finite)
            multiply(run, task, workspace, index, 0, nullptr, {}, workspace.y);
        else
            decode_and_multiply(run, task, workspace, index);
    }
}

// Multiplies rows that are rounded to bytes, a tile at a time. Tiles with infinities or NaN are not rounded.
void MatMul::multiply_byte_rows(const Run& run, const Task& task, const Workspace& workspace) const {
    const std::int64_t blocks = compressed_.blocks, pitch = round_up(blocks * compressed_.padded_block(), 64);
    float* scales = after_decoded(workspace);
    float* sums = scales + kMaxRows * round_to_line(blocks);
    auto* bytes = reinterpret_cast<std::int8_t*>(sums + kMaxRows * round_to_line(blocks));
    const auto& multiply_rows = byte_rows_->multiply[bits_of(compressed_.format) == 2   ? 0
                                                     : bits_of(compressed_.format) == 4 ? 1
                                                                                        : 2];
    for (std::int64_t tile = task.first_tile; tile < task.last_tile; ++tile) {
        const std::int64_t first = row_of(tile), count = row_of(tile + 1) - first;
        const float* rows = rows_of(run, task, workspace, first, count);
        bool is_finite = true;
        for (std::int64_t r = 0; r < count; ++r)
            is_finite &= compressed_kernels_.round_row(bytes + r * pitch, scales + r * blocks, sums + r * blocks,
                                                       rows + row_offsets_[static_cast<std::size_t>(r)], compressed_);
        for (std::size_t index = task.first_panel; index < task.last_panel; ++index) {
            const Panel& panel = panels_[index];
            const std::int64_t width = static_cast<std::int64_t>(panel.vectors) * kernels_->lanes;
            for (std::int64_t r = 0; is_finite && r < count; r += kMaxFewRows) {
                const auto part = static_cast<std::size_t>(std::min<std::int64_t>(count - r, kMaxFewRows));
                for (int v = 0; v < panel.vectors; ++v)
                    multiply_rows[part - 1]({&compressed_, compressed_.strip(panel.first / kernels_->lanes + v),
                                             bytes + r * pitch, pitch, scales + r * blocks, sums + r * blocks,
                                             workspace.y + r * width + v * kernels_->lanes, width});
            }
            if (is_finite)
                multiply(run, task, workspace, index, tile, nullptr, {}, workspace.y);
            else
                for (std::int64_t block = 0; block < blocks_; ++block)
                    multiply(run, task, workspace, index, tile, rows, decoded_columns(workspace, index, block));
        }
    }
}

}  // namespace dovetail
