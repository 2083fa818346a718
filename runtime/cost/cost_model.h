// How long a synchronous training step takes on n machines: with parameter servers on machines of
// their own, with parameter servers beside the workers, and around a ring. Pure arithmetic.
//
// Notation, as in docs/cost_model.md:
//   n    machines, n = n_w + n_p where parameter servers have machines of their own
//   D    bytes of the model's trainable variables; the gradient has as many
//   B    bits per second of a machine's link, each way
//   T0   seconds that one machine computes for one step, alone
//   k    1 on full-duplex links with push and pull at the same time; 2 on half-duplex links, or
//        where push and pull take turns
//   a    seconds for one message from one machine to another
//   c    k * 8 D / B: seconds in which one machine pushes and pulls the whole model
// What every machine does is equal and a server adds at least as fast as its link brings gradients.
// Computing and communicating follow each other, unless a name says "overlapped".
#pragma once

#include <cstdint>
#include <vector>

namespace trainyard::runtime {

enum class Duplex { kFull, kHalf };
// k of the formulas.
int duplexFactor(Duplex duplex);

// All positive, the latency may be zero.
struct CostInput {
  double model_bytes = 0;      // D
  double bits_per_second = 0;  // B
  double step_seconds = 0;     // T0; may be zero for stepSeconds and the functions of one step
  Duplex duplex = Duplex::kFull;
  double latency_seconds = 0;  // a

  double exchangeSeconds() const;  // c
};

// Parameter servers on their own machines, the hottest of which holds `hot_share` of the bytes
// (1 / servers is even):
//   T = T0 + c max(1, workers hot_share) + 2 a
// A server takes in and sends out workers x its share, a worker D each way; the slowest link
// decides (the cost model of arXiv:1802.05799's comparison, with the worker's own link, which it
// leaves out). workers >= 1, 0 < hot_share <= 1.
double dedicatedServersSeconds(const CostInput& input, int workers, double hot_share);

// Every machine a worker and one n-th of a server:
//   T = T0 + k 2 (n - 1)/n 8 D/B + 2 a,  T0 for n = 1
// Each link carries (n - 1)/n D as worker and as much as server, each way: the ring's bytes in two
// hops (Jiang et al., "A Unified Architecture for Accelerating Distributed DNN Training", OSDI '20,
// theorem 1 without further machines). n >= 1.
double colocatedServersSeconds(const CostInput& input, int machines);

// All-reduce around a ring, reduce-scatter and all-gather of n - 1 hops each:
//   T = T0 + k 2 (n - 1)/n 8 D/B + 2 (n - 1) a,  T0 for n = 1
// (Patarasuk, Yuan: "Bandwidth optimal all-reduce algorithms for clusters of workstations", 2009.)
// n >= 1.
double ringSeconds(const CostInput& input, int machines);

// Workers of the machines, and their share.
struct Split {
  int workers = 0;
  int servers = 0;
  bool operator==(const Split&) const = default;
};

// The share e of n machines that should be workers for the most steps of workers per second, with
// even shards and a = 0. Time per unit of work is T/n_w; for n_w >= n/2 that is
//   (1/n) (T0/e + c/(1 - e)),  least where T0/e^2 = c/(1 - e)^2, so e = 1/(1 + sqrt(c/T0)),
// and below n/2 a worker's own link decides, so that more workers are always better:
//   e* = max(1/2, 1/(1 + sqrt(c/T0)))
// whatever n is. T0 > 0.
double bestWorkerShare(const CostInput& input);

// The better whole number of workers beside e* n, at least one machine of each kind. machines >= 2.
Split bestSplit(const CostInput& input, int machines);

// One step of a job with its real placement. Bytes.
struct ServerBytes {
  std::int64_t per_worker = 0;    // that each worker pushes to it and pulls from it
  std::int64_t replicas_in = 0;   // mean gradients of the chunks of which it keeps replicas
  std::int64_t replicas_out = 0;  // mean gradients of its own chunks, to whoever keeps theirs
};
// Seconds.
struct ServerSeconds {
  double in = 0;   // its link carries what all workers push to it, and replicas
  double out = 0;  // and what they pull, and replicas
};
struct JobSeconds {
  std::vector<ServerSeconds> servers;
  ServerSeconds worker;      // of each worker: in what it pulls, out what it pushes
  double communication = 0;  // the slowest link + 2 a; half-duplex: its both directions in turns
  double step = 0;           // T0 + communication
  double overlapped = 0;     // max(T0, communication): all communication hidden behind computing
};
// What an only server sends of replicas goes to worker-0, whose link never decides then: the
// server's carries that and what the workers pull. workers >= 1.
JobSeconds predictJob(const CostInput& input, int workers, const std::vector<ServerBytes>& servers);

// Throughput of `workers` that take `step_seconds` for a step, against that of as many `machines`
// that compute without communicating: workers T0 / (machines step_seconds). 1 is linear scaling.
double efficiency(const CostInput& input, int workers, int machines, double step_seconds);

// first, its doubles below last, last. 1 <= first <= last.
std::vector<int> doublings(int first, int last);

}  // namespace trainyard::runtime
