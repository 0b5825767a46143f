// Transposed convolution: output pixels whose coordinates leave the same remainders by the strides are an ordinary convolution of
// the input with some of the taps, in reverse.
#include <numeric>
#include <stdexcept>

#include "kernels/conv.h"
#include "kernels/conv_geometry.h"
#include "kernels/kernels.h"

namespace dovetail {
namespace {

std::int64_t whole(std::int64_t value, std::int64_t unit) { return (value + unit - 1) / unit; }

// What one remainder of one axis comes to.
struct Phase {
    std::int64_t first, pixels;        // of the output
    std::int64_t tap, taps, tap_step;  // those that reach it, from the one that reads the first input pixel
    std::int64_t before, dilation;     // of the convolution
};

constexpr std::int64_t kMostPhases = 1 << 12;

struct Axis {
    std::int64_t out, kernel, stride, dilation, before;
};

Phase phase_of(const Axis& axis, std::int64_t remainder) {
    Phase phase{remainder, whole(axis.out - remainder, axis.stride), 0, 0, 0, 0, 1};
    std::int64_t last = -1;
    for (std::int64_t tap = axis.kernel; tap-- > 0;) {
        if ((remainder + axis.before - tap * axis.dilation) % axis.stride != 0) continue;
        if (last < 0) phase.tap = tap;
        if (last >= 0) phase.tap_step = tap - last;
        last = tap;
        ++phase.taps;
    }
    if (phase.taps == 0) return phase;
    // Input pixel q + (remainder + before - tap * dilation) / stride goes into output pixel number q.
    phase.before = -(remainder + axis.before - phase.tap * axis.dilation) / axis.stride;
    phase.dilation = axis.dilation / std::gcd(axis.dilation, axis.stride);
    return phase;
}

class ConvTranspose : public Step {
public:
    ConvTranspose(const Spec& spec, Store& store);
    void run(const Run& run) const override {
        for (const auto& part : parts_) part->run(run);
    }
    std::size_t scratch_bytes() const override;
    std::string name() const override {
        return "conv transpose, " + std::to_string(parts_.size()) + " " + (parts_.empty() ? "" : parts_[0]->name());
    }

private:
    void add(const Spec& spec, Store& store, const std::vector<Phase>& phases);

    std::vector<std::unique_ptr<Step>> parts_;
    std::vector<float> zeros_;  // the weights of pixels that no tap reaches
};

std::vector<std::int64_t> numbers(const Spec& spec, const char* name, std::size_t count, std::int64_t otherwise) {
    const auto values = spec.integers(name);
    if (!values.empty() && values.size() != count) throw std::invalid_argument(spec.kernel + ": " + name + " has another rank");
    return values.empty() ? std::vector<std::int64_t>(count, otherwise) : values;
}

ConvTranspose::ConvTranspose(const Spec& spec, Store& store) {
    const Operand &w = spec.inputs.at(1), &x = spec.inputs.at(0), &y = spec.outputs.at(0);
    if (w.rank() < 3 || w.rank() != y.rank() || x.rank() != y.rank() || !w.is_constant() || w.element != Element::f32)
        throw std::invalid_argument("conv_transpose: these weights are not served");
    if (spec.has("prologue_scale")) throw std::invalid_argument("conv_transpose: no prologue");
    const std::int64_t groups = spec.integer("groups", 1);
    if (groups < 1 || w.sizes[0] != x.sizes[1] || w.sizes[0] % groups != 0 || w.sizes[1] * groups != y.sizes[1])
        throw std::invalid_argument("conv_transpose: the operands disagree");
    if (spec.integer("has_residual") != 0 && spec.inputs.back().sizes != y.sizes)
        throw std::invalid_argument("conv_transpose: the residual has other sizes");
    zeros_.assign(static_cast<std::size_t>(w.sizes[0] * w.sizes[1]), 0.0f);
    const std::size_t count = w.rank() - 2;
    const auto strides = numbers(spec, "strides", count, 1), dilations = numbers(spec, "dilations", count, 1);
    const auto before = numbers(spec, "pads_begin", count, 0);
    check_windows("conv_transpose", {w.sizes.begin() + 2, w.sizes.end()}, strides, dilations, before);
    std::int64_t all = 1;
    for (const auto stride : strides) {
        if (stride > kMostPhases / all) throw std::invalid_argument("conv_transpose: too many phases");
        all *= stride;
    }
    for (std::int64_t index = 0; index < all; ++index) {
        std::vector<Phase> phases;
        std::int64_t rest = index;
        for (std::size_t i = 0; i < count; rest /= strides[i++])
            phases.push_back(phase_of({y.sizes[i + 2], w.sizes[i + 2], strides[i], dilations[i], before[i]}, rest % strides[i]));
        add(spec, store, phases);
    }
}

// The operand's pixels of these phases: `count` of every `stride`th.
void take_pixels(Operand& operand, const std::vector<Phase>& phases, const std::vector<std::int64_t>& strides) {
    for (std::size_t i = 0; i < phases.size(); ++i) {
        operand.offset += phases[i].first * operand.strides[i + 2];
        operand.strides[i + 2] *= strides[i];
        operand.sizes[i + 2] = phases[i].pixels;
    }
}

void ConvTranspose::add(const Spec& spec, Store& store, const std::vector<Phase>& phases) {
    const auto strides = numbers(spec, "strides", phases.size(), 1);
    Spec part = spec;
    part.kernel = "conv";
    Operand& w = part.inputs[1];
    const Operand& given = spec.inputs[1];
    const std::int64_t groups = spec.integer("groups", 1);
    std::vector<std::int64_t> before, dilations, ones(phases.size(), 1);
    bool reached = true;
    for (std::size_t i = 0; i < phases.size(); ++i) {
        if (phases[i].pixels <= 0) return;
        reached &= phases[i].taps > 0;
        w.constant += phases[i].tap * given.strides[i + 2];
        w.strides[i + 2] = phases[i].tap_step * given.strides[i + 2];
        w.sizes[i + 2] = phases[i].taps;
        before.push_back(phases[i].before);
        dilations.push_back(phases[i].dilation);
    }
    w.sizes[0] = given.sizes[1] * groups;
    w.sizes[1] = given.sizes[0] / groups;
    std::swap(w.strides[0], w.strides[1]);
    if (!reached) {
        w.constant = reinterpret_cast<const std::byte*>(zeros_.data());
        w.strides.assign(w.rank(), 0);
        std::fill(w.sizes.begin() + 2, w.sizes.end(), 1);
        before.assign(phases.size(), 0);
    }
    part.attributes["group_step"] = reached ? given.sizes[0] / groups * given.strides[0] : std::int64_t{0};
    part.attributes["strides"] = ones;
    part.attributes["dilations"] = dilations;
    part.attributes["pads_begin"] = before;
    part.attributes["pads_end"] = std::vector<std::int64_t>(phases.size(), 0);
    take_pixels(part.outputs[0], phases, strides);
    if (spec.integer("has_residual") != 0) take_pixels(part.inputs.back(), phases, strides);
    parts_.push_back(make_conv(part, store));
}

std::size_t ConvTranspose::scratch_bytes() const {
    std::size_t most = 0;
    for (const auto& part : parts_) most = std::max(most, part->scratch_bytes());
    return most;
}

}  // namespace

std::unique_ptr<Step> make_conv_transpose(const Spec& spec, Store& store) { return std::make_unique<ConvTranspose>(spec, store); }

}  // namespace dovetail
