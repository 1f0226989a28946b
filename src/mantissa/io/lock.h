// One process at a time writes a run directory.
#pragma once

#include <filesystem>

namespace mantissa::io {

/// Holds `directory` for this process until it goes; the system lets go for a process that dies. The lock is
/// on the file ".lock" in it, which is removed when the lock is given back.
class RunLock {
 public:
  /// Throws FileError, which names the process, where another has it (or this one, elsewhere), or where the
  /// directory is missing or not writable.
  explicit RunLock(const std::filesystem::path& directory);
  ~RunLock();
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

  /// False on a file system without locks: then nobody is kept out, and whoever starts the run may want to
  /// say so.
  bool held() const { return held_; }

 private:
  std::filesystem::path path_;
  int descriptor_ = -1;
  bool held_ = false;
};

}  // namespace mantissa::io
