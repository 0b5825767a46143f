// Max pooling of 8-bit integers.
#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "int_math.h"
#include "kernels/conv_geometry.h"
#include "kernels/kernels.h"
#include "kernels/pool.h"
#include "kernels/quantized.h"

namespace dovetail {
namespace {

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
    // First the maximum over the rows of a window is computed as one line, then the maximum over adjacent pixels of this line.
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
            // A window that contains only padding yields the minimum of the type.
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

std::unique_ptr<Kernel> make_quantized_pool(const Spec& spec, WeightCache&) { return std::make_unique<QuantizedPool>(spec); }

}  // namespace dovetail
