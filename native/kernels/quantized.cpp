// Convolution of 8-bit integers with packed weights. The accumulators are requantized, converted to f32, or stored as they are.
#include "kernels/quantized.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <stdexcept>

#include "int_math.h"
#include "kernels/conv_geometry.h"
#include "kernels/kernels.h"
#include "kernels/packed_bytes.h"

namespace dovetail {
namespace {

constexpr std::int64_t kPatchBytes = 128 << 10;  // bytes of copied pixels that stay in cache
constexpr std::int64_t kReadPadding = 64;
constexpr std::int64_t kFewChannels = 4;  // channel planes up to which the input is interleaved
constexpr std::int64_t kFewPixels = 4;    // pixels up to which vector instructions are faster than matrix tiles

enum class Results { codes, floats, sums };

class QuantizedConv : public Kernel {
public:
    QuantizedConv(const Spec& spec, WeightCache& cache)
        : x_(spec.inputs.at(0)), y_(spec.outputs.at(0)), kernels_(DOVETAIL_SELECT_ISA(int8_kernels)()),
          floats_(DOVETAIL_SELECT_ISA(dynamic_quantization)()), unit_(amx_unit() ? amx_unit() : vnni_unit()),
          few_unit_(vnni_unit()) {
        const std::string results = spec.text("results", "codes");
        results_ = results == "floats" ? Results::floats : results == "sums" ? Results::sums : Results::codes;
        const Element element = results_ == Results::floats ? Element::f32
                                : results_ == Results::sums ? Element::i32
                                                            : y_.element;
        if (!is_byte(x_) || x_.rank() != 4 || y_.rank() != 4 || y_.element != element ||
            (results_ == Results::codes && !is_byte(y_)))
            throw std::invalid_argument("quantized_conv: images must have rank 4 and 8-bit elements, sums i32 or f32");
        if ((!has_dense_channels(x_) && x_.sizes[1] > kFewChannels) || !has_dense_channels(y_))
            throw std::invalid_argument("quantized_conv: images must be channels-last");
        read_windows(spec);
        read_columns_of(spec);
        choose();
        pack(spec, cache);
    }

    std::string name() const override {
        const char* mode = in_place_ ? "in depth " : is_im2col_ ? "im2col " : "rows ";
        return std::string("quantized_conv ") + mode + (unit_ ? unit_->name : name_of(isa()));
    }

    std::size_t scratch_bytes() const override {
        const std::int64_t patch = in_place_ ? 0 : patch_bytes(block_lines_) + kReadPadding;
        return static_cast<std::size_t>(ceil_div(patch, 64) * 64 + kInt8Pixels * kAccumulatorPitch * 4 + totals_bytes());
    }

    void run(const Run& run) const override {
        if (y_.count() == 0) return;
        // The weights are divided among the threads if they have more bytes than the input; otherwise the pixels are divided.
        const std::int64_t blocks = ceil_div(out_[0], block_lines_), pairs = ceil_div(panels_, 2), threads = run.pool->threads();
        const std::int64_t chunks = is_weight_bound_ && threads > 1 ? std::min(pairs, 2 * threads) : 1;
        const std::int64_t tasks = images_ * blocks * chunks;
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
        if (strides.size() != 2 || dilations.size() != 2 || begins.size() != 2 || w.rank() != 4 || !is_byte(w) ||
            !w.is_constant() || w.sizes[0] != y_.sizes[1] || w.sizes[1] != x_.sizes[1])
            throw std::invalid_argument("quantized_conv: needs windows of 2 axes, constant 8-bit weights and 1 group");
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
        images_ = y_.sizes[0];
        const auto is_single = [](const std::int64_t (&sizes)[2]) { return sizes[0] == 1 && sizes[1] == 1; };
        is_product_ =
            is_single(in_) && is_single(out_) && is_single(kernel_) && pad_begin_[0] == 0 && pad_begin_[1] == 0 && images_ > 0;
        if (is_product_) {
            // The rows of a matrix product are images of one pixel. The kernel runs them as the lines of a single image.
            in_[0] = out_[0] = images_;
            images_ = 1;
            stride_[0] = stride_[1] = 1;
            x_step_[0] = x_step_[1] = x_.strides[0];
            y_step_[0] = y_step_[1] = y_.strides[0];
        }
    }

    // Reads the operands that have one element per column. In the list of inputs, they follow the weights in the order in which
    // they are read here.
    void read_columns_of(const Spec& spec) {
        const std::int64_t count = y_.sizes[1];
        panels_ = ceil_div(count, kInt8Columns);
        std::size_t next = 2;
        if (results_ == Results::codes) {
            offset_ = read_columns<std::int32_t>(spec.inputs.at(next++), Element::i32, count,
                                                 "quantized_conv: needs a constant i32 bias, one for each channel");
            read_requantization(spec, next);
        } else {
            offset_.resize(static_cast<std::size_t>(round_up(count, kInt8Columns) + kInt8Columns));
        }
        if (spec.integer("has_x_zero")) {
            x_zero_operand_ = spec.inputs.at(next++);
            has_x_zero_ = true;
            if (x_zero_operand_.element != x_.element || x_zero_operand_.count() != 1)
                throw std::invalid_argument("quantized_conv: the zero point of x must have its type and one element");
        }
        if (spec.integer("has_w_zero"))
            w_zero_ = read_columns<std::int32_t>(spec.inputs.at(next++), Element::i32, count,
                                                 "quantized_conv: needs constant i32 zero points of w, one for each channel");
        else
            w_zero_.resize(offset_.size());
        if (results_ != Results::floats) return;
        x_scale_ = spec.inputs.at(next++);
        if (x_scale_.element != Element::f32 || x_scale_.count() != 1)
            throw std::invalid_argument("quantized_conv: the scale of x must be f32 of one element");
        factor_ = read_columns<float>(spec.inputs.at(next++), Element::f32, count,
                                      "quantized_conv: needs constant f32 scales of w, one for each channel");
        if (spec.integer("has_bias"))
            bias_ = read_columns<float>(spec.inputs.at(next++), Element::f32, count,
                                        "quantized_conv: needs a constant f32 bias, one for each channel");
    }

    void read_requantization(const Spec& spec, std::size_t& next) {
        factor_ = read_columns<float>(spec.inputs.at(next++), Element::f32, y_.sizes[1],
                                      "quantized_conv: needs constant f32 factors, one for each channel");
        const auto real = [&](const char* name) { return static_cast<float>(spec.real(name)); };
        requantization_.low = real("low");
        requantization_.high = real("high");
        requantization_.zero = real("y_zero");
        requantization_.is_full =
            y_.element == Element::u8 && real(spec.integer("has_residual") ? "last_high" : "high") + requantization_.zero >= 255;
        requantization_.y_is_signed = y_.element == Element::i8;
        requantization_.is_small = true;
        for (const float factor : factor_) requantization_.is_small &= std::abs(factor) <= 0.5f;
        if (spec.integer("has_residual") == 0) return;
        // The residual is the last operand.
        residual_ = spec.inputs.back();
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
        constexpr float kMaxFactor = 1 << 20;
        requantization_.is_small &= std::abs(requantization_.own) <= kMaxFactor && std::abs(requantization_.beside) <= kMaxFactor;
    }

    std::int64_t patch_rows(std::int64_t lines) const { return (lines - 1) * stride_[0] + (kernel_[0] - 1) * dilation_[0] + 1; }
    std::int64_t patch_bytes(std::int64_t lines) const { return (is_im2col_ ? lines : patch_rows(lines)) * patch_row_; }
    // Distance, in bytes, from the input of one output line to the input of the next.
    std::int64_t line_bytes() const {
        return in_place_ ? stride_[0] * x_step_[0] : is_im2col_ ? patch_row_ : stride_[0] * patch_row_;
    }

    void choose() {
        const bool is_dense = x_.strides[1] == 1;
        const bool pointwise = kernel_[0] == 1 && kernel_[1] == 1 && pad_begin_[0] == 0 && pad_begin_[1] == 0 &&
                               (out_[0] - 1) * stride_[0] < in_[0] && (out_[1] - 1) * stride_[1] < in_[1];
        // Strided pixels are copied, since short lines of them would leave tiles half empty.
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
        // If the lines are evenly spaced, they make up one run, which includes the unused pixels between the lines.
        const bool even = is_im2col_ || (stride_[0] == 1 && stride_[1] == 1);
        const std::int64_t line = line_bytes();
        line_ = even && step_ != 0 && line % step_ == 0 && line / step_ < out_[1] + kernel_[1] * 2 ? line / step_ : 0;
        is_weight_bound_ = panels_ * segments_ * blocks_ * kInt8Block > in_[0] * in_[1] * channels_;
        block_lines_ = is_weight_bound_ ? out_[0] : std::max<std::int64_t>(ceil_div(out_[0], 8), 1);
        while (block_lines_ > 1 && !in_place_ && patch_bytes(block_lines_) > (is_weight_bound_ ? 4 : 1) * kPatchBytes)
            --block_lines_;
    }

    void pack(const Spec& spec, WeightCache& cache) {
        const Operand& w = spec.inputs.at(1);
        ByteMatrix matrix{w.constant, w.element, {}, w.strides[0], w.sizes[0], segments_, w_zero_};
        for (std::int64_t h = 0; h < kernel_[0]; ++h)
            for (std::int64_t k = 0; k < kernel_[1]; ++k)
                for (std::int64_t c = 0; c < channels_; ++c)
                    matrix.depth.push_back(c * w.strides[1] + h * w.strides[2] + k * w.strides[3]);
        packed_ = pack_bytes(cache, matrix);
        has_w_zero_ = !packed_->zero.empty();
        // The contribution of x's zero point.
        for (std::size_t j = 0; j < offset_.size(); ++j)
            offset_[j] = static_cast<std::int32_t>(static_cast<std::uint32_t>(offset_[j]) -
                                                   static_cast<std::uint32_t>(x_zero_) * packed_->total[j]);
    }

    // Computes a range of lines of an image for a range of panels.
    void compute_block(const Run& run, std::int64_t image, std::int64_t first, std::int64_t last, std::int64_t panel,
                       std::int64_t end, int worker) const {
        std::byte* scratch = run.scratch_of(worker);
        auto* accumulators = reinterpret_cast<std::int32_t*>(scratch);
        const std::byte* x = run.at(x_) + image * x_.strides[0];
        std::byte* patch = scratch + kInt8Pixels * kAccumulatorPitch * 4;
        const std::byte* from = in_place_ ? x + first * stride_[0] * x_step_[0] : patch;
        const std::int64_t x_zero = x_zero_of(run);
        if (is_im2col_)
            im2col(x, patch, first, last, x_zero);
        else if (!in_place_)
            fill_patch(x, patch, first, patch_rows(last - first), x_zero);
        const std::int64_t line_step = line_bytes();
        // Pixels are processed in runs: all lines together are one run, or each line is a run.
        const std::int64_t runs = line_ ? 1 : last - first, length = line_ ? (last - first - 1) * line_ + out_[1] : out_[1];
        const std::int64_t parts = ceil_div(length, kInt8Pixels), step = segments_ * blocks_ * kInt8Block;
        // If all pixels are multiplied by one pair of panels before the next pair, the tiles prefetch the weights of the next
        // pair.
        const std::int64_t share = is_weight_bound_ ? 2 * step / 64 / (runs * parts) * 64 : 0;
        const std::int64_t fetched = ceil_div(share / 64, segments_ * blocks_) * 64;
        auto* totals =
            reinterpret_cast<std::int32_t*>(patch + round_up(in_place_ ? 0 : patch_bytes(block_lines_) + kReadPadding, 64));
        if (has_w_zero_) sum_pixels(from, runs, length, x_zero, totals);
        const auto tile = [&](std::int64_t at, std::int64_t part, std::int64_t j) {
            const std::int64_t begin = part * kInt8Pixels, count = std::min(length - begin, kInt8Pixels);
            const int width = static_cast<int>(std::min<std::int64_t>(end - j, 2));
            const std::int8_t* weights = packed_->weights() + j * step;
            alignas(64) std::int32_t offset[2 * kInt8Columns];
            const std::int32_t* base = offset_.data() + j * kInt8Columns;
            for (std::int64_t c = 0; has_x_zero_ && c < width * kInt8Columns; ++c)
                offset[c] = static_cast<std::int32_t>(static_cast<std::uint32_t>(base[c]) -
                                                      static_cast<std::uint32_t>(x_zero) *
                                                          packed_->total[static_cast<std::size_t>(j * kInt8Columns + c)]);
            const Int8Tile int8_tile{from + at * line_step + begin * step_,
                                     step_,
                                     offsets_.data(),
                                     segments_,
                                     blocks_,
                                     last_depth_,
                                     weights,
                                     has_x_zero_ ? offset : base,
                                     weights + 2 * step + (at * parts + part) * share,
                                     j + 2 < end ? fetched : 0,
                                     static_cast<int>(count),
                                     width,
                                     x_.element == Element::i8,
                                     accumulators};
            const Int8Unit* unit = count <= kFewPixels && few_unit_ ? few_unit_ : unit_;
            (unit ? unit->multiply : kernels_.multiply)(int8_tile);
            if (has_w_zero_)
                kernels_.subtract_outer(accumulators, totals + at * length + begin, packed_->zero.data() + j * kInt8Columns,
                                        count);
            write(run, image, first + at, begin, count, j, width, accumulators);
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

    std::int64_t x_zero_of(const Run& run) const {
        if (!has_x_zero_) return x_zero_;
        const std::byte* at = run.at(x_zero_operand_);
        return x_.element == Element::i8 ? *reinterpret_cast<const std::int8_t*>(at) : *reinterpret_cast<const std::uint8_t*>(at);
    }

    std::int64_t totals_bytes() const {
        const std::int64_t pixels = block_lines_ * std::max(out_[1], line_) + kInt8Pixels;
        return has_w_zero_ ? round_up(pixels * 4, 64) : 0;
    }

    // Computes, for each pixel of each run, the sum over the window of x minus its zero point.
    void sum_pixels(const std::byte* from, std::int64_t runs, std::int64_t length, std::int64_t x_zero,
                    std::int32_t* totals) const {
        const std::int64_t bytes = kernel_[0] * kernel_[1] * channels_ / segments_;
        Int8Tile tile{};
        tile.step = step_;
        tile.offsets = offsets_.data();
        tile.segments = segments_;
        tile.pixels = static_cast<int>(length);
        tile.is_signed = x_.element == Element::i8;
        const auto zeros = static_cast<std::uint32_t>(x_zero) * static_cast<std::uint32_t>(bytes * segments_);
        for (std::int64_t at = 0; at < runs; ++at) {
            tile.x = from + at * line_bytes();
            kernels_.sum_pixels(tile, bytes, totals + at * length);
        }
        for (std::int64_t p = 0; p < runs * length; ++p)
            totals[p] = static_cast<std::int32_t>(static_cast<std::uint32_t>(totals[p]) - zeros);
    }

    // Writes `count` pixels, from pixel `begin` of the run that starts at line `line`.
    void write(const Run& run, std::int64_t image, std::int64_t line, std::int64_t begin, std::int64_t count, std::int64_t panel,
               int width, const std::int32_t* accumulators) const {
        const std::int64_t column = panel * kInt8Columns;
        Pixels pixels{};
        pixels.column = column;
        pixels.columns = std::min<std::int64_t>(width * kInt8Columns, y_.sizes[1] - column);
        std::byte* y = run.at(y_) + image * y_.strides[0] + column * y_.itemsize;
        const std::byte* other = has_residual_ ? run.at(residual_) + image * residual_.strides[0] + column : nullptr;
        if (line_ == 1 && out_[1] == 1) {
            // If each line has one pixel, the pixels of all lines are evenly spaced.
            pixels.count = count;
            pixels.accumulators = accumulators;
            pixels.y = y + (line + begin) * y_step_[0];
            pixels.y_step = y_step_[0];
            pixels.other_step = has_residual_ ? residual_.strides[is_product_ ? 0 : 2] : 0;
            if (has_residual_) pixels.other = other + (line + begin) * pixels.other_step;
            return write(run, pixels);
        }
        const std::int64_t lines = line_ ? static_cast<std::uint32_t>(begin) / static_cast<std::uint32_t>(line_) : 0;
        std::int64_t row = line + lines, at = begin - lines * line_;
        pixels.y_step = y_step_[1];
        pixels.other_step = has_residual_ ? residual_.strides[3] : 0;
        while (count > 0) {
            pixels.count = std::min(count, out_[1] - at);
            if (pixels.count > 0) {
                pixels.accumulators = accumulators;
                pixels.y = y + row * y_step_[0] + at * y_step_[1];
                if (has_residual_) pixels.other = other + row * residual_.strides[2] + at * residual_.strides[3];
                write(run, pixels);
            }
            // Continues at the next line; in a run of several lines the unused pixels between the lines are skipped.
            const std::int64_t passed = std::min(count, line_ - at);
            count -= passed;
            accumulators += passed * kAccumulatorPitch;
            ++row;
            at = 0;
            if (line_ == 0) return;
        }
    }

    // The accumulators of evenly spaced pixels, and the address of the outputs of these pixels.
    struct Pixels {
        const std::int32_t* accumulators;
        std::int64_t count, column, columns;
        std::byte* y;
        std::int64_t y_step;
        const std::byte* other;
        std::int64_t other_step;
    };

    void write(const Run& run, const Pixels& pixels) const {
        if (results_ == Results::codes) {
            Requantization codes = requantization_;
            codes.accumulators = pixels.accumulators;
            codes.factor = factor_.data() + pixels.column;
            codes.columns = pixels.columns;
            codes.pixels = pixels.count;
            codes.y = pixels.y;
            codes.y_step = pixels.y_step;
            codes.other = pixels.other;
            codes.other_step = pixels.other_step;
            return kernels_.requantize(codes);
        }
        if (results_ == Results::floats)
            return floats_.dequantize(
                {pixels.accumulators, factor_.data() + pixels.column, bias_.empty() ? nullptr : bias_.data() + pixels.column,
                 *reinterpret_cast<const float*>(run.at(x_scale_)), pixels.columns, pixels.count, pixels.y, pixels.y_step});
        for (std::int64_t p = 0; p < pixels.count; ++p)
            std::memcpy(pixels.y + p * pixels.y_step, pixels.accumulators + p * kAccumulatorPitch,
                        static_cast<std::size_t>(pixels.columns) * 4);
    }

    // Copies channels-last rows of the image with their padding.
    void fill_patch(const std::byte* x, std::byte* patch, std::int64_t first, std::int64_t rows, std::int64_t x_zero) const {
        const auto zero = static_cast<int>(x_zero & 0xff);
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
    void im2col(const std::byte* x, std::byte* patch, std::int64_t first, std::int64_t last, std::int64_t x_zero) const {
        const auto zero = static_cast<int>(x_zero & 0xff);
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

    Operand x_, y_, residual_, x_zero_operand_, x_scale_;
    Results results_ = Results::codes;
    bool has_residual_ = false, is_product_ = false;
    bool has_x_zero_ = false;  // the zero point of x is an operand
    bool has_w_zero_ = false;  // the packed weights have zero points other than 0
    Int8Kernels kernels_;
    DynamicQuantization floats_;
    const Int8Unit* unit_;
    const Int8Unit* few_unit_;  // vector code for few pixels
    std::int64_t images_ = 1, channels_ = 1, x_zero_ = 0;
    std::int64_t in_[2], out_[2], kernel_[2], stride_[2], dilation_[2], pad_begin_[2], x_step_[2], y_step_[2];
    bool in_place_ = false, is_im2col_ = false, merges_taps_ = false, is_weight_bound_ = false;
    std::int64_t segments_ = 1, blocks_ = 1, last_depth_ = 8, patch_row_ = 0, step_ = 0, panels_ = 1, block_lines_ = 1;
    std::int64_t line_ = 0;  // line stride in pixels if all lines are one run; else 0
    std::vector<std::int64_t> offsets_;
    std::vector<float> factor_, bias_;  // by column
    std::vector<std::int32_t> offset_, w_zero_;
    Requantization requantization_{};
    std::shared_ptr<const PackedBytes> packed_;
};

}  // namespace

std::unique_ptr<Kernel> make_quantized_conv(const Spec& spec, WeightCache& cache) {
    return std::make_unique<QuantizedConv>(spec, cache);
}

}  // namespace dovetail
