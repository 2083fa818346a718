// Messages as bytes.
#pragma once

#include <string>

#include "google/protobuf/message_lite.h"
#include "tests/fakes/grpc/values.h"

namespace trainyard::fakes {

std::string joined(const grpc::ByteBuffer& bytes);
// As what arrives: no longer the sender's memory, and cut where it was not.
grpc::ByteBuffer copied(const grpc::ByteBuffer& bytes);

inline grpc::ByteBuffer encode(const grpc::ByteBuffer& message) {
  return message;
}
inline bool decode(const grpc::ByteBuffer& bytes, grpc::ByteBuffer* message) {
  *message = bytes;
  return true;
}
inline grpc::ByteBuffer encode(const google::protobuf::MessageLite& message) {
  const grpc::Slice slice(message.SerializeAsString());
  return {&slice, 1};
}
inline bool decode(const grpc::ByteBuffer& bytes, google::protobuf::MessageLite* message) {
  return message->ParseFromString(joined(bytes));
}

}  // namespace trainyard::fakes
