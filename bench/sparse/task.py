"""One task of a TensorFlow parameter-server job with embedding tables, for compare.py: TensorFlow 1's API
(tf.compat.v1) of TensorFlow 2.21, tables in two parts, each id of a batch looked up once. A worker prints what it
measured as JSON.

    python task.py --role worker --index 0 --ps_hosts a:1,b:2 --worker_hosts c:3,d:4 --model wide_and_deep ...
"""
import os
import pathlib
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import numpy  # noqa: E402
import tensorflow  # noqa: E402

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tensorflow"))

import task_main  # noqa: E402

tf = tensorflow.compat.v1
tf.disable_eager_execution()
tf.logging.set_verbosity(tf.logging.ERROR)

FEATURES, NUMBERS, DIM = 26, 13, 16


def batches(args):
    """This worker's share of the file, over and over: ids, numbers, labels."""
    with tf.device(f"/job:worker/task:{args.index}/cpu:0"):
        return read_batches(args)


def read_batches(args):
    columns = {f"f{i}": tf.FixedLenFeature([], tf.int64) for i in range(FEATURES)}
    columns.update({f"n{i}": tf.FixedLenFeature([], tf.float32) for i in range(NUMBERS)})
    columns["click"] = tf.FixedLenFeature([], tf.int64)

    def parse(records):
        read = tf.parse_example(records, columns)
        return (tf.stack([read[f"f{i}"] for i in range(FEATURES)], 1),
                tf.stack([read[f"n{i}"] for i in range(NUMBERS)], 1), tf.cast(read["click"], tf.float32))

    count = len(args.worker_hosts.split(","))
    data = tf.data.TFRecordDataset(str(args.data)).shard(count, args.index).repeat()
    data = data.batch(args.batch, drop_remainder=True).map(parse, num_parallel_calls=1).prefetch(1)
    return tf.data.make_one_shot_iterator(data).get_next()


def dense(x, name, width, relu=True):
    inputs = int(x.shape[1])
    wei = tf.get_variable(f"{name}_wei", [inputs, width],
                          initializer=tf.truncated_normal_initializer(stddev=inputs ** -0.5))
    x = tf.matmul(x, wei) + tf.get_variable(f"{name}_bia", [width], initializer=tf.zeros_initializer())
    return tf.nn.relu(x) if relu else x


def look_up(name, dim, ids, rows, servers):
    """[batch, features, dim] of a table in as many parts as there are servers."""
    partitioner = tf.fixed_size_partitioner(servers, 0)
    made = tf.truncated_normal_initializer(stddev=0.01) if dim > 1 else tf.zeros_initializer()
    table = tf.get_variable(name, [rows, dim], initializer=made, partitioner=partitioner)
    distinct, places = tf.unique(tf.reshape(ids, [-1]))
    found = tf.nn.embedding_lookup(table, distinct, partition_strategy="div")
    return tf.reshape(tf.gather(found, places), [-1, FEATURES, dim])


def perceptron(x):
    for i, width in enumerate([512, 256], 1):
        x = dense(x, f"hidden{i}", width)
    return dense(x, "output", 1, relu=False)


def wide_and_deep(args, servers):
    ids, numbers, labels = batches(args)
    deep = look_up("deep", DIM, ids, args.rows, servers)
    wide = look_up("wide", 1, ids, args.rows, servers)
    x = perceptron(tf.concat([tf.reshape(deep, [-1, FEATURES * DIM]), numbers], 1))
    linear = tf.get_variable("numbers_wei", [NUMBERS, 1], initializer=tf.zeros_initializer())
    return (x + tf.matmul(numbers, linear))[:, 0] + tf.reduce_sum(wide, [1, 2]), labels


def without_tables(args, servers):
    """The perceptron of wide_and_deep, on numbers that are there."""
    x = numpy.random.RandomState(args.index).standard_normal((args.batch, FEATURES * DIM + NUMBERS))
    return perceptron(tf.constant(x.astype("float32")))[:, 0], tf.constant((x[:, 0] > 0).astype("float32"))


def dlrm(args, servers):
    ids, numbers, labels = batches(args)
    x = numbers
    for i, width in enumerate([64, DIM], 1):
        x = dense(x, f"bottom{i}", width)
    rows = look_up("deep", DIM, ids, args.rows, servers)
    both = tf.concat([tf.expand_dims(x, 1), rows], 1)
    products = tf.reshape(tf.matmul(both, both, transpose_b=True), [-1, (FEATURES + 1) ** 2])
    below = [i * (FEATURES + 1) + j for i in range(FEATURES + 1) for j in range(i)]
    x = tf.concat([x, tf.gather(products, below, axis=1)], 1)
    return perceptron(tf.ensure_shape(x, [None, DIM + len(below)]))[:, 0], labels


MODELS = {"wide_and_deep": wide_and_deep, "dlrm": dlrm, "dense": without_tables}


def work(args, cluster, server):
    device = tf.train.replica_device_setter(cluster=cluster, worker_device=f"/job:worker/task:{args.index}")
    servers = len(args.ps_hosts.split(","))
    with tf.device(device):
        tf.train.get_or_create_global_step()  # the first variable that has its place in turn
        logits, labels = MODELS[args.model](args, servers)
        loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits))
        train, global_step, hooks = task_main.minimize(args, tf.train.AdagradOptimizer(0.02), loss)
    task_main.measure(args, server, hooks, lambda session: session.run((train, loss, global_step))[1:])


def main():
    task_main.run(__doc__.splitlines()[0], list(MODELS), work, 1024,
                  lambda parser: parser.add_argument("--rows", required=True, type=int))


if __name__ == "__main__":
    main()
