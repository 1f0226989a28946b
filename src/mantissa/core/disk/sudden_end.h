// What the program removes when it ends without running destructors: in the handler of a signal, or after an
// exception where none may be thrown. SIGKILL leaves everything; the next writer of a name removes that
// (core/disk/unfinished.h).
#pragma once

#include <csignal>
#include <cstdint>
#include <filesystem>

namespace mantissa::disk {

/// A name that remove_at_sudden_end() removes while the object exists. Of more than 64 at a time, the later
/// ones are left.
class RemovedAtSuddenEnd {
 public:
  /// What is removed: the open file `descriptor`; the open directory `descriptor` with the files in it that
  /// bear the mark of core/disk/unfinished.h; or a directory if it is empty.
  enum class What : std::uint8_t { file, directory, empty_directory };

  RemovedAtSuddenEnd() = default;
  /// `descriptor` remains open while the object exists. A `path` that has become the name of another file
  /// or directory is not removed.
  RemovedAtSuddenEnd(const std::filesystem::path& path, What what, int descriptor = -1) noexcept;
  ~RemovedAtSuddenEnd() { keep(); }
  RemovedAtSuddenEnd(RemovedAtSuddenEnd&& other) noexcept;
  RemovedAtSuddenEnd& operator=(RemovedAtSuddenEnd&& other) noexcept;
  RemovedAtSuddenEnd(const RemovedAtSuddenEnd&) = delete;
  RemovedAtSuddenEnd& operator=(const RemovedAtSuddenEnd&) = delete;

  void keep() noexcept;
  /// Removes it now, as a sudden end would: without memory.
  void remove() noexcept;

 private:
  int entry_ = -1;  // in the table
};

/// System calls of which a sudden end finds all done or none: while an object exists, the thread gets no
/// signals, and remove_at_sudden_end() of other threads waits.
class Undivided {
 public:
  Undivided() noexcept;
  ~Undivided();
  Undivided(const Undivided&) = delete;
  Undivided& operator=(const Undivided&) = delete;

 private:
  sigset_t before_{};
};

/// Removes what this process is writing. Safe in a signal handler. Call it right before _exit().
void remove_at_sudden_end() noexcept;

}  // namespace mantissa::disk
