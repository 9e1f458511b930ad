# The flags of each instruction set, for the files of its folder alone (and for tests that compile a kernel body).
set(avx2_flags -mavx2 -mfma -mf16c)
set(avx512_flags ${avx2_flags} -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512vnni -mprefer-vector-width=512)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # GCC 12 warns of the undefined registers inside its own intrinsics (bug 105593).
  list(APPEND avx512_flags -Wno-uninitialized -Wno-maybe-uninitialized)
endif()
set(amx_flags ${avx512_flags} -mamx-tile -mamx-int8 -mamx-bf16)

set(neon_flags -march=armv8.2-a+dotprod)
set(i8mm_flags -march=armv8.2-a+dotprod+i8mm)

# Gives the files of kernels/neon under `source_folder` their flags.
function(carat_neon_flags source_folder)
  file(GLOB files CONFIGURE_DEPENDS ${source_folder}/kernels/neon/*.cpp)
  set_source_files_properties(${files} PROPERTIES COMPILE_OPTIONS "${neon_flags}")
  set_source_files_properties(${source_folder}/kernels/neon/i8mm.cpp PROPERTIES COMPILE_OPTIONS "${i8mm_flags}")
endfunction()
