// Convolution by tiles in registers.
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "kernels/conv_geometry.h"
#include "kernels/weight_packing.h"
#include "kernels/conv_prologue.h"

namespace dovetail {

// How a convolution comes by what its tiles read.
enum class Reading {
    in_place,  // channels lie side by side: each tap of each pixel is read where it is, padding from a run of zeros
    pixels,    // a pointwise convolution whose pixels are copied (and changed) tile by tile
    rows,      // rows with their padding are copied into a box, channels side by side; the taps along a row are then one run
};

// An output line's image, depth and row.
struct Line {
    std::int64_t image, depth, row;
};

inline Line line_of(const Geometry& g, std::int64_t line) {
    return {line / (g.out[0] * g.out[1]), line / g.out[1] % g.out[0], line % g.out[1]};
}

class Conv : public Step {
public:
    Conv(const Spec& spec, Store& store);
    void run(const Run& run) const override;
    std::size_t scratch_bytes() const override;
    std::string name() const override;

private:
    // One task's share of the work: a group, some of its panels, some units (tiles, or blocks of lines where rows are copied).
    struct Task {
        std::int64_t group;
        std::size_t first_panel, last_panel;
        std::int64_t first_unit, last_unit;
        Ahead ahead;
    };
    struct Room {
        std::int64_t* rows;  // offsets of one tile
        float* box;          // copied pixels
        float* y;            // a tile, where y's channels do not lie side by side
        float* residual;
        std::int64_t tiles;  // that were made for the task
    };

    void take_channels();
    void choose_reading();
    void choose_sizes();
    void choose_cut();
    bool is_even() const;
    void pack_weights(const Spec& spec, Store& store);
    std::vector<std::int64_t> order_of(const std::vector<std::int64_t>& strides) const;
    std::vector<std::int64_t> table_of(std::int64_t count) const;

    std::int64_t tile_begin(std::int64_t tile) const { return tile * small_count_ + std::min(tile, large_tiles_); }
    std::int64_t line_pixels() const { return across_ ? geometry_.out[1] * geometry_.out[2] : geometry_.out[2]; }
    const std::int64_t* table_for(std::int64_t count) const { return (count == small_count_ ? small_ : large_).data(); }
    bool is_boxed() const { return reading_ == Reading::rows; }
    std::int64_t units() const;
    Ahead ahead_of(const Task& task, std::int64_t chunk, std::int64_t chunks) const;
    Room room_of(const Run& run, int worker) const;
    void work(const Run& run, const Task& task, int worker) const;
    void lines(const Run& run, const Task& task, Room& room) const;
    void tile_in_place(const Run& run, const Task& task, Room& room, const Line& at, std::int64_t first, std::int64_t count) const;
    void tile_across(const Run& run, const Task& task, Room& room, const Line& at, std::int64_t first, std::int64_t count) const;
    void tile_of_pixels(const Run& run, const Task& task, Room& room, const Line& at, std::int64_t first, std::int64_t count) const;
    void block(const Run& run, const Task& task, Room& room, std::int64_t block) const;
    void fill_box(const float* x, const Task& task, float* box, std::int64_t depth, std::int64_t first) const;
    void fill_row(const float* x, const Task& task, float* to, std::int64_t depth, std::int64_t row) const;
    // Goes through the task's panels; `place` says where the tile's rows lie and which segments are read.
    struct Place {
        Line line;
        std::int64_t first, count;  // the output pixels
        const float* base;
        const std::int64_t* rows;
        std::int64_t first_segment, segments;
        std::int64_t ahead;  // floats to what the next tile reads
    };
    void multiply(const Run& run, const Task& task, Room& room, const Place& place) const;

    Operand x_, y_;
    Finish finish_;
    Geometry geometry_;
    const ProductTable& table_;
    const StageTable& stages_;
    Reading reading_ = Reading::in_place;
    bool has_prologue_ = false, clamp_ = false;
    bool by_channel_ = false;  // each channel is an output by itself
    bool in_threes_ = false;   // and three taps of a row go together
    bool asks_ = false;        // tiles ask for what the next one is the first to read
    bool across_ = false;      // all rows of a plane are cut as one line, so that a tile may go on in the next row
    Cut cut_{};
    std::int64_t small_count_ = 0, large_tiles_ = 0;  // pixels of a tile; tiles, the first of a line, that have one more
    ProductTile common_{};                            // what all tiles have in common
    std::vector<Panel> panels_;
    std::int64_t chunk_panels_ = 1;  // that one task goes through
    std::int64_t segments_ = 0, length_ = 0, width_ = 0;
    std::int64_t block_lines_ = 0;                // output lines for which rows are copied together
    std::int64_t box_rows_ = 0, box_pixels_ = 0;  // what the box holds of each depth: rows, and pixels of a row
    std::int64_t tile_floats_ = 0;
    std::int64_t pitch_ = 0;                             // floats of a copied pixel
    std::vector<std::shared_ptr<const float>> weights_;  // by group
    std::vector<float> bias_, zeros_, scale_, shift_;
    std::vector<std::int64_t> large_, small_;  // what tiles of either size read, from their first row
};

}  // namespace dovetail
