// Products of rows of bytes with weights of few bits, with AVX512-VNNI.
#include <cstdlib>

#define DOVETAIL_ISA vnni
#include "kernels/compressed_weights.h"

#if defined(__AVX512VNNI__)
#include "kernels/simd/byte_rows.h"

namespace dovetail {

const ByteRowsKernels* vnni_byte_rows() {
    static const ByteRowsKernels kernels = [] {
        using namespace vnni;
        return ByteRowsKernels{{DOVETAIL_BYTE_ROWS(2), DOVETAIL_BYTE_ROWS(4), DOVETAIL_BYTE_ROWS(8)}};
    }();
    static const bool is_present = std::getenv("DOVETAIL_ISA") == nullptr && __builtin_cpu_supports("avx512vnni");
    return is_present && isa() == Isa::avx512 ? &kernels : nullptr;
}

}  // namespace dovetail

#else

namespace dovetail {

const ByteRowsKernels* vnni_byte_rows() { return nullptr; }

}  // namespace dovetail

#endif
