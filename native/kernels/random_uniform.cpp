// RandomUniform: numbers of the generator PCG64 (O'Neill 2014, XSL RR 128/64) from a given state, as numpy draws them.
#include <stdexcept>

#include "int_math.h"
#include "kernels/kernels.h"
#include "kernels/strided_loop.h"

#ifdef __SIZEOF_INT128__

namespace dovetail {
namespace {

using Wide = unsigned __int128;

constexpr std::int64_t kNumbersPerTask = 64 * 1024;

class Pcg64 {
public:
    Pcg64(Wide state, Wide increment) : state_(state), increment_(increment) {}

    // Advances the state by `count` steps: the affine step is raised to a power by repeated squaring.
    void advance(std::uint64_t count) {
        Wide factor = kMultiplier, summand = increment_, total_factor = 1, total_summand = 0;
        for (; count != 0; count /= 2) {
            if (count % 2 != 0) {
                total_factor *= factor;
                total_summand = total_summand * factor + summand;
            }
            summand *= factor + 1;
            factor *= factor;
        }
        state_ = total_factor * state_ + total_summand;
    }

    // Returns the next random number in [0, 1), a multiple of 2^-53.
    double next() {
        state_ = state_ * kMultiplier + increment_;
        const std::uint64_t bits = static_cast<std::uint64_t>(state_ >> 64) ^ static_cast<std::uint64_t>(state_);
        const auto turn = static_cast<unsigned>(state_ >> 122);
        const std::uint64_t rotated = bits >> turn | bits << (-turn & 63);
        return static_cast<double>(rotated >> 11) / 9007199254740992.0;
    }

private:
    static constexpr Wide kMultiplier = (Wide{0x2360ed051fc65da4} << 64) | 0x4385df649fccf645;
    Wide state_;
    Wide increment_;
};

Wide wide_of(const std::vector<std::int64_t>& words, std::size_t at) {
    return Wide{static_cast<std::uint64_t>(words[at])} << 64 | static_cast<std::uint64_t>(words[at + 1]);
}

template <typename T>
class RandomUniform : public Kernel {
public:
    explicit RandomUniform(const Spec& spec)
        : y_(spec.outputs[0]), first_(wide_of(spec.integers("state"), 0), wide_of(spec.integers("state"), 2)),
          low_(spec.real("low")), high_(spec.real("high")) {}

    std::string name() const override { return "random_uniform"; }

    void run(const Run& run) const override {
        const std::int64_t count = y_.count();
        run.pool->parallel_for(ceil_div(count, kNumbersPerTask), [&](std::int64_t task, int) {
            const std::int64_t first = task * kNumbersPerTask;
            Pcg64 generator = first_;
            generator.advance(static_cast<std::uint64_t>(first));
            for (std::int64_t i = first; i < min(count, first + kNumbersPerTask); ++i)
                *reinterpret_cast<T*>(run.at(y_) + offset_of(i)) = number_of(generator.next());
        });
    }

private:
    std::int64_t offset_of(std::int64_t position) const {
        std::int64_t offset = 0;
        for (std::size_t i = y_.rank(); i-- > 0; position /= y_.sizes[i]) offset += position % y_.sizes[i] * y_.strides[i];
        return offset;
    }

    // Rounding can give the upper bound, which is excluded; a result that equals the upper bound is replaced by the lower bound.
    T number_of(double share) const {
        const auto number = static_cast<T>(low_ + share * (high_ - low_));
        return low_ < high_ && number >= static_cast<T>(high_) ? static_cast<T>(low_) : number;
    }

    Operand y_;
    Pcg64 first_;
    double low_, high_;
};

}  // namespace

std::unique_ptr<Kernel> make_random_uniform(const Spec& spec, WeightCache&) {
    if (!spec.inputs.empty() || spec.outputs.size() != 1 || spec.integers("state").size() != 4)
        throw std::invalid_argument("random_uniform: needs 0 inputs, 1 output and a state of 4 numbers");
    switch (spec.outputs[0].element) {
        case Element::f32: return std::make_unique<RandomUniform<float>>(spec);
        case Element::f64: return std::make_unique<RandomUniform<double>>(spec);
        default: throw std::invalid_argument("random_uniform: element type must be f32 or f64");
    }
}

}  // namespace dovetail

#else

namespace dovetail {

std::unique_ptr<Kernel> make_random_uniform(const Spec&, WeightCache&) {
    throw std::invalid_argument("random_uniform: needs integers of 128 bits");
}

}  // namespace dovetail

#endif
