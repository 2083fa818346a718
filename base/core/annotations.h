// Annotations of a TrainingJob that more than one program heeds.
#pragma once

namespace trainyard {

// "true": its workers write timeline.json. Set by `trainyard run --timeline`.
inline constexpr const char* kTimelineAnnotation = "trainyard.dev/timeline";

// "true": a job that is to stop does so at once, without the checkpoint that it would be given time
// for. Set by whoever cannot wait.
inline constexpr const char* kStopNowAnnotation = "trainyard.dev/stop-now";

}  // namespace trainyard
