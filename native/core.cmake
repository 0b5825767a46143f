# The core as a static library, shared by the extension module and the driver in tests/.
set(here ${CMAKE_CURRENT_LIST_DIR})

set(CMAKE_CXX_STANDARD 17)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release)
endif()
# Release builds use -O3 without -march: a wheel runs on machines other than the one that built it.
string(REPLACE "-O2" "-O3" CMAKE_CXX_FLAGS_RELEASE "${CMAKE_CXX_FLAGS_RELEASE}")

file(GLOB core_sources CONFIGURE_DEPENDS ${here}/*.cpp ${here}/copy/*.cpp ${here}/kernels/*.cpp)
find_package(Threads REQUIRED)
add_library(dovetail_core STATIC ${core_sources})
target_include_directories(dovetail_core PUBLIC ${here})
target_link_libraries(dovetail_core PUBLIC Threads::Threads ${CMAKE_DL_LIBS})
if(NOT MSVC)
  target_compile_options(dovetail_core PRIVATE -Wall -Wextra -Wconversion)
endif()

# The simd folders hold vector code: each file is compiled once per instruction set, in the namespace that DOVETAIL_ISA names.
# isa.h chooses the best one at run time.
file(GLOB simd_sources CONFIGURE_DEPENDS ${here}/copy/simd/*.cpp ${here}/kernels/simd/*.cpp)
if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  # clang warns of each loop that it was asked to vectorize and did not, such as one over 64-bit integers under SSE2.
  set(simd_warnings -Wno-pass-failed)
endif()
function(add_isa name)
  if(NOT simd_sources)
    return()
  endif()
  add_library(dovetail_${name} OBJECT ${simd_sources})
  target_include_directories(dovetail_${name} PRIVATE ${here})
  target_compile_definitions(dovetail_${name} PRIVATE DOVETAIL_ISA=${name})
  target_compile_options(dovetail_${name} PRIVATE -Wall -Wextra -fno-math-errno -fno-trapping-math -ffp-contract=fast -Wno-psabi ${simd_warnings} ${ARGN})
  target_sources(dovetail_core PRIVATE $<TARGET_OBJECTS:dovetail_${name}>)
endfunction()
# Operations of dynamic quantization are rounded one by one.
set_source_files_properties(${here}/kernels/simd/dynamic_quantization.cpp PROPERTIES COMPILE_OPTIONS "-ffp-contract=off")
add_isa(base)
# AMX and VNNI code has files of its own, outside the namespaces of instruction sets. The processor is queried at run time.
target_sources(dovetail_core PRIVATE ${here}/kernels/amx/multiply.cpp ${here}/kernels/vnni/multiply.cpp
                                     ${here}/kernels/vnni/byte_rows.cpp ${here}/kernels/bf16/products.cpp)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  target_compile_definitions(dovetail_core PUBLIC DOVETAIL_X86)
  add_isa(avx2 -mavx2 -mfma -mf16c)
  include(CheckCXXCompilerFlag)
  check_cxx_compiler_flag(-mamx-int8 DOVETAIL_HAS_AMX)
  if(DOVETAIL_HAS_AMX)
    set_source_files_properties(${here}/kernels/amx/multiply.cpp TARGET_DIRECTORY dovetail_core
                                PROPERTIES COMPILE_OPTIONS "-mamx-tile;-mamx-int8")
  endif()
  check_cxx_compiler_flag(-mavx512vnni DOVETAIL_HAS_VNNI)
  if(DOVETAIL_HAS_VNNI)
    set_source_files_properties(${here}/kernels/vnni/multiply.cpp ${here}/kernels/vnni/byte_rows.cpp TARGET_DIRECTORY dovetail_core
                                PROPERTIES COMPILE_OPTIONS "-mavx512f;-mavx512bw;-mavx512dq;-mavx512vl;-mavx512vnni;-mfma;-Wno-psabi")
  endif()
  check_cxx_compiler_flag(-mavx512bf16 DOVETAIL_HAS_BF16)
  if(DOVETAIL_HAS_BF16)
    set_source_files_properties(${here}/kernels/bf16/products.cpp TARGET_DIRECTORY dovetail_core
                                PROPERTIES COMPILE_OPTIONS "-mavx512f;-mavx512bw;-mavx512dq;-mavx512vl;-mavx512bf16;-mfma;-mprefer-vector-width=512;-fno-math-errno;-fno-trapping-math;-ffp-contract=fast;-Wno-psabi")
  endif()
  add_isa(avx512 -mavx512f -mavx512bw -mavx512dq -mavx512vl -mfma -mf16c -mprefer-vector-width=512)
endif()

