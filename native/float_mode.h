// Access to a thread's floating-point mode: the flushing of subnormal numbers to zero.
#pragma once

#include <cstdint>

#if defined(__x86_64__) || defined(_M_X64)
#include <immintrin.h>
#endif

namespace dovetail {

// The floating-point control register of this thread; 0 where it is unknown.
inline std::uint64_t float_mode() {
#if defined(__x86_64__) || defined(_M_X64)
    return _mm_getcsr();
#elif defined(__aarch64__)
    std::uint64_t mode;
    asm volatile("mrs %0, fpcr" : "=r"(mode));
    return mode;
#else
    return 0;
#endif
}

inline void set_float_mode(std::uint64_t mode) {
#if defined(__x86_64__) || defined(_M_X64)
    _mm_setcsr(static_cast<unsigned>(mode));
#elif defined(__aarch64__)
    asm volatile("msr fpcr, %0" : : "r"(mode));
#else
    (void)mode;
#endif
}

// Treats subnormal operands and results as zero in this scope, if `flushes`. An operation on a subnormal number takes more than a
// hundred cycles on x86, and trained weights of channels that ceased to contribute are often subnormal.
class FlushSubnormals {
public:
    explicit FlushSubnormals(bool flushes) : flushes_(flushes) {
        if (!flushes_) return;
        previous_ = float_mode();
        set_float_mode(previous_ | kFlush);
    }
    ~FlushSubnormals() {
        if (flushes_) set_float_mode(previous_);
    }
    FlushSubnormals(const FlushSubnormals&) = delete;
    FlushSubnormals& operator=(const FlushSubnormals&) = delete;

private:
#if defined(__aarch64__)
    static constexpr std::uint64_t kFlush = std::uint64_t{1} << 24;  // FZ
#else
    static constexpr std::uint64_t kFlush = 0x8040;  // FTZ and DAZ
#endif
    const bool flushes_;
    std::uint64_t previous_ = 0;
};

}  // namespace dovetail
