// Instruction sets that the kernels are compiled for, and the choice among them.
#pragma once

#include <cstdint>

namespace dovetail {

// What is larger, in bytes, does not stay in a core's second cache, and is asked for before it is read.
constexpr std::int64_t kSecondCache = 1 << 20;

enum class Isa { base, avx2, avx512 };

// The best one that this processor has, or the one that DOVETAIL_ISA names if it is there (and then no matrix unit beside it).
Isa isa();
const char* name_of(Isa isa);

}  // namespace dovetail

// DOVETAIL_IN_EVERY_ISA declares something in the namespace of each, DOVETAIL_CHOSEN names the one to use.
#ifdef DOVETAIL_X86
#define DOVETAIL_IN_EVERY_ISA(...) \
    namespace base {               \
    __VA_ARGS__                    \
    }                              \
    namespace avx2 {               \
    __VA_ARGS__                    \
    }                              \
    namespace avx512 {             \
    __VA_ARGS__                    \
    }
#define DOVETAIL_CHOSEN(name) (isa() == Isa::avx512 ? avx512::name : isa() == Isa::avx2 ? avx2::name : base::name)
#else
#define DOVETAIL_IN_EVERY_ISA(...) \
    namespace base {               \
    __VA_ARGS__                    \
    }
#define DOVETAIL_CHOSEN(name) base::name
#endif
