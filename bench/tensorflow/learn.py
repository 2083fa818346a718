"""One task of a TensorFlow parameter-server job that learns Fashion-MNIST, synchronously, for bench/experiment: the model,
the rule and the placements of task.py. The chief prints its records as JSON.

    python learn.py --role worker --index 0 --ps_hosts a:1,b:2 --worker_hosts c:3,d:4 --evaluation FOLDER ...
"""

import pathlib

import numpy as np
import task
import task_main

tf = task.tf
AT_ONCE = 1000  # images of an evaluation


def work(args, cluster, server):
    args.sync = True
    device, scope = task.placed(args, cluster)
    with device, scope:
        tf.train.get_or_create_global_step()  # the first variable that has its place in turn
        x, y = tf.placeholder(tf.float32, [None, 784]), tf.placeholder(tf.int64, [None])
        dropout = tf.placeholder_with_default(0.5, [])
        logits = task.mnist_cnn(x, dropout)
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits))
        hits = tf.reduce_sum(tf.cast(tf.equal(tf.argmax(logits, 1), y), tf.int64))
        train, global_step, hooks = task_main.minimize(args, tf.train.RMSPropOptimizer(0.001), loss)
    mine, (images, labels) = task.batches(args, *task.fashion(args.data)), task.fashion(args.evaluation, "t10k")

    def take(session):
        return session.run((train, loss, global_step), dict(zip((x, y), next(mine))))[1:]

    def score(session):
        parts = [session.run(hits, {x: images[at:at + AT_ONCE], y: labels[at:at + AT_ONCE], dropout: 0.0})
                 for at in range(0, len(labels), AT_ONCE)]
        return float(np.sum(parts) / len(labels))

    task_main.learn(args, server, hooks, take, score)


def more_flags(parser):
    parser.add_argument("--partitioned", action="store_true")
    parser.add_argument("--evaluation", required=True, type=pathlib.Path)
    parser.add_argument("--every", required=True, type=int, help="steps from one evaluation to the next")
    parser.add_argument("--target", required=True, type=float, help="accuracy")
    parser.add_argument("--after", required=True, type=int, help="evaluations beyond the one that has it")


if __name__ == "__main__":
    task_main.run(__doc__.splitlines()[0], ["mnist_cnn"], work, 32, more_flags)
