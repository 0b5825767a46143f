// Kernels of products of bf16 with AVX512-BF16.
#include "kernels/bf16_products.h"

#if defined(__AVX512BF16__)
#include <cpuid.h>

#include <cstdlib>

#include "isa.h"

#define DOVETAIL_ISA bf16
#include "kernels/simd/bf16_products.cpp"

namespace dovetail {
namespace {

// CPUID leaf 7, subleaf 1, EAX bit 5. The compilers' __builtin_cpu_supports have different names for it.
bool has_bf16() {
    unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
    return __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0 && (eax & (1u << 5)) != 0;
}

}  // namespace

const Bf16Kernels* avx512_bf16_kernels() {
    static const bool is_present = std::getenv("DOVETAIL_ISA") == nullptr && has_bf16();
    return is_present && isa() == Isa::avx512 ? &bf16::bf16_kernel_table : nullptr;
}

}  // namespace dovetail

#else

namespace dovetail {

const Bf16Kernels* avx512_bf16_kernels() { return nullptr; }

}  // namespace dovetail

#endif
