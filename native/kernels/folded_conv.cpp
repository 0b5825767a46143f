#include "kernels/folded_conv.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "kernels/kernels.h"

namespace dovetail {

namespace {

// Folding pays if it costs less than this fraction of direct convolution. The second constant is the maximum bytes of the folded
// weights.
constexpr double kWorthwhile = 0.8;
constexpr std::int64_t kMaxWeightBytes = 1 << 20;
constexpr std::int64_t kMaxPixels = 16;
constexpr std::int64_t kFloatsPerTask = 64 << 10;
constexpr std::int64_t kMinRun = 8;

// True if the pixels of a row follow each other, each with its channels.
bool has_dense_rows(const TensorStrides& layout, std::int64_t channels) {
    return (channels == 1 || layout.channel == 1) && layout.spatial[2] == channels;
}

// True if the channels of adjacent pixels are evenly spaced.
bool is_foldable(const TensorStrides& layout, std::int64_t channels) { return channels == 1 || has_dense_rows(layout, channels); }

// True if the channels of a pixel are adjacent, and the pixels too unless there are many channels.
bool has_runs(const TensorStrides& layout, std::int64_t channels) {
    return has_dense_rows(layout, channels) || (layout.channel == 1 && channels >= kMinRun);
}

// The cycles of a row of `length` outputs, of which `pixels` are folded.
double cycles_of(const ConvGeometry& g, std::int64_t length, std::int64_t pixels) {
    if (length == 0) return 0;
    const std::int64_t depth = g.kernel[0] * g.kernel[1] * (g.kernel[2] + (pixels - 1) * g.stride[2]) * g.channels;
    const Tiling tiling =
        tiling_of(length / pixels, g.outputs * pixels, g.x.spatial[2] * g.stride[2] * pixels, depth, gemm_kernels());
    return tiling.cost * static_cast<double>(depth);
}

// The number of folded pixels with the least cost; 1 means direct convolution.
std::int64_t choose_pixels(const ConvGeometry& g) {
    std::int64_t best = 1;
    double lowest = kWorthwhile * cycles_of(g, g.out[2], 1);
    for (std::int64_t pixels = 2; pixels <= std::min(kMaxPixels, g.out[2]); pixels *= 2) {
        const std::int64_t taps = g.kernel[0] * g.kernel[1] * (g.kernel[2] + (pixels - 1) * g.stride[2]);
        if (pixels * g.outputs > kMaxVectors * gemm_kernels().lanes ||
            taps * g.channels * g.outputs * pixels * 4 > kMaxWeightBytes)
            break;
        const std::int64_t rest = g.out[2] % pixels;
        const double cycles = cycles_of(g, g.out[2] - rest, pixels) + cycles_of(g, rest, 1);
        if (cycles >= lowest) continue;
        lowest = cycles;
        best = pixels;
    }
    return best;
}

Operand constant_of(const std::vector<float>& values, std::vector<std::int64_t> sizes) {
    Operand operand;
    operand.element = Element::f32;
    operand.itemsize = 4;
    operand.strides.assign(sizes.size(), 4);
    for (std::size_t axis = sizes.size() - 1; axis-- > 0;) operand.strides[axis] = operand.strides[axis + 1] * sizes[axis + 1];
    operand.sizes = std::move(sizes);
    operand.constant = reinterpret_cast<const std::byte*>(values.data());
    operand.high = static_cast<std::int64_t>(values.size()) * 4;
    return operand;
}

// The weights (pixels * outputs, channels, ..., longer rows), row-major.
std::vector<float> fold_weights(const Spec& spec, const ConvGeometry& g, std::int64_t pixels) {
    const Operand& w = spec.inputs[1];
    const auto strides = float_strides(spec, w);
    const auto* from = reinterpret_cast<const float*>(w.constant);
    const std::size_t rank = w.rank();
    const auto step = [&](std::size_t axis) { return axis + rank >= 5 ? strides[axis + rank - 3] : 0; };
    const std::int64_t width = g.kernel[2] + (pixels - 1) * g.stride[2], rows = g.channels * g.kernel[0] * g.kernel[1];
    std::vector<float> folded(static_cast<std::size_t>(pixels * g.outputs * rows * width));
    for (std::int64_t pixel = 0; pixel < pixels; ++pixel)
        for (std::int64_t output = 0; output < g.outputs; ++output)
            for (std::int64_t row = 0; row < rows; ++row)
                for (std::int64_t i = 0; i < g.kernel[2]; ++i) {
                    const std::int64_t channel = row / (g.kernel[0] * g.kernel[1]), d = row / g.kernel[1] % g.kernel[0],
                                       h = row % g.kernel[1];
                    const std::int64_t to = ((pixel * g.outputs + output) * rows + row) * width + pixel * g.stride[2] + i;
                    folded[static_cast<std::size_t>(to)] =
                        from[output * strides[0] + channel * strides[1] + d * step(0) + h * step(1) + i * step(2)];
                }
    return folded;
}

// Changes an operand to that of the folded convolution: `pixels` adjacent pixels of a row become channels of one pixel. The last
// pixels of a row that do not make up a pixel of the folded convolution are dropped.
void fold(Operand& operand, std::int64_t outputs, std::int64_t pixels) {
    operand.strides[1] = outputs == 1 ? operand.strides.back() : 4;
    operand.strides.back() *= pixels;
    operand.sizes[1] = outputs * pixels;
    operand.sizes.back() /= pixels;
}

// Restricts an operand to the last `count` pixels of each row, which direct convolution computes.
void cut(Operand& operand, std::int64_t count) {
    operand.offset += (operand.sizes.back() - count) * operand.strides.back();
    operand.sizes.back() = count;
}

// Returns a vector of one value per output channel, repeated for each folded pixel.
std::vector<float> repeat(const Operand& operand, std::int64_t pixels) {
    const std::vector<float> values = floats_of(operand);
    std::vector<float> repeated;
    for (std::int64_t pixel = 0; pixel < pixels; ++pixel) repeated.insert(repeated.end(), values.begin(), values.end());
    return repeated;
}

bool are_finite(const float* values, std::int64_t count) {
    constexpr std::uint32_t kExponent = 0x7f800000;
    std::uint32_t is_not = 0;
    for (std::int64_t i = 0; i < count; ++i) {
        std::uint32_t bits;
        std::memcpy(&bits, values + i, sizeof bits);
        is_not |= static_cast<std::uint32_t>((bits & kExponent) == kExponent);
    }
    return is_not == 0;
}

}  // namespace

std::unique_ptr<Kernel> FoldedConv::create(const Spec& spec, WeightCache& cache) {
    const Operand& w = spec.inputs.at(1);
    const Epilogue epilogue(spec);
    const ConvGeometry g(spec, epilogue);
    if (!w.is_constant() || w.sizes[0] != g.outputs || w.sizes[1] != g.channels || g.groups != 1 ||
        spec.outputs.at(0).count() == 0 || spec.has("prologue_scale") || g.kernel[2] < 2 || g.dilation[2] != 1 ||
        !has_runs(g.x, g.channels) || !is_foldable(g.y, g.outputs) ||
        (epilogue.has_residual && !is_foldable(g.residual, g.outputs)))
        return nullptr;
    const std::int64_t pixels = choose_pixels(g);
    return pixels == 1 ? nullptr : std::unique_ptr<Kernel>(new FoldedConv(spec, cache, pixels));
}

FoldedConv::FoldedConv(const Spec& spec, WeightCache& cache, std::int64_t pixels)
    : direct_(spec, cache), x_(spec.inputs[0]), geometry_(spec, Epilogue(spec)) {
    const ConvGeometry& g = geometry_;
    const std::int64_t rest = g.out[2] % pixels;
    Spec folded = spec;
    const auto weights = fold_weights(spec, g, pixels);
    std::vector<std::int64_t> sizes = spec.inputs[1].sizes;
    sizes[0] *= pixels;
    sizes.back() += (pixels - 1) * g.stride[2];
    folded.inputs[1] = constant_of(weights, sizes);
    std::vector<float> bias, factor;
    if (spec.integer("has_bias") != 0) {
        bias = repeat(spec.inputs.at(2), pixels);
        folded.inputs[2] = constant_of(bias, {g.outputs * pixels});
    }
    if (spec.integer("has_factor") != 0) {
        factor = repeat(spec.inputs.at(3), pixels);
        folded.inputs[3] = constant_of(factor, {g.outputs * pixels});
    }
    fold(folded.outputs[0], g.outputs, pixels);
    if (spec.integer("has_residual") != 0) fold(folded.inputs.back(), g.outputs, pixels);
    std::vector<std::int64_t> strides = spec.integers("strides");
    if (strides.empty()) strides.assign(spec.inputs[0].rank() - 2, 1);
    strides.back() *= pixels;
    folded.attributes["strides"] = strides;
    // The folded weights exist only during this constructor, so that a cache of packed weights must not keep their addresses.
    WeightCache own;
    folded_ = std::make_unique<Conv>(folded, own);
    if (rest == 0) return;
    // In the convolution of the remaining pixels, the pixels before them are negative padding.
    Spec last = spec;
    cut(last.outputs[0], rest);
    if (spec.integer("has_residual") != 0) cut(last.inputs.back(), rest);
    std::vector<std::int64_t> pads = spec.integers("pads_begin");
    if (pads.empty()) pads.assign(spec.inputs[0].rank() - 2, 0);
    pads.back() -= (g.out[2] - rest) * g.stride[2];
    last.attributes["pads_begin"] = pads;
    rest_ = std::make_unique<Conv>(last, cache);
}

std::size_t FoldedConv::scratch_bytes() const {
    return std::max({direct_.scratch_bytes(), folded_->scratch_bytes(), rest_ ? rest_->scratch_bytes() : 0});
}

void FoldedConv::run(const Run& run) const {
    if (!has_finite_input(run)) return direct_.run(run);
    folded_->run(run);
    if (rest_) rest_->run(run);
}

bool FoldedConv::has_finite_input(const Run& run) const {
    const ConvGeometry& g = geometry_;
    const auto* x = reinterpret_cast<const float*>(run.at(x_));
    const std::int64_t rows = g.images * g.in[0] * g.in[1], row = g.in[2] * g.channels;
    const bool is_dense = has_dense_rows(g.x, g.channels);
    const std::int64_t pixels = is_dense ? 1 : g.in[2], run_length = is_dense ? row : g.channels;
    const std::int64_t rows_per_task = ceil_div(kFloatsPerTask, row), tasks = ceil_div(rows, rows_per_task);
    std::atomic<bool> is_finite{true};
    const auto task = [&](std::int64_t index, int) {
        for (std::int64_t i = index * rows_per_task; i < std::min(rows, (index + 1) * rows_per_task); ++i) {
            const float* from =
                x + i / (g.in[0] * g.in[1]) * g.x.image + i / g.in[1] % g.in[0] * g.x.spatial[0] + i % g.in[1] * g.x.spatial[1];
            bool is_finite_row = true;
            for (std::int64_t pixel = 0; pixel < pixels; ++pixel)
                is_finite_row &= are_finite(from + pixel * g.x.spatial[2], run_length);
            if (!is_finite_row) is_finite.store(false, std::memory_order_relaxed);
        }
    };
    if (tasks == 1)
        task(0, 0);
    else
        run.pool->parallel_for(tasks, task);
    return is_finite.load(std::memory_order_relaxed);
}

}  // namespace dovetail
