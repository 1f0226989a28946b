// A lock that lets only one process write a run directory.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

namespace mantissa::disk {

/// Holds the lock of `directory` for its lifetime. The system releases the lock of a process that dies. The
/// locked file is ".lock" in the directory; the destructor removes it.
class RunLock {
 public:
  /// Throws FileError, with the process id, if another process or another RunLock holds the lock, and if the
  /// directory is missing or not writable.
  explicit RunLock(const std::filesystem::path& directory);
  ~RunLock();
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

  /// Returns false on a file system without locks. Then nothing prevents a second writer, and the caller
  /// should warn.
  bool held() const { return held_; }

  /// Throws RunStopped if the directory's path does not lead to this lock any more: somebody moved, removed
  /// or replaced the directory, a link to it, or the lock. What is written there would mix with another run.
  void check() const;

 private:
  std::filesystem::path path_;
  int descriptor_ = -1;
  bool held_ = false;
};

/// Returns the number of the process of this machine that holds the lock of `directory`, or null. Does not
/// take the lock, which another process may want at this moment.
std::optional<std::int64_t> lock_holder(const std::filesystem::path& directory);

}  // namespace mantissa::disk
