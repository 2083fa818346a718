#include "runtime/task/by_hand.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <sys/socket.h>

#include <filesystem>

#include "base/core/strings.h"
#include "base/security/sha256.h"
#include "fmt/format.h"
#include "runtime/coordinator/names.h"

namespace trainyard::runtime {
namespace {

namespace fs = std::filesystem;

// Checkpoints of tasks by hand belong to each other by their directory, as TensorFlow's do.
constexpr char kUid[] = "by-hand";

Status refuse(std::string_view flag, std::string_view what) {
  return invalidInput(flag, what);
}

// An image file as it is, or packed as it is distributed.
std::string fileIn(const std::string& dir, const std::string& name) {
  std::error_code ignored;
  const fs::path plain = fs::path(dir) / name;
  return fs::exists(plain, ignored) ? plain.string() : plain.string() + ".gz";
}

Status fillData(const HandFlags& flags, v1::DataSpec* data) {
  if (flags.synthetic_data > 0) {
    data->set_format("synthetic");
    for (const int size : {28, 28, 1}) data->add_shape(size);
    data->set_classes(10);
    data->set_samples(flags.synthetic_data);
    data->set_eval_samples(std::max<std::int64_t>(1, flags.synthetic_data / 10));
    return absl::OkStatus();
  }
  if (flags.data_dir.empty()) {
    return refuse("--data_dir",
                  "missing: the folder with train-images-idx3-ubyte(.gz) and the like");
  }
  data->set_format("idx");
  data->set_images(fileIn(flags.data_dir, "train-images-idx3-ubyte"));
  data->set_labels(fileIn(flags.data_dir, "train-labels-idx1-ubyte"));
  data->set_eval_images(fileIn(flags.data_dir, "t10k-images-idx3-ubyte"));
  data->set_eval_labels(fileIn(flags.data_dir, "t10k-labels-idx1-ubyte"));
  return absl::OkStatus();
}

Status fillUpdate(const HandFlags& flags, int workers, v1::UpdateSpec* update) {
  update->set_mode(flags.issync ? "Sync" : "Async");
  if (!flags.replicas_to_aggregate) return absl::OkStatus();
  const int replicas = *flags.replicas_to_aggregate;
  if (replicas < 1 || replicas > workers) {
    return refuse("--replicas_to_aggregate",
                  fmt::format("{} is not from 1 to the {} workers", replicas, workers));
  }
  if (!flags.issync) update->set_aggregate(replicas);
  if (flags.issync && replicas < workers) update->set_backup_workers(workers - replicas);
  return absl::OkStatus();
}

void addMembers(const std::vector<HostPort>& hosts, v1::Role role, v1::Membership* membership) {
  for (std::size_t i = 0; i < hosts.size(); ++i) {
    v1::MemberTask* task = membership->add_tasks();
    task->mutable_id()->set_role(role);
    task->mutable_id()->set_index(static_cast<std::uint32_t>(i));
    // gRPC looks names up at every connection: a task may come back at another address.
    const bool v6 = hosts[i].host.find(':') != std::string::npos;
    task->set_ip(v6 ? "[" + hosts[i].host + "]" : hosts[i].host);
    task->set_host(hosts[i].host);
    task->set_port(hosts[i].port);
  }
}

StatusOr<HostPort> parseHost(const std::string& flag, std::string_view text) {
  const std::size_t colon = text.rfind(':');
  const std::string_view number =
      colon == std::string_view::npos ? std::string_view() : text.substr(colon + 1);
  const std::uint16_t port = parseNumber<std::uint16_t>(number).value_or(0);
  std::string_view host = text.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) {
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != std::string_view::npos) {
    host = "";  // an IPv6 address needs its brackets
  }
  if (port == 0 || host.empty()) {
    return refuse(flag, fmt::format("\"{}\" is not host:port", text));
  }
  return HostPort{std::string(host), port};
}

}  // namespace

StatusOr<std::vector<HostPort>> parseHosts(const std::string& flag, const std::string& text) {
  std::vector<HostPort> hosts;
  if (trim(text).empty()) return hosts;
  for (const std::string_view part : split(text, ',')) {
    TY_ASSIGN_OR_RETURN(HostPort host, parseHost(flag, trim(part)));
    hosts.push_back(std::move(host));
  }
  return hosts;
}

StatusOr<std::string> resolveHost(const std::string& host) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = ::getaddrinfo(host.c_str(), nullptr, &hints, &found);
  if (error != 0 || found == nullptr) {
    return absl::UnavailableError(
        fmt::format("host {}: {}", host, error != 0 ? ::gai_strerror(error) : "has no address"));
  }
  char text[INET6_ADDRSTRLEN] = "";
  const bool v4 = found->ai_family == AF_INET;
  const void* address =
      v4 ? static_cast<const void*>(&reinterpret_cast<sockaddr_in*>(found->ai_addr)->sin_addr)
         : &reinterpret_cast<sockaddr_in6*>(found->ai_addr)->sin6_addr;
  ::inet_ntop(found->ai_family, address, text, sizeof text);
  ::freeaddrinfo(found);
  return v4 ? std::string(text) : fmt::format("[{}]", text);
}

StatusOr<v1::Training> handTraining(const HandFlags& flags, int workers) {
  v1::Training training;
  v1::ModelSpec& model = *training.mutable_model();
  model.set_name(flags.model);
  if (flags.dropout > 0) model.set_dropout(flags.dropout);
  if (flags.model == "mlp") {
    for (const int width : flags.hidden_units) model.add_hidden(width);
  }
  TY_RETURN_IF_ERROR(fillData(flags, training.mutable_data()));
  training.set_batch_size(flags.batch_size);
  training.set_steps(flags.train_steps);
  training.set_seed(flags.seed);
  training.set_deterministic(flags.deterministic);
  if (!flags.init_from.empty()) training.set_init_from(flags.init_from);
  training.set_evaluate_every_steps(flags.eval_every_steps);
  v1::OptimizerSpec& optimizer = *training.mutable_optimizer();
  optimizer.set_name(flags.optimizer);
  optimizer.set_learning_rate(flags.learning_rate);
  if (flags.decay_steps) {
    optimizer.mutable_decay()->set_every(*flags.decay_steps);
    optimizer.mutable_decay()->set_rate(flags.decay_rate);
    optimizer.mutable_decay()->set_staircase(flags.staircase);
  }
  TY_RETURN_IF_ERROR(fillUpdate(flags, workers, training.mutable_update()));
  v1::PlacementSpec& placement = *training.mutable_placement();
  placement.set_strategy(flags.placement);
  if (flags.num_shards) {
    if (flags.placement != "FixedSize") return refuse("--num_shards", "only with FixedSize");
    placement.mutable_fixed_size()->set_shards(*flags.num_shards);
  }
  training.set_wire_type(flags.wire_type);
  training.mutable_checkpoint()->set_every_seconds(flags.save_model_secs);
  training.mutable_checkpoint()->set_keep(flags.max_to_keep);
  return training;
}

StatusOr<TaskOptions> handOptions(const HandFlags& flags, UnixMillis now) {
  TY_ASSIGN_OR_RETURN(const auto ps, parseHosts("--ps_hosts", flags.ps_hosts));
  TY_ASSIGN_OR_RETURN(const auto workers, parseHosts("--worker_hosts", flags.worker_hosts));
  if (ps.empty()) return refuse("--ps_hosts", "names no parameter server");
  if (workers.empty()) return refuse("--worker_hosts", "names no worker");
  if (flags.job_name != "ps" && flags.job_name != "worker") {
    return refuse("--job_name", fmt::format("expected ps or worker, got \"{}\"", flags.job_name));
  }
  const bool is_ps = flags.job_name == "ps";
  const std::vector<HostPort>& own = is_ps ? ps : workers;
  if (flags.task_index >= own.size()) {
    return refuse("--task_index", fmt::format("{} is not below the {} hosts of --{}_hosts",
                                              flags.task_index, own.size(), flags.job_name));
  }
  if (flags.checkpoint_dir.empty()) {
    return refuse("--checkpoint_dir", "missing: a folder that all parameter servers share");
  }
  TaskOptions options;
  v1::JobSpec& spec = *options.job.mutable_spec();
  options.job.mutable_metadata()->set_name("by-hand");
  options.job.mutable_metadata()->set_uid(kUid);
  spec.set_strategy("ParameterServer");
  spec.mutable_ps()->set_replicas(static_cast<int>(ps.size()));
  spec.mutable_ps()->set_max_replicas(static_cast<int>(ps.size()));
  spec.mutable_worker()->set_replicas(static_cast<int>(workers.size()));
  spec.mutable_network()->set_encryption(flags.encryption);
  TY_ASSIGN_OR_RETURN(*spec.mutable_training(),
                      handTraining(flags, static_cast<int>(workers.size())));
  options.membership.set_job("by-hand");
  options.membership.set_uid(kUid);
  options.membership.set_revision(1);
  addMembers(ps, v1::ROLE_PS, &options.membership);
  addMembers(workers, v1::ROLE_WORKER, &options.membership);
  options.id.set_role(is_ps ? v1::ROLE_PS : v1::ROLE_WORKER);
  options.id.set_index(flags.task_index);
  options.self.set_created(static_cast<std::uint32_t>(now / 1000));
  options.self.set_start(static_cast<std::uint32_t>(now % 1000 + 1));
  options.job_dir = flags.checkpoint_dir;
  options.task_dir = fmt::format("{}/tasks/{}", flags.checkpoint_dir,
                                 taskName(options.id.role(), options.id.index()));
  options.port = own[flags.task_index].port;
  options.threads = flags.threads;
  options.threads_reason = "--threads";
  return options;
}

std::string derivedToken(const HandFlags& flags) {
  return sha256Hex(std::string_view(
      fmt::format("trainyard tasks by hand\n{}\n{}\n", flags.ps_hosts, flags.worker_hosts)));
}

}  // namespace trainyard::runtime
