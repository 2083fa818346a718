// The keys that requests are signed with, and who gives them: they stand in the environment, or are
// lent for some hours to whoever proves what it is.
#pragma once

#include <mutex>
#include <optional>

#include "base/core/clock.h"
#include "base/core/status.h"
#include "runtime/storage/s3/config.h"
#include "runtime/storage/s3/http.h"

namespace trainyard::runtime::s3 {

// Thread-safe; `http` and `clock` outlive it. Lent keys are asked for when they are first needed,
// and anew when half of their time is over or only five minutes of it are left, whatever comes
// later. While that fails the former ones are given as long as they hold.
class KeyRing {
 public:
  KeyRing(KeySource source, Http& http, const Clock& clock);

  // To sign with now. UNAVAILABLE: who lends them does not answer, or says that this passes;
  // PERMISSION_DENIED with its words; what readFile() says of the file with the token.
  StatusOr<Keys> current();
  // The store does not take `keys` any more, before their time: current() asks for others. False:
  // nobody would give others.
  bool drop(const Keys& keys);

 private:
  // Those that are there: that need not be renewed, or, `due`, that hold although they should be.
  std::optional<Keys> held(bool due);
  StatusOr<Keys> ask() const;
  StatusOr<Keys> take(StatusOr<Keys> asked);

  const KeySource source_;
  Http& http_;
  const Clock& clock_;
  std::mutex asking_;  // before the other
  std::mutex mutex_;
  Keys keys_;
  UnixMillis renew_at_ = 0;
  bool failing_ = false;
};

}  // namespace trainyard::runtime::s3
