# Every library of others, found once. deploy/packages.txt lists the Debian packages.
find_package(Threads REQUIRED)
find_package(Protobuf REQUIRED)                 # 3.21 has no config package: module mode
find_package(gRPC CONFIG REQUIRED)
# The thread sanitizer sees nothing of the locks inside an uninstrumented library: there, one of our own takes gRPC's
# place (tests/fakes/grpc).
set(TRAINYARD_GRPC gRPC::grpc++)
if(TRAINYARD_SANITIZE STREQUAL thread)
  set(TRAINYARD_GRPC fake_grpc)
endif()
find_package(absl CONFIG REQUIRED)
find_package(prometheus-cpp CONFIG REQUIRED)
find_package(CLI11 CONFIG REQUIRED)
find_package(fmt CONFIG REQUIRED)
find_package(spdlog CONFIG REQUIRED)
find_package(yaml-cpp CONFIG REQUIRED)
find_package(nlohmann_json CONFIG REQUIRED)
find_package(OpenSSL REQUIRED)
find_package(cpprestsdk CONFIG REQUIRED)
find_package(ZLIB REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(HTTPLIB REQUIRED IMPORTED_TARGET cpp-httplib)
pkg_check_modules(ISAL REQUIRED IMPORTED_TARGET libisal)
# What the built-in models compute with; oneDNN and OpenBLAS start their threads by OpenMP. Of OpenBLAS
# only the library: its packages for development bring 60 MB that nothing here needs. Its folder goes
# into the programs, so that they load this variant whatever Debian's alternatives say.
find_package(OpenMP REQUIRED COMPONENTS CXX)
find_path(TRAINYARD_DNNL_INCLUDE dnnl.h REQUIRED)
find_library(TRAINYARD_DNNL dnnl REQUIRED)
find_library(TRAINYARD_BLAS NAMES libopenblas.so.0 openblas PATH_SUFFIXES openblas-openmp REQUIRED)
# The id of a text in tabular data; without a config package or a file for pkg-config.
find_path(TRAINYARD_FARMHASH_INCLUDE farmhash.h REQUIRED)
find_library(TRAINYARD_FARMHASH farmhash REQUIRED)
if(TRAINYARD_TESTS)
  find_package(GTest CONFIG REQUIRED)
endif()
if(TRAINYARD_WITH_TORCH)
  if(TRAINYARD_TORCH)
    list(PREPEND CMAKE_PREFIX_PATH ${TRAINYARD_TORCH})
  endif()
  find_package(Torch REQUIRED)
endif()
if(TRAINYARD_CUDA)
  # Wheels have a folder for each part, and libraries without the name that a linker looks for.
  set(roots ${TRAINYARD_NCCL_ROOT} ${TRAINYARD_CUDA_ROOT} ${TRAINYARD_CUDA_ROOT}/cuda_runtime
    ${TRAINYARD_CUDA_ROOT}/cuda_nvcc ${TRAINYARD_CUDA_ROOT}/cuda_cccl ${TRAINYARD_CUDA_ROOT}/nccl)
  set(where PATHS ${roots} PATH_SUFFIXES include lib lib64 REQUIRED)
  find_path(TRAINYARD_CUDA_INCLUDE cuda_runtime.h ${where})
  find_path(TRAINYARD_CUDA_CRT_INCLUDE crt/host_config.h ${where})
  # CUDA 13 has it a folder further down.
  find_path(TRAINYARD_CUDA_CCCL_INCLUDE nv/target PATHS ${roots} PATH_SUFFIXES include include/cccl REQUIRED)
  find_path(TRAINYARD_NCCL_INCLUDE nccl.h ${where})
  find_library(TRAINYARD_CUDART NAMES cudart libcudart.so.13 libcudart.so.12 ${where})
  find_library(TRAINYARD_NCCL NAMES nccl libnccl.so.2 ${where})
  add_library(trainyard_cuda INTERFACE)
  target_include_directories(trainyard_cuda SYSTEM INTERFACE
    ${TRAINYARD_CUDA_INCLUDE} ${TRAINYARD_CUDA_CRT_INCLUDE} ${TRAINYARD_CUDA_CCCL_INCLUDE}
    ${TRAINYARD_NCCL_INCLUDE})
  target_link_libraries(trainyard_cuda INTERFACE ${TRAINYARD_CUDART} ${TRAINYARD_NCCL})
endif()
