#include "mantissa/core/disk/lock.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <fstream>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "mantissa/core/base/error.h"
#include "mantissa/core/base/words.h"
#include "mantissa/core/disk/file.h"
#include "mantissa/core/disk/unfinished.h"

namespace mantissa::disk {
namespace {

std::string holder(int descriptor) {
  std::array<char, 32> text{};
  const ssize_t length = ::pread(descriptor, text.data(), text.size(), 0);
  const std::string process(text.data(), static_cast<std::size_t>(length > 0 ? length : 0));
  return process.empty() ? "another process" : "process " + process.substr(0, process.find('\n'));
}

/// Returns true for a file that this program made as a lock: marked, or one of an earlier version, which
/// holds a process's number and nothing else.
bool is_lock(int descriptor) {
  struct stat status {};
  if (::fstat(descriptor, &status) != 0 || !S_ISREG(status.st_mode)) return false;
  if ((status.st_mode & S_ISVTX) != 0) return true;
  std::array<char, 32> text{};
  const ssize_t length = ::pread(descriptor, text.data(), text.size(), 0);
  const std::string_view process(text.data(), static_cast<std::size_t>(length > 0 ? length : 0));
  return process.size() < text.size() && process.find_first_not_of("0123456789\n") == std::string_view::npos;
}

/// Returns true for a file that another directory names too: this one is a copy by `cp -al` of a run.
bool has_other_names(int descriptor) {
  struct stat status {};
  return ::fstat(descriptor, &status) == 0 && status.st_nlink > 1;
}

}  // namespace

RunLock::RunLock(const std::filesystem::path& directory) : path_(directory / ".lock") {
  for (;;) {
    descriptor_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666 | S_ISVTX);
    if (descriptor_ < 0 && errno == EEXIST) {
      descriptor_ = ::open(path_.c_str(), O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
      if (descriptor_ < 0 && errno == ENOENT) continue;
      const bool denied = descriptor_ < 0 && (errno == EACCES || errno == EPERM || errno == EROFS);
      if (descriptor_ < 0 && errno != ELOOP && !denied) throw_write_error(path_, errno);
      if (!denied && (descriptor_ < 0 || !is_lock(descriptor_))) {
        if (descriptor_ >= 0) ::close(descriptor_);
        throw FileError(
            fmt::format("{}: is not the lock of a run; move it away, or give another directory with "
                        "--out",
                        path_.string()));
      }
    }
    if (descriptor_ < 0 && (errno == EACCES || errno == EPERM || errno == EROFS)) {
      throw FileError(fmt::format(
          "{}: cannot be written: {}; a run starts and continues only in a directory that it can write. Fix: copy "
          "the directory, and give the copy with --out; commands that read it need no copy",
          directory.string(), std::generic_category().message(errno)));
    }
    if (descriptor_ < 0) throw_write_error(path_, errno);
    Locked locked = Locked::no_locks;
    try {
      locked = lock(descriptor_, path_);
    } catch (...) {
      ::close(descriptor_);
      throw;
    }
    if (locked == Locked::in_use) {
      const std::string who = holder(descriptor_);
      ::close(descriptor_);
      throw FileError(
          fmt::format("{}: {} is writing this run; wait until it ends, or give another directory with --out",
                      directory.string(), who));
    }
    if (locked == Locked::no_locks) return;
    // The last holder may have removed the file between our open and our lock.
    const bool is_ours = is_still(path_, descriptor_);
    held_ = is_ours && !has_other_names(descriptor_);
    if (held_) break;
    const int error = is_ours && ::unlink(path_.c_str()) != 0 ? errno : 0;
    ::close(descriptor_);
    if (error != 0) throw_remove_error(path_, error);
  }
  const std::string process = fmt::format("{}\n", ::getpid());
  // Only the message above reads this, so a full disk must not prevent the run.
  if (::ftruncate(descriptor_, 0) != 0 || ::pwrite(descriptor_, process.data(), process.size(), 0) < 0)
    return;
}

void RunLock::check() const {
  if (is_still(path_, descriptor_)) return;
  throw RunStopped(fmt::format(
      "{}: is not the directory any more in which this run began: it, a link to it or its lock was moved "
      "or removed, so nothing more is written. Fix: continue with --resume where the run is now",
      path_.parent_path().string()));
}

RunLock::~RunLock() {
  try {
    if (held_ && is_still(path_, descriptor_)) ::unlink(path_.c_str());  // not the lock of another run
  } catch (const Error&) {  // it stays, as that of a killed process
  }
  ::close(descriptor_);
}

std::optional<std::int64_t> lock_holder(const std::filesystem::path& directory) {
  const std::filesystem::path path = directory / ".lock";
  struct stat status {};
  if (::lstat(path.c_str(), &status) != 0) {
    if (errno == ENOENT || errno == ENOTDIR) return std::nullopt;
    throw_read_error(path, errno);
  }
  // proc_locks(5): "1: FLOCK  ADVISORY  WRITE 3768 00:1b:6480129 0 EOF", with the process and the inode.
  std::ifstream locks("/proc/locks");
  for (std::string line; std::getline(locks, line);) {
    const std::vector<std::string_view> words = split_words(line, " ");
    constexpr std::size_t kKind = 1, kProcess = 4, kFile = 5;
    if (words.size() <= kFile || words[kKind] != "FLOCK") continue;
    const std::string_view inode = words[kFile].substr(words[kFile].rfind(':') + 1);
    std::int64_t process = 0;
    const char* end = words[kProcess].data() + words[kProcess].size();
    if (inode == std::to_string(status.st_ino) &&
        std::from_chars(words[kProcess].data(), end, process).ec == std::errc())
      return process;
  }
  return std::nullopt;
}

}  // namespace mantissa::disk
