#include "kernel.h"

#include <cstdlib>
#include <stdexcept>
#include <utility>

namespace dovetail {

namespace {

constexpr std::pair<const char*, Element> kElements[] = {
    {"f64", Element::f64}, {"f32", Element::f32}, {"f16", Element::f16},         {"bf16", Element::bf16}, {"i64", Element::i64},
    {"i32", Element::i32}, {"i16", Element::i16}, {"i8", Element::i8},           {"u64", Element::u64},   {"u32", Element::u32},
    {"u16", Element::u16}, {"u8", Element::u8},   {"boolean", Element::boolean},
};

}  // namespace

Element element_of(const std::string& name) {
    for (const auto& [element_name, element] : kElements)
        if (name == element_name) return element;
    return Element::other;
}

const char* name_of(Element element) {
    for (const auto& [name, candidate] : kElements)
        if (element == candidate) return name;
    return "other";
}

std::int64_t size_of(Element element) {
    switch (element) {
        case Element::f64:
        case Element::i64:
        case Element::u64: return 8;
        case Element::f32:
        case Element::i32:
        case Element::u32: return 4;
        case Element::f16:
        case Element::bf16:
        case Element::i16:
        case Element::u16: return 2;
        default: return 1;
    }
}

std::int64_t Operand::count() const {
    std::int64_t count = 1;
    for (const auto size : sizes) count *= size;
    return count;
}

bool Operand::is_within(std::int64_t first, std::int64_t last) const {
    if (sizes.size() != strides.size() || itemsize < 0) return false;
    for (const auto size : sizes)
        if (size < 0) return false;
    for (const auto size : sizes)
        if (size == 0) return true;
    if (offset < first || offset > last || itemsize > last - offset) return false;
    // The extent of each axis is compared with the bytes that the previous axes leave, so that no product overflows.
    std::int64_t below = offset - first, above = last - offset - itemsize;
    for (std::size_t axis = 0; axis < sizes.size(); ++axis) {
        const std::int64_t steps = sizes[axis] - 1;
        if (steps == 0 || strides[axis] == 0) continue;
        std::int64_t& available = strides[axis] < 0 ? below : above;
        if (strides[axis] < -available || strides[axis] > available || steps > available / std::abs(strides[axis])) return false;
        available -= steps * std::abs(strides[axis]);
    }
    return true;
}

void Operand::rebase_constant() {
    if (constant == nullptr || offset == 0) return;
    if (offset < low || offset > high) throw std::invalid_argument("an offset outside the memory of a constant");
    constant += offset;
    low -= offset;
    high -= offset;
    offset = 0;
}

void Spec::rebase_constants() {
    for (auto* operands : {&inputs, &outputs})
        for (Operand& operand : *operands) operand.rebase_constant();
}

namespace {

template <typename T>
const T* find(const Spec& spec, std::string_view name) {
    const auto attribute = spec.attributes.find(name);
    if (attribute == spec.attributes.end()) return nullptr;
    const T* value = std::get_if<T>(&attribute->second);
    if (value == nullptr) throw std::invalid_argument(spec.kernel + ": the attribute " + std::string(name) + " has another type");
    return value;
}

}  // namespace

std::int64_t Spec::integer(std::string_view name, std::int64_t fallback) const {
    const auto* value = find<std::int64_t>(*this, name);
    return value ? *value : fallback;
}

double Spec::real(std::string_view name, double fallback) const {
    const auto* value = find<double>(*this, name);
    return value ? *value : fallback;
}

std::vector<std::int64_t> Spec::integers(std::string_view name) const {
    const auto* value = find<std::vector<std::int64_t>>(*this, name);
    return value ? *value : std::vector<std::int64_t>();
}

std::vector<double> Spec::reals(std::string_view name) const {
    // The binding converts an empty Python list to a vector of integers.
    const auto attribute = attributes.find(name);
    if (attribute != attributes.end())
        if (const auto* integers = std::get_if<std::vector<std::int64_t>>(&attribute->second))
            return {integers->begin(), integers->end()};
    const auto* value = find<std::vector<double>>(*this, name);
    return value ? *value : std::vector<double>();
}

std::string Spec::text(std::string_view name, std::string_view fallback) const {
    const auto* value = find<std::string>(*this, name);
    return value ? *value : std::string(fallback);
}

}  // namespace dovetail
