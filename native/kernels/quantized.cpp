// Convolution of bytes: pixels by blocks of the depth, weights packed once, whole sums brought back to bytes.
#include "kernels/quantized.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "kernels/conv_geometry.h"
#include "kernels/kernels.h"
#include "kernels/pool.h"

namespace dovetail {
namespace {

constexpr std::int64_t kBoxBytes = 128 << 10;      // of copied pixels that stay near
constexpr std::int64_t kSlack = 64;
constexpr std::int64_t kFewChannels = 4;  // which are interleaved where they lie apart

std::int64_t whole(std::int64_t value, std::int64_t unit) { return (value + unit - 1) / unit; }

bool is_byte(const Operand& operand) { return operand.element == Element::u8 || operand.element == Element::i8; }

bool has_dense_channels(const Operand& image) { return image.strides[1] == 1 || image.sizes[1] == 1 || image.count() == 0; }

class QuantizedConv : public Step {
public:
    QuantizedConv(const Spec& spec, Store& store)
        : x_(spec.inputs.at(0)), y_(spec.outputs.at(0)), functions_(DOVETAIL_CHOSEN(byte_functions)()), unit_(matrix_unit() ? matrix_unit() : product_unit()) {
        if (!is_byte(x_) || !is_byte(y_) || x_.rank() != 4 || y_.rank() != 4)
            throw std::invalid_argument("quantized_conv: images of bytes");
        if ((!has_dense_channels(x_) && x_.sizes[1] > kFewChannels) || !has_dense_channels(y_))
            throw std::invalid_argument("quantized_conv: channels that do not lie side by side");
        take_windows(spec);
        take_finish(spec);
        choose();
        pack(spec, store);
    }

    std::string name() const override {
        const char* way = in_place_ ? "in place " : gathered_ ? "gathered " : "rows ";
        return std::string("quantized_conv ") + way + (unit_ ? unit_->name : name_of(isa()));
    }

    std::size_t scratch_bytes() const override {
        const std::int64_t box = in_place_ ? 0 : box_bytes(block_lines_) + kSlack;
        return static_cast<std::size_t>(whole(box, 64) * 64 + kBytePixels * kSumsPitch * 4);
    }

    void run(const Run& run) const override {
        if (y_.count() == 0) return;
        // Threads share heavy weights out, and pixels otherwise.
        const std::int64_t blocks = whole(out_[0], block_lines_), pairs = whole(panels_, 2), threads = run.pool->threads();
        const std::int64_t chunks = heavy_ && threads > 1 ? std::min(pairs, 2 * threads) : 1;
        const std::int64_t tasks = y_.sizes[0] * blocks * chunks;
        const auto task = [&](std::int64_t index, int worker) {
            const std::int64_t chunk = index % chunks, block = index / chunks % blocks;
            block_of(run, index / chunks / blocks, block * block_lines_, std::min((block + 1) * block_lines_, out_[0]),
                     chunk * pairs / chunks * 2, std::min((chunk + 1) * pairs / chunks * 2, panels_), worker);
            if (unit_) unit_->end();
        };
        if (y_.count() * segments_ * blocks_ * kByteDepth < (1 << 19))
            for (std::int64_t i = 0; i < tasks; ++i) task(i, 0);
        else
            run.pool->each(tasks, task);
    }

private:
    void take_windows(const Spec& spec) {
        const Operand& w = spec.inputs.at(1);
        const auto strides = spec.integers("strides"), dilations = spec.integers("dilations"), begins = spec.integers("pads_begin");
        if (strides.size() != 2 || dilations.size() != 2 || begins.size() != 2 || w.rank() != 4 || w.element != Element::i8 ||
            !w.is_constant() || w.sizes[0] != y_.sizes[1] || w.sizes[1] != x_.sizes[1])
            throw std::invalid_argument("quantized_conv: windows of two axes, weights of i8 that are constant, no groups");
        if (x_.sizes[0] != y_.sizes[0]) throw std::invalid_argument("quantized_conv: another number of images");
        check_windows("quantized_conv", {w.sizes[2], w.sizes[3]}, strides, dilations, begins);
        channels_ = x_.sizes[1];
        for (std::size_t i = 0; i < 2; ++i) {
            in_[i] = x_.sizes[i + 2];
            out_[i] = y_.sizes[i + 2];
            kernel_[i] = w.sizes[i + 2];
            stride_[i] = strides[i];
            dilation_[i] = dilations[i];
            before_[i] = begins[i];
            x_step_[i] = x_.strides[i + 2];
            y_step_[i] = y_.strides[i + 2];
        }
        x_zero_ = spec.integer("x_zero");
    }

    void take_finish(const Spec& spec) {
        panels_ = whole(y_.sizes[1], kByteColumns);
        const auto columns = static_cast<std::size_t>(panels_ * kByteColumns + kByteColumns);
        factor_.resize(columns);
        offset_.resize(columns);
        const Operand &bias = spec.inputs.at(2), &factor = spec.inputs.at(3);
        if (!bias.is_constant() || bias.element != Element::i32 || bias.rank() != 1 || bias.sizes[0] != y_.sizes[1] ||
            !factor.is_constant() || factor.element != Element::f32 || factor.rank() != 1 || factor.sizes[0] != y_.sizes[1])
            throw std::invalid_argument("quantized_conv: a constant bias of i32 and factors of f32");
        for (std::int64_t j = 0; j < y_.sizes[1]; ++j) {
            std::memcpy(&offset_[static_cast<std::size_t>(j)], bias.constant + j * bias.strides[0], 4);
            std::memcpy(&factor_[static_cast<std::size_t>(j)], factor.constant + j * factor.strides[0], 4);
        }
        const auto real = [&](const char* name) { return static_cast<float>(spec.real(name)); };
        finish_.low = real("low");
        finish_.high = real("high");
        finish_.zero = real("y_zero");
        finish_.is_full = y_.element == Element::u8 && real(spec.integer("has_residual") ? "last_high" : "high") + finish_.zero >= 255;
        if (spec.integer("has_residual") == 0) return;
        other_ = spec.inputs.at(4);
        if (!is_byte(other_) || other_.sizes != y_.sizes || !has_dense_channels(other_))
            throw std::invalid_argument("quantized_conv: another residual");
        has_other_ = true;
        finish_.other_is_signed = other_.element == Element::i8;
        finish_.other_zero = real("other_zero");
        finish_.own = real("own");
        finish_.beside = real("beside");
        finish_.last_low = real("last_low");
        finish_.last_high = real("last_high");
    }

    std::int64_t box_rows(std::int64_t lines) const { return (lines - 1) * stride_[0] + (kernel_[0] - 1) * dilation_[0] + 1; }
    std::int64_t box_bytes(std::int64_t lines) const { return (gathered_ ? lines : box_rows(lines)) * box_row_; }
    // Bytes from one output line's pixels to the next one's.
    std::int64_t line_bytes() const { return in_place_ ? stride_[0] * x_step_[0] : gathered_ ? box_row_ : stride_[0] * box_row_; }

    void choose() {
        const bool is_dense = x_.strides[1] == 1;
        const bool pointwise = kernel_[0] == 1 && kernel_[1] == 1 && before_[0] == 0 && before_[1] == 0 &&
                               (out_[0] - 1) * stride_[0] < in_[0] && (out_[1] - 1) * stride_[1] < in_[1];
        // Short lines that are steps apart would fill tiles badly.
        gathered_ = is_dense && stride_[1] > 1 && out_[1] < 24 && channels_ * kernel_[1] >= kByteDepth;
        in_place_ = pointwise && !gathered_ && is_dense && channels_ % kByteDepth == 0;
        joined_ = gathered_ || dilation_[1] == 1;
        segments_ = gathered_ ? 1 : joined_ ? kernel_[0] : kernel_[0] * kernel_[1];
        const std::int64_t run = kernel_[0] * kernel_[1] * channels_ / segments_;
        blocks_ = whole(run, kByteDepth);
        last_depth_ = whole(run - (blocks_ - 1) * kByteDepth, 8) * 8;
        step_ = gathered_ ? run : stride_[1] * (in_place_ ? x_step_[1] : channels_);
        box_row_ = gathered_ ? out_[1] * run
                             : ((out_[1] - 1) * stride_[1] + (kernel_[1] - 1) * dilation_[1] + 1) * channels_;
        for (std::int64_t s = 0; s < segments_; ++s)
            offsets_.push_back(joined_ ? s * dilation_[0] * box_row_
                                       : s / kernel_[1] * dilation_[0] * box_row_ + s % kernel_[1] * dilation_[1] * channels_);
        // Lines that go on evenly are one, pixels between them that nobody wants among them.
        const bool even = gathered_ || (stride_[0] == 1 && stride_[1] == 1);
        const std::int64_t line = line_bytes();
        line_ = even && step_ != 0 && line % step_ == 0 && line / step_ < out_[1] + kernel_[1] * 2 ? line / step_ : 0;
        heavy_ = panels_ * segments_ * blocks_ * kByteBlock > in_[0] * in_[1] * channels_;
        block_lines_ = heavy_ ? out_[0] : std::max<std::int64_t>(whole(out_[0], 8), 1);
        while (block_lines_ > 1 && !in_place_ && box_bytes(block_lines_) > (heavy_ ? 4 : 1) * kBoxBytes) --block_lines_;
    }

    // Panel by panel, in the order in which tiles read; what lies behind the end of a segment is multiplied by 0.
    void pack(const Spec& spec, Store& store) {
        const Operand& w = spec.inputs.at(1);
        const std::int64_t panel = segments_ * blocks_ * kByteBlock;
        const std::string key = "quantized " + std::to_string(reinterpret_cast<std::uintptr_t>(w.constant)) + " " +
                                std::to_string(segments_) + " " + std::to_string(blocks_);
        weights_ = std::static_pointer_cast<const std::int8_t>(store.keep(key, [&] {
            const auto bytes = static_cast<std::size_t>(panels_ * panel);
            store.count(bytes);
            auto floats = aligned_floats(bytes / 4);
            auto* to = reinterpret_cast<std::int8_t*>(floats.get());
            std::memset(to, 0, bytes);
            each_weight([&](std::int64_t j, std::int64_t segment, std::int64_t place, std::int8_t value) {
                // Two panels together, the last by itself where their number is odd.
                const std::int64_t own = j / kByteColumns, pair = own / 2 * 2, width = std::min<std::int64_t>(panels_ - pair, 2);
                const std::int64_t block = segment * blocks_ + place / kByteDepth;
                to[pair * panel + (block * width + own - pair) * kByteBlock + place % kByteDepth / 4 * 64 +
                   j % kByteColumns * 4 + place % 4] = value;
            }, w);
            return std::shared_ptr<const void>(floats, floats.get());
        }));
        // What the zero point of x adds to each sum is taken away beforehand.
        std::vector<std::int64_t> total(offset_.size(), 0);
        each_weight([&](std::int64_t j, std::int64_t, std::int64_t, std::int8_t value) { total[static_cast<std::size_t>(j)] += value; }, w);
        for (std::size_t j = 0; j < offset_.size(); ++j) offset_[j] -= static_cast<std::int32_t>(x_zero_ * total[j]);
    }

    template <typename Each>
    void each_weight(const Each& each, const Operand& w) const {
        const std::int64_t run = kernel_[0] * kernel_[1] * channels_ / segments_;
        for (std::int64_t j = 0; j < w.sizes[0]; ++j)
            for (std::int64_t c = 0; c < channels_; ++c)
                for (std::int64_t h = 0; h < kernel_[0]; ++h)
                    for (std::int64_t k = 0; k < kernel_[1]; ++k)
                        each(j, ((h * kernel_[1] + k) * channels_ + c) / run, ((h * kernel_[1] + k) * channels_ + c) % run,
                             static_cast<std::int8_t>(w.constant[j * w.strides[0] + c * w.strides[1] + h * w.strides[2] + k * w.strides[3]]));
    }

    // Some lines of an image, for some panels of columns.
    void block_of(const Run& run, std::int64_t image, std::int64_t first, std::int64_t last, std::int64_t panel, std::int64_t end,
                  int worker) const {
        std::byte* scratch = run.scratch_of(worker);
        auto* sums = reinterpret_cast<std::int32_t*>(scratch);
        const std::byte* x = run.at(x_) + image * x_.strides[0];
        std::byte* box = scratch + kBytePixels * kSumsPitch * 4;
        const std::byte* from = in_place_ ? x + first * stride_[0] * x_step_[0] : box;
        if (gathered_)
            gather(x, box, first, last);
        else if (!in_place_)
            fill(x, box, first, box_rows(last - first));
        const std::int64_t line_step = line_bytes();
        // Runs of pixels: all lines as one, or each by itself.
        const std::int64_t runs = line_ ? 1 : last - first, length = line_ ? (last - first - 1) * line_ + out_[1] : out_[1];
        const std::int64_t pieces = whole(length, kBytePixels), step = segments_ * blocks_ * kByteBlock;
        // Where all pixels go through a pair of panels, they fetch the next pair among them.
        const std::int64_t share = heavy_ ? 2 * step / 64 / (runs * pieces) * 64 : 0;
        const std::int64_t fetched = whole(share / 64, segments_ * blocks_) * 64;
        const auto tile = [&](std::int64_t at, std::int64_t piece, std::int64_t j) {
            const std::int64_t begin = piece * kBytePixels, count = std::min(length - begin, kBytePixels);
            const int width = static_cast<int>(std::min<std::int64_t>(end - j, 2));
            const std::int8_t* weights = weights_.get() + j * step;
            const ByteTile each{from + at * line_step + begin * step_, step_, offsets_.data(), segments_, blocks_, last_depth_,
                                weights, offset_.data() + j * kByteColumns, weights + 2 * step + (at * pieces + piece) * share,
                                j + 2 < end ? fetched : 0,
                                static_cast<int>(count), width, x_.element == Element::i8, sums};
            (unit_ ? unit_->multiply : functions_.multiply)(each);
            put(run, image, first + at, begin, count, j, width, sums);
        };
        if (heavy_) {
            for (std::int64_t j = panel; j < end; j += 2)
                for (std::int64_t at = 0; at < runs; ++at)
                    for (std::int64_t piece = 0; piece < pieces; ++piece) tile(at, piece, j);
        } else {
            for (std::int64_t at = 0; at < runs; ++at)
                for (std::int64_t piece = 0; piece < pieces; ++piece)
                    for (std::int64_t j = panel; j < end; j += 2) tile(at, piece, j);
        }
    }

    // Sums of `count` pixels from `begin` on, counted along a run that begins with line `line`, to bytes where they belong.
    void put(const Run& run, std::int64_t image, std::int64_t line, std::int64_t begin, std::int64_t count, std::int64_t panel,
             int width, const std::int32_t* sums) const {
        const std::int64_t column = panel * kByteColumns;
        ByteFinish pixel = finish_;
        pixel.factor = factor_.data() + column;
        pixel.columns = std::min<std::int64_t>(width * kByteColumns, y_.sizes[1] - column);
        std::byte* y = run.at(y_) + image * y_.strides[0] + column;
        const std::byte* other = has_other_ ? run.at(other_) + image * other_.strides[0] + column : nullptr;
        const std::int64_t lines = line_ ? static_cast<std::uint32_t>(begin) / static_cast<std::uint32_t>(line_) : 0;
        std::int64_t row = line + lines, at = begin - lines * line_;
        pixel.y_step = y_step_[1];
        pixel.other_step = has_other_ ? other_.strides[3] : 0;
        while (count > 0) {
            pixel.pixels = std::min(count, out_[1] - at);
            if (pixel.pixels > 0) {
                pixel.sums = sums;
                pixel.y = y + row * y_step_[0] + at * y_step_[1];
                if (has_other_) pixel.other = other + row * other_.strides[2] + at * other_.strides[3];
                functions_.finish(pixel);
            }
            // To the next line; where lines are one run, past what lies between them.
            const std::int64_t passed = std::min(count, line_ - at);
            count -= passed;
            sums += passed * kSumsPitch;
            ++row;
            at = 0;
            if (line_ == 0) return;
        }
    }

    // Rows of the image with the padding around them, channels side by side.
    void fill(const std::byte* x, std::byte* box, std::int64_t first, std::int64_t rows) const {
        const auto zero = static_cast<int>(x_zero_ & 0xff);
        const std::int64_t pixels = box_row_ / channels_;
        const std::int64_t left = std::clamp<std::int64_t>(before_[1], 0, pixels);
        const std::int64_t inside = std::clamp<std::int64_t>(in_[1] + before_[1], left, pixels);
        for (std::int64_t r = 0; r < rows; ++r, box += box_row_) {
            const std::int64_t row = first * stride_[0] - before_[0] + r;
            if (row < 0 || row >= in_[0]) {
                std::memset(box, zero, static_cast<std::size_t>(box_row_));
                continue;
            }
            std::memset(box, zero, static_cast<std::size_t>(left * channels_));
            const std::byte* from = x + row * x_step_[0] + (left - before_[1]) * x_step_[1];
            if (x_.strides[1] != 1 && channels_ != 1)
                functions_.interleave(box + left * channels_, from, inside - left, channels_, x_step_[1], x_.strides[1]);
            else if (x_step_[1] == channels_)
                std::memcpy(box + left * channels_, from, static_cast<std::size_t>((inside - left) * channels_));
            else
                for (std::int64_t p = left; p < inside; ++p, from += x_step_[1])
                    std::memcpy(box + p * channels_, from, static_cast<std::size_t>(channels_));
            std::memset(box + inside * channels_, zero, static_cast<std::size_t>((pixels - inside) * channels_));
        }
        std::memset(box, 0, kSlack);
    }

    // What each output pixel of some lines reads, tap by tap.
    void gather(const std::byte* x, std::byte* box, std::int64_t first, std::int64_t last) const {
        const auto zero = static_cast<int>(x_zero_ & 0xff);
        const auto pixel = static_cast<std::size_t>(channels_);
        for (std::int64_t line = first; line < last; ++line)
            for (std::int64_t o = 0; o < out_[1]; ++o)
                for (std::int64_t h = 0; h < kernel_[0]; ++h)
                    for (std::int64_t k = 0; k < kernel_[1]; ++k, box += channels_) {
                        const std::int64_t row = line * stride_[0] - before_[0] + h * dilation_[0];
                        const std::int64_t column = o * stride_[1] - before_[1] + k * dilation_[1];
                        if (row < 0 || column < 0 || row >= in_[0] || column >= in_[1])
                            std::memset(box, zero, pixel);
                        else
                            std::memcpy(box, x + row * x_step_[0] + column * x_step_[1], pixel);
                    }
        std::memset(box, 0, kSlack);
    }

    Operand x_, y_, other_;
    bool has_other_ = false;
    ByteFunctions functions_;
    const ByteUnit* unit_;
    std::int64_t channels_ = 1, x_zero_ = 0;
    std::int64_t in_[2], out_[2], kernel_[2], stride_[2], dilation_[2], before_[2], x_step_[2], y_step_[2];
    bool in_place_ = false, gathered_ = false, joined_ = false, heavy_ = false;
    std::int64_t segments_ = 1, blocks_ = 1, last_depth_ = 8, box_row_ = 0, step_ = 0, panels_ = 1, block_lines_ = 1;
    std::int64_t line_ = 0;  // pixels from line to line where all are one run; 0: each is its own
    std::vector<std::int64_t> offsets_;
    std::vector<float> factor_;
    std::vector<std::int32_t> offset_;
    ByteFinish finish_{};
    std::shared_ptr<const std::int8_t> weights_;
};

// The greatest byte of each window.
class BytePool : public Step {
public:
    explicit BytePool(const Spec& spec)
        : x_(spec.inputs.at(0)), y_(spec.outputs.at(0)), functions_(DOVETAIL_CHOSEN(byte_functions)()),
          kernel_(spec.integers("kernel")), strides_(spec.integers("strides")), dilations_(spec.integers("dilations")),
          begins_(spec.integers("pads_begin")) {
        if (!is_byte(x_) || y_.element != x_.element || x_.rank() != 4 || y_.rank() != 4 || kernel_.size() != 2 ||
            strides_.size() != 2 || dilations_.size() != 2 || begins_.size() != 2)
            throw std::invalid_argument("byte_pool: windows of two axes over images of bytes");
        if (!has_dense_channels(x_) || !has_dense_channels(y_))
            throw std::invalid_argument("byte_pool: channels that do not lie side by side");
        if (x_.sizes[0] != y_.sizes[0] || x_.sizes[1] != y_.sizes[1])
            throw std::invalid_argument("byte_pool: the operands disagree");
        check_windows("byte_pool", kernel_, strides_, dilations_, begins_);
        if (y_.count() == 0) return;
        for (std::size_t i = 0; i < 2; ++i) {
            axes_[i] = {x_.sizes[i + 2], y_.sizes[i + 2], kernel_[i], strides_[i], dilations_[i], begins_[i]};
            axes_[i].trim();
        }
    }

    std::string name() const override { return std::string("byte_pool ") + name_of(isa()); }

    std::size_t scratch_bytes() const override {
        const std::int64_t line = whole(x_.sizes[3] * x_.sizes[1], 64) * 64;
        return static_cast<std::size_t>(line + std::max(axes_[0].kernel, axes_[1].kernel) * 8);
    }

    void run(const Run& run) const override {
        if (y_.count() == 0) return;
        const std::int64_t rows = y_.sizes[0] * y_.sizes[2];
        const auto row = [&](std::int64_t index, int worker) { line(run, index / y_.sizes[2], index % y_.sizes[2], worker); };
        if (y_.count() * axes_[0].kernel * axes_[1].kernel > (1 << 18)) return run.pool->each(rows, row);
        for (std::int64_t i = 0; i < rows; ++i) row(i, 0);
    }

private:
    // The greatest of what stands above each other, as one line, and then of what stands side by side in it.
    void line(const Run& run, std::int64_t image, std::int64_t o, int worker) const {
        const std::int64_t channels = x_.sizes[1], pixels = x_.sizes[3];
        const bool is_signed = x_.element == Element::i8, is_whole = x_.strides[3] == channels;
        std::byte* greatest = run.scratch_of(worker);
        auto** places = reinterpret_cast<const std::byte**>(greatest + whole(pixels * channels, 64) * 64);
        std::int64_t number = 0;
        for (std::int64_t h = axes_[0].first(o); h < axes_[0].last(o); ++h)
            places[number++] = run.at(x_) + image * x_.strides[0] + (axes_[0].start(o) + h * axes_[0].dilation) * x_.strides[2];
        if (number != 0 && is_whole) functions_.greatest(greatest, places, number, pixels * channels, is_signed);
        for (std::int64_t p = 0; number != 0 && !is_whole && p < pixels; ++p) {
            functions_.greatest(greatest + p * channels, places, number, channels, is_signed);
            for (std::int64_t n = 0; n < number; ++n) places[n] += x_.strides[3];
        }
        const bool is_nothing = number == 0;
        std::byte* to = run.at(y_) + image * y_.strides[0] + o * y_.strides[2];
        for (std::int64_t p = 0; p < y_.sizes[3]; ++p, to += y_.strides[3]) {
            number = 0;
            for (std::int64_t w = axes_[1].first(p); w < axes_[1].last(p); ++w)
                places[number++] = greatest + (axes_[1].start(p) + w * axes_[1].dilation) * channels;
            // A window of padding alone has the least that there is.
            if (number == 0 || is_nothing)
                std::memset(to, is_signed ? 0x80 : 0, static_cast<std::size_t>(channels));
            else
                functions_.greatest(to, places, number, channels, is_signed);
        }
    }

    Operand x_, y_;
    ByteFunctions functions_;
    std::vector<std::int64_t> kernel_, strides_, dilations_, begins_;
    PoolAxis axes_[2];
};

}  // namespace

std::unique_ptr<Step> make_quantized_conv(const Spec& spec, Store& store) { return std::make_unique<QuantizedConv>(spec, store); }

std::unique_ptr<Step> make_byte_pool(const Spec& spec, Store&) { return std::make_unique<BytePool>(spec); }

}  // namespace dovetail
