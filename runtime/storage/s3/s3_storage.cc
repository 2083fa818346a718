#include "runtime/storage/s3/s3_storage.h"

#include "base/core/clock.h"
#include "base/core/sleep.h"
#include "runtime/storage/s3/object_reader.h"
#include "runtime/storage/s3/object_writer.h"

namespace trainyard::runtime::s3 {

StatusOr<std::vector<StoredFile>> S3Storage::list(const std::string& folder) {
  TY_ASSIGN_OR_RETURN(ObjectName name, parseObjectName(folder));
  if (!name.key.empty() && !name.key.ends_with('/')) name.key += '/';
  return client_->list(name.bucket, name.key);
}

StatusOr<std::shared_ptr<const ReadableFile>> S3Storage::open(const std::string& path) {
  return ObjectReader::open(client_, path);
}

StatusOr<std::unique_ptr<WritableFile>> S3Storage::create(const std::string& path,
                                                          Writers /*writers*/) {
  TY_ASSIGN_OR_RETURN(ObjectName name, parseObjectName(path));
  return std::make_unique<ObjectWriter>(client_, std::move(name));
}

Status S3Storage::remove(const std::string& path) {
  TY_ASSIGN_OR_RETURN(const ObjectName name, parseObjectName(path));
  return client_->remove(name);
}

Status S3Storage::makeFolder(const std::string& folder) {
  return parseObjectName(folder).status();
}

Status S3Storage::settle(const std::string& /*folder*/) {
  return absl::OkStatus();
}

namespace {

struct Told {
  Environment environment;
  std::string scratch;
};

Told& told() {
  static Told all;
  return all;
}

StatusOr<std::unique_ptr<S3Storage>> make() {
  if (!told().environment)
    return absl::FailedPreconditionError("this program does not use object stores");
  TY_ASSIGN_OR_RETURN(S3Config config, configOf(told().environment));
  if (!told().scratch.empty()) config.scratch = told().scratch;
  std::unique_ptr<Http> http = makeHttp(config.ca_file, config.proxies);
  auto client = std::make_shared<Client>(
      std::move(config), std::move(http),
      Client::Surroundings{systemClock(),
                           [](Duration delay) { sleepUntil(systemClock().now() + delay); }});
  return std::make_unique<S3Storage>(std::move(client));
}

}  // namespace

void useEnvironment(Environment environment, std::string scratch) {
  told() = {std::move(environment), std::move(scratch)};
}

StatusOr<Storage*> storageByEnvironment() {
  static const StatusOr<std::unique_ptr<S3Storage>> storage = make();
  if (!storage.ok()) return storage.status();
  return storage->get();
}

}  // namespace trainyard::runtime::s3
