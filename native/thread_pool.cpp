#include "thread_pool.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "float_mode.h"

#if defined(__unix__) || defined(__APPLE__)
#include <pthread.h>
#include <signal.h>
#define DOVETAIL_POSIX
#endif
#if defined(__linux__)
#include <sched.h>
#include <semaphore.h>
#endif
#if defined(__x86_64__) || defined(__i386__)
#include <immintrin.h>
#endif

namespace dovetail {
namespace {

// Spinning time before a thread sleeps: bridges the gap between two kernels of a program, and is short against a scheduler's time
// slice.
constexpr std::chrono::microseconds kSpin{40};
// Spinning time after which a thread yields its core at each poll: the thread that it waits for may need that core.
constexpr std::chrono::microseconds kSpinBeforeYield{4};
// Jobs that follow each other within this time find the workers still spinning.
constexpr std::chrono::microseconds kWarmTime = kSpin * 3 / 4;
// Minimum time between two polls of an interrupt.
constexpr std::chrono::nanoseconds kPollInterval{50'000'000};

void pause_briefly() {
#if defined(__x86_64__) || defined(__i386__)
    _mm_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

// Spins until `is_ready`, at most about kSpin; returns the last result of `is_ready`.
template <typename F>
bool spin_until(const F& is_ready) {
    if (is_ready()) return true;
    const auto start = std::chrono::steady_clock::now();
    auto now = start;
    do {
        for (int i = 0; i < 8; ++i) {
            pause_briefly();
            if (is_ready()) return true;
        }
        now = std::chrono::steady_clock::now();
        if (now - start > kSpinBeforeYield) std::this_thread::yield();
    } while (now - start < kSpin);
    return is_ready();
}

// Number of forks between the process that made the first pool and this process. A child has none of its parent's threads, and
// the mutexes that it copied are in an unknown state.
std::atomic<std::uint64_t> forks{0};

void watch_forks() {
#ifdef DOVETAIL_POSIX
    static const int registered = pthread_atfork(nullptr, nullptr, [] { forks.fetch_add(1, std::memory_order_relaxed); });
    (void)registered;
#endif
}

// Blocks all signals while workers start, since signals are meant for the threads of the program that uses the library.
class BlockedSignals {
#ifdef DOVETAIL_POSIX
public:
    BlockedSignals() {
        sigset_t all;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &previous_);
    }
    ~BlockedSignals() { pthread_sigmask(SIG_SETMASK, &previous_, nullptr); }

private:
    sigset_t previous_;
#endif
};

constexpr int kNoCore = -1;

// Returns the core on which this thread runs.
int current_core() {
#if defined(__linux__)
    return sched_getcpu();
#else
    return kNoCore;
#endif
}

// The cores on which this thread may run.
class CoreAffinity {
public:
#if defined(__linux__)
    CoreAffinity() : is_known_(sched_getaffinity(0, sizeof cores_, &cores_) == 0) {}

    // Restricts this thread to all of its cores but one. Linux tends to wake a thread on the core of the thread that woke it. The
    // two then share that core for milliseconds, until the scheduler moves one of them.
    void exclude(int excluded) const {
        if (!is_known_ || excluded < 0 || excluded >= CPU_SETSIZE) return;
        cpu_set_t others = cores_;
        CPU_CLR(excluded, &others);
        if (CPU_COUNT(&others) != 0) sched_setaffinity(0, sizeof others, &others);
    }

private:
    cpu_set_t cores_;
    const bool is_known_;
#else
    void exclude(int) const {}
#endif
};

// A counting semaphore; each post wakes one waiter. A post never waits for another thread, not even for one whose core was
// taken away.
class Semaphore {
#if defined(__linux__)
public:
    Semaphore() { sem_init(&semaphore_, 0, 0); }
    ~Semaphore() { sem_destroy(&semaphore_); }
    void post() { sem_post(&semaphore_); }
    void wait() {
        while (sem_wait(&semaphore_) != 0) {  // interrupted by a signal
        }
    }

private:
    sem_t semaphore_;
#else
public:
    void post() {
        const std::lock_guard<std::mutex> lock(mutex_);
        ++posts_;
        changed_.notify_one();
    }
    void wait() {
        std::unique_lock<std::mutex> lock(mutex_);
        changed_.wait(lock, [this] { return posts_ > 0; });
        --posts_;
    }

private:
    std::mutex mutex_;
    std::condition_variable changed_;
    std::int64_t posts_ = 0;
#endif
};

// The threads that sleep on a semaphore, counted so that each is woken exactly once.
class WaitList {
public:
    // Returns when the thread is woken, or at once if `is_woken` holds. All accesses to `sleeping_`, in `is_woken` and in the
    // waking thread, are sequentially consistent: either the waking thread sees the sleeper, or the sleeper sees the reason to
    // wake.
    template <typename F>
    void wait_for(const F& is_woken) {
        sleeping_.fetch_add(1);
        if (is_woken() && remove_one()) return;
        semaphore_.wait();
    }

    void wake(std::int64_t count) {
        while (count-- > 0 && remove_one()) semaphore_.post();
    }

private:
    bool remove_one() {
        std::int64_t sleeping = sleeping_.load();
        while (sleeping > 0)
            if (sleeping_.compare_exchange_weak(sleeping, sleeping - 1)) return true;
        return false;
    }

    std::atomic<std::int64_t> sleeping_{0};
    Semaphore semaphore_;
};

// The workers, and the job that the workers share with the caller.
//
// `unclaimed_` is the number of tasks that no thread has claimed; a thread that decrements it has claimed one task and must run
// it. The job cannot end or be replaced before that task is counted in `done_`. A worker therefore reads the job only after a
// claim. A worker that comes late, or sleeps through the whole job, touches nothing and delays no thread.
//
// The queues map claims to tasks. Each thread has a queue with an equal share of the tasks in ascending order, so that a thread
// finds in its own cache the data that it wrote in the kernel before. A thread with an empty queue goes on to the next queue.
// There are as many claims as tasks, so each claim finds a task within one round of the queues.
class Workers {
public:
    explicit Workers(int workers) : queues_(static_cast<std::size_t>(workers) + 1) {
        const BlockedSignals blocked;
        try {
            threads_.reserve(static_cast<std::size_t>(workers));
            for (int i = 1; i <= workers; ++i) threads_.emplace_back([this, i] { worker_loop(i); });
        } catch (...) {
            // If fewer threads start than requested, the results are the same.
        }
    }

    ~Workers() {
        stop_.store(true);
        idle_workers_.wake(static_cast<std::int64_t>(threads_.size()));
        for (auto& thread : threads_) thread.join();
    }

    void run(std::int64_t count, ThreadPool::Task task, const void* state) {
        job_ = {count, task, state, Interrupt::current(), float_mode()};
        caller_core_.store(current_core(), std::memory_order_relaxed);
        const auto threads = static_cast<std::int64_t>(queues_.size());
        for (std::int64_t i = 0; i < threads; ++i) {
            queues_[static_cast<std::size_t>(i)].next.store(count * i / threads, std::memory_order_relaxed);
            queues_[static_cast<std::size_t>(i)].end = count * (i + 1) / threads;
        }
        done_.store(0, std::memory_order_relaxed);
        unclaimed_.store(count);
        idle_workers_.wake(count - 1);
        const std::int64_t own_count = run_claimed(0);
        if (own_count == count || done_.fetch_add(own_count) + own_count == count) return;
        const auto is_done = [this, count] { return done_.load() == count; };
        // The loop is needed because a worker that wakes its caller late may wake the caller of the next job instead.
        while (!spin_until(is_done)) waiting_caller_.wait_for(is_done);
    }

private:
    struct Job {
        std::int64_t count;
        ThreadPool::Task task;
        const void* state;
        Interrupt* interrupt;
        std::uint64_t float_mode;  // floating-point mode of the caller, for all threads of the job

        // After an interrupt, tasks are skipped and count as done.
        void run(std::int64_t index, int worker) const {
            if (interrupt != nullptr && (worker == 0 ? interrupt->check() : interrupt->is_set())) return;
            task(state, index, worker);
        }
    };

    struct alignas(64) Queue {
        std::atomic<std::int64_t> next{0};
        std::int64_t end = 0;
    };

    bool claim() {
        std::int64_t left = unclaimed_.load(std::memory_order_relaxed);
        while (left > 0)
            if (unclaimed_.compare_exchange_weak(left, left - 1, std::memory_order_acquire, std::memory_order_relaxed))
                return true;
        return false;
    }

    // Returns the index of the task that belongs to one claim.
    std::int64_t next(int worker) {
        for (auto index = static_cast<std::size_t>(worker);; index = index + 1 < queues_.size() ? index + 1 : 0) {
            Queue& queue = queues_[index];
            if (queue.next.load(std::memory_order_relaxed) >= queue.end) continue;
            const std::int64_t task = queue.next.fetch_add(1, std::memory_order_relaxed);
            if (task < queue.end) return task;
        }
    }

    // Runs tasks as long as claims succeed; returns the number of tasks that ran. The calling function adds the number to `done_`
    // at once, so that the job stays alive until then.
    std::int64_t run_claimed(int worker) {
        std::int64_t count_done = 0;
        for (; claim(); ++count_done) job_.run(next(worker), worker);
        return count_done;
    }

    void worker_loop(int worker) {
        const auto is_woken = [this] { return unclaimed_.load() > 0 || stop_.load(); };
        while (!stop_.load()) {
            const int own_core = current_core();
            if (own_core != kNoCore && own_core == caller_core_.load(std::memory_order_relaxed)) cores_.exclude(own_core);
            if (claim()) {
                const Job job = job_;
                if (float_mode() != job.float_mode) set_float_mode(job.float_mode);
                job.run(next(worker), worker);
                const std::int64_t count_done = 1 + run_claimed(worker);
                if (done_.fetch_add(count_done) + count_done == job.count) waiting_caller_.wake(1);
            } else if (!spin_until(is_woken)) {
                idle_workers_.wait_for(is_woken);
            }
        }
    }

    // Each member has a separate cache line: workers spin on the first one.
    alignas(64) std::atomic<std::int64_t> unclaimed_{0};
    alignas(64) std::atomic<std::int64_t> done_{0};
    alignas(64) Job job_{0, nullptr, nullptr, nullptr, 0};
    std::vector<Queue> queues_;
    std::atomic<bool> stop_{false};
    std::atomic<int> caller_core_{kNoCore};
    const CoreAffinity cores_;  // cores of the thread that made this object
    WaitList idle_workers_;
    WaitList waiting_caller_;
    std::vector<std::thread> threads_;
};

}  // namespace

ForkLock::ForkLock() { watch_forks(); }

bool ForkLock::lock() {
    const std::uint64_t self = forks.load(std::memory_order_relaxed) + 1;
    for (;;) {
        std::uint64_t now = holder_.load(std::memory_order_relaxed);
        if (now != self && holder_.compare_exchange_weak(now, self, std::memory_order_acquire, std::memory_order_relaxed))
            return now == 0;
        std::this_thread::yield();
    }
}

struct ThreadPool::State {
    const int threads;
    // The caller that the pool serves: 0 for none, else 1 + the fork count of its process. A value that a child inherits from
    // its parent process is void.
    std::atomic<std::uint64_t> serving{0};
    std::unique_ptr<Workers> workers;
    std::uint64_t workers_forks = 0;
    std::atomic<std::chrono::steady_clock::rep> last{0};  // time of the last use

    explicit State(int threads) : threads(threads) {}

    bool acquire(std::uint64_t self) {
        std::uint64_t now = serving.load(std::memory_order_relaxed);
        return now != self && serving.compare_exchange_strong(now, self, std::memory_order_acquire, std::memory_order_relaxed);
    }

    void release_caller() { serving.store(0, std::memory_order_release); }

    // Inherited workers are leaked: the child has no threads to join.
    void drop_inherited(std::uint64_t now) {
        if (workers != nullptr && workers_forks != now) (void)workers.release();
        workers_forks = now;
    }

    Workers& start_workers(std::uint64_t now) {
        drop_inherited(now);
        if (workers == nullptr) workers.reset(new Workers(threads - 1));
        return *workers;
    }
};

bool Interrupt::check() {
    if (is_set()) return true;
    const std::int64_t now = std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
    if (last_ == 0) last_ = now;
    if (now - last_ < kPollInterval.count()) return false;
    const bool is_requested = poll();
    last_ = now;
    if (is_requested) is_set_.store(true, std::memory_order_relaxed);
    return is_requested;
}

Interrupt*& Interrupt::current() {
    static thread_local Interrupt* interrupt = nullptr;
    return interrupt;
}

ThreadPool::ThreadPool(int threads) : state_(new State(threads < 1 ? 1 : threads)) { watch_forks(); }

ThreadPool::~ThreadPool() { state_->drop_inherited(forks.load(std::memory_order_relaxed)); }

int ThreadPool::threads() const { return state_->threads; }

bool ThreadPool::is_warm() const {
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    const std::chrono::steady_clock::duration before(state_->last.exchange(now.count(), std::memory_order_relaxed));
    return now - before < kWarmTime;
}

void ThreadPool::run(std::int64_t count, Task task, const void* state) {
    const std::uint64_t now = forks.load(std::memory_order_relaxed);
    if (count <= 1 || state_->threads == 1 || !state_->acquire(now + 1)) {
        Interrupt* const interrupt = Interrupt::current();
        for (std::int64_t i = 0; i < count && (interrupt == nullptr || !interrupt->check()); ++i) task(state, i, 0);
        return;
    }
    state_->start_workers(now).run(count, task, state);
    state_->last.store(std::chrono::steady_clock::now().time_since_epoch().count(), std::memory_order_relaxed);
    state_->release_caller();
}

}  // namespace dovetail
