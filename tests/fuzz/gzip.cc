#include "tests/fuzz/gzip.h"

#include <zlib.h>

#include "base/core/check.h"

namespace trainyard::fuzz {

std::string packed(std::string_view content) {
  z_stream stream{};
  constexpr int kGzip = 16 + MAX_WBITS;
  TY_CHECK(deflateInit2(&stream, 1, Z_DEFLATED, kGzip, 8, Z_DEFAULT_STRATEGY) == Z_OK, "memory");
  std::string out(deflateBound(&stream, content.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(content.data()));
  stream.avail_in = static_cast<unsigned>(content.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<unsigned>(out.size());
  TY_CHECK(deflate(&stream, Z_FINISH) == Z_STREAM_END, "there is room for all");
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

}  // namespace trainyard::fuzz
