"""Clicks in a file of TFRecord, of which every record has the same length: 26 columns of ids by Zipf's law, numbers, a
label. Needs NumPy only.

Each id takes four bytes (a varint may be longer than it must be), so that the fields of all samples are columns of one
matrix of bytes: written without a loop over samples, and read() gives them without a parser. Column f<i> has ids from
i x ids on, so that all may share one table whose rows are numbered from 0. What is clicked depends on the ids, so that
there is something to learn.

Framing: TensorFlow's core/lib/io/record_writer.h (length and CRC-32C, masked, of length and data); data: tf.Example.
"""
import argparse
import pathlib
import struct

import numpy as np

FEATURES, NUMBERS, EXPONENT = 26, 13, 1.05
ID_BYTES = 4  # 28 bits
CHUNK = 50_000


def _sized(tag, data):
    """A field of protobuf that has a length."""
    size = len(data)
    return bytes([tag]) + (bytes([size]) if size < 128 else bytes([size & 127 | 128, size >> 7])) + data


def _crc_table():
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, np.uint32(0x82F63B78) ^ (table >> 1), table >> 1)
    return table


CRC = _crc_table()


def _crc(data):
    """CRC-32C, and as it goes on without the two inversions."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = int(CRC[(crc ^ byte) & 255]) ^ crc >> 8
    return crc ^ 0xFFFFFFFF


def _masked(crc):
    crc = crc.astype(np.uint32)
    return (crc >> np.uint32(15) | crc << np.uint32(17)) + np.uint32(0xA282EAD8)


class Layout:
    """Where things are in a record."""

    def __init__(self):
        self.data, self.places = self._example()
        self.size = 12 + len(self.data) + 4
        self.ids = [12 + self.places[f"f{i}"] for i in range(FEATURES)]
        self.values = [12 + self.places[f"n{i}"] for i in range(NUMBERS)]
        self.click = 12 + self.places["click"]
        self._deltas = self._crc_deltas()

    def _example(self):
        """tf.Example with zeros, and where the values of each feature begin."""
        entries = [(f"f{i}", 0x1A, bytes([128] * (ID_BYTES - 1) + [0])) for i in range(FEATURES)]
        entries += [(f"n{i}", 0x12, bytes(4)) for i in range(NUMBERS)] + [("click", 0x1A, bytes(1))]
        body, ends = b"", {}
        for name, kind, value in entries:
            entry = _sized(0x0A, name.encode()) + _sized(0x12, _sized(kind, _sized(0x0A, value)))
            body += _sized(0x0A, entry)
            ends[name] = len(body) - len(value)
        data = _example_of(body)
        return data, {name: place + len(data) - len(body) for name, place in ends.items()}

    def _crc_deltas(self):
        """What a byte that differs from the example's by d does to the record's CRC: [256] for each byte that varies.
        A CRC is linear: that of a sum is the sum of both, whatever the rest is."""
        wanted = {place - 12 + k for places, width in ((self.ids, ID_BYTES), (self.values, 4), ([self.click], 1))
                  for place in places for k in range(width)}
        deltas, state = {}, CRC.copy()
        for place in range(len(self.data) - 1, -1, -1):
            if place in wanted:
                deltas[place] = state.copy()
            state = CRC[state & 255] ^ state >> np.uint32(8)
        return deltas

    def template(self):
        length = struct.pack("<Q", len(self.data))
        return length + _masked(np.array([_crc(length)])).tobytes() + self.data + bytes(4)

    def fill(self, ids, numbers, clicked):
        """Records [samples, size] of bytes."""
        records = np.tile(np.frombuffer(self.template(), np.uint8), (len(clicked), 1))
        for i, place in enumerate(self.ids):
            for k in range(ID_BYTES):
                more = 128 if k < ID_BYTES - 1 else 0
                records[:, place + k] = (ids[:, i] >> 7 * k & 127) | more
        for i, place in enumerate(self.values):
            records[:, place:place + 4] = np.ascontiguousarray(numbers[:, i], "<f4").view(np.uint8).reshape(-1, 4)
        records[:, self.click] = clicked
        crc = np.full(len(clicked), _crc(self.data), np.uint32)
        for place, delta in self._deltas.items():
            crc ^= delta[records[:, 12 + place] ^ self.data[place]]
        records[:, -4:] = _masked(crc).astype("<u4").view(np.uint8).reshape(-1, 4)
        return records


def _example_of(body):
    size = len(body)
    assert 128 <= size < 1 << 14
    return bytes([0x0A, size & 127 | 128, size >> 7]) + body


def zipf(below, random, count):
    """Ranks from 0."""
    return np.minimum(np.searchsorted(below, random.random_sample(count) * below[-1]), len(below) - 1)


def write(path, samples, ids, layout):
    """`ids`: of each column."""
    random = np.random.RandomState(1)
    below = np.cumsum(np.arange(1, ids + 1) ** -EXPONENT)
    with open(path, "wb") as file:
        for begin in range(0, samples, CHUNK):
            count = min(CHUNK, samples - begin)
            ranks = [zipf(below, random, count) + i * ids for i in range(FEATURES)]
            numbers = random.standard_normal((count, NUMBERS)).astype(np.float32)
            # A weight of each id, by hash.
            weights = sum((each * 2654435761 % 2 ** 32) / 2 ** 32 - 0.5 for each in ranks)
            clicked = random.random_sample(count) < 1 / (1 + np.exp(1.5 - 1.3 * weights))
            file.write(layout.fill(np.stack(ranks, 1), numbers, clicked).tobytes())


def read(path, layout):
    """Functions of a range of samples: ids [n, FEATURES] int64, numbers [n, NUMBERS] float32, labels [n] float32."""
    records = np.memmap(path, np.uint8, "r").reshape(-1, layout.size)

    def take(begin, end):
        some = records[begin:end]
        ids = np.stack([sum((some[:, place + k].astype(np.int64) & 127) << 7 * k for k in range(ID_BYTES))
                        for place in layout.ids], 1)
        numbers = np.concatenate([some[:, place:place + 4] for place in layout.values], 1)
        return ids, numbers.copy().view("<f4"), some[:, layout.click].astype(np.float32)

    return take, len(records)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=pathlib.Path)
    parser.add_argument("--samples", type=int, required=True)
    parser.add_argument("--ids", type=int, required=True, help="of each column")
    args = parser.parse_args()
    unfinished = args.file.with_suffix(".part")
    write(unfinished, args.samples, args.ids, Layout())
    unfinished.rename(args.file)


if __name__ == "__main__":
    main()
