// Steps that only move data.
#include <stdexcept>

#include "kernels/copy.h"
#include "kernels/kernels.h"

namespace dovetail {
namespace {

class Copy : public Step {
public:
    explicit Copy(const Spec& spec) : from_(spec.inputs.at(0)), to_(spec.outputs.at(0)) {
        if (from_.sizes != to_.sizes || from_.itemsize != to_.itemsize) throw std::invalid_argument("copy: operands differ");
        window_ = {{}, 0, 0, static_cast<std::size_t>(to_.itemsize)};
        for (std::size_t i = 0; i < to_.rank(); ++i) {
            if (to_.strides[i] % to_.itemsize || from_.strides[i] % to_.itemsize)
                throw std::invalid_argument("copy: a stride is no whole number of elements");
            window_.axes.push_back({to_.sizes[i], to_.strides[i] / to_.itemsize, from_.strides[i] / to_.itemsize});
        }
    }
    void run(const Run& run) const override { copy(window_, run.at(to_), run.at(from_)); }
    std::string name() const override { return "copy"; }

private:
    Operand from_;
    Operand to_;
    Window window_;
};

}  // namespace

std::unique_ptr<Step> make_copy(const Spec& spec, Store&) { return std::make_unique<Copy>(spec); }

}  // namespace dovetail
