#include "operator/process/operator_flags.h"

#include "CLI/CLI.hpp"
#include "base/flags/usage.h"

namespace trainyard::control {

void addClusterFlags(CLI::App& app, OperatorFlags& flags) {
  app.add_option("--kubeconfig", flags.kubeconfig,
                 "File that says where the apiserver is; default: $KUBECONFIG, else the pod that "
                 "this runs in");
  app.add_option("--context", flags.context, "Context of the kubeconfig file");
  app.add_option("--namespace", flags.namespaces,
                 "Whose jobs; may be given several times; default: those of all namespaces")
      ->take_all();
}

void addFlags(CLI::App& app, OperatorFlags& flags) {
  addClusterFlags(app, flags);
  app.add_option("--agent-image", flags.agent_image, "Image with the agent for other images")
      ->required();
  app.add_option("--runtime-image", flags.runtime_image, "Image of tasks that name none")
      ->required();
  app.add_option("--runtime-torch-image", flags.runtime_torch_image,
                 "The same for tasks that need LibTorch; without it such jobs are refused");
  app.add_option(
      "--image-pull-secret", flags.image_pull_secrets,
      "Secret of a job's namespace with which the images of its tasks are pulled, beside "
      "those that its template names; may be given several times");
  app.add_option("--job-network-policy", flags.job_network_policy,
                 "Each job gets a NetworkPolicy: its tasks are reached by one another and, as this "
                 "JSON says, by {agentFrom: [peers], metricsFrom: [peers]}");
  app.add_option("--gang-scheduler", flags.gang_scheduler,
                 "Whose PodGroups jobs with runPolicy.schedulingPolicy get: Coscheduling or "
                 "Volcano; without it they are refused")
      ->check(CLI::IsMember({"Coscheduling", "Volcano"}));
  app.add_option("--gang-scheduler-name", flags.gang_scheduler_name,
                 "schedulerName of their pods; default: scheduler-plugins-scheduler or volcano");
  app.add_flag("--kueue", flags.kueue,
               "Jobs with the label kueue.x-k8s.io/queue-name wait for quota in that queue of "
               "Kueue's; without it they are refused");
  app.add_option("--http-library", flags.http_library,
                 "What speaks HTTP to the apiserver: beast or cpprestsdk")
      ->check(CLI::IsMember({"beast", "cpprestsdk"}))
      ->capture_default_str();
  app.add_option("--root-secret", flags.root_secrets,
                 "File of at least 32 random bytes, of which every job's keys are derived; given "
                 "again for former ones, whose jobs still run")
      ->required();
  app.add_option("--root-secret-name", flags.root_secret_name,
                 "Secret in the lease's namespace whose member `root` is taken where the first of "
                 "those files is not there; made where it is not there either");
  app.add_flag("--leader-elect", flags.leader_elect, "Work only while holding a lease");
  app.add_option("--lease-namespace", flags.lease_namespace,
                 "Namespace of the lease; default: that of this pod or of the context");
  app.add_option("--lease-name", flags.lease_name, "Name of the lease")->capture_default_str();
  app.add_option("--lease-duration", flags.lease_duration, "Seconds until others take it over")
      ->capture_default_str();
  app.add_option("--renew-deadline", flags.renew_deadline, "Seconds until a leader gives up")
      ->capture_default_str();
  app.add_option("--retry-period", flags.retry_period, "Seconds between two attempts")
      ->capture_default_str();
  app.add_option("--identity", flags.identity,
                 "In the lease, with random digits; default: the host name");
  app.add_option("--metrics-address", flags.metrics_address, "Address of /metrics and health")
      ->capture_default_str();
  app.add_option("--metrics-port", flags.metrics_port, "Port of /metrics and health; 0: any")
      ->check(wholeNumber(0, 65535))
      ->capture_default_str();
  app.add_option("--progress-interval", flags.progress_interval,
                 "Seconds between two questions to the agents")
      ->capture_default_str();
  app.add_option("--unreachable-after", flags.unreachable_after,
                 "Seconds of silence after which an agent is told of as unreachable")
      ->capture_default_str();
  app.add_option(
         "--shared-objects-interval", flags.shared_objects_interval,
         "Seconds after which a job's Service, NetworkPolicy and Secret are made again where "
         "somebody has deleted or changed them")
      ->capture_default_str();
  app.add_option("--concurrent-reconciles", flags.threads, "Jobs that are looked at side by side")
      ->check(wholeNumber(1, 256))
      ->capture_default_str();
  app.add_option("--log-format", flags.log_format, "text or json")
      ->check(CLI::IsMember({"text", "json"}))
      ->capture_default_str();
  app.add_option("--log-level", flags.log_level, "debug, info, warning or error")
      ->check(CLI::IsMember({"debug", "info", "warning", "error"}))
      ->capture_default_str();
}

}  // namespace trainyard::control
