// Convolution and max pooling of 8-bit integers, with packed weights and requantization.
#include "kernels/quantized.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "int_math.h"
#include "kernels/conv_geometry.h"
#include "kernels/kernels.h"
#include "kernels/pool.h"

namespace dovetail {
namespace {

constexpr std::int64_t kPatchBytes = 128 << 10;  // of copied pixels that stay in cache
constexpr std::int64_t kReadPadding = 64;
constexpr std::int64_t kFewChannels = 4;  // channel planes up to which the input is interleaved

bool is_byte(const Operand& operand) { return operand.element == Element::u8 || operand.element == Element::i8; }

bool has_dense_channels(const Operand& image) { return image.strides[1] == 1 || image.sizes[1] == 1 || image.count() == 0; }

class QuantizedConv : public Kernel {
public:
    QuantizedConv(const Spec& spec, WeightCache& cache)
        : x_(spec.inputs.at(0)), y_(spec.outputs.at(0)), kernels_(DOVETAIL_SELECT_ISA(int8_kernels)()),
          unit_(amx_unit() ? amx_unit() : vnni_unit()) {
        if (!is_byte(x_) || !is_byte(y_) || x_.rank() != 4 || y_.rank() != 4)
            throw std::invalid_argument("quantized_conv: images must have rank 4 and 8-bit elements");
        if ((!has_dense_channels(x_) && x_.sizes[1] > kFewChannels) || !has_dense_channels(y_))
            throw std::invalid_argument("quantized_conv: images must be channels-last");
        read_windows(spec);
        read_requantization(spec);
        choose();
        pack(spec, cache);
    }

    std::string name() const override {
        const char* mode = in_place_ ? "in depth " : is_im2col_ ? "im2col " : "rows ";
        return std::string("quantized_conv ") + mode + (unit_ ? unit_->name : name_of(isa()));
    }

    std::size_t scratch_bytes() const override {
        const std::int64_t patch = in_place_ ? 0 : patch_bytes(block_lines_) + kReadPadding;
        return static_cast<std::size_t>(ceil_div(patch, 64) * 64 + kInt8Pixels * kAccumulatorPitch * 4);
    }

    void run(const Run& run) const override {
        if (y_.count() == 0) return;
        // Threads share out the weights where these outweigh the input, else the pixels.
        const std::int64_t blocks = ceil_div(out_[0], block_lines_), pairs = ceil_div(panels_, 2), threads = run.pool->threads();
        const std::int64_t chunks = is_weight_bound_ && threads > 1 ? std::min(pairs, 2 * threads) : 1;
        const std::int64_t tasks = y_.sizes[0] * blocks * chunks;
        const auto task = [&](std::int64_t index, int worker) {
            const std::int64_t chunk = index % chunks, block = index / chunks % blocks;
            compute_block(run, index / chunks / blocks, block * block_lines_, std::min((block + 1) * block_lines_, out_[0]),
                          chunk * pairs / chunks * 2, std::min((chunk + 1) * pairs / chunks * 2, panels_), worker);
            if (unit_) unit_->end();
        };
        if (y_.count() * segments_ * blocks_ * kInt8Depth < (1 << 19))
            for (std::int64_t i = 0; i < tasks; ++i) task(i, 0);
        else
            run.pool->parallel_for(tasks, task);
    }

private:
    void read_windows(const Spec& spec) {
        const Operand& w = spec.inputs.at(1);
        const auto strides = spec.integers("strides"), dilations = spec.integers("dilations"),
                   begins = spec.integers("pads_begin");
        if (strides.size() != 2 || dilations.size() != 2 || begins.size() != 2 || w.rank() != 4 || w.element != Element::i8 ||
            !w.is_constant() || w.sizes[0] != y_.sizes[1] || w.sizes[1] != x_.sizes[1])
            throw std::invalid_argument("quantized_conv: needs windows of 2 axes, constant i8 weights and 1 group");
        if (x_.sizes[0] != y_.sizes[0])
            throw std::invalid_argument("quantized_conv: input and output must have equal batch sizes");
        check_windows("quantized_conv", {w.sizes[2], w.sizes[3]}, strides, dilations, begins);
        channels_ = x_.sizes[1];
        for (std::size_t i = 0; i < 2; ++i) {
            in_[i] = x_.sizes[i + 2];
            out_[i] = y_.sizes[i + 2];
            kernel_[i] = w.sizes[i + 2];
            stride_[i] = strides[i];
            dilation_[i] = dilations[i];
            pad_begin_[i] = begins[i];
            x_step_[i] = x_.strides[i + 2];
            y_step_[i] = y_.strides[i + 2];
        }
        x_zero_ = spec.integer("x_zero");
    }

    void read_requantization(const Spec& spec) {
        panels_ = ceil_div(y_.sizes[1], kInt8Columns);
        const auto columns = static_cast<std::size_t>(panels_ * kInt8Columns + kInt8Columns);
        factor_.resize(columns);
        offset_.resize(columns);
        const Operand &bias = spec.inputs.at(2), &factor = spec.inputs.at(3);
        if (!bias.is_constant() || bias.element != Element::i32 || bias.rank() != 1 || bias.sizes[0] != y_.sizes[1] ||
            !factor.is_constant() || factor.element != Element::f32 || factor.rank() != 1 || factor.sizes[0] != y_.sizes[1])
            throw std::invalid_argument(
                "quantized_conv: needs a constant i32 bias and constant f32 factors, one for each channel");
        for (std::int64_t j = 0; j < y_.sizes[1]; ++j) {
            std::memcpy(&offset_[static_cast<std::size_t>(j)], bias.constant + j * bias.strides[0], 4);
            std::memcpy(&factor_[static_cast<std::size_t>(j)], factor.constant + j * factor.strides[0], 4);
        }
        const auto real = [&](const char* name) { return static_cast<float>(spec.real(name)); };
        requantization_.low = real("low");
        requantization_.high = real("high");
        requantization_.zero = real("y_zero");
        requantization_.is_full =
            y_.element == Element::u8 && real(spec.integer("has_residual") ? "last_high" : "high") + requantization_.zero >= 255;
        if (spec.integer("has_residual") == 0) return;
        residual_ = spec.inputs.at(4);
        if (!is_byte(residual_) || residual_.sizes != y_.sizes || !has_dense_channels(residual_))
            throw std::invalid_argument(
                "quantized_conv: the residual must have 8-bit elements and the sizes of the output, channels-last");
        has_residual_ = true;
        requantization_.other_is_signed = residual_.element == Element::i8;
        requantization_.other_zero = real("other_zero");
        requantization_.own = real("own");
        requantization_.beside = real("beside");
        requantization_.last_low = real("last_low");
        requantization_.last_high = real("last_high");
    }

    std::int64_t patch_rows(std::int64_t lines) const { return (lines - 1) * stride_[0] + (kernel_[0] - 1) * dilation_[0] + 1; }
    std::int64_t patch_bytes(std::int64_t lines) const { return (is_im2col_ ? lines : patch_rows(lines)) * patch_row_; }
    // Bytes from one output line's input to the next one's.
    std::int64_t line_bytes() const {
        return in_place_ ? stride_[0] * x_step_[0] : is_im2col_ ? patch_row_ : stride_[0] * patch_row_;
    }

    void choose() {
        const bool is_dense = x_.strides[1] == 1;
        const bool pointwise = kernel_[0] == 1 && kernel_[1] == 1 && pad_begin_[0] == 0 && pad_begin_[1] == 0 &&
                               (out_[0] - 1) * stride_[0] < in_[0] && (out_[1] - 1) * stride_[1] < in_[1];
        // Short lines of strided pixels would leave tiles half empty.
        is_im2col_ = is_dense && stride_[1] > 1 && out_[1] < 24 && channels_ * kernel_[1] >= kInt8Depth;
        in_place_ = pointwise && !is_im2col_ && is_dense && channels_ % kInt8Depth == 0;
        merges_taps_ = is_im2col_ || dilation_[1] == 1;
        segments_ = is_im2col_ ? 1 : merges_taps_ ? kernel_[0] : kernel_[0] * kernel_[1];
        const std::int64_t run = kernel_[0] * kernel_[1] * channels_ / segments_;
        blocks_ = ceil_div(run, kInt8Depth);
        last_depth_ = ceil_div(run - (blocks_ - 1) * kInt8Depth, 8) * 8;
        step_ = is_im2col_ ? run : stride_[1] * (in_place_ ? x_step_[1] : channels_);
        patch_row_ = is_im2col_ ? out_[1] * run : ((out_[1] - 1) * stride_[1] + (kernel_[1] - 1) * dilation_[1] + 1) * channels_;
        for (std::int64_t s = 0; s < segments_; ++s)
            offsets_.push_back(merges_taps_
                                   ? s * dilation_[0] * patch_row_
                                   : s / kernel_[1] * dilation_[0] * patch_row_ + s % kernel_[1] * dilation_[1] * channels_);
        // Evenly spaced lines are one run, including unused pixels between them.
        const bool even = is_im2col_ || (stride_[0] == 1 && stride_[1] == 1);
        const std::int64_t line = line_bytes();
        line_ = even && step_ != 0 && line % step_ == 0 && line / step_ < out_[1] + kernel_[1] * 2 ? line / step_ : 0;
        is_weight_bound_ = panels_ * segments_ * blocks_ * kInt8Block > in_[0] * in_[1] * channels_;
        block_lines_ = is_weight_bound_ ? out_[0] : std::max<std::int64_t>(ceil_div(out_[0], 8), 1);
        while (block_lines_ > 1 && !in_place_ && patch_bytes(block_lines_) > (is_weight_bound_ ? 4 : 1) * kPatchBytes)
            --block_lines_;
    }

    // Packs the weights panel by panel in the order in which tiles read them. Padding at the end of a segment has weight 0.
    void pack(const Spec& spec, WeightCache& cache) {
        const Operand& w = spec.inputs.at(1);
        const std::int64_t panel = segments_ * blocks_ * kInt8Block;
        const std::string key = "quantized " + std::to_string(reinterpret_cast<std::uintptr_t>(w.constant)) + " " +
                                std::to_string(segments_) + " " + std::to_string(blocks_);
        weights_ = std::static_pointer_cast<const std::int8_t>(cache.get_or_create(key, [&] {
            const auto bytes = static_cast<std::size_t>(panels_ * panel);
            cache.add_bytes(bytes);
            auto floats = aligned_floats(bytes / 4);
            auto* to = reinterpret_cast<std::int8_t*>(floats.get());
            std::memset(to, 0, bytes);
            for_each_weight(
                [&](std::int64_t j, std::int64_t segment, std::int64_t depth, std::int8_t value) {
                    // Panels are packed in pairs; an odd last panel is alone.
                    const std::int64_t own = j / kInt8Columns, pair = own / 2 * 2,
                                       width = std::min<std::int64_t>(panels_ - pair, 2);
                    const std::int64_t block = segment * blocks_ + depth / kInt8Depth;
                    to[pair * panel + (block * width + own - pair) * kInt8Block + depth % kInt8Depth / 4 * 64 +
                       j % kInt8Columns * 4 + depth % 4] = value;
                },
                w);
            return std::shared_ptr<const void>(floats, floats.get());
        }));
        // Subtracts the contribution of x's zero point from the offsets.
        std::vector<std::int64_t> total(offset_.size(), 0);
        for_each_weight(
            [&](std::int64_t j, std::int64_t, std::int64_t, std::int8_t value) { total[static_cast<std::size_t>(j)] += value; },
            w);
        for (std::size_t j = 0; j < offset_.size(); ++j) offset_[j] -= static_cast<std::int32_t>(x_zero_ * total[j]);
    }

    template <typename F>
    void for_each_weight(const F& visit, const Operand& w) const {
        const std::int64_t run = kernel_[0] * kernel_[1] * channels_ / segments_;
        for (std::int64_t j = 0; j < w.sizes[0]; ++j)
            for (std::int64_t c = 0; c < channels_; ++c)
                for (std::int64_t h = 0; h < kernel_[0]; ++h)
                    for (std::int64_t k = 0; k < kernel_[1]; ++k)
                        visit(j, ((h * kernel_[1] + k) * channels_ + c) / run, ((h * kernel_[1] + k) * channels_ + c) % run,
                              static_cast<std::int8_t>(
                                  w.constant[j * w.strides[0] + c * w.strides[1] + h * w.strides[2] + k * w.strides[3]]));
    }

    // Computes some lines of an image for some panels.
    void compute_block(const Run& run, std::int64_t image, std::int64_t first, std::int64_t last, std::int64_t panel,
                       std::int64_t end, int worker) const {
        std::byte* scratch = run.scratch_of(worker);
        auto* accumulators = reinterpret_cast<std::int32_t*>(scratch);
        const std::byte* x = run.at(x_) + image * x_.strides[0];
        std::byte* patch = scratch + kInt8Pixels * kAccumulatorPitch * 4;
        const std::byte* from = in_place_ ? x + first * stride_[0] * x_step_[0] : patch;
        if (is_im2col_)
            im2col(x, patch, first, last);
        else if (!in_place_)
            fill_patch(x, patch, first, patch_rows(last - first));
        const std::int64_t line_step = line_bytes();
        // Runs of pixels: all lines as one run, or each line by itself.
        const std::int64_t runs = line_ ? 1 : last - first, length = line_ ? (last - first - 1) * line_ + out_[1] : out_[1];
        const std::int64_t parts = ceil_div(length, kInt8Pixels), step = segments_ * blocks_ * kInt8Block;
        // If all pixels pass through a pair of panels, they prefetch the next pair.
        const std::int64_t share = is_weight_bound_ ? 2 * step / 64 / (runs * parts) * 64 : 0;
        const std::int64_t fetched = ceil_div(share / 64, segments_ * blocks_) * 64;
        const auto tile = [&](std::int64_t at, std::int64_t part, std::int64_t j) {
            const std::int64_t begin = part * kInt8Pixels, count = std::min(length - begin, kInt8Pixels);
            const int width = static_cast<int>(std::min<std::int64_t>(end - j, 2));
            const std::int8_t* weights = weights_.get() + j * step;
            const Int8Tile int8_tile{from + at * line_step + begin * step_,
                                     step_,
                                     offsets_.data(),
                                     segments_,
                                     blocks_,
                                     last_depth_,
                                     weights,
                                     offset_.data() + j * kInt8Columns,
                                     weights + 2 * step + (at * parts + part) * share,
                                     j + 2 < end ? fetched : 0,
                                     static_cast<int>(count),
                                     width,
                                     x_.element == Element::i8,
                                     accumulators};
            (unit_ ? unit_->multiply : kernels_.multiply)(int8_tile);
            requantize(run, image, first + at, begin, count, j, width, accumulators);
        };
        if (is_weight_bound_) {
            for (std::int64_t j = panel; j < end; j += 2)
                for (std::int64_t at = 0; at < runs; ++at)
                    for (std::int64_t part = 0; part < parts; ++part) tile(at, part, j);
        } else {
            for (std::int64_t at = 0; at < runs; ++at)
                for (std::int64_t part = 0; part < parts; ++part)
                    for (std::int64_t j = panel; j < end; j += 2) tile(at, part, j);
        }
    }

    // Requantizes `count` pixels from `begin` on, counted along a run that begins at line `line`.
    void requantize(const Run& run, std::int64_t image, std::int64_t line, std::int64_t begin, std::int64_t count,
                    std::int64_t panel, int width, const std::int32_t* accumulators) const {
        const std::int64_t column = panel * kInt8Columns;
        Requantization pixel = requantization_;
        pixel.factor = factor_.data() + column;
        pixel.columns = std::min<std::int64_t>(width * kInt8Columns, y_.sizes[1] - column);
        std::byte* y = run.at(y_) + image * y_.strides[0] + column;
        const std::byte* other = has_residual_ ? run.at(residual_) + image * residual_.strides[0] + column : nullptr;
        const std::int64_t lines = line_ ? static_cast<std::uint32_t>(begin) / static_cast<std::uint32_t>(line_) : 0;
        std::int64_t row = line + lines, at = begin - lines * line_;
        pixel.y_step = y_step_[1];
        pixel.other_step = has_residual_ ? residual_.strides[3] : 0;
        while (count > 0) {
            pixel.pixels = std::min(count, out_[1] - at);
            if (pixel.pixels > 0) {
                pixel.accumulators = accumulators;
                pixel.y = y + row * y_step_[0] + at * y_step_[1];
                if (has_residual_) pixel.other = other + row * residual_.strides[2] + at * residual_.strides[3];
                kernels_.requantize(pixel);
            }
            // The next line; if lines are one run, after the unused pixels between them.
            const std::int64_t passed = std::min(count, line_ - at);
            count -= passed;
            accumulators += passed * kAccumulatorPitch;
            ++row;
            at = 0;
            if (line_ == 0) return;
        }
    }

    // Copies channels-last rows of the image with their padding.
    void fill_patch(const std::byte* x, std::byte* patch, std::int64_t first, std::int64_t rows) const {
        const auto zero = static_cast<int>(x_zero_ & 0xff);
        const std::int64_t pixels = patch_row_ / channels_;
        const std::int64_t left = std::clamp<std::int64_t>(pad_begin_[1], 0, pixels);
        const std::int64_t inside = std::clamp<std::int64_t>(in_[1] + pad_begin_[1], left, pixels);
        for (std::int64_t r = 0; r < rows; ++r, patch += patch_row_) {
            const std::int64_t row = first * stride_[0] - pad_begin_[0] + r;
            if (row < 0 || row >= in_[0]) {
                std::memset(patch, zero, static_cast<std::size_t>(patch_row_));
                continue;
            }
            std::memset(patch, zero, static_cast<std::size_t>(left * channels_));
            const std::byte* from = x + row * x_step_[0] + (left - pad_begin_[1]) * x_step_[1];
            if (x_.strides[1] != 1 && channels_ != 1)
                kernels_.interleave(patch + left * channels_, from, inside - left, channels_, x_step_[1], x_.strides[1]);
            else if (x_step_[1] == channels_)
                std::memcpy(patch + left * channels_, from, static_cast<std::size_t>((inside - left) * channels_));
            else
                for (std::int64_t p = left; p < inside; ++p, from += x_step_[1])
                    std::memcpy(patch + p * channels_, from, static_cast<std::size_t>(channels_));
            std::memset(patch + inside * channels_, zero, static_cast<std::size_t>((pixels - inside) * channels_));
        }
        std::memset(patch, 0, kReadPadding);
    }

    // Copies the input of each output pixel, tap by tap (im2col).
    void im2col(const std::byte* x, std::byte* patch, std::int64_t first, std::int64_t last) const {
        const auto zero = static_cast<int>(x_zero_ & 0xff);
        const auto pixel = static_cast<std::size_t>(channels_);
        for (std::int64_t line = first; line < last; ++line)
            for (std::int64_t o = 0; o < out_[1]; ++o)
                for (std::int64_t h = 0; h < kernel_[0]; ++h)
                    for (std::int64_t k = 0; k < kernel_[1]; ++k, patch += channels_) {
                        const std::int64_t row = line * stride_[0] - pad_begin_[0] + h * dilation_[0];
                        const std::int64_t column = o * stride_[1] - pad_begin_[1] + k * dilation_[1];
                        if (row < 0 || column < 0 || row >= in_[0] || column >= in_[1])
                            std::memset(patch, zero, pixel);
                        else
                            std::memcpy(patch, x + row * x_step_[0] + column * x_step_[1], pixel);
                    }
        std::memset(patch, 0, kReadPadding);
    }

    Operand x_, y_, residual_;
    bool has_residual_ = false;
    Int8Kernels kernels_;
    const Int8Unit* unit_;
    std::int64_t channels_ = 1, x_zero_ = 0;
    std::int64_t in_[2], out_[2], kernel_[2], stride_[2], dilation_[2], pad_begin_[2], x_step_[2], y_step_[2];
    bool in_place_ = false, is_im2col_ = false, merges_taps_ = false, is_weight_bound_ = false;
    std::int64_t segments_ = 1, blocks_ = 1, last_depth_ = 8, patch_row_ = 0, step_ = 0, panels_ = 1, block_lines_ = 1;
    std::int64_t line_ = 0;  // pixels from line to line where all lines are one run; else 0
    std::vector<std::int64_t> offsets_;
    std::vector<float> factor_;
    std::vector<std::int32_t> offset_;
    Requantization requantization_{};
    std::shared_ptr<const std::int8_t> weights_;
};

// Max pooling of 8-bit integers.
class QuantizedPool : public Kernel {
public:
    explicit QuantizedPool(const Spec& spec)
        : x_(spec.inputs.at(0)), y_(spec.outputs.at(0)), kernels_(DOVETAIL_SELECT_ISA(int8_kernels)()),
          kernel_(spec.integers("kernel")), strides_(spec.integers("strides")), dilations_(spec.integers("dilations")),
          begins_(spec.integers("pads_begin")) {
        if (!is_byte(x_) || y_.element != x_.element || x_.rank() != 4 || y_.rank() != 4 || kernel_.size() != 2 ||
            strides_.size() != 2 || dilations_.size() != 2 || begins_.size() != 2)
            throw std::invalid_argument("quantized_pool: needs windows of 2 axes and images of rank 4 with 8-bit elements");
        if (!has_dense_channels(x_) || !has_dense_channels(y_))
            throw std::invalid_argument("quantized_pool: images must be channels-last");
        if (x_.sizes[0] != y_.sizes[0] || x_.sizes[1] != y_.sizes[1])
            throw std::invalid_argument("quantized_pool: input and output must have equal batch and channels");
        check_windows("quantized_pool", kernel_, strides_, dilations_, begins_);
        if (y_.count() == 0) return;
        for (std::size_t i = 0; i < 2; ++i) {
            axes_[i] = {x_.sizes[i + 2], y_.sizes[i + 2], kernel_[i], strides_[i], dilations_[i], begins_[i]};
            axes_[i].trim();
        }
    }

    std::string name() const override { return std::string("quantized_pool ") + name_of(isa()); }

    std::size_t scratch_bytes() const override {
        const std::int64_t line = ceil_div(x_.sizes[3] * x_.sizes[1], 64) * 64;
        return static_cast<std::size_t>(line + std::max(axes_[0].kernel, axes_[1].kernel) * 8);
    }

    void run(const Run& run) const override {
        if (y_.count() == 0) return;
        const std::int64_t rows = y_.sizes[0] * y_.sizes[2];
        const auto row = [&](std::int64_t index, int worker) { line(run, index / y_.sizes[2], index % y_.sizes[2], worker); };
        if (y_.count() * axes_[0].kernel * axes_[1].kernel > (1 << 18)) return run.pool->parallel_for(rows, row);
        for (std::int64_t i = 0; i < rows; ++i) row(i, 0);
    }

private:
    // The maximum over the rows of a window, as one line, and then over adjacent pixels of that line.
    void line(const Run& run, std::int64_t image, std::int64_t o, int worker) const {
        const std::int64_t channels = x_.sizes[1], pixels = x_.sizes[3];
        const bool is_signed = x_.element == Element::i8, is_whole = x_.strides[3] == channels;
        std::byte* maximum = run.scratch_of(worker);
        auto** addresses = reinterpret_cast<const std::byte**>(maximum + ceil_div(pixels * channels, 64) * 64);
        std::int64_t number = 0;
        for (std::int64_t h = axes_[0].first(o); h < axes_[0].last(o); ++h)
            addresses[number++] =
                run.at(x_) + image * x_.strides[0] + (axes_[0].start(o) + h * axes_[0].dilation) * x_.strides[2];
        if (number != 0 && is_whole) kernels_.maximum(maximum, addresses, number, pixels * channels, is_signed);
        for (std::int64_t p = 0; number != 0 && !is_whole && p < pixels; ++p) {
            kernels_.maximum(maximum + p * channels, addresses, number, channels, is_signed);
            for (std::int64_t n = 0; n < number; ++n) addresses[n] += x_.strides[3];
        }
        const bool is_padding_row = number == 0;
        std::byte* to = run.at(y_) + image * y_.strides[0] + o * y_.strides[2];
        for (std::int64_t p = 0; p < y_.sizes[3]; ++p, to += y_.strides[3]) {
            number = 0;
            for (std::int64_t w = axes_[1].first(p); w < axes_[1].last(p); ++w)
                addresses[number++] = maximum + (axes_[1].start(p) + w * axes_[1].dilation) * channels;
            // A window of padding alone yields the minimum of the type.
            if (number == 0 || is_padding_row)
                std::memset(to, is_signed ? 0x80 : 0, static_cast<std::size_t>(channels));
            else
                kernels_.maximum(to, addresses, number, channels, is_signed);
        }
    }

    Operand x_, y_;
    Int8Kernels kernels_;
    std::vector<std::int64_t> kernel_, strides_, dilations_, begins_;
    PoolAxis axes_[2];
};

}  // namespace

std::unique_ptr<Kernel> make_quantized_conv(const Spec& spec, WeightCache& cache) {
    return std::make_unique<QuantizedConv>(spec, cache);
}

std::unique_ptr<Kernel> make_quantized_pool(const Spec& spec, WeightCache&) { return std::make_unique<QuantizedPool>(spec); }

}  // namespace dovetail
