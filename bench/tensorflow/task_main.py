"""What the tasks of compare.py have in common: their flags, and a server that only serves."""
import argparse
import pathlib

import tensorflow

tf = tensorflow.compat.v1


def run(description, models, work, batch, add=lambda parser: None):
    """Serves, or calls work(flags, cluster, server); `add` gives the parser more flags."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--role", required=True, choices=["ps", "worker"])
    parser.add_argument("--index", required=True, type=int)
    parser.add_argument("--ps_hosts", required=True)
    parser.add_argument("--worker_hosts", required=True)
    parser.add_argument("--model", required=True, choices=models)
    parser.add_argument("--data", required=True, type=pathlib.Path)
    parser.add_argument("--batch", type=int, default=batch)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--warm-up", type=int, default=10)
    parser.add_argument("--sync", action="store_true")
    add(parser)
    args = parser.parse_args()
    cluster = tf.train.ClusterSpec({"ps": args.ps_hosts.split(","), "worker": args.worker_hosts.split(",")})
    config = tf.ConfigProto(intra_op_parallelism_threads=1)
    server = tf.train.Server(cluster, job_name=args.role, task_index=args.index, config=config)
    if args.role == "ps":
        print("serving", flush=True)
        server.join()
    work(args, cluster, server)
