"""The parameter servers of one job, whoever's program they run."""
from parts import JOB, NAMESPACE, bars, dashboard, graph, number, quantile, row, target

NAME = "trainyard-parameter-servers"
JOB_IS = 'namespace=~"$namespace",trainyard_job="$job_name"'
RATE = "[$__rate_interval]"


def rate(name, by="index"):
    return f"sum by ({by}) (rate({name}{{{JOB_IS}}}{RATE}))"


def made():
    wire = f"({rate('trainyard_ps_wire_receive_bytes_total')} + {rate('trainyard_ps_wire_transmit_bytes_total')})"
    held = f"sum by (index) (trainyard_ps_parameters_bytes{{{JOB_IS}}})"
    overview = row(
        "Overview",
        number("Servers", "That export metrics.", "none", f'count(trainyard_task_ready{{{JOB_IS},role="ps"}})'),
        number("Received", "Of all servers together.", "Bps", f"sum({rate('trainyard_ps_wire_receive_bytes_total')})"),
        number("Sent", "Of all servers together.", "Bps", f"sum({rate('trainyard_ps_wire_transmit_bytes_total')})"),
        number("Hot share", "Part of all traffic that the busiest server carries.", "percentunit",
               f"max({wire}) / (sum({wire}) > 0)"),
        number("Imbalance", "The busiest server's traffic against an even share; 1 is the best.", "none",
               f"max({wire}) / (avg({wire}) > 0)", decimals=2),
        number("Weights", "Bytes of weights held by all servers.", "bytes", f"sum({held})"))
    wires = row(
        "On the wire, by server (any program)",
        graph("Received by server", "Bytes of TCP streams, counted by the kernel.", "Bps",
              target(rate("trainyard_ps_wire_receive_bytes_total"), "ps {{index}}")),
        graph("Sent by server", "Bytes of TCP streams, counted by the kernel.", "Bps",
              target(rate("trainyard_ps_wire_transmit_bytes_total"), "ps {{index}}")),
        bars("Traffic now", "Both directions.", "Bps", target(wire, "ps {{index}}")),
        graph("Shares", "Each server's part of all traffic.", "percentunit",
              target(f"{wire} / on () group_left () (sum({wire}) > 0)", "ps {{index}}"), maximum=1))
    payload = row(
        "Payload, by peer (built-in runtime)",
        graph("Gradients received", "By server and worker.", "Bps",
              target(rate("trainyard_ps_receive_bytes_total", "index, peer"), "ps {{index}} from {{peer}}")),
        graph("Weights sent", "By server and worker.", "Bps",
              target(rate("trainyard_ps_transmit_bytes_total", "index, peer"), "ps {{index}} to {{peer}}")),
        graph("Framing", "What the wire carries beside the payload, as a part of it.", "percentunit",
              target(f"{rate('trainyard_ps_wire_receive_bytes_total')} / "
                     f"({rate('trainyard_ps_receive_bytes_total')} > 0) - 1", "ps {{index}} in"),
              target(f"{rate('trainyard_ps_wire_transmit_bytes_total')} / "
                     f"({rate('trainyard_ps_transmit_bytes_total')} > 0) - 1", "ps {{index}} out"), minimum=None),
        graph("Requests", "Push-pull requests answered: one for each chunk, worker and step.", "reqps",
              target(rate("trainyard_ps_requests_total"), "ps {{index}}")),
        graph("Request to answer", "Of the built-in runtime: an answer waits for what its step still lacks, in Sync mode "
              "for the other workers.", "s",
              target(quantile(0.5, "trainyard_ps_request_duration_seconds", JOB_IS, "index, "), "ps {{index}} median"),
              target(quantile(0.99, "trainyard_ps_request_duration_seconds", JOB_IS, "index, "), "ps {{index}} 99 %"),
              width=24))
    shards = row(
        "Shards",
        bars("Weights held", "Bytes of weights by server: what the placement gave it.", "bytes",
             target(held, "ps {{index}}")),
        graph("Memory of agents", "Resident memory of the agent in each server's pod, without its program.", "bytes",
              target(f'process_resident_memory_bytes{{namespace=~"$namespace"}} * on (namespace, pod, instance) '
                     f'group_left (index) (trainyard_task_ready{{{JOB_IS},role="ps"}} >= bool 0)', "ps {{index}}")))
    return dashboard("trainyard-ps", "Trainyard / Parameter servers",
                     "What each parameter server of a job sends and receives, also of programs of your own.",
                     [NAMESPACE, JOB], [overview, wires, payload, shards])
