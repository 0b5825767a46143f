// Input of convolution tiles: read in place, or from copies made for a tile or for a block of rows.
#include <algorithm>

#include "kernels/conv.h"

namespace dovetail {
namespace {

// The taps first .. last-1 of an axis that are inside the input, for output position `position`.
struct Taps {
    std::int64_t first, last, start;  // start: the position of tap 0
};

Taps taps_of(const ConvGeometry& g, std::size_t axis, std::int64_t at) {
    const std::int64_t start = at * g.stride[axis] - g.pad_begin[axis], step = g.dilation[axis];
    if (start >= 0 && start + (g.kernel[axis] - 1) * step < g.in[axis]) return {0, g.kernel[axis], start};
    const std::int64_t first = start < 0 ? ceil_div(-start, step) : 0;
    const std::int64_t last = start < g.in[axis] ? std::min(ceil_div(g.in[axis] - start, step), g.kernel[axis]) : 0;
    return {first, std::max(first, last), start};
}

}  // namespace

void Conv::multiply_in_place(const Run& run, const Task& task, Workspace& workspace, const OutputLine& at, std::int64_t first,
                             std::int64_t count) const {
    const ConvGeometry& g = geometry_;
    const Taps deep = taps_of(g, 0, at.depth), down = taps_of(g, 1, at.row);
    const std::int64_t left = first * g.stride[2] - g.pad_begin[2];
    const std::int64_t right = left + (count - 1) * g.stride[2] + (g.kernel[2] - 1) * g.dilation[2];
    const float* x = reinterpret_cast<const float*>(run.at(x_)) + at.image * g.x.image + task.group * g.channels;
    const float* base = x + deep.start * g.x.spatial[0] + down.start * g.x.spatial[1] + left * g.x.spatial[2];
    TilePosition position{
        at, first, count, base, offsets_for(count), 0, segments_, prefetches_input_ ? count * g.stride[2] * g.x.spatial[2] : 0};
    const bool is_inside_row = left >= 0 && right < g.in[2];
    if (is_inside_row && g.kernel[0] == 1 && deep.first == 0 && deep.last == 1) {
        position.first_segment = down.first * g.kernel[2];
        position.segments = (down.last - down.first) * g.kernel[2];
        position.rows += position.first_segment * count;
        return multiply(run, task, workspace, position);
    }
    if (is_inside_row && deep.first == 0 && deep.last == g.kernel[0] && down.first == 0 && down.last == g.kernel[1])
        return multiply(run, task, workspace, position);

    // At a border, taps outside of the input read zeros. Leading and trailing segments that are outside for all pixels are
    // omitted.
    const std::int64_t zeros = (reinterpret_cast<std::intptr_t>(zeros_.data()) - reinterpret_cast<std::intptr_t>(base)) / 4;
    std::int64_t first_segment = segments_, last_segment = 0, segment = 0;
    const std::int64_t* inner = position.rows;
    std::int64_t* to = workspace.rows;
    for (std::int64_t d = 0; d < g.kernel[0]; ++d)
        for (std::int64_t h = 0; h < g.kernel[1]; ++h) {
            const bool there = d >= deep.first && d < deep.last && h >= down.first && h < down.last;
            for (std::int64_t w = 0; w < g.kernel[2]; ++w, ++segment) {
                bool is_any_inside = false;
                for (std::int64_t r = 0, column = left + w * g.dilation[2]; r < count; ++r, column += g.stride[2], ++inner) {
                    const bool is_inside_input = there && column >= 0 && column < g.in[2];
                    *to++ = is_inside_input ? *inner : zeros;
                    is_any_inside |= is_inside_input;
                }
                if (!is_any_inside) continue;
                first_segment = std::min(first_segment, segment);
                last_segment = segment + 1;
            }
        }
    if (in_triples_) {
        first_segment -= first_segment % 3;
        last_segment = ceil_div(last_segment, 3) * 3;
    }
    position.first_segment = std::min(first_segment, last_segment);
    position.segments = last_segment - position.first_segment;
    position.rows = workspace.rows + position.first_segment * count;
    multiply(run, task, workspace, position);
}

// A tile that spans rows: the input offset of each tap of each pixel is computed for the tile.
void Conv::multiply_across_rows(const Run& run, const Task& task, Workspace& workspace, const OutputLine& at, std::int64_t first,
                                std::int64_t count) const {
    const ConvGeometry& g = geometry_;
    const std::int64_t width = g.out[2], row = first / width;
    if ((first + count - 1) / width == row)
        return multiply_in_place(run, task, workspace, {at.image, at.depth, row}, first - row * width, count);
    const float* base = reinterpret_cast<const float*>(run.at(x_)) + at.image * g.x.image + task.group * g.channels;
    const std::int64_t zeros = (reinterpret_cast<std::intptr_t>(zeros_.data()) - reinterpret_cast<std::intptr_t>(base)) / 4;
    const auto is_inside = [&g](std::size_t axis, std::int64_t position) { return position >= 0 && position < g.in[axis]; };
    std::int64_t first_segment = segments_, last_segment = 0;
    for (std::int64_t segment = 0; segment < segments_; ++segment) {
        const std::int64_t w = segment % g.kernel[2], h = segment / g.kernel[2] % g.kernel[1],
                           d = segment / (g.kernel[2] * g.kernel[1]);
        const std::int64_t deep = at.depth * g.stride[0] - g.pad_begin[0] + d * g.dilation[0];
        bool is_any_inside = false;
        std::int64_t line = row, pixel = first - row * width;
        for (std::int64_t r = 0; r < count; ++r, ++pixel) {
            if (pixel == width) ++line, pixel = 0;
            const std::int64_t down = line * g.stride[1] - g.pad_begin[1] + h * g.dilation[1];
            const std::int64_t along = pixel * g.stride[2] - g.pad_begin[2] + w * g.dilation[2];
            const bool is_inside_input = is_inside(0, deep) && is_inside(1, down) && is_inside(2, along);
            workspace.rows[segment * count + r] =
                is_inside_input ? deep * g.x.spatial[0] + down * g.x.spatial[1] + along * g.x.spatial[2] : zeros;
            is_any_inside |= is_inside_input;
        }
        if (!is_any_inside) continue;
        first_segment = std::min(first_segment, segment);
        last_segment = segment + 1;
    }
    first_segment = std::min(first_segment, last_segment);
    multiply(run, task, workspace,
             {{at.image, at.depth, 0},
              first,
              count,
              base,
              workspace.rows + first_segment * count,
              first_segment,
              last_segment - first_segment,
              0});
}

void Conv::multiply_pixels(const Run& run, const Task& task, Workspace& workspace, const OutputLine& at, std::int64_t first,
                           std::int64_t count) const {
    const ConvGeometry& g = geometry_;
    const float* x = reinterpret_cast<const float*>(run.at(x_)) + at.image * g.x.image + task.group * g.channels * g.x.channel +
                     at.depth * g.stride[0] * g.x.spatial[0] + at.row * g.stride[1] * g.x.spatial[1] +
                     first * g.stride[2] * g.x.spatial[2];
    const Prologue prologue{has_prologue_ ? scale_.data() : nullptr, shift_.data(), prologue_relu_};
    if (g.x.channel == 1)
        prologue_->pixels(workspace.patch, pitch_, x, g.stride[2] * g.x.spatial[2], count, g.channels, prologue,
                          task.group * g.channels);
    for (std::int64_t r = 0; g.x.channel != 1 && r < count; ++r)
        prologue_->run(workspace.patch + r * pitch_, x + r * g.stride[2] * g.x.spatial[2], g.channels, g.x.channel, prologue,
                       task.group * g.channels);
    multiply(run, task, workspace, {at, first, count, workspace.patch, offsets_for(count), 0, segments_, 0});
}

void Conv::multiply_block(const Run& run, const Task& task, Workspace& workspace, std::int64_t block) const {
    const ConvGeometry& g = geometry_;
    const std::int64_t blocks = ceil_div(g.out[1], block_lines_), plane = block / blocks, first = block % blocks * block_lines_;
    const std::int64_t image = plane / g.out[0], depth = plane % g.out[0], last = std::min(first + block_lines_, g.out[1]);
    const float* x = reinterpret_cast<const float*>(run.at(x_)) + image * g.x.image;
    fill_patch(x, task, workspace.patch, depth, first);
    const std::int64_t row = patch_pixels_ * words_;
    for (std::int64_t line = first; line < last; ++line)
        for (std::int64_t tile = 0; tile < tiling_.tiles; ++tile) {
            const std::int64_t begin = tile_begin(tile), count = tile_begin(tile + 1) - begin;
            multiply(run, task, workspace,
                     {{image, depth, line},
                      begin,
                      count,
                      workspace.patch + (line - first) * g.stride[1] * row + begin * g.stride[2] * words_,
                      offsets_for(count),
                      0,
                      segments_,
                      0});
        }
}

void Conv::fill_patch(const float* x, const Task& task, float* patch, std::int64_t depth, std::int64_t first) const {
    const ConvGeometry& g = geometry_;
    for (std::int64_t d = 0; d < g.kernel[0]; ++d)
        for (std::int64_t r = 0; r < patch_rows_; ++r, patch += patch_pixels_ * words_)
            fill_row(x, task, patch, depth * g.stride[0] - g.pad_begin[0] + d * g.dilation[0],
                     first * g.stride[1] - g.pad_begin[1] + r);
}

void Conv::fill_row(const float* x, const Task& task, float* to, std::int64_t depth, std::int64_t row) const {
    const ConvGeometry& g = geometry_;
    const bool is_outside = depth < 0 || depth >= g.in[0] || row < 0 || row >= g.in[1];
    if (is_outside) {
        std::fill_n(to, patch_pixels_ * words_, 0.0f);
        return;
    }
    // Pixels left .. last-1 of the row are inside the input; padding may be negative.
    const std::int64_t left = std::clamp<std::int64_t>(g.pad_begin[2], 0, patch_pixels_);
    const std::int64_t last = std::clamp<std::int64_t>(g.pad_begin[2] + g.in[2], left, patch_pixels_);
    const Prologue prologue{has_prologue_ ? scale_.data() : nullptr, shift_.data(), prologue_relu_};
    const std::int64_t channel = task.group * g.channels;
    const float* from =
        x + channel * g.x.channel + depth * g.x.spatial[0] + row * g.x.spatial[1] + (left - g.pad_begin[2]) * g.x.spatial[2];
    std::fill_n(to, left * words_, 0.0f);
    const bool is_dense = g.x.channel == 1 && g.x.spatial[2] == g.channels && (!is_bf16_ || g.channels % 2 == 0);
    if (!has_prologue_ && is_dense)
        prologue_->run(to + left * words_, from, (last - left) * g.channels, 1, prologue, channel);
    else if (!has_prologue_ && g.x.spatial[2] == 1)
        prologue_->interleave(to + left * words_, from, last - left, g.channels, g.x.channel);
    else
        for (std::int64_t p = left; p < last; ++p)
            prologue_->run(to + p * words_, from + (p - left) * g.x.spatial[2], g.channels, g.x.channel, prologue, channel);
    std::fill_n(to + last * words_, (patch_pixels_ - last) * words_, 0.0f);
}

}  // namespace dovetail
