#!/usr/bin/env python3
"""Writes tensorflow_examples.txt: TensorFlow's own bytes of a TFRecord file, in hexadecimal (tensorflow_examples.h).

    python3 tests/runtime/data/write_examples.py        # with the package tensorflow
"""
import pathlib
import tempfile

import tensorflow as tf

F = tf.train.Feature


def ints(*values):
    return F(int64_list=tf.train.Int64List(value=values))


def floats(*values):
    return F(float_list=tf.train.FloatList(value=values))


def text(*values):
    return F(bytes_list=tf.train.BytesList(value=values))


EXAMPLES = [
    {"user": ints(7), "tags": ints(3, 4, 5), "city": text(b"Hello"), "age": floats(1.5), "click": ints(0),
     "unread": floats(1, 2, 3)},
    {"user": ints(-1), "tags": ints(), "city": text(b""), "age": ints(-300), "click": floats(1)},
    {"user": ints(2**63 - 1), "tags": F(), "city": text(b"TensorFlow"), "age": floats(-3.25), "click": ints(1)},
    {"user": ints(0), "tags": ints(-2**63), "city": text(b"\xff\x00"), "age": ints(16777217), "click": floats(0)},
]

BYTES_A_LINE = 40

with tempfile.TemporaryDirectory() as folder:
    file = pathlib.Path(folder, "examples.tfrecord")
    with tf.io.TFRecordWriter(str(file)) as writer:
        for features in EXAMPLES:
            example = tf.train.Example(features=tf.train.Features(feature=features))
            writer.write(example.SerializeToString())
    written = file.read_bytes()
lines = [written[at:at + BYTES_A_LINE].hex() + "\n" for at in range(0, len(written), BYTES_A_LINE)]
pathlib.Path(__file__).with_name("tensorflow_examples.txt").write_text("".join(lines))
