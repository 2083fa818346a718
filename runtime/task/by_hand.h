// Tasks that a person starts on each machine, as TensorFlow's were: no operator, agent or job file.
// Lists of addresses make the membership, flags the job; ps-0 is the coordinator.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/core/clock.h"
#include "base/core/status.h"
#include "runtime/task/options.h"

namespace trainyard::runtime {

// The flags of docs/migration.md, with their defaults.
struct HandFlags {
  std::string ps_hosts, worker_hosts;  // "a:2222,b:2222"
  std::string job_name;                // ps or worker
  std::uint32_t task_index = 0;

  bool issync = false;
  std::optional<int> replicas_to_aggregate;  // of the workers' gradients, in a step
  std::int64_t train_steps = 200;
  int batch_size = 100;

  std::string optimizer = "Adam";
  double learning_rate = 0.01;
  std::optional<std::int64_t> decay_steps;
  double decay_rate = 0.96;
  bool staircase = false;

  std::string model = "mnist_cnn";
  std::vector<int> hidden_units = {100};  // mlp
  double dropout = 0;
  std::string placement = "Balanced";
  std::optional<int> num_shards;  // FixedSize

  std::string data_dir;             // MNIST's four files
  std::int64_t synthetic_data = 0;  // samples made up instead
  std::string checkpoint_dir;
  std::string init_from;
  int save_model_secs = 50;
  int max_to_keep = 5;
  std::int64_t eval_every_steps = 0;
  std::int64_t seed = 1;
  bool deterministic = false;

  std::string token_file;
  std::string encryption = "None";    // of gradients and weights
  std::string wire_type = "Float32";  // what these travel as
  std::string bind;                   // "": the address that this task's own host name has
  int threads = 1;
};

struct HostPort {
  std::string host;  // without brackets
  std::uint16_t port = 0;
};
// "a:1,[::1]:2". INVALID_ARGUMENT names `flag` and the part that is none.
StatusOr<std::vector<HostPort>> parseHosts(const std::string& flag, const std::string& text);

// The first IP address of a host; UNAVAILABLE naming the host. Blocks for the resolver.
StatusOr<std::string> resolveHost(const std::string& host);

// What the flags mean, as the job that `trainyard run` would read from a file. INVALID_ARGUMENT
// names the flag.
StatusOr<v1::Training> handTraining(const HandFlags& flags, int workers);

// Everything but token, address to bind and agent. A task started later outlives one that was
// started before it: its incarnation is the time, `now` (Unix milliseconds, by its machine's
// clock).
StatusOr<TaskOptions> handOptions(const HandFlags& flags, UnixMillis now);

// The token where no file holds one: the same for all tasks with the same lists. It keeps apart
// jobs that meet on one address by mistake, and is no secret.
std::string derivedToken(const HandFlags& flags);

}  // namespace trainyard::runtime
