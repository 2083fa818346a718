#!/usr/bin/env python3
"""Between-graph replication under tf.train.Supervisor, as TensorFlow's distributed examples had it, with
--sync_replicas by SyncReplicasOptimizer; it knows nothing of trainyard.
"""
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
import numpy as np  # noqa: E402
import tensorflow  # noqa: E402

tf = tensorflow.compat.v1
flags = tf.app.flags
flags.DEFINE_string("ps_hosts", None, "host:port of the parameter servers, with commas")
flags.DEFINE_string("worker_hosts", None, "host:port of the workers, with commas")
flags.DEFINE_string("job_name", None, "ps or worker")
flags.DEFINE_integer("task_index", None, "which of them this is; worker 0 is the chief")
flags.DEFINE_string("train_dir", None, "folder of the Supervisor's checkpoints")
flags.DEFINE_integer("train_steps", 200, "global steps")
flags.DEFINE_boolean("sync_replicas", False, "one update with the mean of all workers' gradients")
flags.DEFINE_boolean("allow_soft_placement", True, "operations run elsewhere where their device is missing")
flags.DEFINE_boolean("log_device_placement", False, "say which device each operation runs on")
FLAGS = flags.FLAGS
FEATURES = 20


def samples(rng, count=64):
    x = rng.standard_normal((count, FEATURES)).astype(np.float32)
    return x, (x @ np.linspace(-1, 1, FEATURES, dtype=np.float32))[:, None]


def model(workers):
    """Placeholders, loss, step counter, train operation, and the optimizer where it is synchronous."""
    step = tf.train.get_or_create_global_step()
    x = tf.placeholder(tf.float32, [None, FEATURES])
    y = tf.placeholder(tf.float32, [None, 1])
    w = tf.get_variable("w", [FEATURES, 1], initializer=tf.zeros_initializer())
    b = tf.get_variable("b", [1], initializer=tf.zeros_initializer())
    loss = tf.reduce_mean(tf.square(tf.matmul(x, w) + b - y))
    optimizer = tf.train.GradientDescentOptimizer(0.05)
    if FLAGS.sync_replicas:
        optimizer = tf.train.SyncReplicasOptimizer(optimizer, replicas_to_aggregate=workers,
                                                   total_num_replicas=workers)
    return (x, y), loss, step, optimizer.minimize(loss, global_step=step), optimizer


def supervisor(chief, step, optimizer):
    """The Supervisor, and what the chief of synchronous workers runs beside its steps."""
    more, start = {}, lambda session: None
    if FLAGS.sync_replicas:
        more = {"local_init_op": optimizer.chief_init_op if chief else optimizer.local_step_init_op,
                "ready_for_local_init_op": optimizer.ready_for_local_init_op}
        queues, tokens = optimizer.get_chief_queue_runner(), optimizer.get_init_tokens_op()
    made = tf.train.Supervisor(is_chief=chief, logdir=FLAGS.train_dir, init_op=tf.global_variables_initializer(),
                               recovery_wait_secs=1, global_step=step, **more)
    if FLAGS.sync_replicas and chief:
        def start(session):
            session.run(tokens)
            made.start_queue_runners(session, [queues])
    return made, start


def work(cluster, server):
    chief = FLAGS.task_index == 0
    worker = f"/job:worker/task:{FLAGS.task_index}"
    with tf.device(tf.train.replica_device_setter(cluster=cluster, worker_device=worker)):
        inputs, loss, step, train, optimizer = model(cluster.num_tasks("worker"))
        made, start = supervisor(chief, step, optimizer)
    config = tf.ConfigProto(allow_soft_placement=FLAGS.allow_soft_placement,
                            log_device_placement=FLAGS.log_device_placement, device_filters=["/job:ps", worker])
    session = made.prepare_or_wait_for_session(server.target, config=config)
    start(session)
    rng = np.random.default_rng(FLAGS.task_index)
    taken = newest = 0
    while newest < FLAGS.train_steps:
        value, _ = session.run([loss, train], dict(zip(inputs, samples(rng))))
        # In a run of its own: in one with the update it may be read before or after it, so that a worker can see the
        # last step while the others still wait for its gradient.
        newest = session.run(step)
        taken += 1
        print(f"Worker {FLAGS.task_index}: training step {taken} done (global step: {newest}), loss {value:.4f}",
              flush=True)
    made.request_stop()
    session.close()  # the chief's thread waits for gradients of workers that may be done
    made.stop()


def main(_):
    tf.disable_eager_execution()
    cluster = tf.train.ClusterSpec({"ps": FLAGS.ps_hosts.split(","), "worker": FLAGS.worker_hosts.split(",")})
    server = tf.train.Server(cluster, job_name=FLAGS.job_name, task_index=FLAGS.task_index,
                             config=tf.ConfigProto(intra_op_parallelism_threads=1))
    if FLAGS.job_name == "ps":
        server.join()  # never returns
    work(cluster, server)


if __name__ == "__main__":
    tf.app.run()
