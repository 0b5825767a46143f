// Transposed convolution. Output pixels with equal coordinates modulo the strides are an ordinary convolution of the input with a
// subset of the taps, reversed.
#include <numeric>
#include <stdexcept>

#include "kernels/conv.h"
#include "kernels/conv_geometry.h"
#include "kernels/kernels.h"

namespace dovetail {
namespace {

// One residue class of output positions along one axis.
struct Phase {
    std::int64_t first, pixels;        // first output pixel, number of output pixels
    std::int64_t tap, taps, tap_step;  // the contributing taps; the first reads the first input pixel
    std::int64_t pad_begin, dilation;  // attributes of the convolution for this phase
};

constexpr std::int64_t kMaxPhases = 1 << 12;

struct Axis {
    std::int64_t out, kernel, stride, dilation, pad_begin;
};

Phase phase_of(const Axis& axis, std::int64_t remainder) {
    Phase phase{remainder, ceil_div(axis.out - remainder, axis.stride), 0, 0, 0, 0, 1};
    std::int64_t last = -1;
    for (std::int64_t tap = axis.kernel; tap-- > 0;) {
        if ((remainder + axis.pad_begin - tap * axis.dilation) % axis.stride != 0) continue;
        if (last < 0) phase.tap = tap;
        if (last >= 0) phase.tap_step = tap - last;
        last = tap;
        ++phase.taps;
    }
    if (phase.taps == 0) return phase;
    // The output pixel of index q reads the input pixel of index q + (remainder + pad - tap * dilation) / stride.
    phase.pad_begin = -(remainder + axis.pad_begin - phase.tap * axis.dilation) / axis.stride;
    phase.dilation = axis.dilation / std::gcd(axis.dilation, axis.stride);
    return phase;
}

class ConvTranspose : public Kernel {
public:
    ConvTranspose(const Spec& spec, WeightCache& cache);
    void run(const Run& run) const override {
        for (const auto& phase_spec : phases_) phase_spec->run(run);
    }
    std::size_t scratch_bytes() const override;
    std::size_t shared_scratch_bytes() const override;
    bool flushes_subnormals() const override { return true; }
    std::string name() const override {
        return "conv transpose, " + std::to_string(phases_.size()) + " " + (phases_.empty() ? "" : phases_[0]->name());
    }

private:
    void add(const Spec& spec, WeightCache& cache, const std::vector<Phase>& phases);

    std::vector<std::unique_ptr<Kernel>> phases_;
    std::vector<float> zeros_;  // weights of output pixels without taps
};

std::vector<std::int64_t> integers_of(const Spec& spec, const char* name, std::size_t count, std::int64_t fallback) {
    const auto values = spec.integers(name);
    if (!values.empty() && values.size() != count)
        throw std::invalid_argument(spec.kernel + ": " + name + " must have one value for each spatial axis");
    return values.empty() ? std::vector<std::int64_t>(count, fallback) : values;
}

ConvTranspose::ConvTranspose(const Spec& spec, WeightCache& cache) {
    const Operand &w = spec.inputs.at(1), &x = spec.inputs.at(0), &y = spec.outputs.at(0);
    if (w.rank() < 3 || w.rank() != y.rank() || x.rank() != y.rank() || w.element != Element::f32)
        throw std::invalid_argument("conv_transpose: the weights must be an f32 tensor of the rank of the operands");
    if (spec.has("prologue_scale")) throw std::invalid_argument("conv_transpose: has no prologue");
    const std::int64_t groups = spec.integer("groups", 1);
    if (groups < 1 || w.sizes[0] != x.sizes[1] || w.sizes[0] % groups != 0 || w.sizes[1] * groups != y.sizes[1])
        throw std::invalid_argument("conv_transpose: the shapes of the operands disagree");
    if (spec.integer("has_residual") != 0 && spec.inputs.back().sizes != y.sizes)
        throw std::invalid_argument("conv_transpose: the residual must have the sizes of the output");
    zeros_.assign(static_cast<std::size_t>(w.sizes[0] * w.sizes[1]), 0.0f);
    const std::size_t count = w.rank() - 2;
    const auto strides = integers_of(spec, "strides", count, 1), dilations = integers_of(spec, "dilations", count, 1);
    const auto pad_begin = integers_of(spec, "pads_begin", count, 0);
    check_windows("conv_transpose", {w.sizes.begin() + 2, w.sizes.end()}, strides, dilations, pad_begin);
    std::int64_t all = 1;
    for (const auto stride : strides) {
        if (stride > kMaxPhases / all)
            throw std::invalid_argument("conv_transpose: the product of the strides must be at most 4096");
        all *= stride;
    }
    for (std::int64_t index = 0; index < all; ++index) {
        std::vector<Phase> phases;
        std::int64_t rest = index;
        for (std::size_t i = 0; i < count; rest /= strides[i++])
            phases.push_back(
                phase_of({y.sizes[i + 2], w.sizes[i + 2], strides[i], dilations[i], pad_begin[i]}, rest % strides[i]));
        add(spec, cache, phases);
    }
}

// Restricts the operand to every `stride`-th pixel of each axis, from the first pixel of the axis's phase.
void restrict_pixels(Operand& operand, const std::vector<Phase>& phases, const std::vector<std::int64_t>& strides) {
    for (std::size_t i = 0; i < phases.size(); ++i) {
        operand.offset += phases[i].first * operand.strides[i + 2];
        operand.strides[i + 2] *= strides[i];
        operand.sizes[i + 2] = phases[i].pixels;
    }
}

void ConvTranspose::add(const Spec& spec, WeightCache& cache, const std::vector<Phase>& phases) {
    const auto strides = integers_of(spec, "strides", phases.size(), 1);
    Spec phase_spec = spec;
    phase_spec.kernel = "conv";
    Operand& w = phase_spec.inputs[1];
    const Operand& original = spec.inputs[1];
    const std::int64_t groups = spec.integer("groups", 1);
    std::vector<std::int64_t> pad_begin, dilations, ones(phases.size(), 1);
    bool has_taps = true;
    std::int64_t first_byte = 0;
    for (std::size_t i = 0; i < phases.size(); ++i) {
        if (phases[i].pixels <= 0) return;
        has_taps &= phases[i].taps > 0;
        (w.is_constant() ? first_byte : w.offset) += phases[i].tap * original.strides[i + 2];
        w.strides[i + 2] = phases[i].tap_step * original.strides[i + 2];
        w.sizes[i + 2] = phases[i].taps;
        pad_begin.push_back(phases[i].pad_begin);
        dilations.push_back(phases[i].dilation);
    }
    if (w.is_constant()) w.constant += first_byte;
    w.sizes[0] = original.sizes[1] * groups;
    w.sizes[1] = original.sizes[0] / groups;
    std::swap(w.strides[0], w.strides[1]);
    if (!has_taps) {
        w.constant = reinterpret_cast<const std::byte*>(zeros_.data());
        w.strides.assign(w.rank(), 0);
        std::fill(w.sizes.begin() + 2, w.sizes.end(), 1);
        pad_begin.assign(phases.size(), 0);
    }
    phase_spec.attributes["group_step"] = has_taps ? original.sizes[0] / groups * original.strides[0] : std::int64_t{0};
    phase_spec.attributes["strides"] = ones;
    phase_spec.attributes["dilations"] = dilations;
    phase_spec.attributes["pads_begin"] = pad_begin;
    phase_spec.attributes["pads_end"] = std::vector<std::int64_t>(phases.size(), 0);
    restrict_pixels(phase_spec.outputs[0], phases, strides);
    if (spec.integer("has_residual") != 0) restrict_pixels(phase_spec.inputs.back(), phases, strides);
    phases_.push_back(make_conv(phase_spec, cache));
}

std::size_t ConvTranspose::scratch_bytes() const {
    std::size_t bytes = 0;
    for (const auto& phase_spec : phases_) bytes = std::max(bytes, phase_spec->scratch_bytes());
    return bytes;
}

std::size_t ConvTranspose::shared_scratch_bytes() const {
    std::size_t bytes = 0;
    for (const auto& phase_spec : phases_) bytes = std::max(bytes, phase_spec->shared_scratch_bytes());
    return bytes;
}

}  // namespace

std::unique_ptr<Kernel> make_conv_transpose(const Spec& spec, WeightCache& cache) {
    return std::make_unique<ConvTranspose>(spec, cache);
}

}  // namespace dovetail
