#!/usr/bin/env python3
"""Fashion-MNIST with TensorFlow's parameter servers, as scripts of TensorFlow 1 wrote it; it knows nothing of
trainyard.

Every variable goes whole to the next ps (round robin), or with --partitions N is cut into N parts that do.
"""
import argparse
import gzip
import os
import pathlib

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
import numpy as np  # noqa: E402
import tensorflow  # noqa: E402

tf = tensorflow.compat.v1
SIZES = (784, 400, 200, 10)


def idx(path, header):
    return np.frombuffer(gzip.decompress(path.read_bytes()), np.uint8, offset=header)


def model(images):
    x = images
    for i, (inputs, outputs) in enumerate(zip(SIZES, SIZES[1:]), 1):
        x = tf.nn.relu(x) if i > 1 else x
        x = tf.matmul(x, tf.get_variable(f"fc{i}_wei", [inputs, outputs],
                                         initializer=tf.truncated_normal_initializer(stddev=inputs ** -0.5)))
    return x + tf.get_variable("out_bia", [SIZES[-1]], initializer=tf.zeros_initializer())


def work(args, cluster, server):
    images = idx(args.data / "train-images-idx3-ubyte.gz", 16).reshape(-1, 784).astype(np.float32) / 255
    labels = idx(args.data / "train-labels-idx1-ubyte.gz", 8).astype(np.int64)
    device = tf.train.replica_device_setter(cluster=cluster, worker_device=f"/job:worker/task:{args.task_index}")
    partitioner = tf.fixed_size_partitioner(args.partitions) if args.partitions > 1 else None
    with tf.device(device), tf.variable_scope("model", partitioner=partitioner):
        step = tf.train.get_or_create_global_step()
        x = tf.placeholder(tf.float32, [None, 784])
        y = tf.placeholder(tf.int64, [None])
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=model(x)))
        train = tf.train.GradientDescentOptimizer(0.05).minimize(loss, global_step=step)
    # A worker asks for a session from the servers and itself alone: another worker may have ended.
    config = tf.ConfigProto(intra_op_parallelism_threads=1,
                            device_filters=["/job:ps", f"/job:worker/task:{args.task_index}"])
    rng = np.random.default_rng(args.task_index)
    taken, value = 0, None
    with tf.train.MonitoredTrainingSession(server.target, is_chief=args.task_index == 0, config=config,
                                           hooks=[tf.train.StopAtStepHook(last_step=args.steps)],
                                           save_checkpoint_steps=None, save_checkpoint_secs=None) as session:
        while not session.should_stop():
            batch = rng.integers(len(labels), size=args.batch)
            value, _ = session.run([loss, train], {x: images[batch], y: labels[batch]})
            taken += 1
    print(f"done: {taken} steps, last loss {value:.4f}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ps_hosts", required=True)
    parser.add_argument("--worker_hosts", required=True)
    parser.add_argument("--job_name", required=True, choices=["ps", "worker"])
    parser.add_argument("--task_index", required=True, type=int)
    parser.add_argument("--data", required=True, type=pathlib.Path, help="folder with Fashion-MNIST's four files")
    parser.add_argument("--partitions", type=int, default=1)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--steps", type=int, default=1000, help="of all workers together")
    args = parser.parse_args()
    tf.disable_eager_execution()
    cluster = tf.train.ClusterSpec({"ps": args.ps_hosts.split(","), "worker": args.worker_hosts.split(",")})
    server = tf.train.Server(cluster, job_name=args.job_name, task_index=args.task_index,
                             config=tf.ConfigProto(intra_op_parallelism_threads=1))
    if args.job_name == "ps":
        server.join()  # never returns
    work(args, cluster, server)


if __name__ == "__main__":
    main()
