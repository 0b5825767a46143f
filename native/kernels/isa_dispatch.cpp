// Selection of the vector code for the instruction set in use.
#include "copy/copy_kernels.h"
#include "isa.h"
#include "kernels/bf16_products.h"
#include "kernels/conv_prologue.h"
#include "kernels/gemm_microkernel.h"
#include "kernels/runtime_packing.h"
#include "kernels/winograd.h"

namespace dovetail {

DOVETAIL_DECLARE_PER_ISA(extern const PackingKernels packing_kernel_table; extern const GemmKernels gemm_kernel_table[2];
                         extern const PrologueKernels prologue_kernel_table; extern const Bf16Kernels bf16_kernel_table;
                         extern const WinogradKernels winograd_kernel_table[2]; const CopyKernels& isa_copy_kernels();)

const GemmKernels& gemm_kernels() { return DOVETAIL_SELECT_ISA(gemm_kernel_table)[is_reproducible() ? 1 : 0]; }
const PackingKernels& packing_kernels() { return DOVETAIL_SELECT_ISA(packing_kernel_table); }
const PrologueKernels& prologue_kernels() { return DOVETAIL_SELECT_ISA(prologue_kernel_table); }
const WinogradKernels& winograd_kernels(std::int64_t outputs) {
    const WinogradKernels* const table = DOVETAIL_SELECT_ISA(winograd_kernel_table);
    return table[outputs / 2 - 1];
}
const Bf16Kernels& bf16_kernels() {
    const Bf16Kernels* const found = avx512_bf16_kernels();
    return found != nullptr ? *found : DOVETAIL_SELECT_ISA(bf16_kernel_table);
}
const CopyKernels& copy_kernels() { return DOVETAIL_SELECT_ISA(isa_copy_kernels)(); }

}  // namespace dovetail
