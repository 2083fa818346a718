// Annotations of a TrainingJob that more than one program heeds.
#pragma once

namespace trainyard {

// "true": its workers write timeline.json. Set by `trainyard run --timeline`.
inline constexpr const char* kTimelineAnnotation = "trainyard.dev/timeline";

}  // namespace trainyard
