// The bytes of one connection, as they are or encrypted. Never blocks.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <memory>
#include <span>

#include "base/core/status.h"
#include "base/process/unique_fd.h"

namespace trainyard::runtime::stream {

// A Stream belongs to one thread at a time.
class Stream {
 public:
  virtual ~Stream() = default;
  // How many bytes were moved; 0: none can be now. Try again when the descriptor is readable or
  // writable: encryption may need either for both. UNAVAILABLE: the other side has ended it
  // (wasClosed()), or it broke. None of the parts is empty.
  virtual StatusOr<std::size_t> read(std::span<const iovec> into) = 0;
  // What was not moved comes first in the next call: some of it may be encrypted already.
  virtual StatusOr<std::size_t> write(std::span<const iovec> from) = 0;
  // The last read() or write() came to nothing because the descriptor was not writable.
  virtual bool awaitsWritable() const = 0;
  virtual int fd() const = 0;
};

// An error of a Stream whose other side has closed the connection, or whose process has ended.
bool wasClosed(const Status& status);
Status closedConnection();
// Of a call to the kernel that failed with `error`. UNAVAILABLE.
Status brokenConnection(int error, const char* call);

// Of a connected socket.
std::unique_ptr<Stream> plainStream(UniqueFd socket);

// How a process encrypts its connections. Each side proves to the other who it is before a byte of
// the caller's is sent. Thread-safe.
class Encryption {
 public:
  virtual ~Encryption() = default;
  // Of a connected socket: the side that has connected, and the one that was called.
  virtual std::unique_ptr<Stream> client(UniqueFd socket) const = 0;
  virtual std::unique_ptr<Stream> server(UniqueFd socket) const = 0;
};
// As they are where `encryption` is null.
std::unique_ptr<Stream> clientStream(const Encryption* encryption, UniqueFd socket);
std::unique_ptr<Stream> serverStream(const Encryption* encryption, UniqueFd socket);

}  // namespace trainyard::runtime::stream
