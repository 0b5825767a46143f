// How tiles of a convolution come by what they read: in place, or from copies made for a tile or for some rows.
#include <algorithm>

#include "kernels/conv.h"

namespace dovetail {
namespace {

std::int64_t whole(std::int64_t value, std::int64_t unit) { return (value + unit - 1) / unit; }

// The taps first .. last-1 of an axis that fall inside it, for the output position `at`.
struct Taps {
    std::int64_t first, last, start;  // start: where tap 0 falls
};

Taps taps_of(const Geometry& g, std::size_t axis, std::int64_t at) {
    const std::int64_t start = at * g.stride[axis] - g.before[axis], step = g.dilation[axis];
    if (start >= 0 && start + (g.kernel[axis] - 1) * step < g.in[axis]) return {0, g.kernel[axis], start};
    const std::int64_t first = start < 0 ? whole(-start, step) : 0;
    const std::int64_t last = start < g.in[axis] ? std::min(whole(g.in[axis] - start, step), g.kernel[axis]) : 0;
    return {first, std::max(first, last), start};
}

}  // namespace

void Conv::tile_in_place(const Run& run, const Task& task, Room& room, const Line& at, std::int64_t first, std::int64_t count) const {
    const Geometry& g = geometry_;
    const Taps deep = taps_of(g, 0, at.depth), down = taps_of(g, 1, at.row);
    const std::int64_t left = first * g.stride[2] - g.before[2];
    const std::int64_t right = left + (count - 1) * g.stride[2] + (g.kernel[2] - 1) * g.dilation[2];
    const float* x = reinterpret_cast<const float*>(run.at(x_)) + at.image * g.x.image + task.group * g.channels;
    const float* base = x + deep.start * g.x.at[0] + down.start * g.x.at[1] + left * g.x.at[2];
    Place place{at,
                first,
                count,
                base,
                table_for(count),
                0,
                segments_,
                asks_ ? count * g.stride[2] * g.x.at[2] : 0};
    const bool inside = left >= 0 && right < g.in[2];
    if (inside && g.kernel[0] == 1 && deep.first == 0 && deep.last == 1) {
        place.first_segment = down.first * g.kernel[2];
        place.segments = (down.last - down.first) * g.kernel[2];
        place.rows += place.first_segment * count;
        return multiply(run, task, room, place);
    }
    if (inside && deep.first == 0 && deep.last == g.kernel[0] && down.first == 0 && down.last == g.kernel[1])
        return multiply(run, task, room, place);

    // At a border: taps outside read zeros, and segments before the first and behind the last that fall inside are left out.
    const std::int64_t zeros = (reinterpret_cast<std::intptr_t>(zeros_.data()) - reinterpret_cast<std::intptr_t>(base)) / 4;
    std::int64_t first_segment = segments_, last_segment = 0, segment = 0;
    const std::int64_t* inner = place.rows;
    std::int64_t* to = room.rows;
    for (std::int64_t d = 0; d < g.kernel[0]; ++d)
        for (std::int64_t h = 0; h < g.kernel[1]; ++h) {
            const bool there = d >= deep.first && d < deep.last && h >= down.first && h < down.last;
            for (std::int64_t w = 0; w < g.kernel[2]; ++w, ++segment) {
                bool any = false;
                for (std::int64_t r = 0, column = left + w * g.dilation[2]; r < count; ++r, column += g.stride[2], ++inner) {
                    const bool real = there && column >= 0 && column < g.in[2];
                    *to++ = real ? *inner : zeros;
                    any |= real;
                }
                if (!any) continue;
                first_segment = std::min(first_segment, segment);
                last_segment = segment + 1;
            }
        }
    if (in_threes_) {
        first_segment -= first_segment % 3;
        last_segment = whole(last_segment, 3) * 3;
    }
    place.first_segment = std::min(first_segment, last_segment);
    place.segments = last_segment - place.first_segment;
    place.rows = room.rows + place.first_segment * count;
    multiply(run, task, room, place);
}

// Pixels of more than one row: where each tap of each of them lies is worked out for the tile.
void Conv::tile_across(const Run& run, const Task& task, Room& room, const Line& at, std::int64_t first, std::int64_t count) const {
    const Geometry& g = geometry_;
    const std::int64_t width = g.out[2], row = first / width;
    if ((first + count - 1) / width == row)
        return tile_in_place(run, task, room, {at.image, at.depth, row}, first - row * width, count);
    const float* base = reinterpret_cast<const float*>(run.at(x_)) + at.image * g.x.image + task.group * g.channels;
    const std::int64_t zeros = (reinterpret_cast<std::intptr_t>(zeros_.data()) - reinterpret_cast<std::intptr_t>(base)) / 4;
    const auto is_inside = [&g](std::size_t axis, std::int64_t place) { return place >= 0 && place < g.in[axis]; };
    std::int64_t first_segment = segments_, last_segment = 0;
    for (std::int64_t segment = 0; segment < segments_; ++segment) {
        const std::int64_t w = segment % g.kernel[2], h = segment / g.kernel[2] % g.kernel[1], d = segment / (g.kernel[2] * g.kernel[1]);
        const std::int64_t deep = at.depth * g.stride[0] - g.before[0] + d * g.dilation[0];
        bool any = false;
        std::int64_t line = row, pixel = first - row * width;
        for (std::int64_t r = 0; r < count; ++r, ++pixel) {
            if (pixel == width) ++line, pixel = 0;
            const std::int64_t down = line * g.stride[1] - g.before[1] + h * g.dilation[1];
            const std::int64_t along = pixel * g.stride[2] - g.before[2] + w * g.dilation[2];
            const bool real = is_inside(0, deep) && is_inside(1, down) && is_inside(2, along);
            room.rows[segment * count + r] = real ? deep * g.x.at[0] + down * g.x.at[1] + along * g.x.at[2] : zeros;
            any |= real;
        }
        if (!any) continue;
        first_segment = std::min(first_segment, segment);
        last_segment = segment + 1;
    }
    first_segment = std::min(first_segment, last_segment);
    multiply(run, task, room,
             {{at.image, at.depth, 0}, first, count, base, room.rows + first_segment * count, first_segment, last_segment - first_segment, 0});
}

void Conv::tile_of_pixels(const Run& run, const Task& task, Room& room, const Line& at, std::int64_t first, std::int64_t count) const {
    const Geometry& g = geometry_;
    const float* x = reinterpret_cast<const float*>(run.at(x_)) + at.image * g.x.image + task.group * g.channels * g.x.channel +
                     at.depth * g.stride[0] * g.x.at[0] + at.row * g.stride[1] * g.x.at[1] + first * g.stride[2] * g.x.at[2];
    const Prologue prologue{has_prologue_ ? scale_.data() : nullptr, shift_.data(), clamp_};
    if (g.x.channel == 1)
        stages_.pixels(room.box, pitch_, x, g.stride[2] * g.x.at[2], count, g.channels, prologue, task.group * g.channels);
    for (std::int64_t r = 0; g.x.channel != 1 && r < count; ++r)
        stages_.run(room.box + r * pitch_, x + r * g.stride[2] * g.x.at[2], g.channels, g.x.channel, prologue,
                    task.group * g.channels);
    multiply(run, task, room,
             {at, first, count, room.box, table_for(count), 0, segments_, 0});
}

void Conv::block(const Run& run, const Task& task, Room& room, std::int64_t block) const {
    const Geometry& g = geometry_;
    const std::int64_t blocks = whole(g.out[1], block_lines_), plane = block / blocks, first = block % blocks * block_lines_;
    const std::int64_t image = plane / g.out[0], depth = plane % g.out[0], last = std::min(first + block_lines_, g.out[1]);
    const float* x = reinterpret_cast<const float*>(run.at(x_)) + image * g.x.image;
    fill_box(x, task, room.box, depth, first);
    const std::int64_t row = box_pixels_ * g.channels;
    for (std::int64_t line = first; line < last; ++line)
        for (std::int64_t tile = 0; tile < cut_.tiles; ++tile) {
            const std::int64_t begin = tile_begin(tile), count = tile_begin(tile + 1) - begin;
            multiply(run, task, room,
                     {{image, depth, line}, begin, count,
                      room.box + (line - first) * g.stride[1] * row + begin * g.stride[2] * g.channels,
                      table_for(count), 0, segments_, 0});
        }
}

void Conv::fill_box(const float* x, const Task& task, float* box, std::int64_t depth, std::int64_t first) const {
    const Geometry& g = geometry_;
    for (std::int64_t d = 0; d < g.kernel[0]; ++d)
        for (std::int64_t r = 0; r < box_rows_; ++r, box += box_pixels_ * g.channels)
            fill_row(x, task, box, depth * g.stride[0] - g.before[0] + d * g.dilation[0], first * g.stride[1] - g.before[1] + r);
}

void Conv::fill_row(const float* x, const Task& task, float* to, std::int64_t depth, std::int64_t row) const {
    const Geometry& g = geometry_;
    const bool outside = depth < 0 || depth >= g.in[0] || row < 0 || row >= g.in[1];
    if (outside) return stages_.clear(to, box_pixels_ * g.channels);
    // Pixels left .. last-1 of the box are there; padding may be negative.
    const std::int64_t left = std::clamp<std::int64_t>(g.before[2], 0, box_pixels_);
    const std::int64_t last = std::clamp<std::int64_t>(g.before[2] + g.in[2], left, box_pixels_);
    const Prologue prologue{has_prologue_ ? scale_.data() : nullptr, shift_.data(), clamp_};
    const std::int64_t channel = task.group * g.channels;
    const float* from = x + channel * g.x.channel + depth * g.x.at[0] + row * g.x.at[1] + (left - g.before[2]) * g.x.at[2];
    stages_.clear(to, left * g.channels);
    if (!has_prologue_ && g.x.channel == 1 && g.x.at[2] == g.channels)
        stages_.run(to + left * g.channels, from, (last - left) * g.channels, 1, prologue, channel);
    else if (!has_prologue_ && g.x.at[2] == 1)
        stages_.interleave(to + left * g.channels, from, last - left, g.channels, g.x.channel);
    else
        for (std::int64_t p = left; p < last; ++p)
            stages_.run(to + p * g.channels, from + (p - left) * g.x.at[2], g.channels, g.x.channel, prologue, channel);
    stages_.clear(to + last * g.channels, (box_pixels_ - last) * g.channels);
}

}  // namespace dovetail
