#include "memory.h"

#include <algorithm>
#include <new>
#include <unordered_map>
#include <utility>
#include <vector>

#include "thread_pool.h"

namespace dovetail {

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

}  // namespace dovetail
