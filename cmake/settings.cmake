# Language level, warnings, determinism and output folders, the same for every target.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()

# -ffp-contract=off: the same bits on every ISA (fused multiply-add rounds once instead of twice).
# -Wno-restrict: GCC 12 reports impossible overlaps inside std::string.
# -fno-math-errno: lets sqrt vectorise; nothing reads errno after a math call.
add_compile_options(-Wall -Wextra -Wno-unused-parameter $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict> -ffp-contract=off -fno-math-errno)
# Debian 12's compiler has nothing to warn of; what another one says shall not keep anybody from a build.
# In all build folders alike: then what one has compiled another takes from the compiler cache.
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU AND CMAKE_CXX_COMPILER_VERSION MATCHES "^12\\." AND NOT TRAINYARD_SANITIZE)
  add_compile_options(-Werror)
endif()
# Release keeps optimisation at -O2: the kernels that gain from -O3 ask for it themselves.
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -DNDEBUG")
# From here on in this folder and below: what waits for people, files and other processes takes a quarter
# less time to compile so, and nobody notices when it runs.
macro(ty_optimize_little)
  add_compile_options(-O1)
endmacro()

# A finding ends the program: what is only printed is not seen. Undefined behaviour that the address
# sanitizer meets as a bad access (null, object-size, vptr), and alignment, are not checked at each
# dereference a second time: that alone takes a third of the time to compile. -O1 for the same reason.
if(TRAINYARD_SANITIZE STREQUAL address)
  set(sanitizer_flags -fsanitize=address,undefined -fno-sanitize=null,object-size,vptr,alignment
    -fno-sanitize-recover=all)
  add_compile_definitions(_GLIBCXX_ASSERTIONS)
elseif(TRAINYARD_SANITIZE STREQUAL thread)
  # Undefined, because protobuf's headers give maps another layout by it than its library has. The standard library
  # learns of the sanitizer by a name of its own: std::shared_ptr then does without what would look like a race.
  set(sanitizer_flags -fsanitize=thread -U__SANITIZE_THREAD__ -D_GLIBCXX_TSAN=1)
  add_compile_definitions(TRAINYARD_TSAN)
elseif(TRAINYARD_SANITIZE STREQUAL fuzz)
  # libFuzzer is Clang's. What tells it of new paths is in all objects, its main in trainyard-fuzz alone; the
  # profile says which lines the corpus reaches.
  set(sanitizer_flags -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize=null,object-size,vptr,alignment,function
    -fno-sanitize-recover=all -fprofile-instr-generate -fcoverage-mapping)
  add_compile_definitions(_GLIBCXX_ASSERTIONS)
elseif(TRAINYARD_SANITIZE)
  message(FATAL_ERROR "TRAINYARD_SANITIZE=${TRAINYARD_SANITIZE}: expected address, thread or fuzz")
endif()
if(TRAINYARD_SANITIZE)
  set(CMAKE_CXX_FLAGS_RELEASE "-O1 -DNDEBUG")
  add_compile_options(${sanitizer_flags} -fno-omit-frame-pointer -g1)
  add_link_options(${sanitizer_flags})
endif()

find_program(TRAINYARD_CCACHE ccache)
if(TRAINYARD_CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${TRAINYARD_CCACHE})
endif()
find_program(TRAINYARD_MOLD mold)
if(TRAINYARD_MOLD)
  add_link_options(-fuse-ld=mold)
endif()
