// The instruction sets for which the kernels are compiled, and the choice among them.
#pragma once

#include <cstdint>

namespace dovetail {

// Bytes beyond which an operand is assumed not to fit into the L2 cache of a core; larger operands are prefetched explicitly.
constexpr std::int64_t kL2Bytes = 1 << 20;

enum class Isa { base, avx2, avx512 };

// The best instruction set of this processor, or the one that the environment variable DOVETAIL_ISA names if the processor has
// it; AVX2 while a ReproducibleScope is active. Where DOVETAIL_ISA is set, the AMX and VNNI units are not used.
Isa isa();

// While it exists, the kernels that this thread makes are reproducible if `is_active`: they run on AVX2, and add in an order that
// does not depend on the number of rows or images.
class ReproducibleScope {
public:
    explicit ReproducibleScope(bool is_active);
    ~ReproducibleScope();
    ReproducibleScope(const ReproducibleScope&) = delete;
    ReproducibleScope& operator=(const ReproducibleScope&) = delete;

private:
    const bool previous_;
};

// True if the kernels that this thread makes are to be reproducible.
bool is_reproducible();

const char* name_of(Isa isa);

}  // namespace dovetail

// DOVETAIL_DECLARE_PER_ISA puts a declaration into the namespace of each instruction set.
// DOVETAIL_SELECT_ISA names the declaration of the instruction set in use.
#ifdef DOVETAIL_X86
#define DOVETAIL_DECLARE_PER_ISA(...) \
    namespace base {                  \
    __VA_ARGS__                       \
    }                                 \
    namespace avx2 {                  \
    __VA_ARGS__                       \
    }                                 \
    namespace avx512 {                \
    __VA_ARGS__                       \
    }
#define DOVETAIL_SELECT_ISA(name) (isa() == Isa::avx512 ? avx512::name : isa() == Isa::avx2 ? avx2::name : base::name)
#else
#define DOVETAIL_DECLARE_PER_ISA(...) \
    namespace base {                  \
    __VA_ARGS__                       \
    }
#define DOVETAIL_SELECT_ISA(name) base::name
#endif
