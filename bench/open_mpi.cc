// The all-reduce of bench/all_reduce.cc by Open MPI; started by mpirun, rank 0 prints.
//
//   mpirun -n 2 trainyard-bench-open-mpi BYTES ITERATIONS WARM_UP
#define OMPI_SKIP_MPICXX  // its C++ interface is a library of its own
#include <mpi.h>

#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

#include "bench/all_reduce_case.h"

int main(int argc, char** argv) {
  if (argc != 4) {
    std::cerr << "expected: BYTES ITERATIONS WARM_UP\n";
    return 2;
  }
  MPI_Init(&argc, &argv);
  int rank = 0;
  int ranks = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  std::vector<float> x(std::stoull(argv[1]) / sizeof(float));
  const int iterations = std::stoi(argv[2]);
  const int warm_up = std::stoi(argv[3]);
  std::vector<double> milliseconds;
  double cpu_ms = 0;
  for (int i = -warm_up; i < iterations; ++i) {
    trainyard::bench::fill(x.data(), x.size(), rank);
    MPI_Barrier(MPI_COMM_WORLD);
    const double cpu = trainyard::bench::cpuMillis();
    const double start = MPI_Wtime();
    MPI_Allreduce(MPI_IN_PLACE, x.data(), static_cast<int>(x.size()), MPI_FLOAT, MPI_SUM,
                  MPI_COMM_WORLD);
    const double end = MPI_Wtime();
    if (i >= 0) {
      milliseconds.push_back((end - start) * 1e3);
      cpu_ms += trainyard::bench::cpuMillis() - cpu;
    }
    if (!trainyard::bench::isSum(x.data(), x.size(), ranks)) MPI_Abort(MPI_COMM_WORLD, 1);
  }
  std::vector<double> slowest(milliseconds.size());
  double all_cpu_ms = 0;
  MPI_Reduce(milliseconds.data(), slowest.data(), static_cast<int>(slowest.size()), MPI_DOUBLE,
             MPI_MAX, 0, MPI_COMM_WORLD);
  MPI_Reduce(&cpu_ms, &all_cpu_ms, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
  if (rank == 0) std::cout << trainyard::bench::toJson(slowest, all_cpu_ms) << "\n";
  MPI_Finalize();
  return 0;
}
