// DFT along one axis: mixed-radix Stockham transforms, and Bluestein's algorithm for lengths with large prime factors.
#include "kernels/dft.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <stdexcept>

#include "int_math.h"
#include "kernels/axis_lines.h"
#include "kernels/kernels.h"

namespace dovetail {
namespace {

constexpr std::int64_t kElementsPerTask = 16 * 1024;
// The longest transform: its buffers take 256 MiB per thread.
constexpr std::int64_t kMaxLength = std::int64_t{1} << 22;
// The longest transform of many lines side by side; longer ones would not stay in L2.
constexpr std::int64_t kMaxLengthInLanes = std::int64_t{1} << 14;

// cos and sin of -2 pi k / n. The angle is reduced exactly, to at most an eighth of a turn.
void root_of_unity(std::int64_t k, std::int64_t n, double& re, double& im) {
    k %= n;
    const std::int64_t octant = 8 * k / n;
    const auto angle = [&](std::int64_t eighths) {
        return 2 * 3.14159265358979323846 * (static_cast<double>(8 * k - eighths * n) / static_cast<double>(8 * n));
    };
    double c = 0, s = 0;
    switch ((octant + 1) / 2) {
        case 0: c = std::cos(angle(0)), s = std::sin(angle(0)); break;
        case 1: c = -std::sin(angle(2)), s = std::cos(angle(2)); break;
        case 2: c = -std::cos(angle(4)), s = -std::sin(angle(4)); break;
        case 3: c = std::sin(angle(6)), s = -std::cos(angle(6)); break;
        default: c = std::cos(angle(8)), s = std::sin(angle(8)); break;
    }
    re = c;
    im = -s;
}

std::vector<std::int64_t> radices_of(std::int64_t n) {
    std::vector<std::int64_t> radices;
    for (const std::int64_t radix : {4, 2, 3, 5, 7, 11, 13})
        for (; n % radix == 0; n /= radix) radices.push_back(radix);
    return n == 1 ? radices : std::vector<std::int64_t>();
}

// A transform whose length has only small prime factors.
class SmoothFft {
public:
    explicit SmoothFft(std::int64_t n) : n_(n) {
        std::int64_t rest = n, stride = 1;
        std::vector<std::size_t> starts;
        for (const std::int64_t radix : radices_of(n)) {
            starts.push_back(table_.size());
            for (std::int64_t p = 0; p < rest / radix; ++p)
                for (std::int64_t k = 0; k < radix; ++k) append(p * k, rest);
            for (std::int64_t k = 0; k < radix; ++k) append(k, radix);
            stages_.push_back({radix, rest / radix, stride, nullptr, nullptr});
            rest /= radix;
            stride *= radix;
        }
        for (std::size_t i = 0; i < stages_.size(); ++i) {
            stages_[i].twiddles = table_.data() + starts[i];
            stages_[i].roots = stages_[i].twiddles + stages_[i].m * stages_[i].radix * 2;
        }
    }
    SmoothFft(const SmoothFft&) = delete;
    SmoothFft& operator=(const SmoothFft&) = delete;

    std::int64_t size() const { return n_; }

    // Returns the one of x and y that holds the result.
    double* run(double* x, double* y, bool in_lanes) const {
        function_(stages_.data(), static_cast<int>(stages_.size()), n_, in_lanes, x, y);
        return stages_.size() % 2 == 0 ? x : y;
    }

private:
    void append(std::int64_t k, std::int64_t n) {
        double re = 0, im = 0;
        root_of_unity(k, n, re, im);
        table_.push_back(re);
        table_.push_back(im);
    }

    std::int64_t n_;
    std::vector<double> table_;
    std::vector<FftStage> stages_;
    FftFunction function_ = DOVETAIL_SELECT_ISA(fft)();
};

std::int64_t convolution_length(std::int64_t n) {
    std::int64_t length = 1;
    while (length < 2 * n - 1) length *= 2;
    return length;
}

// A transform of any length, over buffers [2][size()][lanes].
class Fft {
public:
    explicit Fft(std::int64_t n)
        : n_(n), is_smooth_(n == 1 || !radices_of(n).empty()), fft_(is_smooth_ ? n : convolution_length(n)) {
        if (is_smooth_) return;
        // Bluestein: x[j] * chirp[j] is convolved with the conjugate chirp, exp(pi i j^2 / n).
        const std::int64_t size = fft_.size();
        std::vector<double> kernel(static_cast<std::size_t>(2 * size)), other(kernel.size());
        for (std::int64_t j = 0; j < n; ++j) {
            double re = 0, im = 0;
            root_of_unity(j * j % (2 * n), 2 * n, re, im);
            chirp_.push_back(re);
            chirp_.push_back(im);
            for (const std::int64_t at : {j, (size - j) % size}) {
                kernel[static_cast<std::size_t>(at)] = re;
                kernel[static_cast<std::size_t>(size + at)] = -im;
            }
        }
        const double* transformed = fft_.run(kernel.data(), other.data(), false);
        filter_.assign(transformed, transformed + 2 * size);
        for (double& value : filter_) value /= static_cast<double>(size);
    }

    std::int64_t size() const { return fft_.size(); }
    bool is_smooth() const { return is_smooth_; }

    // Returns the one of x and y whose first n elements hold the result.
    double* run(double* x, double* y, bool in_lanes) const {
        if (is_smooth_) return fft_.run(x, y, in_lanes);
        const std::int64_t lanes = in_lanes ? kFftLanes : 1, part = size() * lanes;
        for (std::int64_t j = 0; j < n_; ++j) multiply(x, part, j, lanes, chirp(2 * j), chirp(2 * j + 1));
        double* spectrum = fft_.run(x, y, in_lanes);
        for (std::int64_t j = 0; j < size(); ++j)
            multiply(spectrum, part, j, lanes, filter_[static_cast<std::size_t>(j)],
                     filter_[static_cast<std::size_t>(size() + j)]);
        // The inverse transform is the forward one with real and imaginary parts exchanged.
        double* other = spectrum == x ? y : x;
        exchange(spectrum, part);
        double* result = fft_.run(spectrum, other, in_lanes);
        exchange(result, part);
        for (std::int64_t j = 0; j < n_; ++j) multiply(result, part, j, lanes, chirp(2 * j), chirp(2 * j + 1));
        return result;
    }

private:
    static void multiply(double* x, std::int64_t part, std::int64_t at, std::int64_t lanes, double re, double im) {
        double* real = x + at * lanes;
        double* imaginary = real + part;
        for (std::int64_t i = 0; i < lanes; ++i) {
            const double a = real[i], b = imaginary[i];
            real[i] = a * re - b * im;
            imaginary[i] = a * im + b * re;
        }
    }

    double chirp(std::int64_t i) const { return chirp_[static_cast<std::size_t>(i)]; }

    static void exchange(double* x, std::int64_t part) { std::swap_ranges(x, x + part, x + part); }

    std::int64_t n_;
    bool is_smooth_;
    SmoothFft fft_;
    std::vector<double> chirp_;
    std::vector<double> filter_;
};

// `Io`: the element type. The computation is in f64: zeros of an exact transform come out as zeros of f32.
template <typename Io>
class Dft : public Kernel {
public:
    Dft(const Spec& spec, std::size_t axis)
        : x_(spec.inputs[0]), y_(spec.outputs[0]), length_(spec.integer("length")), is_inverse_(spec.integer("inverse") != 0),
          is_onesided_(spec.integer("onesided") != 0), axis_(axis), fft_(length_), x_line_(part(x_)), y_line_(part(y_)),
          lines_(axis, {&x_line_, &y_line_}) {
        const std::int64_t frequencies = length_ / 2 + 1;
        read_ = min(x_.sizes[axis], is_inverse_ && is_onesided_ ? frequencies : length_);
    }

    std::string name() const override { return std::string("dft ") + (fft_.is_smooth() ? "" : "bluestein ") + name_of(isa()); }

    std::size_t scratch_bytes() const override { return static_cast<std::size_t>(buffer_elements() * 2) * sizeof(double); }

    void run(const Run& run) const override {
        if (y_.count() == 0) return;
        const std::int64_t lanes = lane_count();
        const std::int64_t groups = ceil_div(lines_.count(), lanes);
        const std::int64_t per_task = max(1, kElementsPerTask / max(1, fft_.size() * lanes));
        run.pool->parallel_for(ceil_div(groups, per_task), [&](std::int64_t task, int worker) {
            for (std::int64_t group = task * per_task; group < min(groups, (task + 1) * per_task); ++group)
                transform(run, group * lanes, min(lanes, lines_.count() - group * lanes), worker);
        });
    }

private:
    // Returns the operand without its last axis, along which the real and imaginary parts lie.
    static Operand part(const Operand& operand) {
        Operand result = operand;
        result.sizes.pop_back();
        result.strides.pop_back();
        return result;
    }

    std::int64_t lane_count() const { return lines_.count() * 4 > kFftLanes && fft_.size() <= kMaxLengthInLanes ? kFftLanes : 1; }
    std::int64_t buffer_elements() const { return 2 * fft_.size() * lane_count(); }

    void transform(const Run& run, std::int64_t first, std::int64_t count, int worker) const {
        auto* buffer = reinterpret_cast<double*>(run.scratch_of(worker));
        double* other = buffer + buffer_elements();
        const std::int64_t lanes = lane_count(), part = fft_.size() * lanes;
        std::memset(static_cast<void*>(buffer), 0, static_cast<std::size_t>(2 * part) * sizeof(double));
        for (std::int64_t lane = 0; lane < count; ++lane)
            read_line(run.at(x_) + lines_.start(0, first + lane), buffer + lane, part);
        const double* result = fft_.run(buffer, other, lanes > 1);
        for (std::int64_t lane = 0; lane < count; ++lane)
            write_line(run.at(y_) + lines_.start(1, first + lane), result + lane, part);
    }

    // Reads a line into its lane; an inverse transform reads real and imaginary parts exchanged.
    void read_line(const std::byte* x, double* buffer, std::int64_t part) const {
        const std::int64_t lanes = lane_count(), step = x_.strides[axis_], parts = x_.sizes.back(), next = x_.strides.back();
        double* real = buffer + (is_inverse_ ? part : 0);
        double* imaginary = buffer + (is_inverse_ ? 0 : part);
        for (std::int64_t i = 0; i < read_; ++i, x += step) {
            real[i * lanes] = static_cast<double>(*reinterpret_cast<const Io*>(x));
            if (parts == 2) imaginary[i * lanes] = static_cast<double>(*reinterpret_cast<const Io*>(x + next));
        }
        if (!is_inverse_ || !is_onesided_) return;
        // The other frequencies of a real signal are conjugates; its mean and the frequency of length / 2 have no imaginary part.
        imaginary[0] = 0;
        if (length_ % 2 == 0) imaginary[length_ / 2 * lanes] = 0;
        for (std::int64_t i = 1; i < (length_ + 1) / 2; ++i) {
            real[(length_ - i) * lanes] = real[i * lanes];
            imaginary[(length_ - i) * lanes] = -imaginary[i * lanes];
        }
    }

    void write_line(std::byte* y, const double* result, std::int64_t part) const {
        const std::int64_t lanes = lane_count(), step = y_.strides[axis_], next = y_.strides.back(), size = y_.sizes[axis_];
        const double* real = result + (is_inverse_ ? part : 0);
        const double* imaginary = result + (is_inverse_ ? 0 : part);
        const double factor = is_inverse_ ? 1.0 / static_cast<double>(length_) : 1.0;
        for (std::int64_t i = 0; i < size; ++i, y += step) {
            *reinterpret_cast<Io*>(y) = static_cast<Io>(real[i * lanes] * factor);
            if (y_.sizes.back() == 2) *reinterpret_cast<Io*>(y + next) = static_cast<Io>(imaginary[i * lanes] * factor);
        }
    }

    Operand x_, y_;
    std::int64_t length_;
    bool is_inverse_;
    bool is_onesided_;
    std::size_t axis_;
    Fft fft_;
    Operand x_line_, y_line_;
    AxisLines lines_;
    std::int64_t read_ = 0;  // number of elements of a line that are read from the input
};

void require(const Spec& spec, bool holds, const char* what) {
    if (!holds) throw std::invalid_argument(spec.kernel + ": " + what);
}

}  // namespace

std::unique_ptr<Kernel> make_dft(const Spec& spec, WeightCache&) {
    require(spec, spec.inputs.size() == 1 && spec.outputs.size() == 1, "needs 1 input and 1 output");
    const Operand &x = spec.inputs[0], &y = spec.outputs[0];
    const auto axis = static_cast<std::size_t>(spec.integer("axis", -1));
    require(spec, x.rank() >= 2 && x.rank() == y.rank() && axis < x.rank() - 1, "axis is out of range");
    const std::int64_t length = spec.integer("length");
    require(spec, length > 0 && length <= kMaxLength, "length is out of range");
    const bool is_inverse = spec.integer("inverse") != 0, is_onesided = spec.integer("onesided") != 0;
    const std::int64_t parts = is_onesided && is_inverse ? 1 : 2;
    require(spec, x.sizes.back() == 1 || x.sizes.back() == 2, "a number has 1 or 2 parts");
    require(spec, y.sizes.back() == parts && y.sizes[axis] == (is_onesided && !is_inverse ? length / 2 + 1 : length),
            "the output has the wrong shape");
    require(spec, x.element == y.element, "operands must have equal element types");
    if (x.element == Element::f64) return std::make_unique<Dft<double>>(spec, axis);
    require(spec, x.element == Element::f32, "element type must be f32 or f64");
    return std::make_unique<Dft<float>>(spec, axis);
}

}  // namespace dovetail
