#include "step.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>
#include <stdexcept>
#include <unordered_map>

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

struct Store::State {
    ForkLock mutex;
    std::unordered_map<std::string, std::shared_ptr<const void>> kept;
    std::size_t bytes = 0;
    std::vector<Memory> ready;

    // What a thread that did not come along into this child was changing is left as it is, unowned: all of it can be made again.
    void forget() {
        new (&kept) decltype(kept)();
        new (&ready) decltype(ready)();
    }
};

namespace {

constexpr std::align_val_t kAlignment{64};

void release(const Store::Memory& memory) { ::operator delete(memory.begin, kAlignment); }

}  // namespace

// Holds the lock of what a store is made of.
template <typename State>
class Locked {
public:
    explicit Locked(State& state) : state_(state) {
        if (!state_.mutex.lock()) state_.forget();
    }
    ~Locked() { state_.mutex.unlock(); }
    Locked(const Locked&) = delete;
    Locked& operator=(const Locked&) = delete;

private:
    State& state_;
};

Store::Store() : state_(new State) {}
Store::~Store() {
    for (const Memory& memory : state_->ready) release(memory);
}

Store::Memory Store::lend(std::size_t bytes) {
    bytes = std::max<std::size_t>(bytes, 1);
    {
        const Locked lock(*state_);
        auto& ready = state_->ready;
        const auto found = std::find_if(ready.begin(), ready.end(), [bytes](const Memory& each) { return each.bytes >= bytes; });
        if (found != ready.end()) {
            const Memory memory = *found;
            ready.erase(found);
            return memory;
        }
        // Too small for this run, and of no use beside what it takes.
        for (const Memory& memory : ready) release(memory);
        ready.clear();
    }
    return {static_cast<std::byte*>(::operator new(bytes, kAlignment)), bytes};
}

void Store::give_back(Memory memory) {
    const Locked lock(*state_);
    state_->ready.push_back(memory);
}

std::shared_ptr<const void> Store::keep(const std::string& key, const std::function<std::shared_ptr<const void>()>& make) {
    {
        const Locked lock(*state_);
        const auto found = state_->kept.find(key);
        if (found != state_->kept.end()) return found->second;
    }
    auto made = make();
    const Locked lock(*state_);
    return state_->kept.emplace(key, std::move(made)).first->second;
}

std::size_t Store::bytes() const {
    const Locked lock(*state_);
    return state_->bytes;
}

void Store::count(std::size_t bytes) {
    const Locked lock(*state_);
    state_->bytes += bytes;
}

std::shared_ptr<float> aligned_floats(std::size_t count) {
    auto* memory = static_cast<float*>(::operator new((count ? count : 1) * sizeof(float), std::align_val_t(64)));
    return {memory, [](float* each) { ::operator delete(each, std::align_val_t(64)); }};
}

const char* name_of(Isa isa) {
    switch (isa) {
        case Isa::avx512: return "avx512";
        case Isa::avx2: return "avx2";
        default: return "base";
    }
}

namespace {

Isa best() {
#if defined(__x86_64__) && defined(__GNUC__)
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl"))
        return Isa::avx512;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c")) return Isa::avx2;
#endif
    return Isa::base;
}

Isa chosen() {
    const Isa most = best();
    const char* wanted = std::getenv("DOVETAIL_ISA");
    for (const Isa each : {Isa::base, Isa::avx2, Isa::avx512})
        if (wanted != nullptr && std::strcmp(wanted, name_of(each)) == 0 && each <= most) return each;
    return most;
}

}  // namespace

Isa isa() {
    static const Isa found = chosen();
    return found;
}

}  // namespace dovetail
