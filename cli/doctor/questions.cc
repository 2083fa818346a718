#include "cli/doctor/internal/questions.h"

#include <algorithm>

namespace trainyard::cli {
namespace {

using control::KubeClient;
using control::KubeResource;
using Json = nlohmann::json;

constexpr Duration kOneQuestion = std::chrono::seconds(5);
constexpr Duration kAllQuestions = std::chrono::seconds(20);
constexpr Duration kPushedBack = std::chrono::seconds(1);

control::KubeClientOptions optionsOf(const std::string& user_agent) {
  control::KubeClientOptions options;
  options.user_agent = user_agent;
  options.max_wait = kPushedBack;
  return options;
}

// A server that answers has a word for what is wrong.
bool isSilence(const Status& status) {
  return control::kubeReason(status).empty() &&
         (absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status));
}

}  // namespace

Questions::Questions(control::HttpTransport& transport, const Clock& clock,
                     const std::string& user_agent)
    : clock_(clock),
      end_(clock.now() + kAllQuestions),
      client_(transport, clock, optionsOf(user_agent)) {}

Duration Questions::patience() const {
  return std::min<Duration>(kOneQuestion, end_ - clock_.now());
}

template <typename Ask>
auto Questions::ask(Ask ask) -> decltype(ask(std::declval<KubeClient&>())) {
  if (!silence_.ok()) return silence_;
  control::HttpLimits limits;
  limits.deadline = limits.inactivity = patience();
  if (limits.deadline <= Duration::zero()) {
    return silence_ = absl::DeadlineExceededError("not asked: the answers before took too long");
  }
  KubeClient client = client_.with(limits);
  auto answer = ask(client);
  if (!answer.ok() && isSilence(answer.status())) silence_ = answer.status();
  return answer;
}

StatusOr<Json> Questions::get(const KubeResource& resource, std::string_view ns,
                              std::string_view name) {
  return ask([&](KubeClient& client) { return client.get(resource, ns, name); });
}

StatusOr<std::vector<Json>> Questions::list(const KubeResource& resource, const std::string& ns,
                                            const std::string& label_selector) {
  const control::ListQuery query{ns, label_selector, ""};
  TY_ASSIGN_OR_RETURN(control::ListPage page,
                      ask([&](KubeClient& client) { return client.list(resource, query); }));
  return std::move(page.items);
}

StatusOr<Json> Questions::review(const KubeResource& resource, Json object) {
  return ask([&](KubeClient& client) { return client.create(resource, "", std::move(object)); });
}

StatusOr<Json> Questions::raw(std::string_view path) {
  TY_ASSIGN_OR_RETURN(const std::string text,
                      ask([&](KubeClient& client) { return client.getRaw(path); }));
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_object()) return json;
  return absl::InternalError(std::string(path) + ": expected a JSON object");
}

}  // namespace trainyard::cli
