// Products of rows and weights in bf16, with AVX512-BF16.
#include <cstdlib>

#define DOVETAIL_ISA bf16
#include "kernels/compressed_weights.h"

#if defined(__AVX512BF16__)
#include <cpuid.h>

#include "kernels/simd/bf16_rows.h"

namespace dovetail {
namespace {

// CPUID leaf 7, subleaf 1, EAX bit 5. The compilers' __builtin_cpu_supports have different names for it.
bool has_bf16() {
    unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
    return __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0 && (eax & (1u << 5)) != 0;
}

}  // namespace

const Bf16RowsKernels* bf16_rows() {
    static const Bf16RowsKernels kernels = [] {
        using namespace bf16;
        return Bf16RowsKernels{DOVETAIL_BF16_ROWS, round_to_bf16};
    }();
    static const bool is_present = std::getenv("DOVETAIL_ISA") == nullptr && isa() == Isa::avx512 && has_bf16();
    return is_present ? &kernels : nullptr;
}

}  // namespace dovetail

#else

namespace dovetail {

const Bf16RowsKernels* bf16_rows() { return nullptr; }

}  // namespace dovetail

#endif
