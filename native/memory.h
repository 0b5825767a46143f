// Memory that the programs of one compiled model share: packed weights, arenas of runs, and results. All classes are thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace dovetail {

// Returns the free pages of the C library's heap to the system, where the library can (glibc).
void release_free_pages();

// Packed weights by key; each entry is packed once. Entries of floats can be exported, and imported from memory that several
// processes map.
class WeightCache {
public:
    struct Floats {
        std::string key;
        const float* data;
        std::size_t count;
    };

    WeightCache();
    ~WeightCache();
    // Constants within these bytes have keys that depend only on their offset, not on the address at which a process maps them.
    void set_base(std::uintptr_t base, std::size_t bytes);
    // The key of a constant, with which the keys of its packings begin.
    std::string key_of(const void* constant) const;
    // True if a key is valid in every process: it begins with the offset of a constant in the base.
    static bool is_relative(const std::string& key);
    // Returns the entry of `key`. If there is none, `create` makes the entry.
    std::shared_ptr<const void> get_or_create(const std::string& key, const std::function<std::shared_ptr<const void>()>& create);
    // Returns the entry of `key`, an array of `count` floats. If there is no entry, returns the imported floats of `key` if their
    // count matches; otherwise `create` makes the entry, and may return null.
    std::shared_ptr<const float> get_or_create_floats(const std::string& key, std::size_t count,
                                                      const std::function<std::shared_ptr<const float>()>& create);
    // The entries of floats that this cache made from constants in the base. They live as long as the cache.
    std::vector<Floats> export_floats() const;
    // Imports floats, which get_or_create_floats() returns if their key has no entry. Their memory must outlive the cache and all
    // programs.
    void import_floats(const Floats& floats);
    // Bytes of all entries, as add_bytes reported them.
    std::size_t bytes() const;
    void add_bytes(std::size_t bytes);

private:
    struct State;
    std::unique_ptr<State> state_;
};

// A pool of memory blocks for runs. It holds at most as many blocks as there were concurrent runs, each as large as the largest
// request.
class ArenaPool {
public:
    struct Block {
        std::byte* begin;
        std::size_t bytes;
    };

    ArenaPool();
    ~ArenaPool();
    // A block of at least `bytes`, aligned to 64 bytes, until it is released.
    Block acquire(std::size_t bytes);
    void release(Block block);

private:
    struct State;
    std::unique_ptr<State> state_;
};

// A pool of memory for results. It reuses the memory of a result that the caller has released: page faults on fresh memory cost
// more than writing the results. A free block that no call acquires within two calls is freed.
class OutputPool {
public:
    // The system's allocator keeps smaller blocks for reuse.
    static constexpr std::size_t kMinBytes = std::size_t{1} << 17;
    using Block = ArenaPool::Block;

    OutputPool();
    ~OutputPool();
    // Starts a call, and frees the blocks that the previous two calls did not acquire.
    void begin_call();
    // A block of at least `bytes`, aligned to 64 bytes, until it is released.
    Block acquire(std::size_t bytes);
    void release(Block block);
    std::size_t free_blocks() const;

private:
    struct State;
    std::unique_ptr<State> state_;
};

// Floats aligned to 64 bytes, for packed weights.
std::shared_ptr<float> aligned_floats(std::size_t count);

}  // namespace dovetail
