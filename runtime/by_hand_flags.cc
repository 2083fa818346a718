#include "runtime/by_hand_flags.h"

#include <algorithm>

#include "CLI/CLI.hpp"
#include "base/flags/usage.h"

namespace trainyard::runtime {
namespace {

constexpr long kMaxInt = 2'147'483'647;

// "--sync_replicas", "--issync=1", "--issync 0"
void addSwitch(CLI::App& app, const std::string& names, bool& value, const std::string& what) {
  app.add_option_function<std::string>(
         names,
         [&value, names](const std::string& text) {
           const bool on = text.empty() || text == "1" || text == "true" || text == "True";
           if (!on && text != "0" && text != "false" && text != "False") {
             throw CLI::ValidationError(names, "expected true or false, got \"" + text + "\"");
           }
           value = on;
         },
         what)
      ->expected(0, 1)
      ->type_name("BOOL");
}

void addTrainingFlags(CLI::App& app, HandFlags& flags) {
  const auto positive = wholeNumber(1, kMaxInt);
  addSwitch(app, "--issync,--sync_replicas", flags.issync,
            "Synchronous updates; default: each gradient as it comes");
  app.add_option("--replicas_to_aggregate", flags.replicas_to_aggregate,
                 "Gradients that make one update (synchronous: the slowest others are left out)");
  app.add_option("--train_steps,--training_steps,--max_steps", flags.train_steps, "Global steps")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--batch_size", flags.batch_size, "Samples of one worker in a step")
      ->check(positive)
      ->capture_default_str();
  app.add_option("--optimizer", flags.optimizer, "Update rule")
      ->check(CLI::IsMember({"SGD", "Momentum", "Adagrad", "Adadelta", "Adam", "RMSProp", "Ftrl"}))
      ->capture_default_str();
  app.add_option("--learning_rate", flags.learning_rate, "Learning rate")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--decay_steps", flags.decay_steps,
                 "It is multiplied by decay_rate each so often");
  app.add_option("--decay_rate", flags.decay_rate, "See decay_steps")->capture_default_str();
  addSwitch(app, "--staircase", flags.staircase, "Decay at whole multiples of decay_steps");
  app.add_option("--model", flags.model, "Model")
      ->check(CLI::IsMember({"mnist_cnn", "mlp"}))
      ->capture_default_str();
  app.add_option("--hidden_units", flags.hidden_units, "mlp: widths of the hidden layers")
      ->delimiter(',')
      ->capture_default_str();
  app.add_option("--dropout", flags.dropout, "Share of hidden units left out in a step")
      ->check(CLI::Range(0.0, 0.999))
      ->capture_default_str();
  app.add_option("--placement", flags.placement, "Which ps holds what")
      ->check(CLI::IsMember({"RoundRobin", "FixedSize", "Balanced"}))
      ->capture_default_str();
  app.add_option("--num_shards", flags.num_shards, "FixedSize: parts of each variable")
      ->check(wholeNumber(1, 4096));
  app.add_option("--seed", flags.seed, "Of weights, order of samples and dropout")
      ->capture_default_str();
  addSwitch(app, "--deterministic", flags.deterministic, "The same bits in every run");
  app.add_option("--eval_every_steps", flags.eval_every_steps, "0: only at the end")
      ->check(CLI::NonNegativeNumber);
}

void addFileFlags(CLI::App& app, HandFlags& flags) {
  app.add_option("--data_dir", flags.data_dir, "Folder of MNIST's four files, plain or gzip");
  app.add_option("--synthetic_data", flags.synthetic_data, "Made-up samples, this many, instead")
      ->check(CLI::PositiveNumber);
  app.add_option("--checkpoint_dir,--logdir,--train_dir,--save_path", flags.checkpoint_dir,
                 "Folder that all parameter servers share: checkpoints, metrics, events");
  app.add_option("--init_from", flags.init_from, "Weights of another run to start from");
  app.add_option("--save_model_secs,--save_checkpoint_secs", flags.save_model_secs,
                 "Seconds between checkpoints")
      ->check(wholeNumber(1, 604'800))
      ->capture_default_str();
  app.add_option("--max_to_keep", flags.max_to_keep, "Checkpoints that are kept")
      ->check(wholeNumber(1, 1000))
      ->capture_default_str();
  app.add_option(
      "--token_file", flags.token_file,
      "File with 64 hexadecimal digits, the same for all tasks; default: made of the lists "
      "of hosts, which is no secret");
  app.add_option("--encryption", flags.encryption,
                 "Of gradients and weights, with keys of the token")
      ->check(CLI::IsMember({"None", "TLS"}))
      ->capture_default_str();
  app.add_option("--wire_type", flags.wire_type, "What gradients and weights travel as")
      ->check(CLI::IsMember({"Float32", "Float16", "BFloat16"}))
      ->capture_default_str();
  app.add_option("--bind", flags.bind,
                 "ps: address to listen at; default: that of its own host name");
  app.add_option("--threads", flags.threads, "Threads to compute with")
      ->check(wholeNumber(1, 1024))
      ->capture_default_str();
}

}  // namespace

bool isByHand(const std::vector<std::string>& arguments) {
  return std::any_of(arguments.begin(), arguments.end(), [](const std::string& word) {
    const std::string name = word.substr(0, word.find('='));
    return name == "--ps_hosts" || name == "--worker_hosts" || name == "--job_name" ||
           name == "--task_index";
  });
}

void addHandFlags(CLI::App& app, HandFlags& flags) {
  app.add_option("--ps_hosts", flags.ps_hosts, "host:port of the parameter servers, with commas");
  app.add_option("--worker_hosts", flags.worker_hosts, "host:port of the workers");
  app.add_option("--job_name", flags.job_name, "ps or worker");
  app.add_option("--task_index", flags.task_index, "Which of them this is, from 0")
      ->capture_default_str();
  addTrainingFlags(app, flags);
  addFileFlags(app, flags);
  app.footer(
      "All tasks are given the same flags but for --job_name and --task_index. ps-0 says how it "
      "goes;\nCtrl-C there stops the job with a checkpoint, and the same commands go on from "
      "it.\n\n"
      "  trainyard-runtime ps --ps_hosts=a:2222 --worker_hosts=b:2222,c:2222 --task_index=0 \\\n"
      "      --data_dir=/data --checkpoint_dir=/shared/run --issync=1");
}

}  // namespace trainyard::runtime
