// Embedding rows of one server's store on one core: how many are created, pulled and updated in a
// second, and what they take.
//
//   trainyard-bench-rows [--rows 10000000] [--dim 16] [--steps 200] [--optimizer Adagrad]
//
// Batches of 1024 samples with 26 ids, of a Zipf distribution of exponent 1.05 as click logs have
// it, each id once, sorted by partition; how many of the ids that are is printed.
#include <algorithm>
#include <cmath>
#include <iostream>
#include <vector>

#include "CLI/CLI.hpp"
#include "base/core/clock.h"
#include "base/core/exit_code.h"
#include "base/core/rng.h"
#include "fmt/format.h"
#include "runtime/rows/row_table.h"

namespace trainyard::runtime::rows {
namespace {

struct Flags {
  std::int64_t rows = 10'000'000;
  int dim = 16;
  int steps = 200;
  std::string optimizer = "Adagrad";
};

constexpr int kIds = 1024 * 26;
constexpr double kExponent = 1.05;

// By the inverse of the continuous distribution's integral: close enough for a bench.
std::uint64_t zipf(Rng& random, std::int64_t rows) {
  const double power = 1 - kExponent;
  const double most = std::pow(static_cast<double>(rows), power);
  const double drawn = std::pow(1 + random.unit() * (most - 1), 1 / power);
  return mix64(static_cast<std::uint64_t>(drawn));
}

void sortByPartition(std::vector<std::uint64_t>& ids, std::uint64_t salt) {
  std::ranges::sort(ids, {}, [salt](std::uint64_t id) { return hashOf(id, salt); });
}

std::vector<std::vector<std::uint64_t>> batches(const Flags& flags, std::uint64_t salt) {
  std::vector<std::vector<std::uint64_t>> made;
  Rng random(1);
  for (int s = 0; s < flags.steps; ++s) {
    std::vector<std::uint64_t> ids(kIds);
    for (std::uint64_t& id : ids) id = zipf(random, flags.rows);
    sortByPartition(ids, salt);
    ids.erase(std::ranges::unique(ids).begin(), ids.end());
    made.push_back(std::move(ids));
  }
  return made;
}

template <typename Work>
double millionsASecond(std::int64_t rows, Work work) {
  const TimePoint start = systemClock().now();
  work();
  return static_cast<double>(rows) / toSeconds(systemClock().now() - start) / 1e6;
}

Status measure(const Flags& flags) {
  v1::OptimizerSpec spec;
  spec.set_name(flags.optimizer);
  TY_ASSIGN_OR_RETURN(const auto optimizer, makeOptimizer(spec));
  RowTable table({.name = "user",
                  .dim = flags.dim,
                  .max_rows = flags.rows,
                  .initial = {RowInitializer::Kind::kUniform, 0.01F}},
                 *optimizer);
  const std::uint64_t salt = saltOf("user");
  std::vector<float> values(static_cast<std::size_t>(kIds) * flags.dim, 0.001F);
  const auto update = [&](std::span<const std::uint64_t> ids, std::int64_t step) {
    const auto gradients = std::span<const float>(values).first(ids.size() * flags.dim);
    return table.update({{step, 0.05F}, static_cast<std::uint32_t>(step), ids, {}, gradients})
        .status();
  };
  Status failed;
  const double inserted = millionsASecond(flags.rows, [&] {
    std::vector<std::uint64_t> ids;
    for (std::int64_t row = 1; row <= flags.rows && failed.ok(); ++row) {
      ids.push_back(mix64(static_cast<std::uint64_t>(row)));
      if (ids.size() < kIds && row < flags.rows) continue;
      sortByPartition(ids, salt);
      failed = update(ids, 0);
      ids.clear();
    }
  });
  TY_RETURN_IF_ERROR(failed);
  const auto steps = batches(flags, salt);
  std::int64_t rows = 0;
  for (const auto& ids : steps) rows += static_cast<std::int64_t>(ids.size());
  std::vector<float> out(values.size());
  const double pulled = millionsASecond(rows, [&] {
    for (const auto& ids : steps) table.pull(ids, std::span(out).first(ids.size() * flags.dim));
  });
  const double updated = millionsASecond(rows, [&] {
    for (std::size_t s = 0; s < steps.size() && failed.ok(); ++s)
      failed = update(steps[s], static_cast<std::int64_t>(s));
  });
  TY_RETURN_IF_ERROR(failed);
  const auto floats = static_cast<std::int64_t>((1 + optimizer->slots().size()) * flags.dim);
  std::cout << fmt::format(
      "{} rows of {} floats, {}: created {:.1f}, pulled {:.1f}, updated {:.1f} M rows/s; "
      "{:.1f} bytes a row beside weights and slots; {:.0f} % of the ids are distinct\n",
      table.size(), flags.dim, flags.optimizer, inserted, pulled, updated,
      static_cast<double>(table.bytes()) / static_cast<double>(table.size()) - 4.0 * floats,
      100.0 * static_cast<double>(rows) / (static_cast<double>(kIds) * flags.steps));
  return absl::OkStatus();
}

int run(int argc, char** argv) {
  Flags flags;
  CLI::App app("Embedding rows on one core.", "trainyard-bench-rows");
  app.add_option("--rows", flags.rows, "of the table")->check(CLI::Range(1, 1'000'000'000));
  app.add_option("--dim", flags.dim, "floats of a row")->check(CLI::Range(1, 4096));
  app.add_option("--steps", flags.steps, "batches")->check(CLI::Range(1, 100'000));
  app.add_option("--optimizer", flags.optimizer, "as in a job");
  CLI11_PARSE(app, argc, argv);
  const Status done = measure(flags);
  if (!done.ok()) std::cerr << done.message() << "\n";
  return done.ok() ? kExitOk : kExitFailure;
}

}  // namespace
}  // namespace trainyard::runtime::rows

int main(int argc, char** argv) {
  return trainyard::runtime::rows::run(argc, argv);
}
