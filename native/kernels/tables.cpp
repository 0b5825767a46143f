// The vector code of the processor at hand.
#include "kernels/stage.h"
#include "kernels/tile.h"
#include "step.h"

namespace dovetail {

#define DOVETAIL_TABLES(isa)          \
    namespace isa {                   \
    extern const TileTable tiles;     \
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

const TileTable& tile_table() { return DOVETAIL_CHOOSE(tiles); }
const StageTable& stage_table() { return DOVETAIL_CHOOSE(stages); }

}  // namespace dovetail
