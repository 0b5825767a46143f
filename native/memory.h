// Memory that the programs of one compiled model share: packed weights, and arenas of runs. Both classes are thread-safe.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

namespace dovetail {

// Packed weights by key, each packed once.
class WeightCache {
public:
    WeightCache();
    ~WeightCache();
    // The entry under `key`. An absent entry is made by `create`.
    std::shared_ptr<const void> get_or_create(const std::string& key, const std::function<std::shared_ptr<const void>()>& create);
    // Bytes of all entries, as add_bytes reported them.
    std::size_t bytes() const;
    void add_bytes(std::size_t bytes);

private:
    struct State;
    std::unique_ptr<State> state_;
};

// A pool of memory blocks for runs. It never holds more blocks than there were runs at one time, each as large as the largest
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

// Floats aligned to 64 bytes, for packed weights.
std::shared_ptr<float> aligned_floats(std::size_t count);

}  // namespace dovetail
