// A disk of a few megabytes, to be filled up: a tmpfs that only this process and its children see.
#pragma once

#include <filesystem>
#include <string>

namespace trainyard {

class SmallDisk {
 public:
  // Whether this process may mount; asks for mounts of its own, once. To be called while the
  // process has one thread.
  static bool possible();

  // Mounts an empty disk over the folder, which must exist.
  explicit SmallDisk(const std::filesystem::path& folder);
  ~SmallDisk();
  SmallDisk(const SmallDisk&) = delete;
  SmallDisk& operator=(const SmallDisk&) = delete;

  // Until not a byte more can be written.
  void fill();
  void makeRoom();

 private:
  const std::filesystem::path folder_;
};

}  // namespace trainyard
