// Memory that the programs of one compiled model share: packed weights and run arenas.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

namespace dovetail {

// What all programs of a model share: packed weights, made once, and the memory that runs work in. One store per compiled model.
// Safe from several threads.
class Store {
public:
    Store();
    ~Store();
    // What is kept under `key`, made by `make` where it is not there yet.
    std::shared_ptr<const void> keep(const std::string& key, const std::function<std::shared_ptr<const void>()>& make);
    std::size_t bytes() const;
    void count(std::size_t bytes);

    // Memory aligned to 64 bytes, of `bytes` at least, until it is given back: then it lies ready for the next run, of whichever
    // program. There is never more of it than the runs at one time took, each as much as the largest.
    struct Memory {
        std::byte* begin;
        std::size_t bytes;
    };
    Memory lend(std::size_t bytes);
    void give_back(Memory memory);

private:
    struct State;
    std::unique_ptr<State> state_;
};

// Memory aligned to 64 bytes, for packed weights.
std::shared_ptr<float> aligned_floats(std::size_t count);

}  // namespace dovetail
