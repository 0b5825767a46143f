// The threads that run a program's kernels: one pool per program, with the caller as one of its threads.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

namespace dovetail {

// A request to stop a run early. The thread of the run polls between two tasks. Once the request is set, it holds for all
// threads.
class Interrupt {
public:
    virtual ~Interrupt() = default;
    // Returns true if the run is to stop. The thread that made this object calls it at intervals.
    virtual bool poll() = 0;

    // Returns true if the run is to stop; polls at most once per kPollInterval.
    bool check();
    bool is_set() const { return is_set_.load(std::memory_order_relaxed); }

    // The interrupt of this thread's runs; null if there is none.
    static Interrupt*& current();

private:
    std::atomic<bool> is_set_{false};
    std::int64_t last_ = 0;
};

// A pool of the caller and up to `threads() - 1` workers.
//
// Each thread begins with its share of the tasks, the same share in every run: data that the thread wrote in one kernel is then
// in its cache for the next kernel. It goes on with tasks of other shares that no thread has begun, so that a worker without a
// core delays no other thread. The caller waits only for tasks that were begun.
//
// Results must not depend on which thread runs a task, and tasks must not throw. A pool serves one caller at a time; a second
// caller runs its tasks alone meanwhile. After a fork, the child's pool starts new workers.
class ThreadPool {
public:
    using Task = void (*)(const void* state, std::int64_t task, int worker);

    // With 1 thread the caller runs everything and no worker starts.
    explicit ThreadPool(int threads);
    ~ThreadPool();
    ThreadPool(const ThreadPool&) = delete;
    ThreadPool& operator=(const ThreadPool&) = delete;

    int threads() const;

    // The number of tasks into which `work` units are divided: `tasks` if there are several threads. With one thread, 1 + work /
    // grain tasks, but at most `tasks`: `grain` units take some milliseconds, so that an interrupt is polled between tasks.
    std::int64_t task_count(std::int64_t tasks, std::int64_t work, std::int64_t grain = 1 << 22) const {
        return threads() > 1 ? tasks : tasks < 1 + work / grain ? tasks : 1 + work / grain;
    }

    // True if this function or a job was called so recently that the workers are still awake, or that waking them pays.
    bool is_warm() const;

    // Runs tasks 0 .. count - 1, each exactly once, and returns when all are done. `worker` is in [0, threads()) and may index
    // scratch.
    void run(std::int64_t count, Task task, const void* state);

    template <typename F>
    void parallel_for(std::int64_t count, const F& task) {
        run(
            count, [](const void* state, std::int64_t index, int worker) { (*static_cast<const F*>(state))(index, worker); },
            &task);
    }

private:
    struct State;
    std::unique_ptr<State> state_;
};

// A lock for critical sections of a few instructions. A forked child finds it free, even if a thread of the parent held it.
class ForkLock {
public:
    ForkLock();

    // Returns false if the previous holder did not survive a fork: the guarded data may be partly changed.
    [[nodiscard]] bool lock();
    void unlock() { holder_.store(0, std::memory_order_release); }

private:
    std::atomic<std::uint64_t> holder_{0};  // 0: free; else 1 + the fork count of the holder's process
};

}  // namespace dovetail
