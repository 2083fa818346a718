"""Passes connections of an inherited listening socket on to a port of 127.0.0.1, byte for byte.

    forward.py FD PORT

The socket was made in the machine's network namespace, this process runs in the cluster's: so what
listens in the cluster is reached from outside without a route, an interface or a rule there.
"""
import asyncio
import contextlib
import socket
import sys

CHUNK = 1 << 16


async def copy(reader, writer):
    with contextlib.suppress(OSError):
        while data := await reader.read(CHUNK):
            writer.write(data)
            await writer.drain()
    with contextlib.suppress(OSError):
        writer.write_eof()


async def serve(listener, port):
    async def connected(reader, writer):
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            writer.transport.abort()  # what a closed port would do
            return
        await asyncio.gather(copy(reader, far_writer), copy(far_reader, writer))
        writer.close()
        far_writer.close()

    server = await asyncio.start_server(connected, sock=listener)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2])))
