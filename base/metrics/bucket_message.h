// Bucket counts as they are sent from a program to its agent.
#pragma once

#include "base/metrics/bucket_counts.h"
#include "trainyard/v1/measurements.pb.h"

namespace trainyard {

// Replaces what `message` held.
inline void setBuckets(v1::Buckets& message, const BucketCounts& counts) {
  message.mutable_counts()->Assign(counts.counts().begin(), counts.counts().end());
  message.set_sum(counts.sum());
}

}  // namespace trainyard
