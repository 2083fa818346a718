#include "operator/kube/connection.h"

#include <utility>

#include "base/http/metrics.h"
#include "fmt/format.h"
#include "prometheus/counter.h"
#include "prometheus/histogram.h"

namespace trainyard::control {

namespace {

constexpr MetricSpec kRequests = metric("rest_client_requests_total");
constexpr MetricSpec kSeconds = metric("rest_client_request_duration_seconds");
const prometheus::Histogram::BucketBoundaries kBounds(kSeconds.buckets.begin(),
                                                      kSeconds.buckets.end());

class MeteredTransport : public HttpTransport {
 public:
  MeteredTransport(std::unique_ptr<HttpTransport> inner, std::string host, const Clock& clock,
                   prometheus::Registry& registry)
      : inner_(std::move(inner)),
        host_(std::move(host)),
        clock_(clock),
        requests_(prometheus::BuildCounter()
                      .Name(nameOf(kRequests))
                      .Help(helpOf(kRequests))
                      .Register(registry)),
        seconds_(prometheus::BuildHistogram()
                     .Name(nameOf(kSeconds))
                     .Help(helpOf(kSeconds))
                     .Register(registry)) {}

  StatusOr<HttpResponse> call(const HttpRequest& request, const HttpLimits& limits) override {
    const TimePoint began = clock_.now();
    auto response = inner_->call(request, limits);
    count(request, began, response.ok() ? response->status : 0);
    return response;
  }

  Status stream(const HttpRequest& request, const HttpLimits& limits,
                const std::function<bool(const HttpResponse&)>& on_head,
                const std::function<bool(std::string_view)>& on_data) override {
    const TimePoint began = clock_.now();
    bool counted = false;
    const Status status = inner_->stream(
        request, limits,
        [&](const HttpResponse& head) {
          counted = true;
          count(request, began, head.status);
          return on_head(head);
        },
        on_data);
    if (!counted) count(request, began, 0);
    return status;
  }

 private:
  // `status` 0: there was no answer.
  void count(const HttpRequest& request, TimePoint began, int status) {
    const std::string code = status == 0 ? "<error>" : std::to_string(status);
    requests_.Add({{"code", code}, {"method", request.method}, {"host", host_}}).Increment();
    seconds_.Add({{"verb", request.method}, {"host", host_}}, kBounds)
        .Observe(toSeconds(clock_.now() - began));
  }

  const std::unique_ptr<HttpTransport> inner_;
  const std::string host_;
  const Clock& clock_;
  prometheus::Family<prometheus::Counter>& requests_;
  prometheus::Family<prometheus::Histogram>& seconds_;
};

}  // namespace

std::unique_ptr<HttpTransport> addMetrics(std::unique_ptr<HttpTransport> inner, std::string host,
                                          const Clock& clock, prometheus::Registry& registry) {
  return std::make_unique<MeteredTransport>(std::move(inner), std::move(host), clock, registry);
}

StatusOr<std::unique_ptr<HttpTransport>> connectTo(const KubeConfig& config, const Clock& clock,
                                                   ConnectionOptions options) {
  TY_ASSIGN_OR_RETURN(std::unique_ptr<HttpTransport> transport,
                      makeHttpTransport(config, clock, options.http));
  if (options.registry) {
    TY_ASSIGN_OR_RETURN(const ServerAddress address, parseServer(config.server));
    transport = addMetrics(std::move(transport), fmt::format("{}:{}", address.host, address.port),
                           clock, *options.registry);
  }
  if (config.exec) return addToken(std::move(transport), config.exec, clock);
  if (config.token.empty()) return transport;
  return addToken(std::move(transport), config.token, clock, options.reread_token);
}

}  // namespace trainyard::control
