#!/usr/bin/env python3
"""TensorFlow's parameter servers, as scripts of TensorFlow 1 wrote them, read from TF_CONFIG.

Between-graph replication: every worker builds the same graph, its variables are put on the ps in turn,
gradients are applied as they come. `server.join()` on a ps never returns.
"""
import json
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

tf1 = tf.compat.v1
STEPS = 60


def samples(seed, count=64):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((count, 20)).astype(np.float32)
    w = np.linspace(-1, 1, 20, dtype=np.float32)
    return x, (x @ w)[:, None]


def main():
    tf1.disable_eager_execution()
    config = json.loads(os.environ["TF_CONFIG"])
    task = config["task"]
    cluster = tf1.train.ClusterSpec(config["cluster"])
    server = tf1.train.Server(cluster, job_name=task["type"], task_index=task["index"],
                              config=tf1.ConfigProto(intra_op_parallelism_threads=1))
    if task["type"] == "ps":
        print("serving", flush=True)
        server.join()  # never returns

    chief = task["index"] == 0
    place = tf1.train.replica_device_setter(
        cluster=cluster, worker_device=f"/job:worker/task:{task['index']}")
    with tf1.device(place):
        step = tf1.train.get_or_create_global_step()
        x = tf1.placeholder(tf.float32, [None, 20])
        y = tf1.placeholder(tf.float32, [None, 1])
        w = tf1.get_variable("w", [20, 1], initializer=tf1.zeros_initializer())
        b = tf1.get_variable("b", [1], initializer=tf1.zeros_initializer())
        loss = tf.reduce_mean(tf.square(tf.matmul(x, w) + b - y))
        train = tf1.train.GradientDescentOptimizer(0.05).minimize(loss, global_step=step)

    hooks = [tf1.train.StopAtStepHook(last_step=STEPS)]
    # A worker asks for a session from the servers and itself alone: another worker may have ended.
    own = tf1.ConfigProto(device_filters=["/job:ps", f"/job:worker/task:{task['index']}"])
    with tf1.train.MonitoredTrainingSession(master=server.target, is_chief=chief, hooks=hooks,
                                            config=own, save_checkpoint_steps=None,
                                            save_checkpoint_secs=None) as session:
        seed = 1000 * task["index"]
        value = None
        while not session.should_stop():
            seed += 1
            features, labels = samples(seed)
            value, _ = session.run([loss, train], {x: features, y: labels})
    print(f"done: last loss {value:.4f}", flush=True)


if __name__ == "__main__":
    main()
