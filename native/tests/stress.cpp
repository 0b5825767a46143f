// A driver of the core without Python, for the sanitizers (`make sanitize`) and for measuring stalls: `stress [seconds]`.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <thread>
#include <vector>

#include "control_flow.h"
#include "program.h"

namespace {

using dovetail::Operand;
using dovetail::Program;
using dovetail::ThreadPool;
using Clock = std::chrono::steady_clock;

void require(bool condition, const char* what) {
    if (condition) return;
    std::fprintf(stderr, "stress: %s\n", what);
    std::_Exit(1);
}

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// Checks that every task of a job, at most 64, runs exactly once, on a worker of the pool. Allocates nothing: a forked child
// could wait forever for a lock of the sanitizer's allocator.
void run_job(ThreadPool& pool, std::int64_t count) {
    std::array<int, 64> ran{};
    pool.parallel_for(count, [&](std::int64_t task, int worker) {
        require(worker >= 0 && worker < pool.threads(), "a worker that the pool does not have");
        ran[static_cast<std::size_t>(task)] += 1;
    });
    require(std::all_of(ran.begin(), ran.begin() + count, [](int times) { return times == 1; }), "a task that did not run once");
}

void run_jobs(ThreadPool& pool, double seconds) {
    const auto start = Clock::now();
    for (std::int64_t count = 0; seconds_since(start) < seconds; count = (count * 7 + 1) % 61) run_job(pool, count);
}

// Pauses let the workers fall asleep, sometimes just before the next job arrives.
void run_jobs_with_pauses(ThreadPool& pool, double seconds) {
    const auto start = Clock::now();
    for (unsigned pause = 0; seconds_since(start) < seconds; pause = (pause + 7) % 83) {
        run_job(pool, 5);
        std::this_thread::sleep_for(std::chrono::microseconds(pause));
    }
}

void share_a_pool(double seconds) {
    ThreadPool pool(3);
    std::vector<std::thread> callers;
    for (int i = 0; i < 3; ++i) callers.emplace_back([&pool, seconds] { run_jobs(pool, seconds); });
    for (auto& caller : callers) caller.join();
}

void make_and_end_pools(double seconds) {
    const auto start = Clock::now();
    for (int i = 0; seconds_since(start) < seconds; ++i) {
        ThreadPool pool(1 + i % 4);
        if (i % 3) run_job(pool, i % 17);
    }
}

// Checks that the pools of a forked child work and end, also if the fork happens during the job of another thread.
void fork_during_jobs(double seconds) {
    const auto start = Clock::now();
    ThreadPool pool(3);
    std::atomic<bool> stop{false};
    std::thread worker([&] {
        while (!stop) run_job(pool, 9);
    });
    while (seconds_since(start) < seconds) {
        const pid_t child = fork();
        if (child == 0) {
            run_job(pool, 7);
            {
                ThreadPool own(2);
                run_job(own, 7);
            }
            std::_Exit(0);
        }
        int status = 1;
        require(waitpid(child, &status, 0) == child && status == 0, "a child that failed");
    }
    stop = true;
    worker.join();
}

Operand operand_of(int buffer, std::vector<std::int64_t> sizes, std::vector<std::int64_t> strides, std::int64_t offset = 0) {
    Operand operand;
    operand.buffer = buffer;
    operand.offset = offset;
    operand.element = dovetail::Element::f32;
    operand.itemsize = 4;
    operand.sizes = std::move(sizes);
    operand.strides = std::move(strides);
    return operand;
}

dovetail::Spec copy_spec(Operand from, Operand to) {
    dovetail::Spec spec;
    spec.kernel = "copy";
    spec.inputs = {std::move(from)};
    spec.outputs = {std::move(to)};
    return spec;
}

// Runs a program that transposes into the arena and back in several threads at once, each with separate buffers.
void run_programs(double seconds) {
    const std::int64_t rows = 130, columns = 257;
    const auto pool = std::make_shared<ThreadPool>(3);
    Program program(pool, std::make_shared<dovetail::WeightCache>(), std::make_shared<dovetail::ArenaPool>(),
                    static_cast<std::size_t>(rows * columns * 4), {{0, rows * columns * 4}, {0, rows * columns * 4}});
    program.add(copy_spec(operand_of(1, {rows, columns}, {columns * 4, 4}), operand_of(0, {rows, columns}, {4, rows * 4})));
    program.add(copy_spec(operand_of(0, {rows, columns}, {4, rows * 4}), operand_of(2, {rows, columns}, {columns * 4, 4})));
    const auto run_copies = [&program, seconds](float first) {
        std::vector<float> in(130 * 257), out(in.size());
        std::iota(in.begin(), in.end(), first);
        const auto start = Clock::now();
        while (seconds_since(start) < seconds) {
            std::byte* bases[] = {nullptr, reinterpret_cast<std::byte*>(in.data()), reinterpret_cast<std::byte*>(out.data())};
            std::fill(out.begin(), out.end(), -1.0f);
            auto* workspace = program.acquire();
            program.run(workspace, bases, 0, program.size(), nullptr);
            program.release(workspace);
            require(in == out, "a copy that differs");
        }
    };
    std::vector<std::thread> callers;
    for (int i = 0; i < 3; ++i) callers.emplace_back(run_copies, static_cast<float>(1000 * i));
    for (auto& caller : callers) caller.join();
}

// Runs a loop in several threads at once, while its subgraph is bound: each trip transposes the state and copies a part.
void run_loops(double seconds) {
    const std::int64_t side = 40, trips = 9;
    const std::int64_t state_bytes = side * side * 4, part_bytes = side * 4;
    const auto pool = std::make_shared<ThreadPool>(3);
    const auto weights = std::make_shared<dovetail::WeightCache>();
    const auto arenas = std::make_shared<dovetail::ArenaPool>();
    const auto plain = [side](int buffer) { return operand_of(buffer, {side, side}, {side * 4, 4}); };
    const auto parts = [side, trips](int buffer) { return operand_of(buffer, {trips, side}, {side * 4, 4}); };
    const dovetail::ByteRange state{0, state_bytes}, part{0, part_bytes}, all_parts{0, trips * part_bytes};
    const auto body =
        std::make_shared<Program>(pool, weights, arenas, 0, std::vector<dovetail::ByteRange>{state, part, state, part});
    body->add(copy_spec(operand_of(1, {side, side}, {4, side * 4}), plain(3)));
    body->add(copy_spec(operand_of(2, {side}, {4}), operand_of(4, {side}, {4})));
    dovetail::LoopSpec spec;
    spec.states = {plain(1)};
    spec.scan_inputs = {{parts(2), 0, 1, false}};
    spec.last_states = {plain(3)};
    spec.scan_outputs = {{parts(4), 0, 1, true}};
    spec.is_endless = true;
    Program program(pool, weights, arenas, 0, {state, all_parts, state, all_parts});
    program.add(std::make_unique<dovetail::Loop>(spec, arenas), {plain(1), parts(2), plain(3), parts(4)});
    std::atomic<int> runs{0};
    const auto run = [&, seconds](float first) {
        std::vector<float> in(static_cast<std::size_t>(side * side)), scan(static_cast<std::size_t>(trips * side));
        std::iota(in.begin(), in.end(), first);
        std::iota(scan.begin(), scan.end(), first);
        std::vector<float> out(in.size()), scanned(scan.size());
        const auto start = Clock::now();
        while (seconds_since(start) < seconds) {
            std::byte* bases[] = {nullptr, reinterpret_cast<std::byte*>(in.data()), reinterpret_cast<std::byte*>(scan.data()),
                                  reinterpret_cast<std::byte*>(out.data()), reinterpret_cast<std::byte*>(scanned.data())};
            try {
                const dovetail::Budget budget(trips, 0);
                const Program::Lease lease(program);
                program.run(lease.get(), bases, 0, program.size(), nullptr);
                ++runs;
            } catch (const dovetail::StepFailed& failure) {
                require(failure.code == dovetail::kUnbound, "a loop that failed");
                continue;
            }
            for (std::size_t i = 0; i < out.size(); ++i) require(out[i] == in[i % 40 * 40 + i / 40], "a state that differs");
            for (std::size_t i = 0; i < scan.size(); ++i)
                require(scanned[i] == scan[(8 - i / 40) * 40 + i % 40], "a part that differs");
        }
    };
    std::vector<std::thread> callers;
    for (int i = 0; i < 3; ++i) callers.emplace_back(run, static_cast<float>(1000 * i));
    dynamic_cast<dovetail::ControlFlow&>(program.kernel(0)).bind(0, body, {1, 2});
    for (auto& caller : callers) caller.join();
    require(runs > 0, "no loop that ran");
}

// Transposes arrays larger than the caches, and transposes the results back, between buffers of exactly their sizes.
void transpose_large_arrays() {
    const auto pool = std::make_shared<ThreadPool>(3);
    const std::int64_t shapes[][3] = {{2, 1030, 1100}, {2, 1024, 1040}, {4096, 24, 24}, {1, 16, 140000}, {1, 131080, 18}};
    for (const auto& [matrices, rows, columns] : shapes) {
        const std::int64_t size = rows * columns;
        const std::vector<std::int64_t> plain = {size * 4, columns * 4, 4}, transposed = {size * 4, 4, rows * 4};
        const std::vector<std::int64_t> sizes = {matrices, rows, columns};
        const dovetail::ByteRange whole{0, matrices * size * 4};
        Program program(pool, std::make_shared<dovetail::WeightCache>(), std::make_shared<dovetail::ArenaPool>(), 64,
                        {whole, whole, whole});
        program.add(copy_spec(operand_of(1, sizes, plain), operand_of(2, sizes, transposed)));
        program.add(copy_spec(operand_of(2, sizes, transposed), operand_of(3, sizes, plain)));
        std::vector<float> in(static_cast<std::size_t>(matrices * size)), between(in.size()), out(in.size());
        std::iota(in.begin(), in.end(), 0.0f);
        std::byte* bases[] = {nullptr, reinterpret_cast<std::byte*>(in.data()), reinterpret_cast<std::byte*>(between.data()),
                              reinterpret_cast<std::byte*>(out.data())};
        auto* workspace = program.acquire();
        program.run(workspace, bases, 0, program.size(), nullptr);
        program.release(workspace);
        require(in == out, "a transpose that differs");
    }
}

// Reports quantiles of the time of a small job: a stall shows as a scheduler's time slice (milliseconds).
void report_stalls(double seconds, int threads, int pause_us) {
    ThreadPool pool(threads);
    std::vector<double> times;
    std::atomic<std::int64_t> sink{0};
    const auto start = Clock::now();
    while (seconds_since(start) < seconds) {
        const auto begin = Clock::now();
        pool.parallel_for(16, [&](std::int64_t task, int) {
            std::int64_t sum = 0;
            for (std::int64_t i = 0; i < 2000; ++i) sum += (i ^ task) * i;
            sink.fetch_add(sum, std::memory_order_relaxed);
        });
        times.push_back(seconds_since(begin) * 1e6);
        if (pause_us) std::this_thread::sleep_for(std::chrono::microseconds(pause_us));
    }
    std::sort(times.begin(), times.end());
    const auto quantile = [&](double q) { return times[static_cast<std::size_t>(q * static_cast<double>(times.size() - 1))]; };
    std::printf("%d threads, %3d us between: %7zu jobs, us: median %.1f  90%% %.1f  99%% %.1f  99.9%% %.1f  most %.1f\n", threads,
                pause_us, times.size(), quantile(0.5), quantile(0.9), quantile(0.99), quantile(0.999), times.back());
}

}  // namespace

int main(int count, char** arguments) {
    const double seconds = count > 1 ? std::atof(arguments[1]) : 1;
    ThreadPool pool(4);
    run_jobs(pool, seconds);
    run_jobs_with_pauses(pool, seconds);
    share_a_pool(seconds);
    make_and_end_pools(seconds);
    run_programs(seconds);
    run_loops(seconds);
    transpose_large_arrays();
    // ThreadSanitizer does not support threads started after a fork of a multithreaded process, nor does qemu-user.
#if !defined(__SANITIZE_THREAD__) && !defined(DOVETAIL_EMULATED)
    fork_during_jobs(seconds);
#endif
    for (const int threads : {1, 2})
        for (const int pause : {0, 200}) report_stalls(seconds, threads, pause);
    std::puts("stress: all well");
}
