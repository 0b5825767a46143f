#include "memory.h"

#ifdef __linux__
#include <malloc.h>
#include <sys/mman.h>
#include <limits>
#endif

#include <algorithm>
#include <new>
#include <unordered_map>
#include <utility>
#include <vector>

#include "thread_pool.h"

namespace dovetail {
namespace {

constexpr std::align_val_t kAlignment{64};

// A key with this prefix holds the offset of a constant in the base, which is valid in every process. Other keys hold
// addresses, which are valid in one process only.
constexpr char kRelative = '+';

// Blocks of this size and more are mapped separately. In the heap, small allocations behind a block would prevent its extension
// to the larger blocks that growing sizes need.
constexpr std::size_t kMinMapped = std::size_t{1} << 20;

// Results and packed weights of this size and more use huge pages, as numpy's arrays do.
constexpr std::size_t kMinHuge = std::size_t{1} << 22;

// Returns the size of the block for a request. There are 16 size classes per power of two, so that a slightly larger request
// takes the same block.
std::size_t class_of(std::size_t bytes) {
    std::size_t unit = 64;
    while (unit * 32 < bytes) unit *= 2;
    return std::max((bytes + unit - 1) / unit * unit, unit);
}

std::byte* allocate(std::size_t bytes) {
#ifdef __linux__
    if (bytes >= kMinMapped) {
        void* const pages = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (pages == MAP_FAILED) throw std::bad_alloc();
        return static_cast<std::byte*>(pages);
    }
#endif
    return static_cast<std::byte*>(::operator new(bytes, kAlignment));
}

void deallocate(const ArenaPool::Block& block) {
#ifdef __linux__
    if (block.bytes >= kMinMapped) {
        ::munmap(block.begin, block.bytes);
        return;
    }
#endif
    ::operator delete(block.begin, kAlignment);
}

std::byte* allocate_huge(std::size_t bytes) {
    std::byte* const begin = allocate(bytes);
#ifdef __linux__
    if (bytes >= kMinHuge) ::madvise(begin, bytes, MADV_HUGEPAGE);
#endif
    return begin;
}

// Holds the lock of a state. If a fork happened while another thread held the lock, the state may be partly changed in the
// child, and is reset.
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

void release_free_pages() {
#ifdef __GLIBC__
    malloc_trim(0);
#endif
}

struct WeightCache::State {
    ForkLock mutex;
    std::unordered_map<std::string, std::shared_ptr<const void>> entries;
    std::unordered_map<std::string, Floats> imported;
    std::vector<Floats> exported;
    std::size_t bytes = 0;
    std::uintptr_t base = 0;
    std::size_t base_bytes = 0;

    // New containers are constructed in place without destroying the old ones, which may be partly changed. The memory of the
    // old entries leaks, and the entries are made again.
    void reset() {
        new (&entries) decltype(entries)();
        new (&imported) decltype(imported)();
        new (&exported) decltype(exported)();
    }
};

bool WeightCache::is_relative(const std::string& key) { return !key.empty() && key.front() == kRelative; }

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

void WeightCache::set_base(std::uintptr_t base, std::size_t bytes) {
    const ScopedLock lock(*state_);
    state_->base = base;
    state_->base_bytes = bytes;
}

std::string WeightCache::key_of(const void* constant) const {
    const ScopedLock lock(*state_);
    const auto address = reinterpret_cast<std::uintptr_t>(constant);
    const std::uintptr_t offset = address - state_->base;
    return offset < state_->base_bytes ? kRelative + std::to_string(offset) : std::to_string(address);
}

std::shared_ptr<const float> WeightCache::get_or_create_floats(const std::string& key, std::size_t count,
                                                               const std::function<std::shared_ptr<const float>()>& create) {
    {
        const ScopedLock lock(*state_);
        const auto entry = state_->entries.find(key);
        if (entry != state_->entries.end()) return std::static_pointer_cast<const float>(entry->second);
        const auto imported = state_->imported.find(key);
        if (is_relative(key) && imported != state_->imported.end() && imported->second.count == count)
            return {imported->second.data, [](const float*) {}};
    }
    auto value = create();
    const ScopedLock lock(*state_);
    const auto [entry, is_new] = state_->entries.emplace(key, value);
    if (is_new && value != nullptr) {
        if (is_relative(key)) state_->exported.push_back({key, value.get(), count});
        state_->bytes += count * sizeof(float);
    }
    return std::static_pointer_cast<const float>(entry->second);
}

std::vector<WeightCache::Floats> WeightCache::export_floats() const {
    const ScopedLock lock(*state_);
    return state_->exported;
}

void WeightCache::import_floats(const Floats& floats) {
    const ScopedLock lock(*state_);
    state_->imported.emplace(floats.key, floats);
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
    bytes = class_of(bytes);
    {
        const ScopedLock lock(*state_);
        auto& free = state_->free;
        const auto fitting = std::find_if(free.begin(), free.end(), [bytes](const Block& block) { return block.bytes >= bytes; });
        if (fitting != free.end()) {
            const Block block = *fitting;
            free.erase(fitting);
            return block;
        }
        // All free blocks are smaller than the new block. Once the new block is released, it also serves requests of their sizes.
        for (const Block& block : free) deallocate(block);
        free.clear();
    }
    return {allocate(bytes), bytes};
}

void ArenaPool::release(Block block) {
    const ScopedLock lock(*state_);
    state_->free.push_back(block);
}

struct OutputPool::State {
    struct Free {
        std::uint64_t call;  // call that released it
        Block block;
    };

    ForkLock mutex;
    std::vector<Free> free;
    std::uint64_t calls = 0;

    // As WeightCache::State::reset.
    void reset() { new (&free) decltype(free)(); }
};

OutputPool::OutputPool() : state_(new State) {}
OutputPool::~OutputPool() {
    for (const auto& each : state_->free) deallocate(each.block);
}

void OutputPool::begin_call() {
    const ScopedLock lock(*state_);
    ++state_->calls;
    auto& free = state_->free;
    const auto is_old = [this](const auto& each) { return each.call + 2 < state_->calls; };
    for (const auto& each : free)
        if (is_old(each)) deallocate(each.block);
    free.erase(std::remove_if(free.begin(), free.end(), is_old), free.end());
}

OutputPool::Block OutputPool::acquire(std::size_t bytes) {
    // The size is a power of two, so that a result that grows from call to call keeps its block for many calls. Pages of the
    // block beyond the result are not touched, and take no memory.
    if (bytes > std::numeric_limits<std::size_t>::max() / 4) throw std::bad_alloc();
    std::size_t capacity = kMinBytes;
    while (capacity < bytes) capacity *= 2;
    bytes = capacity;
    {
        const ScopedLock lock(*state_);
        auto& free = state_->free;
        const auto match =
            std::find_if(free.begin(), free.end(), [bytes](const auto& each) { return each.block.bytes == bytes; });
        if (match != free.end()) {
            const Block block = match->block;
            free.erase(match);
            return block;
        }
    }
    return {allocate_huge(bytes), bytes};
}

void OutputPool::release(Block block) {
    const ScopedLock lock(*state_);
    state_->free.push_back({state_->calls, block});
}

std::size_t OutputPool::free_blocks() const {
    const ScopedLock lock(*state_);
    return state_->free.size();
}

std::shared_ptr<float> aligned_floats(std::size_t count) {
    const std::size_t bytes = (count ? count : 1) * sizeof(float);
    auto* memory = reinterpret_cast<float*>(allocate_huge(bytes));
    return {memory, [bytes](float* floats) { deallocate({reinterpret_cast<std::byte*>(floats), bytes}); }};
}

}  // namespace dovetail
