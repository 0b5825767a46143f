#include "isa.h"

#include <cstdlib>
#include <cstring>
#include <initializer_list>

namespace dovetail {

const char* name_of(Isa isa) {
    switch (isa) {
        case Isa::avx512: return "avx512";
        case Isa::avx2: return "avx2";
        default: return "base";
    }
}

namespace {

Isa best_supported() {
#if defined(__x86_64__) && defined(__GNUC__)
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl"))
        return Isa::avx512;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c")) return Isa::avx2;
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

}  // namespace

Isa isa() {
    static const Isa selected = select();
    return selected;
}

}  // namespace dovetail
