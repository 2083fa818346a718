"""One task of a TensorFlow parameter-server job, for compare.py: TensorFlow 1's API (tf.compat.v1) of
TensorFlow 2.21, as scripts of its time use it. A worker prints what it measured as JSON.

    python task.py --role worker --index 0 --ps_hosts a:1,b:2 --worker_hosts c:3,d:4 --model mnist_cnn ...
"""

import gzip
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import numpy as np  # noqa: E402
import task_main  # noqa: E402
import tensorflow  # noqa: E402

tf = tensorflow.compat.v1
tf.disable_eager_execution()
tf.logging.set_verbosity(tf.logging.ERROR)


def fashion(folder, part="train"):
    def read(name, offset):
        return np.frombuffer(gzip.open(folder / name).read(), np.uint8, offset=offset)
    images = read(f"{part}-images-idx3-ubyte.gz", 16).reshape(-1, 784).astype(np.float32) / 255
    return images, read(f"{part}-labels-idx1-ubyte.gz", 8).astype(np.int64)


def weights(name, shape, stddev):
    return tf.get_variable(name, shape, initializer=tf.truncated_normal_initializer(stddev=stddev))


def biases(name, size, value):
    return tf.get_variable(name, [size], initializer=tf.constant_initializer(value))


def mnist_cnn(images, dropout=0.5):
    """The layers of our mnist_cnn; pooling before ReLU is the same function and quicker, as there."""
    nn = tensorflow.nn
    x = tf.reshape(images, [-1, 28, 28, 1])
    for i, (inputs, outputs) in enumerate([(1, 32), (32, 64)], 1):
        x = nn.conv2d(x, weights(f"conv{i}_wei", [5, 5, inputs, outputs], 0.1), 1, "SAME")
        x = nn.relu(nn.max_pool2d(x + biases(f"conv{i}_bia", outputs, 0.1), 2, 2, "SAME"))
    x = tf.reshape(x, [-1, 3136])
    x = nn.relu(tf.matmul(x, weights("fc1_wei", [3136, 1024], 0.1)) + biases("fc1_bia", 1024, 0.1))
    x = nn.dropout(x, rate=dropout)
    return tf.matmul(x, weights("fc2_wei", [1024, 10], 0.1)) + biases("fc2_bia", 10, 0.1)


def mlp(images):
    x, sizes = images, [784, 4096, 4096, 10]
    for i, (inputs, outputs) in enumerate(zip(sizes, sizes[1:]), 1):
        x = tf.matmul(x, weights(f"fc{i}_wei", [inputs, outputs], inputs ** -0.5)) \
            + biases(f"fc{i}_bia", outputs, 0.0)
        x = tensorflow.nn.relu(x) if i < 3 else x
    return x


def placed(args, cluster):
    """Where variables are made: round robin, or each in two parts."""
    device = tf.train.replica_device_setter(cluster=cluster, worker_device=f"/job:worker/task:{args.index}")
    return tf.device(device), tf.variable_scope("model", partitioner=tf.fixed_size_partitioner(2, 0) if args.partitioned else None)


def batches(args, images, labels):
    """In this worker's own order, over and over."""
    order = np.random.RandomState(args.index).permutation(len(labels))
    images, labels, at = images[order], labels[order], 0
    while True:
        at = (at + args.batch) % (len(labels) - args.batch)
        yield images[at:at + args.batch], labels[at:at + args.batch]


def work(args, cluster, server):
    device, scope = placed(args, cluster)
    with device, scope:
        tf.train.get_or_create_global_step()  # the first variable that has its place in turn
        x = tf.placeholder(tf.float32, [args.batch, 784])
        y = tf.placeholder(tf.int64, [args.batch])
        logits = {"mnist_cnn": mnist_cnn, "mlp": mlp}[args.model](x)
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits))
        train, global_step, hooks = task_main.minimize(args, tf.train.RMSPropOptimizer(0.001), loss)
    mine = batches(args, *fashion(args.data))

    def take(session):
        return session.run((train, loss, global_step), dict(zip((x, y), next(mine))))[1:]

    task_main.measure(args, server, hooks, take)


def main():
    task_main.run(__doc__.splitlines()[0], ["mnist_cnn", "mlp"], work, 128,
                  lambda parser: parser.add_argument("--partitioned", action="store_true"))


if __name__ == "__main__":
    main()
