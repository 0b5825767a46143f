// The vector code of the processor at hand.
#include "isa.h"
#include "copy/copy_kernels.h"
#include "kernels/runtime_packing.h"
#include "kernels/gemm_microkernel.h"
#include "kernels/conv_prologue.h"

namespace dovetail {

DOVETAIL_IN_EVERY_ISA(extern const PackTable packs; extern const ProductTable products; extern const StageTable stages;
                      const Movers& own_movers();)

const ProductTable& product_table() { return DOVETAIL_CHOSEN(products); }
const PackTable& pack_table() { return DOVETAIL_CHOSEN(packs); }
const StageTable& stage_table() { return DOVETAIL_CHOSEN(stages); }
const Movers& movers() { return DOVETAIL_CHOSEN(own_movers)(); }

}  // namespace dovetail
