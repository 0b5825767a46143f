// LabelEncoder: each element is replaced by the value that belongs to the key equal to the element. Keys are constants.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <stdexcept>
#include <type_traits>

#include "int_math.h"
#include "kernels/kernels.h"
#include "kernels/strided_loop.h"

namespace dovetail {
namespace {

constexpr std::int64_t kElementsPerTask = 16 * 1024;
// A lookup table over all integers between the least and the greatest key may have at most this many entries per key.
constexpr std::int64_t kMaxSparsity = 8;

// Finds the row of each key: by index if integer keys are dense, otherwise by binary search. If several keys are equal, the last
// of them is found.
template <typename T>
class KeyTable {
public:
    KeyTable(const std::vector<T>& keys) : missing_(static_cast<std::int64_t>(keys.size())), nan_(missing_) {
        for (std::size_t row = 0; row < keys.size(); ++row) {
            if (keys[row] != keys[row])
                nan_ = static_cast<std::int64_t>(row);
            else
                sorted_.push_back({keys[row], static_cast<std::int64_t>(row)});
        }
        std::stable_sort(sorted_.begin(), sorted_.end(), [](const Entry& a, const Entry& b) { return a.key < b.key; });
        if constexpr (std::is_integral_v<T>) make_index();
    }

    std::int64_t row_of(T x) const {
        if constexpr (std::is_integral_v<T>)
            if (!index_.empty()) {
                const std::uint64_t distance = static_cast<std::uint64_t>(x) - static_cast<std::uint64_t>(sorted_.front().key);
                return distance < index_.size() ? index_[distance] : missing_;
            }
        if (x != x) return nan_;
        // The entry before the first greater key is the last one of equal keys.
        const auto after = std::upper_bound(sorted_.begin(), sorted_.end(), x, [](T a, const Entry& b) { return a < b.key; });
        return after == sorted_.begin() || (after - 1)->key != x ? missing_ : (after - 1)->row;
    }

private:
    struct Entry {
        T key;
        std::int64_t row;
    };

    void make_index() {
        if (sorted_.empty()) return;
        const std::uint64_t first = static_cast<std::uint64_t>(sorted_.front().key);
        const std::uint64_t span = static_cast<std::uint64_t>(sorted_.back().key) - first;
        if (span >= sorted_.size() * kMaxSparsity) return;
        index_.assign(span + 1, missing_);
        for (const Entry& entry : sorted_) index_[static_cast<std::uint64_t>(entry.key) - first] = entry.row;
    }

    std::int64_t missing_;
    std::int64_t nan_;
    std::vector<Entry> sorted_;
    std::vector<std::int64_t> index_;
};

template <typename T>
class LabelEncoder : public Kernel {
public:
    LabelEncoder(const Spec& spec, const std::vector<T>& keys)
        : x_(spec.inputs[0]), values_(spec.inputs[1]), y_(spec.outputs[0]), axes_(common_axes({&x_}, {&y_})), table_(keys) {
        for (std::size_t i = 0; i + 1 < axes_.size(); ++i) rows_ *= axes_[i].size;
    }

    std::string name() const override { return "label_encoder"; }

    void run(const Run& run) const override {
        if (y_.count() == 0) return;
        const std::int64_t per_task = max(1, kElementsPerTask / axes_.back().size);
        run.pool->parallel_for(ceil_div(rows_, per_task), [&](std::int64_t task, int) {
            for (std::int64_t row = task * per_task; row < min(rows_, (task + 1) * per_task); ++row) encode_row(run, row);
        });
    }

private:
    void encode_row(const Run& run, std::int64_t row) const {
        const std::byte* x = run.at(x_);
        std::byte* y = run.at(y_);
        for (std::size_t i = axes_.size() - 1; i-- > 0; row /= axes_[i].size) {
            x += row % axes_[i].size * axes_[i].strides[0];
            y += row % axes_[i].size * axes_[i].strides[1];
        }
        const CommonAxis& axis = axes_.back();
        const std::byte* values = run.at(values_);
        const std::int64_t step = values_.strides[0];
        for (std::int64_t i = 0; i < axis.size; ++i, x += axis.strides[0], y += axis.strides[1]) {
            const std::byte* value = values + table_.row_of(*reinterpret_cast<const T*>(x)) * step;
            switch (y_.itemsize) {
                case 1: std::memcpy(y, value, 1); break;
                case 2: std::memcpy(y, value, 2); break;
                case 4: std::memcpy(y, value, 4); break;
                default: std::memcpy(y, value, 8); break;
            }
        }
    }

    Operand x_, values_, y_;
    std::vector<CommonAxis> axes_;
    std::int64_t rows_ = 1;
    KeyTable<T> table_;
};

void require(const Spec& spec, bool holds, const char* what) {
    if (!holds) throw std::invalid_argument(spec.kernel + ": " + what);
}

template <typename T>
std::unique_ptr<Kernel> make(const Spec& spec) {
    std::vector<T> keys;
    if constexpr (std::is_integral_v<T>)
        for (const std::int64_t key : spec.integers("keys")) keys.push_back(static_cast<T>(key));
    else
        for (const double key : spec.reals("keys")) keys.push_back(static_cast<T>(key));
    require(spec, spec.inputs[1].sizes[0] == static_cast<std::int64_t>(keys.size()) + 1,
            "needs one value per key, and the default");
    return std::make_unique<LabelEncoder<T>>(spec, keys);
}

}  // namespace

std::unique_ptr<Kernel> make_label_encoder(const Spec& spec, WeightCache&) {
    require(spec, spec.inputs.size() == 2 && spec.outputs.size() == 1, "needs 2 inputs and 1 output");
    const Operand &x = spec.inputs[0], &values = spec.inputs[1], &y = spec.outputs[0];
    require(spec, x.sizes == y.sizes && values.rank() == 1, "input and output must have equal shapes");
    const bool is_copyable = y.itemsize == 1 || y.itemsize == 2 || y.itemsize == 4 || y.itemsize == 8;
    require(spec, values.element == y.element && values.itemsize == y.itemsize && is_copyable,
            "values and output must have equal element types");
    switch (x.element) {
        case Element::f32: return make<float>(spec);
        case Element::f64: return make<double>(spec);
        case Element::i16: return make<std::int16_t>(spec);
        case Element::i32: return make<std::int32_t>(spec);
        case Element::i64: return make<std::int64_t>(spec);
        default: throw std::invalid_argument("label_encoder: element type must be f32, f64, i16, i32 or i64");
    }
}

}  // namespace dovetail
