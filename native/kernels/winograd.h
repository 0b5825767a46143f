// Winograd convolution of 3 x 3 windows of stride 1: a tile of n x n outputs takes (n + 2)^2 products instead of 9 n^2.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kernels/conv_geometry.h"
#include "kernels/weight_packing.h"

namespace dovetail {

constexpr std::int64_t kMaxWinogradOutputs = 4;  // a tile has 2 x 2 or 4 x 4 outputs
constexpr std::int64_t kMaxWinogradInputs = kMaxWinogradOutputs + 2;
constexpr std::int64_t kMaxWinogradPoints = kMaxWinogradInputs * kMaxWinogradInputs;

// F(4x4, 3x3) interpolates at 0, a, -a, b, -b and infinity. With 3/4 and 3/2 all constants of the transforms of inputs and
// outputs are exact, and the rounding error is that of direct summation; with 1 and 2 it is four times as large. F(2x2, 3x3)
// interpolates at 0, 1, -1 and infinity.
constexpr double kWinogradA = 0.75, kWinogradB = 1.5;

// The outputs of one tile for the columns of a panel.
struct WinogradOutput {
    const float* products;  // values of the first column; the points are `point_stride` floats apart
    std::int64_t point_stride;
    float* y;  // the first output pixel of the tile
    std::int64_t y_row, y_pixel;
    std::int64_t residual_row, residual_pixel;
    std::int64_t rows, pixels;  // valid outputs of the tile
    // A GemmTile that holds the epilogue, the columns and the first residual of the tile.
    GemmTile epilogue;
    // Replaces infinite and NaN sums of all pixels of one vector, from `column` on, by direct summation. An infinite input makes
    // values at interpolation points NaN, and these values also enter outputs whose windows do not contain that input.
    void (*mend)(const void* context, float* sums, std::int64_t column, std::int64_t count);
    const void* context;
};

struct WinogradKernels {
    // The transform of the pixels of a tile, each of `channels` floats; the points are `point_stride` floats apart. Writes whole
    // vectors.
    void (*input)(float* to, std::int64_t point_stride, const float* const* pixels, std::int64_t channels);
    void (*output)(const WinogradOutput& tile);
};

// The transforms for tiles of 2 x 2 or 4 x 4 outputs.
const WinogradKernels& winograd_kernels(std::int64_t outputs);

class WinogradConv : public Kernel {
public:
    // Returns null if direct convolution is faster, or if the algorithm does not apply to the operands.
    static std::unique_ptr<Kernel> create(const Spec& spec, WeightCache& cache);

    void run(const Run& run) const override;
    bool flushes_subnormals() const override { return true; }
    std::size_t scratch_bytes() const override;
    std::string name() const override;
    std::int64_t multiply_adds() const override;

private:
    // The work of one task: a range of tiles and a range of panels.
    struct Task {
        std::int64_t first_tile, last_tile;
        std::size_t first_panel, last_panel;
    };
    struct TilePosition {
        std::int64_t image, row, pixel;  // address of the first output
    };
    struct Mending;

    WinogradConv(const Spec& spec, const Epilogue& epilogue, const ConvGeometry& geometry, std::int64_t outputs);
    bool pack_weights(const Spec& spec, WeightCache& cache);
    std::shared_ptr<const float> transform_weights() const;
    TilePosition position_of(std::int64_t tile) const;
    void find_pixels(const float* x, const TilePosition& position, const float** pixels) const;
    void run_task(const Run& run, const Task& task, int worker) const;
    void multiply(const Task& task, const Panel& panel, const float* points, std::int64_t point_stride, float* products) const;
    void write_outputs(const Run& run, const Task& task, const Panel& panel, const float* products) const;
    static void mend(const void* context, float* sums, std::int64_t column, std::int64_t count);

    Operand x_, y_, w_;
    Epilogue epilogue_;
    ConvGeometry geometry_;
    const GemmKernels& kernels_;
    const WinogradKernels& transforms_;
    std::int64_t outputs_, inputs_;  // outputs and inputs of a tile along an axis
    std::int64_t points_;
    std::int64_t tile_rows_, tile_columns_, tiles_;  // tile rows of a plane, tiles of a tile row, tiles of all images
    std::int64_t pitch_;                             // tile stride at one point, in floats
    std::int64_t block_tiles_;                       // maximum number of tiles of one task
    Tiling tiling_{};
    std::vector<Panel> panels_;
    std::shared_ptr<const float> weights_;  // by panel, point, input channel, output channel of the panel
    std::vector<std::int64_t> weight_strides_;
    std::vector<float> bias_, factor_, zeros_;
    std::vector<std::int64_t> rows_;  // offsets of the rows of a product
};

}  // namespace dovetail
