#include "thread_pool.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

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

// Long enough to bridge the gap between two steps of a program, short against a scheduler's slice.
constexpr std::chrono::microseconds kSpin{40};
// After this, whoever else wants the core gets it: it may be the very thread that is waited for.
constexpr std::chrono::microseconds kAlone{4};
// Jobs that follow each other like this find the workers still waiting.
constexpr std::chrono::microseconds kWarm = kSpin * 3 / 4;
// Between two questions whether a run is to stop.
constexpr std::chrono::nanoseconds kPatience{50'000'000};

void pause_briefly() {
#if defined(__x86_64__) || defined(__i386__)
    _mm_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

// Waits for `ready`, at most about kSpin; says whether it came.
template <typename F>
bool spin(const F& ready) {
    if (ready()) return true;
    const auto start = std::chrono::steady_clock::now();
    auto now = start;
    do {
        for (int i = 0; i < 8; ++i) {
            pause_briefly();
            if (ready()) return true;
        }
        now = std::chrono::steady_clock::now();
        if (now - start > kAlone) std::this_thread::yield();
    } while (now - start < kSpin);
    return ready();
}

// How many forks lie between this process and the one that first made a pool. A child has none of its parent's threads, and its
// copies of their mutexes are in whatever state they were.
std::atomic<std::uint64_t> forks{0};

void watch_forks() {
#ifdef DOVETAIL_POSIX
    static const int registered = pthread_atfork(nullptr, nullptr, [] { forks.fetch_add(1, std::memory_order_relaxed); });
    (void)registered;
#endif
}

// Signals are for the threads of the program that uses us.
class SignalsBlocked {
#ifdef DOVETAIL_POSIX
public:
    SignalsBlocked() {
        sigset_t all;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before_);
    }
    ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

private:
    sigset_t before_;
#endif
};

constexpr int kNoCore = -1;

// The core that this thread is on.
int core() {
#if defined(__linux__)
    return sched_getcpu();
#else
    return kNoCore;
#endif
}

// The cores that this thread may be on.
class Cores {
public:
#if defined(__linux__)
    Cores() : known_(sched_getaffinity(0, sizeof cores_, &cores_) == 0) {}

    // Keeps this thread to all of them but one. The system likes to wake a thread where the one that called it runs, and the two get in
    // each other's way until it moves one of them, milliseconds later.
    void without(int busy) const {
        if (!known_ || busy < 0 || busy >= CPU_SETSIZE) return;
        cpu_set_t others = cores_;
        CPU_CLR(busy, &others);
        if (CPU_COUNT(&others) != 0) sched_setaffinity(0, sizeof others, &others);
    }

private:
    cpu_set_t cores_;
    const bool known_;
#else
    void without(int) const {}
#endif
};

// Counts posts; each lets one waiter through. Nobody who posts waits for anybody, whoever has lost its core.
class Gate {
#if defined(__linux__)
public:
    Gate() { sem_init(&semaphore_, 0, 0); }
    ~Gate() { sem_destroy(&semaphore_); }
    void post() { sem_post(&semaphore_); }
    void wait() {
        while (sem_wait(&semaphore_) != 0) {  // a signal came
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

// Threads asleep at a gate, counted so that each is called exactly once.
class Sleepers {
public:
    // Returns when called, or at once when `is_called` says that there is no time to sleep. All accesses to `asleep_`, and those that
    // is_called and the callers make, are sequentially consistent: either the caller sees the sleeper, or the sleeper what it is called for.
    template <typename F>
    void sleep(const F& is_called) {
        asleep_.fetch_add(1);
        if (is_called() && take_one()) return;
        gate_.wait();
    }

    void call(std::int64_t most) {
        while (most-- > 0 && take_one()) gate_.post();
    }

private:
    bool take_one() {
        std::int64_t asleep = asleep_.load();
        while (asleep > 0)
            if (asleep_.compare_exchange_weak(asleep, asleep - 1)) return true;
        return false;
    }

    std::atomic<std::int64_t> asleep_{0};
    Gate gate_;
};

// The workers, and the job they share with the caller.
//
// `left_` is at once the invitation and the claim: whoever lowers it owes the job one task, and the job cannot end or be replaced
// before that task is reported in `done_`. A worker therefore reads the job only after a claim; one that comes late, or sleeps through
// the whole job, touches nothing and is waited for by nobody.
//
// Which task it is, the queues say: one for each thread, with its equal share of the tasks in rising order, so that a thread finds in
// its own cache what it wrote there in the step before. Who has emptied its own goes on to the next. There are as many claims as
// tasks: whoever holds one finds a task on one round of the queues.
class Crew {
public:
    explicit Crew(int workers) : queues_(static_cast<std::size_t>(workers) + 1) {
        const SignalsBlocked blocked;
        try {
            threads_.reserve(static_cast<std::size_t>(workers));
            for (int i = 1; i <= workers; ++i) threads_.emplace_back([this, i] { work(i); });
        } catch (...) {
            // Fewer threads than asked for: the results are the same.
        }
    }

    ~Crew() {
        stop_.store(true);
        workers_.call(static_cast<std::int64_t>(threads_.size()));
        for (auto& thread : threads_) thread.join();
    }

    void run(std::int64_t count, Pool::Task task, const void* state) {
        job_ = {count, task, state, Interrupt::of_thread()};
        caller_core_.store(core(), std::memory_order_relaxed);
        const auto threads = static_cast<std::int64_t>(queues_.size());
        for (std::int64_t i = 0; i < threads; ++i) {
            queues_[static_cast<std::size_t>(i)].next.store(count * i / threads, std::memory_order_relaxed);
            queues_[static_cast<std::size_t>(i)].end = count * (i + 1) / threads;
        }
        done_.store(0, std::memory_order_relaxed);
        left_.store(count);
        workers_.call(count - 1);
        const std::int64_t mine = take_all(0);
        if (mine == count || done_.fetch_add(mine) + mine == count) return;
        const auto is_done = [this, count] { return done_.load() == count; };
        // A worker that was late to call may wake the caller of the next job: hence the loop.
        while (!spin(is_done)) caller_.sleep(is_done);
    }

private:
    struct Job {
        std::int64_t count;
        Pool::Task task;
        const void* state;
        Interrupt* interrupt;

        // A run that is to stop leaves its tasks out; they count as done.
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
        std::int64_t left = left_.load(std::memory_order_relaxed);
        while (left > 0)
            if (left_.compare_exchange_weak(left, left - 1, std::memory_order_acquire, std::memory_order_relaxed)) return true;
        return false;
    }

    // The task that a claim stands for.
    std::int64_t next(int worker) {
        for (auto at = static_cast<std::size_t>(worker);; at = at + 1 < queues_.size() ? at + 1 : 0) {
            Queue& queue = queues_[at];
            if (queue.next.load(std::memory_order_relaxed) >= queue.end) continue;
            const std::int64_t task = queue.next.fetch_add(1, std::memory_order_relaxed);
            if (task < queue.end) return task;
        }
    }

    // Runs tasks while there are any; how many it was. They are reported together: until then the job stays.
    std::int64_t take_all(int worker) {
        std::int64_t taken = 0;
        for (; claim(); ++taken) job_.run(next(worker), worker);
        return taken;
    }

    void work(int worker) {
        const auto is_called = [this] { return left_.load() > 0 || stop_.load(); };
        while (!stop_.load()) {
            const int here = core();
            if (here != kNoCore && here == caller_core_.load(std::memory_order_relaxed)) cores_.without(here);
            if (claim()) {
                const Job job = job_;
                job.run(next(worker), worker);
                const std::int64_t taken = 1 + take_all(worker);
                if (done_.fetch_add(taken) + taken == job.count) caller_.call(1);
            } else if (!spin(is_called)) {
                workers_.sleep(is_called);
            }
        }
    }

    // Each on a cache line of its own: workers spin on the first.
    alignas(64) std::atomic<std::int64_t> left_{0};
    alignas(64) std::atomic<std::int64_t> done_{0};
    alignas(64) Job job_{0, nullptr, nullptr, nullptr};
    std::vector<Queue> queues_;
    std::atomic<bool> stop_{false};
    std::atomic<int> caller_core_{kNoCore};
    const Cores cores_;  // of the thread that made this
    Sleepers workers_;
    Sleepers caller_;
    std::vector<std::thread> threads_;
};

}  // namespace

ForkLock::ForkLock() { watch_forks(); }

bool ForkLock::lock() {
    const std::uint64_t me = forks.load(std::memory_order_relaxed) + 1;
    for (;;) {
        std::uint64_t now = holder_.load(std::memory_order_relaxed);
        if (now != me && holder_.compare_exchange_weak(now, me, std::memory_order_acquire, std::memory_order_relaxed)) return now == 0;
        std::this_thread::yield();
    }
}

struct Pool::State {
    const int threads;
    // Who is being served: 0 nobody, else 1 + the fork count of the process the caller is in. What a parent left there is void.
    std::atomic<std::uint64_t> serving{0};
    std::unique_ptr<Crew> crew;
    std::uint64_t crew_forks = 0;
    std::atomic<std::chrono::steady_clock::rep> last{0};  // when it was of use

    explicit State(int threads) : threads(threads) {}

    bool enter(std::uint64_t me) {
        std::uint64_t now = serving.load(std::memory_order_relaxed);
        return now != me && serving.compare_exchange_strong(now, me, std::memory_order_acquire, std::memory_order_relaxed);
    }

    void leave() { serving.store(0, std::memory_order_release); }

    // A crew that was inherited is left as it is: there is nobody to join.
    void forget_inherited(std::uint64_t now) {
        if (crew != nullptr && crew_forks != now) (void)crew.release();
        crew_forks = now;
    }

    Crew& muster(std::uint64_t now) {
        forget_inherited(now);
        if (crew == nullptr) crew.reset(new Crew(threads - 1));
        return *crew;
    }
};

bool Interrupt::check() {
    if (is_set()) return true;
    const std::int64_t now = std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
    if (last_ == 0) last_ = now;
    if (now - last_ < kPatience.count()) return false;
    const bool found = asked();
    last_ = now;
    if (found) is_set_.store(true, std::memory_order_relaxed);
    return found;
}

Interrupt*& Interrupt::of_thread() {
    static thread_local Interrupt* interrupt = nullptr;
    return interrupt;
}

Pool::Pool(int threads) : state_(new State(threads < 1 ? 1 : threads)) { watch_forks(); }

Pool::~Pool() { state_->forget_inherited(forks.load(std::memory_order_relaxed)); }

int Pool::threads() const { return state_->threads; }

bool Pool::is_warm() const {
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    const std::chrono::steady_clock::duration before(state_->last.exchange(now.count(), std::memory_order_relaxed));
    return now - before < kWarm;
}

void Pool::run(std::int64_t count, Task task, const void* state) {
    const std::uint64_t now = forks.load(std::memory_order_relaxed);
    if (count <= 1 || state_->threads == 1 || !state_->enter(now + 1)) {
        Interrupt* const interrupt = Interrupt::of_thread();
        for (std::int64_t i = 0; i < count && (interrupt == nullptr || !interrupt->check()); ++i) task(state, i, 0);
        return;
    }
    state_->muster(now).run(count, task, state);
    state_->last.store(std::chrono::steady_clock::now().time_since_epoch().count(), std::memory_order_relaxed);
    state_->leave();
}

}  // namespace dovetail
