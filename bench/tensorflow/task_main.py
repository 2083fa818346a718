"""What the tasks of compare.py have in common: their flags, a server that only serves, and how a worker is measured."""
import argparse
import json
import os
import pathlib
import sys
import time

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


def minimize(args, optimizer, loss):
    """What makes a step, the global step, and the hooks of mode sync."""
    global_step = tf.train.get_or_create_global_step()
    if not args.sync:
        return optimizer.minimize(loss, global_step=global_step), global_step, []
    count = len(args.worker_hosts.split(","))
    optimizer = tf.train.SyncReplicasOptimizer(optimizer, count, total_num_replicas=count)
    train = optimizer.minimize(loss, global_step=global_step)
    # No tokens ahead: every step waits for all gradients of its own step, as ours does.
    return train, global_step, [optimizer.make_session_run_hook(args.index == 0, num_tokens=0)]


def session_of(args, server, hooks):
    config = tf.ConfigProto(intra_op_parallelism_threads=1,
                            device_filters=["/job:ps", f"/job:worker/task:{args.index}"])
    return tf.train.MonitoredTrainingSession(server.target, is_chief=args.index == 0, hooks=hooks, config=config)


def wait_for_all():
    """Workers begin together."""
    print("ready", flush=True)
    sys.stdin.readline()


def leave(result):
    print(json.dumps(result), flush=True)
    # Closing the session can take for ever when the other workers are in the middle of a step.
    os._exit(0)


def measure(args, server, hooks, take):
    """From the global step --warm-up to --steps, as the chief sees them. The others go on until they are ended: in sync
    mode the chief's last step needs their gradients. `take(session)` makes a step; its loss and global step."""
    with session_of(args, server, hooks) as session:
        wait_for_all()
        first, step, losses = None, 0, []
        while args.index != 0 or step < args.steps:
            loss, step = take(session)
            now = time.monotonic()
            losses.append(float(loss))
            if first is None and step >= args.warm_up:
                first = (step, now)
        leave({"steps": int(step - first[0]), "seconds": now - first[1], "first_loss": losses[0], "last_loss": losses[-1]})


def learn(args, server, hooks, take, score):
    """Until --after evaluations beyond the one that has --target, or --steps. `score(session)`: an accuracy. The chief's
    records are those of our metrics.jsonl: evaluations are no time of training, all wait for them."""
    with session_of(args, server, hooks) as session:
        wait_for_all()
        records, step, trained, left = [], 0, 0.0, args.after
        while args.index != 0 or (step < args.steps and left >= 0):
            before = time.monotonic()
            # Its own steps are counted: in sync mode each is one of all, whose number is read before or after its end.
            loss, step = take(session)[0], step + 1
            trained += time.monotonic() - before
            records.append({"step": step, "train_seconds": trained, "loss": float(loss), "time": time.time()})
            if args.index == 0 and step % args.every == 0:
                records.append({"step": step, "accuracy": score(session), "time": time.time()})
                left -= records[-1]["accuracy"] >= args.target
        leave({"steps": step, "seconds": trained, "records": records})
