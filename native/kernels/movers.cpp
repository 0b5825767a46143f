#include "kernels/movers.h"

#include "step.h"

namespace dovetail {

namespace base {
const Movers& own_movers();
}
#ifdef DOVETAIL_X86
namespace avx2 {
const Movers& own_movers();
}
namespace avx512 {
const Movers& own_movers();
}
#endif

const Movers& movers() {
#ifdef DOVETAIL_X86
    if (isa() == Isa::avx512) return avx512::own_movers();
    if (isa() == Isa::avx2) return avx2::own_movers();
#endif
    return base::own_movers();
}

}  // namespace dovetail
