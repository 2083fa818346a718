// Questions to an apiserver that may be slow, or silent.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/core/status.h"
#include "nlohmann/json.hpp"
#include "operator/kube/client.h"

namespace trainyard::cli {

// Used from one thread. References outlive it. Errors are those of KubeClient; after a question
// that was not answered all others have the same one.
class Questions {
 public:
  Questions(control::HttpTransport& transport, const Clock& clock, const std::string& user_agent);

  StatusOr<nlohmann::json> get(const control::KubeResource& resource, std::string_view ns,
                               std::string_view name);
  // Of all namespaces where `ns` is "".
  StatusOr<std::vector<nlohmann::json>> list(const control::KubeResource& resource,
                                             const std::string& ns,
                                             const std::string& label_selector = "");
  StatusOr<nlohmann::json> review(const control::KubeResource& resource, nlohmann::json object);
  // The JSON at a path such as /version.
  StatusOr<nlohmann::json> raw(std::string_view path);
  const Clock& clock() const { return clock_; }

 private:
  template <typename Ask>
  auto ask(Ask ask) -> decltype(ask(std::declval<control::KubeClient&>()));
  // Of the next question; none where the time is over.
  Duration patience() const;

  const Clock& clock_;
  const TimePoint end_;
  control::KubeClient client_;
  Status silence_;  // of the first that was not answered
};

}  // namespace trainyard::cli
