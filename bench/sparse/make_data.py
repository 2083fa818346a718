"""Clicks for compare.py, in a file of TFRecord as both sides read it: 26 ids by Zipf's law, 13 numbers, a label.

    python make_data.py FILE --samples 300000 --ids 384615       (a Python that has TensorFlow)

Column f<i> has ids from i x ids on, so that all may share one table whose rows are numbered from 0. What is clicked
depends on the ids, so that there is something to learn.
"""
import argparse
import os
import pathlib

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

FEATURES, NUMBERS, EXPONENT = 26, 13, 1.05


def zipf(random, ids, count):
    """Ranks from 0."""
    below = np.cumsum(np.arange(1, ids + 1) ** -EXPONENT)
    return np.minimum(np.searchsorted(below, random.random_sample(count) * below[-1]), ids - 1)


def write(path, samples, ids):
    random = np.random.RandomState(1)
    looked_up = np.stack([zipf(random, ids, samples) + i * ids for i in range(FEATURES)], 1)
    numbers = random.standard_normal((samples, NUMBERS)).astype(np.float32)
    # A weight of each id, by hash.
    weights = ((looked_up * 2654435761 % 2 ** 32) / 2 ** 32 - 0.5).sum(1)
    clicked = random.random_sample(samples) < 1 / (1 + np.exp(1.5 - 1.3 * weights))

    def ints(value):
        return tf.train.Feature(int64_list=tf.train.Int64List(value=[value]))

    with tf.io.TFRecordWriter(str(path)) as writer:
        for row, values, click in zip(looked_up.tolist(), numbers.tolist(), clicked.tolist()):
            feature = {f"f{i}": ints(each) for i, each in enumerate(row)}
            feature.update({f"n{i}": tf.train.Feature(float_list=tf.train.FloatList(value=[each]))
                            for i, each in enumerate(values)})
            feature["click"] = ints(int(click))
            writer.write(tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=pathlib.Path)
    parser.add_argument("--samples", type=int, required=True)
    parser.add_argument("--ids", type=int, required=True)
    args = parser.parse_args()
    unfinished = args.file.with_suffix(".part")
    write(unfinished, args.samples, args.ids)
    unfinished.rename(args.file)


if __name__ == "__main__":
    main()
