// An Http that answers what a test says. Against a real store: tests/conformance/storage.
#pragma once

#include <deque>
#include <map>
#include <string>
#include <vector>

#include "runtime/storage/s3/http.h"

namespace trainyard::runtime::s3 {

inline Response answer(int status, const std::string& body = "",
                       std::map<std::string, std::string> headers = {}) {
  return {.status = status, .headers = std::move(headers), .body = body};
}

// Gives answers one after the other; the last one for ever.
class ScriptedHttp : public Http {
 public:
  StatusOr<Response> send(const Request& request, std::size_t /*max_body*/) override {
    asked.push_back(request.method + " " + request.path + "?" + queryText(request));
    bodies.emplace_back(reinterpret_cast<const char*>(request.body.data()), request.body.size());
    requests.push_back(request);
    requests.back().body = {};  // the caller's
    StatusOr<Response> next = answers.front();
    if (answers.size() > 1) answers.pop_front();
    return next;
  }

  std::deque<StatusOr<Response>> answers;
  std::vector<std::string> asked, bodies;
  std::vector<Request> requests;
};

}  // namespace trainyard::runtime::s3
