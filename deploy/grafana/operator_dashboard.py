"""The operator itself."""
from parts import dashboard, graph, number, row, target

NAME = "trainyard-operator"
RATE = "[$__rate_interval]"
CONTROLLER = 'controller="trainingjob"'
QUEUE = 'name="trainingjob"'
# Pods of the operator, whatever the scrape calls them.
OURS = 'and on (instance) trainyard_jobs{state="Running"}'


def quantile(part, name, selector):
    return f"histogram_quantile({part}, sum by (le) (rate({name}_bucket{{{selector}}}{RATE})))"


def made():
    reconciles = f"sum(rate(controller_runtime_reconcile_total{{{CONTROLLER}}}{RATE}))"
    errors = f"sum(rate(controller_runtime_reconcile_errors_total{{{CONTROLLER}}}{RATE}))"
    overview = row(
        "Overview",
        number("Replicas", "Operators that export metrics.", "none", 'count(trainyard_jobs{state="Running"})'),
        number("Leaders", "Exactly one works, the others stand by.", "none",
               'sum(leader_election_master_status{name="trainyard-operator"})',
               thresholds=[{"color": "red", "value": None}, {"color": "green", "value": 1},
                           {"color": "red", "value": 2}]),
        number("Jobs running", "In all namespaces.", "none", 'max(trainyard_jobs{state="Running"})'),
        number("Queue", "Jobs that wait to be looked at.", "none", f"sum(workqueue_depth{{{QUEUE}}})"),
        number("Reconciles", "Looks at jobs, per second.", "ops", reconciles),
        number("Errors", "Part of reconciles that fail.", "percentunit", f"{errors} / ({reconciles} > 0)"))
    jobs = row(
        "Jobs",
        graph("Jobs by state", "As the operator sees them; Pending: not yet taken up.", "none",
              target("max by (state) (trainyard_jobs)", "{{state}}"), stacked=True),
        graph("Jobs that came and went", "Per minute.", "cpm",
              target(f"60 * sum(rate(trainyard_jobs_created_total{RATE}))", "created"),
              target(f"60 * sum(rate(trainyard_jobs_succeeded_total{RATE}))", "succeeded"),
              target(f"60 * sum(rate(trainyard_jobs_failed_total{RATE}))", "failed"),
              target(f"60 * sum(rate(trainyard_jobs_deleted_total{RATE}))", "deleted")),
        graph("Agents out of reach", "Of tasks that run; above 0 jobs cannot be scaled or stopped in order.", "none",
              target("max(trainyard_unreachable_agents)", "no answer for 30 s")))
    controller = row(
        "Controller",
        graph("Reconciles by result", "requeue: the record had changed meanwhile.", "ops",
              target(f"sum by (result) (rate(controller_runtime_reconcile_total{{{CONTROLLER}}}{RATE}))",
                     "{{result}}"), stacked=True),
        graph("Time of a reconcile", "Quantiles.", "s",
              target(quantile(0.5, "controller_runtime_reconcile_time_seconds", CONTROLLER), "p50"),
              target(quantile(0.99, "controller_runtime_reconcile_time_seconds", CONTROLLER), "p99")),
        graph("Reconciles under way", "And how many there may be.", "none",
              target(f"sum(controller_runtime_active_workers{{{CONTROLLER}}})", "under way"),
              target(f"sum(controller_runtime_max_concurrent_reconciles{{{CONTROLLER}}})", "at most")),
        graph("Failures", "Of reconciles, and of those that trying again cannot mend.", "ops",
              target(errors, "failed"),
              target(f"sum(rate(controller_runtime_terminal_reconcile_errors_total{{{CONTROLLER}}}{RATE}))",
                     "needs somebody")))
    queue = row(
        "Queue",
        graph("Depth", "Jobs that wait to be looked at.", "none",
              target(f"sum(workqueue_depth{{{QUEUE}}})", "waiting")),
        graph("Coming in", "Jobs put into the queue, and put back after a failure, per second.", "ops",
              target(f"sum(rate(workqueue_adds_total{{{QUEUE}}}{RATE}))", "added"),
              target(f"sum(rate(workqueue_retries_total{{{QUEUE}}}{RATE}))", "retried")),
        graph("Waiting and working", "99th percentiles of the time in the queue and of the work on a job.", "s",
              target(quantile(0.99, "workqueue_queue_duration_seconds", QUEUE), "in the queue"),
              target(quantile(0.99, "workqueue_work_duration_seconds", QUEUE), "work")),
        graph("Work under way", "What grows here without end hangs.", "s",
              target(f"max(workqueue_longest_running_processor_seconds{{{QUEUE}}})", "longest"),
              target(f"sum(workqueue_unfinished_work_seconds{{{QUEUE}}})", "all together")))
    apiserver = row(
        "Apiserver",
        graph("Requests by answer", "Status codes; <error>: there was no answer.", "reqps",
              target(f"sum by (code) (rate(rest_client_requests_total{RATE}))", "{{code}}"), stacked=True),
        graph("Requests by method", "Per second.", "reqps",
              target(f"sum by (method) (rate(rest_client_requests_total{RATE}))", "{{method}}"), stacked=True),
        graph("Latency", "Quantiles of the time to an answer, or to the head of a stream.", "s",
              target(f"histogram_quantile(0.5, sum by (le) (rate(rest_client_request_duration_seconds_bucket{RATE})))",
                     "p50"),
              target(f"histogram_quantile(0.99, sum by (le) (rate(rest_client_request_duration_seconds_bucket{RATE}"
                     ")))", "p99")),
        graph("Cached pods", "Pods of tasks in the operator's cache.", "none",
              target("max(trainyard_cached_pods)", "pods")))
    process = row(
        "Process",
        graph("Memory", "Resident memory of each replica.", "bytes",
              target(f"process_resident_memory_bytes {OURS}", "{{instance}}")),
        graph("CPU", "Cores used by each replica.", "none",
              target(f"rate(process_cpu_seconds_total{RATE}) {OURS}", "{{instance}}")),
        graph("Threads and files", "Threads and open file descriptors.", "none",
              target(f"process_threads {OURS}", "threads of {{instance}}"),
              target(f"process_open_fds {OURS}", "files of {{instance}}")),
        graph("Uptime", "Since the start of each replica.", "s",
              target(f"time() - process_start_time_seconds {OURS}", "{{instance}}")))
    return dashboard("trainyard-operator", "Trainyard / Operator", "The operator: jobs, controller, queue, apiserver.",
                     [], [overview, jobs, controller, queue, apiserver, process])
