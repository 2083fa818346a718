#!/usr/bin/env python3
"""Reads a safetensors file by the format's text alone and prints "name dtype shape sha256" per tensor."""
import hashlib
import json
import struct
import sys

SIZES = {"F32": 4, "I32": 4, "U8": 1}
data = open(sys.argv[1], "rb").read()
(length,) = struct.unpack("<Q", data[:8])
header_bytes = data[8 : 8 + length]
assert header_bytes.startswith(b"{"), "the header begins with {"
header = json.loads(header_bytes)
metadata = header.pop("__metadata__")
assert all(isinstance(v, str) for v in metadata.values()), metadata
body = data[8 + length :]
at = 0
for name, tensor in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
    begin, end = tensor["data_offsets"]
    count = 1
    for d in tensor["shape"]:
        count *= d
    assert set(tensor) == {"dtype", "shape", "data_offsets"}, tensor
    assert begin == at and end - begin == SIZES[tensor["dtype"]] * count, (name, tensor)
    assert (8 + length + begin) % 4 == 0
    at = end
    print(name, tensor["dtype"], json.dumps(tensor["shape"], separators=(",", ":")),
          hashlib.sha256(body[begin:end]).hexdigest())
assert at == len(body), (at, len(body))
