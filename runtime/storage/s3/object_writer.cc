#include "runtime/storage/s3/object_writer.h"

#include <algorithm>
#include <utility>

namespace trainyard::runtime::s3 {
namespace {

constexpr std::size_t kPartsSent = 3;

}  // namespace

ObjectWriter::ObjectWriter(std::shared_ptr<Client> client, ObjectName name)
    : client_(std::move(client)), name_(std::move(name)) {}

ObjectWriter::~ObjectWriter() {
  sending_.clear();  // waits
  if (!upload_.empty()) client_->abortUpload(name_, upload_);
}

Status ObjectWriter::write(std::span<const std::byte> bytes) {
  TY_RETURN_IF_ERROR(failed_);
  hash_.update(bytes);
  size_ += bytes.size();
  while (!bytes.empty()) {
    const auto now = bytes.first(std::min(bytes.size(), kPartBytes - part_.size()));
    part_.insert(part_.end(), now.begin(), now.end());
    bytes = bytes.subspan(now.size());
    if (part_.size() < kPartBytes) continue;
    failed_ = sendPart();
    TY_RETURN_IF_ERROR(failed_);
  }
  return absl::OkStatus();
}

Status ObjectWriter::sendPart() {
  if (upload_.empty()) {
    TY_ASSIGN_OR_RETURN(upload_, client_->beginUpload(name_));
  }
  TY_RETURN_IF_ERROR(awaitParts(kPartsSent - 1));
  const int number = static_cast<int>(tags_.size() + sending_.size()) + 1;
  sending_.push_back(
      std::async(std::launch::async, [this, number, part = std::exchange(part_, {})] {
        return client_->uploadPart(name_, upload_, number, part);
      }));
  return absl::OkStatus();
}

// Until no more than `left` are on their way.
Status ObjectWriter::awaitParts(std::size_t left) {
  while (sending_.size() > left) {
    StatusOr<std::string> tag = sending_.front().get();
    sending_.erase(sending_.begin());
    if (!tag.ok()) return tag.status();
    tags_.push_back(*std::move(tag));
  }
  return absl::OkStatus();
}

Status ObjectWriter::sync() {
  TY_RETURN_IF_ERROR(failed_);
  if (upload_.empty()) return absl::OkStatus();
  if (!part_.empty()) failed_ = sendPart();
  if (failed_.ok()) failed_ = awaitParts(0);
  return failed_;
}

Status ObjectWriter::finish(bool exclusively) {
  TY_RETURN_IF_ERROR(sync());
  if (upload_.empty()) return client_->put(name_, part_, exclusively);
  TY_RETURN_IF_ERROR(client_->completeUpload(name_, upload_, tags_, exclusively));
  upload_.clear();
  return absl::OkStatus();
}

}  // namespace trainyard::runtime::s3
