// Which source this was built from.
#pragma once

namespace trainyard {

// The commit of the git checkout, in 12 digits, or what the build was told
// (-DTRAINYARD_COMMIT=...); "unknown" without both. Changes that are not committed do not show.
const char* builtCommit();

}  // namespace trainyard
