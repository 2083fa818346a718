#include "runtime/lanes/connection.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/core/check.h"

namespace trainyard::runtime::lanes {
namespace {

constexpr std::size_t kStaged = std::size_t{64} << 10;
static_assert(kStaged >= 2 * (kFrameBytes + kMaxHeader));
// Frames that leave in one call, in parts.
constexpr std::size_t kMostParts = 64;

iovec partOf(std::span<const std::byte> bytes) {
  return {const_cast<std::byte*>(bytes.data()), bytes.size()};
}

}  // namespace

Connection::Connection(EventLoop& loop, std::unique_ptr<stream::Stream> stream, Seals seals,
                       Reader& reader)
    : loop_(loop),
      stream_(std::move(stream)),
      seals_(std::move(seals)),
      reader_(reader),
      staged_(kStaged) {}

Connection::~Connection() {
  if (stream_ != nullptr) loop_.remove(stream_->fd(), *this);
}

void Connection::start() {
  loop_.add(stream_->fd(), *this, false);
  onReady();  // the stream may hold decrypted bytes that the descriptor knows nothing of
}

void Connection::onReady() {
  if (!closed()) write();
  if (!closed()) read();
  if (!closed()) watch();
}

void Connection::close(const Status& why) {
  if (closed()) return;
  loop_.remove(stream_->fd(), *this);
  stream_.reset();
  out_.clear();
  body_.clear();
  reader_.onClosed(why);
}

// --- out ---

void Connection::send(FrameKind kind, Topic topic, std::uint64_t number, std::string header,
                      std::vector<BodyPiece> body) {
  if (closed()) return;
  FrameHead head{kind, topic, number, static_cast<std::uint32_t>(header.size()), 0};
  for (const BodyPiece& piece : body) head.body_bytes += piece.bytes.size();
  std::erase_if(body, [](const BodyPiece& piece) { return piece.bytes.empty(); });
  const FrameBytes bytes = encodeFrame(head, header, seals_.out);
  out_.push_back({bytes, std::move(header), std::move(body)});
  // Others are waiting to be sent, or it is not known yet that they may be.
  if (out_.size() == 1) write();
}

void Connection::gather(std::vector<iovec>& parts) const {
  parts.clear();
  std::size_t skip = sent_;
  const auto add = [&](std::span<const std::byte> bytes) {
    const std::size_t cut = std::min(skip, bytes.size());
    skip -= cut;
    if (cut < bytes.size()) parts.push_back(partOf(bytes.subspan(cut)));
  };
  for (const Out& frame : out_) {
    add(frame.head);
    add(std::as_bytes(std::span(frame.header)));
    for (const BodyPiece& piece : frame.body) add(piece.bytes);
    if (parts.size() >= kMostParts) return;
  }
}

void Connection::dropWritten(std::size_t bytes) {
  sent_ += bytes;
  while (!out_.empty()) {
    const Out& frame = out_.front();
    std::size_t length = frame.head.size() + frame.header.size();
    for (const BodyPiece& piece : frame.body) length += piece.bytes.size();
    if (sent_ < length) return;
    sent_ -= length;
    out_.pop_front();
  }
}

void Connection::write() {
  while (!out_.empty()) {
    gather(parts_);
    const StatusOr<std::size_t> written = stream_->write(parts_);
    if (!written.ok()) {
      // The reader hears of it when it is not in the middle of something else.
      watch();
      return;
    }
    if (*written == 0) break;
    dropWritten(*written);
  }
  watch();
}

void Connection::watch() {
  const bool writable = !out_.empty() || stream_->awaitsWritable();
  if (std::exchange(watches_writable_, writable) != writable)
    loop_.change(stream_->fd(), *this, writable);
}

// --- in ---

void Connection::read() {
  for (;;) {
    const StatusOr<bool> more = readSome();
    if (!more.ok()) return close(more.status());
    if (closed() || !*more) return;
  }
}

// False: nothing more can be read now.
StatusOr<bool> Connection::readSome() {
  // What is staged is less than a frame's head and header, or nothing: room for the rest.
  if (begin_ > 0) {
    std::memmove(staged_.data(), staged_.data() + begin_, end_ - begin_);
    end_ -= std::exchange(begin_, 0);
  }
  std::vector<iovec>& parts = parts_;
  parts.clear();
  std::size_t to_body = 0;
  if (in_body_ && !skipping_) {
    for (std::size_t i = at_; i < body_.size() && parts.size() < kMostParts; ++i) {
      parts.push_back(partOf(body_[i]));
      to_body += body_[i].size();
    }
  }
  const bool whole_body = !in_body_ || skipping_ || to_body == left_;
  if (whole_body) parts.push_back({staged_.data() + end_, staged_.size() - end_});
  TY_ASSIGN_OR_RETURN(std::size_t got, stream_->read(parts));
  if (got == 0) return false;
  const std::size_t asked = to_body + (whole_body ? staged_.size() - end_ : 0);
  const bool full = got == asked;
  if (to_body > 0) {
    // It lies where it belongs.
    std::size_t landed = std::min(got, to_body);
    got -= landed;
    left_ -= landed;
    while (landed > 0) {
      std::span<std::byte>& span = body_[at_];
      const std::size_t take = std::min(landed, span.size());
      span = span.subspan(take);
      landed -= take;
      if (span.empty()) ++at_;
    }
    if (left_ == 0) TY_RETURN_IF_ERROR(endBody());
  }
  end_ += got;
  if (!closed()) TY_RETURN_IF_ERROR(takeHeads());
  return full && !closed();
}

// Goes through what is staged.
Status Connection::takeHeads() {
  while (!closed() && begin_ < end_) {
    const std::span<const std::byte> staged(staged_.data() + begin_, end_ - begin_);
    if (in_body_) {
      begin_ += fillBody(staged);
      if (left_ > 0) return absl::OkStatus();
      TY_RETURN_IF_ERROR(endBody());
      continue;
    }
    if (staged.size() < kFrameBytes) return absl::OkStatus();
    const auto bytes = staged.first<kFrameBytes>();
    TY_ASSIGN_OR_RETURN(const FrameHead head, decodeFrame(bytes));
    if (staged.size() < kFrameBytes + head.header_bytes) return absl::OkStatus();
    const std::string_view header(reinterpret_cast<const char*>(staged.data()) + kFrameBytes,
                                  head.header_bytes);
    TY_RETURN_IF_ERROR(checkSeal(bytes, header, seals_.in));
    in_body_ = true;
    skipping_ = false;
    body_.clear();
    at_ = 0;
    left_ = head.body_bytes;
    TY_RETURN_IF_ERROR(reader_.onHeader(head, header, body_));
    if (closed()) return absl::OkStatus();
    std::erase_if(body_, [](std::span<std::byte> span) { return span.empty(); });
    std::uint64_t room = 0;
    for (const auto& span : body_) room += span.size();
    TY_CHECK(skipping_ || room == head.body_bytes, "a place for all of the body");
    begin_ += kFrameBytes + head.header_bytes;
    if (left_ == 0) TY_RETURN_IF_ERROR(endBody());
  }
  return absl::OkStatus();
}

std::size_t Connection::fillBody(std::span<const std::byte> bytes) {
  const std::size_t take = std::min<std::uint64_t>(bytes.size(), left_);
  left_ -= take;
  if (skipping_) return take;
  std::span<const std::byte> from = bytes.first(take);
  while (!from.empty()) {
    std::span<std::byte>& span = body_[at_];
    const std::size_t n = std::min(span.size(), from.size());
    std::memcpy(span.data(), from.data(), n);
    span = span.subspan(n);
    from = from.subspan(n);
    if (span.empty()) ++at_;
  }
  return take;
}

Status Connection::endBody() {
  in_body_ = false;
  body_.clear();
  return std::exchange(skipping_, false) ? absl::OkStatus() : reader_.onFrame();
}

bool Connection::skipBody() {
  if (closed() || !in_body_ || skipping_) return false;
  skipping_ = true;
  body_.clear();
  return true;
}

}  // namespace trainyard::runtime::lanes
