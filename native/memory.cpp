#include "memory.h"

#include <algorithm>
#include <new>
#include <unordered_map>
#include <utility>
#include <vector>

#include "thread_pool.h"

namespace dovetail {
namespace {

constexpr std::align_val_t kAlignment{64};

void deallocate(const ArenaPool::Block& block) { ::operator delete(block.begin, kAlignment); }

// Holds a state's lock. Where the lock's holder did not survive a fork, the state may be half changed and is reset.
template <typename State>
class ScopedLock {
public:
    explicit ScopedLock(State& state) : state_(state) {
        if (!state_.mutex.lock()) state_.reset();
    }
    ~ScopedLock() { state_.mutex.unlock(); }
    ScopedLock(const ScopedLock&) = delete;
    ScopedLock& operator=(const ScopedLock&) = delete;

private:
    State& state_;
};

}  // namespace

struct WeightCache::State {
    ForkLock mutex;
    std::unordered_map<std::string, std::shared_ptr<const void>> entries;
    std::size_t bytes = 0;

    // Constructed in place without destruction: the old container may be half changed. Its entries leak and are made again.
    void reset() { new (&entries) decltype(entries)(); }
};

WeightCache::WeightCache() : state_(new State) {}
WeightCache::~WeightCache() = default;

std::shared_ptr<const void> WeightCache::get_or_create(const std::string& key,
                                                       const std::function<std::shared_ptr<const void>()>& create) {
    {
        const ScopedLock lock(*state_);
        const auto entry = state_->entries.find(key);
        if (entry != state_->entries.end()) return entry->second;
    }
    auto value = create();
    const ScopedLock lock(*state_);
    return state_->entries.emplace(key, std::move(value)).first->second;
}

std::size_t WeightCache::bytes() const {
    const ScopedLock lock(*state_);
    return state_->bytes;
}

void WeightCache::add_bytes(std::size_t bytes) {
    const ScopedLock lock(*state_);
    state_->bytes += bytes;
}

struct ArenaPool::State {
    ForkLock mutex;
    std::vector<Block> free;

    // As WeightCache::State::reset.
    void reset() { new (&free) decltype(free)(); }
};

ArenaPool::ArenaPool() : state_(new State) {}
ArenaPool::~ArenaPool() {
    for (const Block& block : state_->free) deallocate(block);
}

ArenaPool::Block ArenaPool::acquire(std::size_t bytes) {
    bytes = std::max<std::size_t>(bytes, 1);
    {
        const ScopedLock lock(*state_);
        auto& free = state_->free;
        const auto fitting = std::find_if(free.begin(), free.end(), [bytes](const Block& block) { return block.bytes >= bytes; });
        if (fitting != free.end()) {
            const Block block = *fitting;
            free.erase(fitting);
            return block;
        }
        // All free blocks are smaller than the new block, which serves their requests too once it is released.
        for (const Block& block : free) deallocate(block);
        free.clear();
    }
    return {static_cast<std::byte*>(::operator new(bytes, kAlignment)), bytes};
}

void ArenaPool::release(Block block) {
    const ScopedLock lock(*state_);
    state_->free.push_back(block);
}

std::shared_ptr<float> aligned_floats(std::size_t count) {
    auto* memory = static_cast<float*>(::operator new((count ? count : 1) * sizeof(float), kAlignment));
    return {memory, [](float* floats) { ::operator delete(floats, kAlignment); }};
}

}  // namespace dovetail
