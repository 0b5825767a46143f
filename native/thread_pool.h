// The threads that run a program's steps: one pool per program, the caller among them.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

namespace dovetail {

// Runs tasks 0 .. count-1, each exactly once, on the caller and up to `threads() - 1` workers; returns when all are done.
//
// Each thread begins with its share of the tasks, the same in every run, and then takes those that others have not begun: what it wrote
// in one step is in its cache for the next, and a worker without a core holds nobody up. The caller waits only for tasks that were begun. Which thread ran a task must not show in its result. A pool serves one caller at a time;
// a second one that comes meanwhile runs its tasks alone. Tasks must not throw. After a fork the child's pool starts new workers.
// What may end a run before its end: asked by the thread that runs it between two tasks, and from then on true for all.
class Interrupt {
public:
    virtual ~Interrupt() = default;
    // Called by the thread that made this, now and then. Whether to stop.
    virtual bool asked() = 0;

    // Whether to stop; asks no more often than every kPatience.
    bool check();
    bool is_set() const { return is_set_.load(std::memory_order_relaxed); }

    // What ends the runs of this thread, null: nothing.
    static Interrupt*& of_thread();

private:
    std::atomic<bool> is_set_{false};
    std::int64_t last_ = 0;
};

class Pool {
public:
    using Task = void (*)(const void* state, std::int64_t task, int worker);

    // threads: 1 runs everything on the caller and starts no worker.
    explicit Pool(int threads);
    ~Pool();
    Pool(const Pool&) = delete;
    Pool& operator=(const Pool&) = delete;

    int threads() const;

    // Into how many of `tasks` work is cut: all for several threads; for one as few as take `each` units or more, which lie some
    // milliseconds apart, so that a run can be interrupted between them.
    std::int64_t parts(std::int64_t tasks, std::int64_t work, std::int64_t each = 1 << 22) const {
        return threads() > 1 ? tasks : tasks < 1 + work / each ? tasks : 1 + work / each;
    }

    // Whether it was asked this, or ran a job, so short a time ago that the workers are awake or worth waking.
    bool is_warm() const;

    // `worker` is in [0, threads()): scratch memory may be indexed by it.
    void run(std::int64_t count, Task task, const void* state);

    template <typename F>
    void each(std::int64_t count, const F& task) {
        run(count, [](const void* state, std::int64_t index, int worker) { (*static_cast<const F*>(state))(index, worker); }, &task);
    }

private:
    struct State;
    std::unique_ptr<State> state_;
};

// A lock for a few instructions. In a forked child it is free, whichever of the parent's threads held it at the fork.
class ForkLock {
public:
    ForkLock();

    // False where the holder did not come along into this child: what it guards may be half changed.
    [[nodiscard]] bool lock();
    void unlock() { holder_.store(0, std::memory_order_release); }

private:
    std::atomic<std::uint64_t> holder_{0};  // 0 nobody, else 1 + the fork count of the process of the holder
};

}  // namespace dovetail
