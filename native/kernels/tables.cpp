// The vector code of the processor at hand.
#include "kernels/pack.h"
#include "kernels/stage.h"
#include "kernels/product.h"
#include "step.h"

namespace dovetail {

#define DOVETAIL_TABLES(isa)          \
    namespace isa {                   \
    extern const PackTable packs;     \
    extern const ProductTable products;     \
    extern const StageTable stages;   \
    }

DOVETAIL_TABLES(base)
#ifdef DOVETAIL_X86
DOVETAIL_TABLES(avx2)
DOVETAIL_TABLES(avx512)
#define DOVETAIL_CHOOSE(table) (isa() == Isa::avx512 ? avx512::table : isa() == Isa::avx2 ? avx2::table : base::table)
#else
#define DOVETAIL_CHOOSE(table) base::table
#endif

const ProductTable& product_table() { return DOVETAIL_CHOOSE(products); }
const PackTable& pack_table() { return DOVETAIL_CHOOSE(packs); }
const StageTable& stage_table() { return DOVETAIL_CHOOSE(stages); }

}  // namespace dovetail
