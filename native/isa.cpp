#include "isa.h"

#include <cstdlib>
#include <cstring>
#include <initializer_list>
#if defined(__x86_64__) && defined(__GNUC__)
#include <cpuid.h>
#endif

namespace dovetail {

const char* name_of(Isa isa) {
    switch (isa) {
        case Isa::avx512: return "avx512";
        case Isa::avx2: return "avx2";
        default: return "base";
    }
}

namespace {

#if defined(__x86_64__) && defined(__GNUC__)
// CPUID leaf 1, ECX bit 29. clang's __builtin_cpu_supports has no name for F16C before release 16.
bool has_f16c() {
    unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
    return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & (1u << 29)) != 0;
}
#endif

Isa best_supported() {
#if defined(__x86_64__) && defined(__GNUC__)
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl"))
        return Isa::avx512;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c()) return Isa::avx2;
#endif
    return Isa::base;
}

Isa select() {
    const Isa best = best_supported();
    const char* requested = std::getenv("DOVETAIL_ISA");
    for (const Isa candidate : {Isa::base, Isa::avx2, Isa::avx512})
        if (requested != nullptr && std::strcmp(requested, name_of(candidate)) == 0 && candidate <= best) return candidate;
    return best;
}

thread_local bool reproducible = false;

}  // namespace

Isa isa() {
    static const Isa selected = select();
    return reproducible ? Isa::avx2 : selected;
}

ReproducibleScope::ReproducibleScope(bool is_active) : previous_(reproducible) { reproducible = is_active; }
ReproducibleScope::~ReproducibleScope() { reproducible = previous_; }
bool is_reproducible() { return reproducible; }

}  // namespace dovetail
