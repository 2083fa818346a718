"""One job: how fast it is, how well it learns, and what holds it up."""
from parts import (JOB, NAMESPACE, annotation, bars, dashboard, graph, number, quantile, row, target)

NAME = "trainyard-job"
JOB_IS = 'namespace=~"$namespace",trainyard_job="$job_name"'
RATE = "[$__rate_interval]"
STEPS = f"sum(rate(trainyard_worker_steps_total{{{JOB_IS}}}{RATE}))"
EXAMPLES = f"rate(trainyard_worker_examples_total{{{JOB_IS}}}{RATE})"
PHASES = f"rate(trainyard_worker_phase_seconds_total{{{JOB_IS}}}{RATE})"
# What each server sends and receives: what the kernel counted, else the built-in runtime's payload.
PS_IN = (f"sum by (index) (rate(trainyard_ps_wire_receive_bytes_total{{{JOB_IS}}}{RATE})) or "
         f"sum by (index) (rate(trainyard_ps_receive_bytes_total{{{JOB_IS}}}{RATE}))")
PS_OUT = PS_IN.replace("receive", "transmit")
PS_BOTH = (f"sum by (index) (rate(trainyard_ps_wire_receive_bytes_total{{{JOB_IS}}}{RATE})) + "
           f"sum by (index) (rate(trainyard_ps_wire_transmit_bytes_total{{{JOB_IS}}}{RATE}))")
# What a worker does for one step itself, and how many steps it takes, by worker.
BUSY = f'sum by (index) (rate(trainyard_worker_phase_seconds_total{{{JOB_IS},phase=~"data|compute"}}{RATE}))'
WORKER_STEPS = f"sum by (index) (rate(trainyard_worker_steps_total{{{JOB_IS}}}{RATE}))"
# Both generations of labels of NVIDIA's exporter: its own, and those that a scrape has renamed.
GPU_PODS = ('label_replace({metric}{{exported_pod=~"$job_name-.+"}}, "pod", "$1", "exported_pod", "(.+)") or '
            '{metric}{{pod=~"$job_name-.+",exported_pod=""}}')


def gpu(metric):
    return f"avg by (pod, gpu) ({GPU_PODS.format(metric=metric)})"


def overview():
    remaining = (f"(max(trainyard_target_steps{{{JOB_IS}}}) - max(trainyard_global_step{{{JOB_IS}}})) / "
                 f"(max(deriv(trainyard_global_step{{{JOB_IS}}}[5m])) > 0)")
    return row(
        "Overview",
        number("Step", "Newest complete step.", "none", f"max(trainyard_global_step{{{JOB_IS}}})", decimals=0),
        number("Done", "Part of the steps that the job is to take.", "percentunit",
               f"max(trainyard_global_step{{{JOB_IS}}}) / (max(trainyard_target_steps{{{JOB_IS}}}) > 0)"),
        number("Throughput", "Samples that all workers train on, per second.", "suffix:examples/s",
               f"sum({EXAMPLES})", decimals=0),
        number("Loss", "Mean loss of the newest complete step.", "none",
               f"max(trainyard_training_loss{{{JOB_IS}}})", decimals=4),
        number("Time left", "At the pace of the last five minutes.", "s", remaining, trend=False),
        number("Checkpoint age", "How much would be lost if every copy of the weights were.", "s",
               f"time() - max(trainyard_checkpoint_last_success_timestamp_seconds{{{JOB_IS}}})", decimals=0))


def learning():
    return row(
        "Learning",
        graph("Throughput by worker", "Samples of completed steps, per second.", "suffix:examples/s",
              target(f"sum by (index) ({EXAMPLES})", "worker {{index}}"), stacked=True),
        graph("Loss over time", "Mean loss of the newest complete step, as the coordinator has it.", "none",
              target(f"max(trainyard_training_loss{{{JOB_IS}}})", "loss"), minimum=None),
        graph("Accuracy", "Of the last evaluation; nothing before the first.", "percentunit",
              target(f"max(trainyard_evaluation_accuracy{{{JOB_IS}}})", "accuracy"), maximum=1),
        graph("Step over time", "Newest complete step, as each role knows it.", "none",
              target(f"max by (role) (trainyard_global_step{{{JOB_IS}}})", "{{role}}")))


def pace():
    return row(
        "Where the time goes",
        graph("Step time by phase", "Mean over all workers: reading data, computing, and waiting for the "
              "parameter servers (push_pull), which includes waiting for slower workers.", "s",
              target(f"sum by (phase) ({PHASES}) / on () group_left () ({STEPS} > 0)", "{{phase}}"),
              stacked=True),
        graph("Stragglers: computing per step", "Data and compute of each worker per step. In Sync mode all "
              "workers take steps of the same length: the slow one is that which computes longest.", "s",
              target(f"{BUSY} / ({WORKER_STEPS} > 0)", "worker {{index}}")),
        graph("Waiting share", "Part of a worker's time that it waits for parameter servers.", "percentunit",
              target(f'sum by (index) (rate(trainyard_worker_phase_seconds_total{{{JOB_IS},phase="push_pull"}}'
                     f"{RATE})) / (sum by (index) ({PHASES}) > 0)", "worker {{index}}"), maximum=1),
        graph("Step time of steps", "Half of all steps of all workers took no longer than the median, 99 of 100 no "
              "longer than the upper line.", "s",
              target(quantile(0.5, "trainyard_worker_step_duration_seconds", JOB_IS), "median"),
              target(quantile(0.99, "trainyard_worker_step_duration_seconds", JOB_IS), "99 %")),
        graph("Staleness", "Updates that others made between the weights of a gradient and its own update; 0 in Sync "
              "mode. And gradients per second that came too late and were dropped (backup workers).", "none",
              target(quantile(0.5, "trainyard_worker_staleness_steps", JOB_IS), "median"),
              target(quantile(0.95, "trainyard_worker_staleness_steps", JOB_IS), "95 %"),
              target(f"sum(rate(trainyard_worker_discarded_gradients_total{{{JOB_IS}}}{RATE}))", "dropped per second")),
        graph("Steps per second", "Of all workers; in Sync mode each of them takes part in every step.", "ops",
              target(WORKER_STEPS, "worker {{index}}")))


def servers():
    return row(
        "Parameter servers",
        graph("Received by each server", "Gradients, and whatever else comes in: bytes on the wire where the "
              "kernel tells, else payload.", "Bps", target(PS_IN, "ps {{index}}")),
        graph("Sent by each server", "Weights, and whatever else goes out.", "Bps", target(PS_OUT, "ps {{index}}")),
        graph("Hot share", "Part of all traffic that the busiest server carries. The line of even shares is "
              "one part in as many as there are servers: what lies above it is lost time.", "percentunit",
              target(f"max({PS_BOTH}) / (sum({PS_BOTH}) > 0)", "busiest server"),
              target(f"1 / count({PS_BOTH})", "even"), maximum=1),
        bars("Traffic now", "Bytes per second in both directions.", "Bps", target(PS_BOTH, "ps {{index}}")))


def all_reduce():
    gradients = f'{JOB_IS},op="all_reduce"'
    sent = f'sum by (index) (rate(trainyard_collective_bytes_total{{{gradients},direction="transmit"}}{RATE}))'
    taken = f"sum by (index) (rate(trainyard_collective_seconds_total{{{gradients}}}{RATE}))"
    return row(
        "All-reduce (jobs without parameter servers)",
        graph("Sent in all-reduce by each worker", "Payload bytes of gradients and their sums, also of those that pass "
              "through shared memory.", "Bps", target(sent, "worker {{index}}")),
        graph("All-reduce hidden", "Part of the time in all-reduce for which the worker did not wait, because its "
              "backward pass went on; of all steps since its agent started.", "percentunit",
              target(f"max by (index) (trainyard_collective_overlap_ratio{{{JOB_IS}}})", "worker {{index}}"), maximum=1),
        graph("Time in all-reduce per step", "Waiting for other workers included: the one that all wait for has the "
              "shortest.", "s", target(f"{taken} / ({WORKER_STEPS} > 0)", "worker {{index}}")),
        graph("Slowest worker", "Who computes longest for a step, and how long: all others wait for it.", "s",
              target(f"topk(1, {BUSY} / ({WORKER_STEPS} > 0) and on (index) {taken})", "worker {{index}}")),
        collapsed=True)


def tables():
    def by(label, name):
        return f"sum by ({label}) (rate({name}{{{JOB_IS}}}{RATE}))"

    def held(name):
        return target(f"sum by (table) ({name}{{{JOB_IS}}})", "{{table}}")

    pulled = f"rate(trainyard_ps_rows_pulled_total{{{JOB_IS}}}{RATE})"
    return row(
        "Embedding tables (jobs that have some)",
        graph("Rows by table", "That all servers hold together.", "none", held("trainyard_ps_rows")),
        graph("Memory of rows by table", "All that is taken for rows: weights, slots, and where they are found.",
              "bytes", held("trainyard_ps_rows_bytes")),
        graph("Rows pulled from each server", "Rows given to workers, for steps and evaluations.", "suffix:rows/s",
              target(by("index", "trainyard_ps_rows_pulled_total"), "ps {{index}}")),
        graph("Rows pushed to each server", "Rows that workers brought gradients for.", "suffix:rows/s",
              target(by("index", "trainyard_ps_rows_pushed_total"), "ps {{index}}")),
        graph("Rows created by table", "By the first gradient of their id. What does not sink has ever new ids.",
              "suffix:rows/s", target(by("table", "trainyard_ps_rows_created_total"), "{{table}}")),
        graph("Rows refused by table", "Gradients of new ids that a full table left out (onFull: RefuseNew).",
              "suffix:rows/s", target(by("table", "trainyard_ps_rows_refused_total"), "{{table}}")),
        graph("Ids counted by table", "Those that have occurred too seldom for a row (admit).", "none",
              held("trainyard_ps_rows_counted")),
        graph("Rows evicted by table", "Those that went because they were old, or next to nothing (evict).",
              "suffix:rows/s", target(by("table", "trainyard_ps_rows_evicted_total"), "{{table}}")),
        graph("Hot rows by table", "Part of the rows pulled that goes to 1,024 of each server's busiest ids, since its "
              "program started; at least so much.", "percentunit",
              target(f"sum by (table) (trainyard_ps_hot_rows_ratio{{{JOB_IS}}} * {pulled}) / "
                     f"(sum by (table) ({pulled}) > 0)", "{{table}}"), maximum=1),
        graph("Lookups for each row asked for", "How often an id occurs in a worker's part of a step: what asking "
              "for it once saves.", "none",
              target(f"{by('table', 'trainyard_worker_row_ids_total')} / "
                     f"({by('table', 'trainyard_worker_distinct_row_ids_total')} > 0)", "{{table}}")),
        collapsed=True)


def health():
    return row(
        "Health",
        graph("Tasks ready", "By role.", "none",
              target(f"sum by (role) (trainyard_task_ready{{{JOB_IS}}})", "{{role}}")),
        graph("Restarts and lost steps", "Restarts of programs in place, and steps that had to be taken again "
              "after a return to a checkpoint.", "none",
              target(f"sum by (role) (trainyard_task_restarts_total{{{JOB_IS}}})", "restarts of {{role}}"),
              target(f"sum(trainyard_lost_steps_total{{{JOB_IS}}})", "lost steps")),
        graph("Epoch and membership", "An epoch begins when the set of tasks that compute together changes; the "
              "revision when the list of tasks does.", "none",
              target(f"max(trainyard_epoch{{{JOB_IS}}})", "epoch"),
              target(f"max(trainyard_task_membership_revision{{{JOB_IS}}})", "revision")),
        graph("Checkpoint duration", "From the decision to take a checkpoint to its commit, of those of the last half "
              "hour; training goes on meanwhile.", "s",
              target(quantile(0.5, "trainyard_checkpoint_duration_seconds", JOB_IS).replace(RATE, "[30m]"), "median"),
              target(quantile(1, "trainyard_checkpoint_duration_seconds", JOB_IS).replace(RATE, "[30m]"), "longest")),
        graph("Checkpoint size", "All files of the newest committed checkpoint.", "bytes",
              target(f"max(trainyard_checkpoint_bytes{{{JOB_IS}}})", "size")),
        graph("Checkpoint age over time", "Time since the newest committed checkpoint.", "s",
              target(f"time() - max(trainyard_checkpoint_last_success_timestamp_seconds{{{JOB_IS}}})", "age")))


def gpus():
    return row(
        "GPUs (with NVIDIA's DCGM exporter)",
        graph("GPU utilisation", "Of the GPUs of the job's pods.", "percent",
              target(gpu("DCGM_FI_DEV_GPU_UTIL"), "{{pod}} gpu {{gpu}}"), maximum=100),
        graph("GPU memory used", "Framebuffer in use.", "mbytes",
              target(gpu("DCGM_FI_DEV_FB_USED"), "{{pod}} gpu {{gpu}}")),
        graph("Tensor cores active", "Part of cycles in which the tensor pipe is active.", "percentunit",
              target(gpu("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE"), "{{pod}} gpu {{gpu}}"), maximum=1),
        graph("GPU power", "Power draw.", "watt", target(gpu("DCGM_FI_DEV_POWER_USAGE"), "{{pod}} gpu {{gpu}}")),
        collapsed=True)


def dashboard_annotations():
    return (annotation("Restarts", "orange",
                       f"sum by (role, index) (increase(trainyard_task_restarts_total{{{JOB_IS}}}[1m])) > 0",
                       "restart", "{{role}} {{index}} was started again"),
            annotation("Epochs", "blue", f"changes(max(trainyard_epoch{{{JOB_IS}}})[1m:15s]) > 0", "epoch",
                       "a new epoch began"))


def made():
    return dashboard("trainyard-job", "Trainyard / Job", "One training job: pace, learning, traffic, health.",
                     [NAMESPACE, JOB], [overview(), learning(), pace(), servers(), tables(), all_reduce(), health(), gpus()],
                     dashboard_annotations())
