#include "kernel.h"

#include <cstdlib>
#include <stdexcept>
#include <utility>

namespace dovetail {

namespace {

constexpr std::pair<const char*, Element> kElements[] = {
    {"f64", Element::f64}, {"f32", Element::f32}, {"f16", Element::f16}, {"bf16", Element::bf16}, {"i64", Element::i64},
    {"i32", Element::i32}, {"i16", Element::i16}, {"i8", Element::i8},   {"u64", Element::u64},   {"u32", Element::u32},
    {"u16", Element::u16}, {"u8", Element::u8},   {"boolean", Element::boolean},
};

}  // namespace

Element element_of(const std::string& name) {
    for (const auto& [each, element] : kElements)
        if (name == each) return element;
    return Element::other;
}

const char* name_of(Element element) {
    for (const auto& [name, each] : kElements)
        if (element == each) return name;
    return "other";
}

std::int64_t Operand::count() const {
    std::int64_t count = 1;
    for (const auto size : sizes) count *= size;
    return count;
}

bool Operand::lies_within(std::int64_t first, std::int64_t last) const {
    if (sizes.size() != strides.size() || itemsize < 0) return false;
    for (const auto size : sizes)
        if (size < 0) return false;
    for (const auto size : sizes)
        if (size == 0) return true;
    if (offset < first || offset > last || itemsize > last - offset) return false;
    // Each axis is compared with the room that the axes before it leave, so that no product overflows.
    std::int64_t below = offset - first, above = last - offset - itemsize;
    for (std::size_t axis = 0; axis < sizes.size(); ++axis) {
        const std::int64_t steps = sizes[axis] - 1;
        if (steps == 0 || strides[axis] == 0) continue;
        std::int64_t& room = strides[axis] < 0 ? below : above;
        if (strides[axis] < -room || strides[axis] > room || steps > room / std::abs(strides[axis])) return false;
        room -= steps * std::abs(strides[axis]);
    }
    return true;
}

namespace {

template <typename T>
const T* find(const Spec& spec, const std::string& name) {
    const auto found = spec.attributes.find(name);
    if (found == spec.attributes.end()) return nullptr;
    const T* value = std::get_if<T>(&found->second);
    if (value == nullptr) throw std::invalid_argument(spec.kernel + ": the attribute " + name + " has another type");
    return value;
}

}  // namespace

std::int64_t Spec::integer(const std::string& name, std::int64_t otherwise) const {
    const auto* value = find<std::int64_t>(*this, name);
    return value ? *value : otherwise;
}

double Spec::real(const std::string& name, double otherwise) const {
    const auto* value = find<double>(*this, name);
    return value ? *value : otherwise;
}

std::vector<std::int64_t> Spec::integers(const std::string& name) const {
    const auto* value = find<std::vector<std::int64_t>>(*this, name);
    return value ? *value : std::vector<std::int64_t>();
}

std::vector<double> Spec::reals(const std::string& name) const {
    // An empty list comes from Python as one of integers.
    const auto found = attributes.find(name);
    if (found != attributes.end())
        if (const auto* whole = std::get_if<std::vector<std::int64_t>>(&found->second)) return {whole->begin(), whole->end()};
    const auto* value = find<std::vector<double>>(*this, name);
    return value ? *value : std::vector<double>();
}

std::string Spec::text(const std::string& name, const std::string& otherwise) const {
    const auto* value = find<std::string>(*this, name);
    return value ? *value : otherwise;
}

}  // namespace dovetail
