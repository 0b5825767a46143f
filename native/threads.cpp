#include "threads.h"

#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

namespace dovetail {

struct Pool::State {
    int threads;
    std::mutex busy;

    explicit State(int threads) : threads(threads) {}
};

Pool::Pool(int threads) : state_(new State(threads < 1 ? 1 : threads)) {}
Pool::~Pool() = default;

int Pool::threads() const { return state_->threads; }

void Pool::run(std::int64_t count, Task task, const void* state) {
    for (std::int64_t i = 0; i < count; ++i) task(state, i, 0);
}

}  // namespace dovetail
