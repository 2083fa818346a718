// Our messages as JSON, driven by the descriptor: camelCase names, int64 as numbers, raw_json
// fields inline, int_or_text fields as a number where they hold one, only present fields, in the
// order of the message. Exact round trip.
#pragma once

#include "base/core/status.h"
#include "google/protobuf/message.h"
#include "nlohmann/json.hpp"

namespace trainyard {

nlohmann::ordered_json toJson(const google::protobuf::Message& message);
// INVALID_ARGUMENT names the JSON path: unknown field, wrong type, number out of range.
Status fromJson(const nlohmann::ordered_json& json, google::protobuf::Message* message);

}  // namespace trainyard
