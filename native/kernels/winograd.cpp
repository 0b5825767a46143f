#include "kernels/winograd.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <stdexcept>

#include "int_math.h"
#include "kernels/kernels.h"

namespace dovetail {

namespace {

constexpr std::int64_t kLine = 16;               // floats of a cache line
constexpr std::int64_t kBlockBytes = 640 << 10;  // bytes of transformed inputs that stay in L2
constexpr std::int64_t kMinTiles = 8;            // tiles of a task; with fewer tiles the weights are read too often
constexpr std::int64_t kTasksPerThread = 3;

// Cycles of a transform per point and vector, and bytes of weights that are read from memory per cycle. Neither the transforms
// nor these reads overlap much with the products.
constexpr double kTransformCycles = 4, kWeightBytes = 2.1;
// Maximum cost relative to direct convolution in f32 and in bf16, whose operands are rounded first.
constexpr double kWorthwhile = 0.9, kWorthwhileBf16 = 1.5;

std::int64_t round_to_line(std::int64_t floats) { return ceil_div(floats, kLine) * kLine; }

// Returns the stride between points, in floats: an odd number of cache lines, so that the points are in different sets of L1.
std::int64_t point_stride_of(std::int64_t tiles, std::int64_t pitch) {
    const std::int64_t lines = ceil_div(tiles * pitch, kLine);
    return (lines + 1 - lines % 2) * kLine;
}

// The transform of three weights into the points of one axis.
void transform(const double* g, std::int64_t step, std::int64_t points, double* to, std::int64_t to_step) {
    const auto put_pair = [&](std::int64_t at, double point, double divisor) {
        const double even = g[0] + point * point * g[2 * step], odd = point * g[step];
        to[at * to_step] = (even + odd) / divisor;
        to[(at + 1) * to_step] = (even - odd) / divisor;
    };
    constexpr double a2 = kWinogradA * kWinogradA, b2 = kWinogradB * kWinogradB;
    to[0] = points == 4 ? g[0] : g[0] / (a2 * b2);
    if (points == 4) {
        put_pair(1, 1, 2);
    } else {
        put_pair(1, kWinogradA, 2 * a2 * (a2 - b2));
        put_pair(3, kWinogradB, 2 * b2 * (b2 - a2));
    }
    to[(points - 1) * to_step] = g[2 * step];
}

// Cycles of a convolution by `positions` rows of `taps` products per channel and output. Weights come from memory.
double cycles_of(const ConvGeometry& g, double channels, std::int64_t lanes, double positions, double taps, double transforms) {
    const auto outputs = static_cast<double>(ceil_div(g.outputs, lanes));
    const double computing = positions * taps * channels * outputs / 2 + transforms;
    const double reading = taps * channels * outputs * static_cast<double>(lanes) * 4 / kWeightBytes;
    return computing + reading;
}

std::int64_t tiles_of(const ConvGeometry& g, std::int64_t outputs) {
    return g.images * ceil_div(g.out[1], outputs) * ceil_div(g.out[2], outputs);
}

// The number of outputs of a tile along an axis with the least cost; 0 means direct convolution, which in bf16 multiplies two
// channels at a time.
std::int64_t choose_outputs(const ConvGeometry& g, std::int64_t lanes, bool is_bf16) {
    std::int64_t best = 0;
    const auto channels = static_cast<double>(g.channels), pixels = static_cast<double>(g.images * g.out[1] * g.out[2]);
    double lowest = is_bf16 ? kWorthwhileBf16 * cycles_of(g, channels / 2, lanes, pixels, 9, 0)
                            : kWorthwhile * cycles_of(g, channels, lanes, pixels, 9, 0);
    for (const std::int64_t outputs : {2, 4}) {
        const auto tiles = static_cast<double>(tiles_of(g, outputs)), points = static_cast<double>((outputs + 2) * (outputs + 2));
        const auto vectors = static_cast<double>(ceil_div(g.channels, lanes) + ceil_div(g.outputs, lanes));
        const double cycles = cycles_of(g, channels, lanes, tiles, points, tiles * points * kTransformCycles * vectors);
        if (cycles >= lowest) continue;
        lowest = cycles;
        best = outputs;
    }
    return best;
}

bool is_square_of_three(const ConvGeometry& g) {
    return g.kernel == Spatial{1, 3, 3} && g.stride == Spatial{1, 1, 1} && g.dilation == Spatial{1, 1, 1} && g.groups == 1 &&
           g.in[0] == 1 && g.out[0] == 1 && g.pad_begin[0] == 0;
}

}  // namespace

std::unique_ptr<Kernel> WinogradConv::create(const Spec& spec, WeightCache& cache) {
    const Operand& w = spec.inputs.at(1);
    const Epilogue epilogue(spec);
    const ConvGeometry geometry(spec, epilogue);
    const auto is_channels_last = [](const TensorStrides& layout, std::int64_t channels) {
        return layout.channel == 1 || channels == 1;
    };
    if (!w.is_constant() || w.sizes[0] != geometry.outputs || w.sizes[1] != geometry.channels ||
        spec.outputs.at(0).count() == 0 || !is_square_of_three(geometry) || spec.has("prologue_scale") ||
        !is_channels_last(geometry.x, geometry.channels) || !is_channels_last(geometry.y, geometry.outputs) ||
        (epilogue.has_residual && !is_channels_last(geometry.residual, geometry.outputs)))
        return nullptr;
    ConvGeometry chosen = geometry;
    if (is_reproducible()) chosen.images = 1;  // the choice does not depend on the batch
    const std::int64_t outputs = choose_outputs(chosen, gemm_kernels().lanes, spec.text("precision") == "bf16");
    if (outputs == 0) return nullptr;
    std::unique_ptr<WinogradConv> kernel(new WinogradConv(spec, epilogue, geometry, outputs));
    if (!kernel->pack_weights(spec, cache)) return nullptr;
    return kernel;
}

WinogradConv::WinogradConv(const Spec& spec, const Epilogue& epilogue, const ConvGeometry& geometry, std::int64_t outputs)
    : x_(spec.inputs.at(0)), y_(spec.outputs.at(0)), w_(spec.inputs.at(1)), epilogue_(epilogue), geometry_(geometry),
      kernels_(gemm_kernels()), transforms_(winograd_kernels(outputs)), outputs_(outputs), inputs_(outputs + 2),
      points_(inputs_ * inputs_), tile_rows_(ceil_div(geometry.out[1], outputs)),
      tile_columns_(ceil_div(geometry.out[2], outputs)), tiles_(tiles_of(geometry, outputs)),
      pitch_(round_to_line(geometry.channels) + kLine), weight_strides_(float_strides(spec, w_)) {
    const std::int64_t rows = kernels_.rows[1];
    block_tiles_ = std::clamp<std::int64_t>(kBlockBytes / (points_ * pitch_ * 4) / rows, ceil_div(kMinTiles, rows), 4) * rows;
    const std::int64_t blocks = ceil_div(tiles_, block_tiles_);
    tiling_ = tiling_of(ceil_div(tiles_, blocks), geometry_.outputs, pitch_, geometry_.channels, kernels_);
    panels_ = panels_of(geometry_.outputs, tiling_.vectors, kernels_.lanes);
    zeros_.assign(static_cast<std::size_t>(round_to_line(geometry_.channels)), 0.0f);
    for (std::int64_t r = 0; r < kMaxRows; ++r) rows_.push_back(r * pitch_);
}

// Packs the transformed weights. Returns false if a weight is infinite or NaN.
bool WinogradConv::pack_weights(const Spec& spec, WeightCache& cache) {
    if (spec.integer("has_bias") != 0) {
        bias_ = floats_of(spec.inputs.at(2));
        if (bias_.size() != static_cast<std::size_t>(geometry_.outputs))
            throw std::invalid_argument("conv: the bias must have one value for each output channel");
        bias_.resize(bias_.size() + kMaxVectors * kLine);
    }
    if (spec.integer("has_factor") != 0) {
        factor_ = floats_of(spec.inputs.at(3));
        if (factor_.size() != static_cast<std::size_t>(geometry_.outputs))
            throw std::invalid_argument("conv: the factor must have one value for each output channel");
    }
    // An FNV hash of all parameters of this packing of the constant.
    std::uint64_t hash = 0xcbf29ce484222325u;
    const auto mix = [&hash](std::uint64_t value) { hash = (hash ^ value) * 0x100000001b3u; };
    for (const auto stride : weight_strides_) mix(static_cast<std::uint64_t>(stride));
    for (const float factor : factor_) {
        std::uint32_t bits;
        std::memcpy(&bits, &factor, sizeof bits);
        mix(bits);
    }
    std::string key = cache.key_of(w_.constant) + " winograd " + std::to_string(outputs_) + " " + std::to_string(hash);
    for (const Panel& panel : panels_) key += " " + std::to_string(panel.columns);
    const std::int64_t width = panels_.back().first + panels_.back().vectors * kernels_.lanes;
    const auto count = static_cast<std::size_t>(width * points_ * geometry_.channels);
    weights_ = cache.get_or_create_floats(key, count, [&] { return transform_weights(); });
    return weights_ != nullptr;
}

std::shared_ptr<const float> WinogradConv::transform_weights() const {
    const auto* w = reinterpret_cast<const float*>(w_.constant);
    const auto& strides = weight_strides_;
    const std::int64_t channels = geometry_.channels,
                       rank_before = static_cast<std::int64_t>(strides.size()) - 2;  // the last two axes are the window
    const std::int64_t down = strides[static_cast<std::size_t>(rank_before)],
                       along = strides[static_cast<std::size_t>(rank_before) + 1];
    const std::int64_t width = panels_.back().first + panels_.back().vectors * kernels_.lanes;
    auto packed = aligned_floats(static_cast<std::size_t>(width * points_ * channels));
    float* to = packed.get();
    bool is_finite = true;
    for (const Panel& panel : panels_) {
        const std::int64_t columns = panel.vectors * kernels_.lanes;
        for (std::int64_t c = 0; c < channels; ++c)
            for (std::int64_t j = 0; j < columns; ++j) {
                double values[kMaxWinogradPoints] = {};
                if (j < panel.columns) {
                    const std::int64_t k = panel.first + j;
                    const float* from = w + k * strides[0] + c * strides[1];
                    double g[9], half[3 * kMaxWinogradInputs];
                    for (std::int64_t tap = 0; tap < 9; ++tap) {
                        const float value = from[tap / 3 * down + tap % 3 * along];
                        g[tap] = factor_.empty() ? value : value * factor_[static_cast<std::size_t>(k)];
                        is_finite &= std::isfinite(g[tap]);
                    }
                    for (std::int64_t i = 0; i < 3; ++i) transform(g + i, 3, inputs_, half + i, 3);
                    for (std::int64_t i = 0; i < inputs_; ++i) transform(half + 3 * i, 1, inputs_, values + inputs_ * i, 1);
                }
                for (std::int64_t i = 0; i < points_; ++i) to[(i * channels + c) * columns + j] = static_cast<float>(values[i]);
            }
        to += columns * points_ * channels;
    }
    return is_finite ? packed : nullptr;
}

std::size_t WinogradConv::scratch_bytes() const {
    const std::int64_t width = static_cast<std::int64_t>(tiling_.vectors) * kernels_.lanes;
    return static_cast<std::size_t>(points_ * (point_stride_of(block_tiles_, pitch_) + point_stride_of(block_tiles_, width))) *
           sizeof(float);
}

std::string WinogradConv::name() const { return std::string("conv winograd ") + name_of(isa()); }

// The multiply-adds of the products only; the transforms mostly add.
std::int64_t WinogradConv::multiply_adds() const { return tiles_ * points_ * geometry_.channels * geometry_.outputs; }

void WinogradConv::run(const Run& run) const {
    const auto panels = static_cast<std::int64_t>(panels_.size()), threads = static_cast<std::int64_t>(run.pool->threads());
    std::int64_t blocks = ceil_div(tiles_, block_tiles_), chunks = 1;
    if (threads > 1 && blocks < kTasksPerThread * threads) {
        // Each block reads all weights, and each chunk of panels transforms the inputs again.
        const bool splits_tiles = geometry_.channels * geometry_.outputs * points_ * 4 <= kL2Bytes;
        if (splits_tiles) blocks = std::max(blocks, std::min(kTasksPerThread * threads, tiles_ / kMinTiles));
        if (blocks % threads != 0) chunks = std::min(panels, threads);
    }
    const auto task = [&](std::int64_t index, int worker) {
        const std::int64_t block = index % blocks, chunk = index / blocks;
        run_task(run,
                 {block * tiles_ / blocks, (block + 1) * tiles_ / blocks, static_cast<std::size_t>(chunk * panels / chunks),
                  static_cast<std::size_t>((chunk + 1) * panels / chunks)},
                 worker);
    };
    if (tiles_ * points_ * geometry_.channels * geometry_.outputs < kSmallConvolution)
        for (std::int64_t i = 0; i < blocks * chunks; ++i) task(i, 0);
    else
        run.pool->parallel_for(blocks * chunks, task);
}

void WinogradConv::run_task(const Run& run, const Task& task, int worker) const {
    auto* points = reinterpret_cast<float*>(run.scratch_of(worker));
    const std::int64_t tiles = task.last_tile - task.first_tile, point_stride = point_stride_of(tiles, pitch_);
    float* products = points + points_ * point_stride_of(block_tiles_, pitch_);
    const auto* x = reinterpret_cast<const float*>(run.at(x_));
    const float* pixels[kMaxWinogradPoints];
    for (std::int64_t tile = 0; tile < tiles; ++tile) {
        find_pixels(x, position_of(task.first_tile + tile), pixels);
        transforms_.input(points + tile * pitch_, point_stride, pixels, geometry_.channels);
    }
    for (std::size_t p = task.first_panel; p < task.last_panel; ++p) {
        multiply(task, panels_[p], points, point_stride, products);
        write_outputs(run, task, panels_[p], products);
    }
}

WinogradConv::TilePosition WinogradConv::position_of(std::int64_t tile) const {
    const std::int64_t in_plane = tile % (tile_rows_ * tile_columns_);
    return {tile / (tile_rows_ * tile_columns_), in_plane / tile_columns_ * outputs_, in_plane % tile_columns_ * outputs_};
}

// The addresses of the input pixels of a tile; addresses of pixels outside the input point to zeros.
void WinogradConv::find_pixels(const float* x, const TilePosition& position, const float** pixels) const {
    const ConvGeometry& g = geometry_;
    const float* image = x + position.image * g.x.image;
    const std::int64_t first_row = position.row - g.pad_begin[1], first_pixel = position.pixel - g.pad_begin[2];
    if (first_row >= 0 && first_row + inputs_ <= g.in[1] && first_pixel >= 0 && first_pixel + inputs_ <= g.in[2]) {
        const float* first = image + first_row * g.x.spatial[1] + first_pixel * g.x.spatial[2];
        for (std::int64_t i = 0; i < inputs_; ++i)
            for (std::int64_t j = 0; j < inputs_; ++j) *pixels++ = first + i * g.x.spatial[1] + j * g.x.spatial[2];
        return;
    }
    for (std::int64_t i = 0; i < inputs_; ++i) {
        const std::int64_t row = first_row + i;
        const bool is_row_inside = row >= 0 && row < g.in[1];
        for (std::int64_t j = 0; j < inputs_; ++j) {
            const std::int64_t pixel = first_pixel + j;
            const bool is_inside = is_row_inside && pixel >= 0 && pixel < g.in[2];
            *pixels++ = is_inside ? image + row * g.x.spatial[1] + pixel * g.x.spatial[2] : zeros_.data();
        }
    }
}

// Multiplies the tiles by a panel of weights at each point.
void WinogradConv::multiply(const Task& task, const Panel& panel, const float* points, std::int64_t point_stride,
                            float* products) const {
    const std::int64_t width = static_cast<std::int64_t>(panel.vectors) * kernels_.lanes, channels = geometry_.channels;
    const std::int64_t tiles = task.last_tile - task.first_tile, product_stride = point_stride_of(tiles, width);
    const std::int64_t parts = ceil_div(tiles, static_cast<std::int64_t>(kernels_.rows[panel.vectors - 1]));
    const float* weights = weights_.get() + panel.first * points_ * channels;
    const bool reads_far = channels * geometry_.outputs * points_ * 4 > kL2Bytes;
    GemmTile tile{};
    tile.rows = rows_.data();
    tile.segments = 1;
    tile.length = channels;
    tile.weights_stride = tile.y_stride = tile.columns = width;
    for (std::int64_t point = 0; point < points_; ++point, weights += channels * width)
        for (std::int64_t part = 0; part < parts; ++part) {
            const std::int64_t first = part * tiles / parts, count = (part + 1) * tiles / parts - first;
            tile.base = points + point * point_stride + first * pitch_;
            tile.weights = weights;
            // Prefetches the weights of the next point, divided among the tiles.
            tile.next_weights = weights + channels * width * (parts + part) / parts;
            tile.next_weights_step = reads_far ? std::min(kLine, width / parts) : 0;
            tile.y = products + point * product_stride + first * width;
            kernels_.tile[panel.vectors - 1][count - 1](tile);
        }
}

// The arguments of direct summation for a tile.
struct WinogradConv::Mending {
    const WinogradConv* conv;
    const float* x;
    TilePosition position;
    std::int64_t first_column;
};

void WinogradConv::write_outputs(const Run& run, const Task& task, const Panel& panel, const float* products) const {
    const ConvGeometry& g = geometry_;
    const std::int64_t width = static_cast<std::int64_t>(panel.vectors) * kernels_.lanes,
                       tiles = task.last_tile - task.first_tile;
    auto* y = reinterpret_cast<float*>(run.at(y_)) + panel.first;
    const float* residual =
        epilogue_.has_residual ? reinterpret_cast<const float*>(run.at(epilogue_.residual)) + panel.first : nullptr;
    Mending mending{this, reinterpret_cast<const float*>(run.at(x_)), {}, panel.first};
    WinogradOutput output{};
    output.point_stride = point_stride_of(tiles, width);
    output.y_row = g.y.spatial[1];
    output.y_pixel = g.y.spatial[2];
    output.residual_row = g.residual.spatial[1];
    output.residual_pixel = g.residual.spatial[2];
    output.mend = mend;
    output.context = &mending;
    epilogue_.apply_to(output.epilogue);
    output.epilogue.scale = 1;
    output.epilogue.columns = panel.columns;
    output.epilogue.bias = bias_.empty() ? nullptr : bias_.data() + panel.first;
    for (std::int64_t tile = 0; tile < tiles; ++tile) {
        const TilePosition at = position_of(task.first_tile + tile);
        mending.position = at;
        output.products = products + tile * width;
        output.rows = std::min(outputs_, g.out[1] - at.row);
        output.pixels = std::min(outputs_, g.out[2] - at.pixel);
        output.y = y + at.image * g.y.image + at.row * output.y_row + at.pixel * output.y_pixel;
        if (residual != nullptr)
            output.epilogue.residual =
                residual + at.image * g.residual.image + at.row * output.residual_row + at.pixel * output.residual_pixel;
        transforms_.output(output);
    }
}

void WinogradConv::mend(const void* context, float* sums, std::int64_t column, std::int64_t count) {
    const auto& mending = *static_cast<const Mending*>(context);
    const WinogradConv& conv = *mending.conv;
    const auto& strides = conv.weight_strides_;
    const std::size_t rank = strides.size();
    const auto* w = reinterpret_cast<const float*>(conv.w_.constant);
    const float* pixels[kMaxWinogradPoints];
    conv.find_pixels(mending.x, mending.position, pixels);
    for (std::int64_t pixel = 0; pixel < conv.outputs_ * conv.outputs_; ++pixel)
        for (std::int64_t j = 0; j < count; ++j) {
            float& sum = sums[pixel * conv.kernels_.lanes + j];
            if (std::isfinite(sum)) continue;
            const std::int64_t k = mending.first_column + column + j;
            sum = 0;
            for (std::int64_t tap = 0; tap < 9; ++tap) {
                const std::int64_t row = pixel / conv.outputs_ + tap / 3, along = pixel % conv.outputs_ + tap % 3;
                const float* x = pixels[row * conv.inputs_ + along];
                const float* of_tap = w + k * strides[0] + tap / 3 * strides[rank - 2] + tap % 3 * strides[rank - 1];
                const float factor = conv.factor_.empty() ? 1.0f : conv.factor_[static_cast<std::size_t>(k)];
                for (std::int64_t c = 0; c < conv.geometry_.channels; ++c) sum += x[c] * (of_tap[c * strides[1]] * factor);
            }
        }
}

}  // namespace dovetail
