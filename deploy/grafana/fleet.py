"""All jobs of a cluster."""
from parts import CLUSTER_NAMESPACE, dashboard, graph, number, row, table, target

NAME = "trainyard-fleet"
RATE = "[$__rate_interval]"
HERE = 'job_namespace=~"$namespace"'
TASKS = 'namespace=~"$namespace"'
BY = "job_namespace, trainyard_job"


def made():
    replicas = f'max by ({BY}) (trainyard_job_replicas{{{HERE},role="%s",state="%s"}})'
    missing = (f'sum by ({BY}) (max by ({BY}, role) (trainyard_job_replicas{{{HERE},state="desired"}})) - '
               f'sum by ({BY}) (max by ({BY}, role, state) (trainyard_job_replicas{{{HERE},state=~"ready|succeeded"}})) '
               # What is over, or rests, wants nobody.
               f'unless on ({BY}) trainyard_job_condition{{{HERE},'
               'condition=~"Succeeded|Failed|Suspended",status="True"} > 0')
    overview = row(
        "Overview",
        number("Running", "Jobs whose tasks all run.", "none", 'max(trainyard_jobs{state="Running"})'),
        number("Not running", "Taken up or restarting, or not taken up yet.", "none",
               'sum(max by (state) (trainyard_jobs{state=~"Pending|Created|Restarting"}))'),
        number("Failed", "That are still there.", "none", 'max(trainyard_jobs{state="Failed"})'),
        number("Tasks ready", "Of all jobs.", "none",
               f'sum(max by ({BY}, role) (trainyard_job_replicas{{{HERE},state="ready"}}))'),
        number("Throughput", "Samples per second of all jobs.", "suffix:examples/s",
               f"sum(rate(trainyard_worker_examples_total{{{TASKS}}}{RATE}))", decimals=0),
        number("Traffic", "Bytes per second of all parameter servers, both directions.", "Bps",
               f"sum(rate(trainyard_ps_wire_receive_bytes_total{{{TASKS}}}{RATE})) + "
               f"sum(rate(trainyard_ps_wire_transmit_bytes_total{{{TASKS}}}{RATE}))"))
    jobs = row(
        "Jobs",
        table("Jobs", "Tasks wanted and ready, the newest step, and what went wrong on the way.",
              {"workers wanted": replicas % ("worker", "desired"), "workers ready": replicas % ("worker", "ready"),
               "ps wanted": replicas % ("ps", "desired"), "ps ready": replicas % ("ps", "ready"),
               "step": f"max by ({BY}) (trainyard_job_step{{{HERE}}})",
               "restarts": f"max by ({BY}) (trainyard_job_restarts{{{HERE}}})",
               "disruptions": f"max by ({BY}) (trainyard_job_disruptions{{{HERE}}})",
               "age": f"time() - max by ({BY}) (trainyard_job_created_timestamp_seconds{{{HERE}}})"},
              ["job_namespace", "trainyard_job"], {"job_namespace": "namespace", "trainyard_job": "job"},
              units={"age": "s"}),
        table("Conditions", "Those that hold now.",
              {"holds": f'max by ({BY}, condition) (trainyard_job_condition{{{HERE},status="True"}})'},
              ["job_namespace", "trainyard_job", "condition"],
              {"job_namespace": "namespace", "trainyard_job": "job"}, width=12),
        graph("Tasks that are missing", "Wanted, neither ready nor done, of jobs that are neither over nor at rest.", "none",
              target(missing, "{{job_namespace}}/{{trainyard_job}}")))
    pace = row(
        "Pace",
        graph("Throughput by job", "Samples per second.", "suffix:examples/s",
              target(f"sum by (namespace, trainyard_job) (rate(trainyard_worker_examples_total{{{TASKS}}}{RATE}))",
                     "{{namespace}}/{{trainyard_job}}"), stacked=True),
        graph("Traffic by job", "Bytes on the wire of its parameter servers, both directions.", "Bps",
              target(f"sum by (namespace, trainyard_job) (rate(trainyard_ps_wire_receive_bytes_total{{{TASKS}}}{RATE}))"
                     f" + sum by (namespace, trainyard_job) "
                     f"(rate(trainyard_ps_wire_transmit_bytes_total{{{TASKS}}}{RATE}))",
                     "{{namespace}}/{{trainyard_job}}"), stacked=True),
        graph("Jobs by state", "Over time.", "none", target("max by (state) (trainyard_jobs)", "{{state}}"),
              stacked=True),
        graph("Restarts", "Of tasks by their own fault, per hour.", "none",
              target("sum by (job_namespace) (increase(trainyard_job_restarts_total[1h]))", "{{job_namespace}}")))
    return dashboard("trainyard-fleet", "Trainyard / Fleet", "All training jobs of a cluster.",
                     [CLUSTER_NAMESPACE], [overview, jobs, pace])
