// Direct convolution by GEMM tiles in registers.
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "int_math.h"
#include "kernels/bf16_products.h"
#include "kernels/conv_geometry.h"
#include "kernels/conv_prologue.h"
#include "kernels/weight_packing.h"

namespace dovetail {

// Ways in which tiles read the input.
enum class InputMode {
    in_place,  // channels-last: each tap of each pixel is read in place; padding is read from a run of zeros
    pixels,    // pointwise: the pixels of each tile are copied, through the prologue if there is one
    rows,      // rows with their padding are copied into a channels-last patch buffer, in which the taps along a row are one run
};

// Image, depth and row of an output line.
struct OutputLine {
    std::int64_t image, depth, row;
};

inline OutputLine line_of(const ConvGeometry& g, std::int64_t line) {
    return {line / (g.out[0] * g.out[1]), line / g.out[1] % g.out[0], line % g.out[1]};
}

class Conv : public Kernel {
public:
    Conv(const Spec& spec, WeightCache& cache);
    void run(const Run& run) const override;
    std::size_t scratch_bytes() const override;
    std::size_t shared_scratch_bytes() const override;
    bool flushes_subnormals() const override { return true; }
    std::string name() const override;

private:
    // The work of one task: a group, a range of its panels, and a range of units (tiles, or blocks of lines where rows are
    // copied).
    struct Task {
        std::int64_t group;
        std::size_t first_panel, last_panel;
        std::int64_t first_unit, last_unit;
        WeightPrefetch prefetch;
    };
    struct Workspace {
        std::int64_t* rows;  // offsets of one tile
        float* patch;        // copied pixels
        float* y;            // a tile, for an output that is not channels-last
        float* residual;
        std::int64_t tiles;  // number of tiles that the task has completed
    };

    void merge_depthwise_groups();
    void choose_input_mode();
    void choose_sizes();
    void choose_tiling();
    bool has_contiguous_rows() const;
    void pack_weights(const Spec& spec, WeightCache& cache);
    void pack_weights_of_run(const Run& run) const;
    // The packed weights of a group.
    const float* weights_of(const Run& run, std::int64_t group) const {
        return is_packed_in_runs_ ? reinterpret_cast<const float*>(run.shared_scratch) + group * group_floats_
                                  : weights_[static_cast<std::size_t>(group)].get();
    }
    // The bias of each output channel, readable up to the end of the last vector; null: none.
    const float* bias_of(const Run& run) const {
        if (has_bias_ && is_packed_in_runs_)
            return reinterpret_cast<const float*>(run.shared_scratch) + geometry_.groups * group_floats_;
        return bias_.empty() ? nullptr : bias_.data();
    }
    std::vector<std::int64_t> source_offsets(const std::vector<std::int64_t>& strides) const;
    std::vector<std::int64_t> input_offsets(std::int64_t count) const;

    std::int64_t tile_begin(std::int64_t tile) const { return tile * small_count_ + std::min(tile, large_tiles_); }
    std::int64_t line_pixels() const { return spans_rows_ ? geometry_.out[1] * geometry_.out[2] : geometry_.out[2]; }
    const std::int64_t* offsets_for(std::int64_t count) const {
        return (count == small_count_ ? small_offsets_ : large_offsets_).data();
    }
    bool copies_rows() const { return input_mode_ == InputMode::rows; }
    std::int64_t units() const;
    WeightPrefetch prefetch_of(const Run& run, const Task& task, std::int64_t chunk, std::int64_t chunks) const;
    Workspace workspace_of(const Run& run, int worker) const;
    void run_task(const Run& run, const Task& task, int worker) const;
    void multiply_lines(const Run& run, const Task& task, Workspace& workspace) const;
    void multiply_in_place(const Run& run, const Task& task, Workspace& workspace, const OutputLine& at, std::int64_t first,
                           std::int64_t count) const;
    void multiply_across_rows(const Run& run, const Task& task, Workspace& workspace, const OutputLine& at, std::int64_t first,
                              std::int64_t count) const;
    void multiply_pixels(const Run& run, const Task& task, Workspace& workspace, const OutputLine& at, std::int64_t first,
                         std::int64_t count) const;
    void multiply_block(const Run& run, const Task& task, Workspace& workspace, std::int64_t block) const;
    void fill_patch(const float* x, const Task& task, float* patch, std::int64_t depth, std::int64_t first) const;
    void fill_row(const float* x, const Task& task, float* to, std::int64_t depth, std::int64_t row) const;
    // The position of a tile, with its input offsets and segments. multiply() multiplies the tile by the panels of the task.
    struct TilePosition {
        OutputLine line;
        std::int64_t first, count;  // index of the first output pixel, number of output pixels
        const float* base;
        const std::int64_t* rows;
        std::int64_t first_segment, segments;
        std::int64_t next_input;  // distance to the input of the next tile, in floats; 0: none
    };
    void multiply(const Run& run, const Task& task, Workspace& workspace, const TilePosition& position) const;

    Operand x_, w_, bias_operand_, y_;
    Epilogue epilogue_;
    ConvGeometry geometry_;
    const GemmKernels* kernels_;
    const PrologueKernels* prologue_;
    InputMode input_mode_ = InputMode::in_place;
    bool has_prologue_ = false, prologue_relu_ = false;
    bool is_depthwise_ = false;      // depthwise: each channel has one output
    bool is_bf16_ = false;           // operands are rounded to bf16, of which a float of the patch and the weights holds two
    std::int64_t words_ = 0;         // floats of a pixel of the patch
    bool in_triples_ = false;        // depthwise with three taps of a row multiplied together
    bool prefetches_input_ = false;  // tiles prefetch the input that the next tile reads first
    bool spans_rows_ = false;        // all rows of a plane are one line, so that a tile may continue in the next row
    Tiling tiling_{};
    std::int64_t small_count_ = 0;  // pixels of a small tile; a large tile has one pixel more
    std::int64_t large_tiles_ = 0;  // number of large tiles, which come first in a line
    GemmTile shared_fields_{};      // the fields that all tiles share
    std::vector<Panel> panels_;
    std::int64_t chunk_panels_ = 1;  // panels of one task
    std::int64_t segments_ = 0, length_ = 0, width_ = 0;
    std::int64_t block_lines_ = 0;                    // output lines whose input rows are copied together
    std::int64_t patch_rows_ = 0, patch_pixels_ = 0;  // size of the patch buffer at each depth: its rows, and the pixels of a row
    std::int64_t tile_floats_ = 0;
    std::int64_t pitch_ = 0;          // floats of a copied pixel
    bool is_packed_in_runs_ = false;  // weights or bias are no constants
    bool has_bias_ = false;
    MatricesOfRun of_run_{};                             // the weights of all groups, with is_packed_in_runs_
    std::int64_t group_floats_ = 0;                      // packed floats of a group
    std::vector<std::shared_ptr<const float>> weights_;  // packed constant weights of each group
    std::vector<float> bias_, zeros_, scale_, shift_;
    std::vector<std::int64_t> large_offsets_, small_offsets_;  // input offsets of tiles of either size, from their first row
};

}  // namespace dovetail
