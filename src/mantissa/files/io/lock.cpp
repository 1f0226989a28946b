#include "mantissa/files/io/lock.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <string>

#include "mantissa/core/base/error.h"
#include "mantissa/files/io/file.h"

namespace mantissa::io {
namespace {

std::string holder(int descriptor) {
  std::array<char, 32> text{};
  const ssize_t length = ::pread(descriptor, text.data(), text.size(), 0);
  const std::string process(text.data(), static_cast<std::size_t>(length > 0 ? length : 0));
  return process.empty() ? "another process" : "process " + process.substr(0, process.find('\n'));
}

// True if `path` still names the open file. Its last holder removes the file, possibly between our open and
// our lock.
bool is_still(const std::filesystem::path& path, int descriptor) {
  struct stat open {
  }, named{};
  return ::fstat(descriptor, &open) == 0 && ::stat(path.c_str(), &named) == 0 &&
         open.st_dev == named.st_dev && open.st_ino == named.st_ino;
}

int lock(int descriptor) {
  while (::flock(descriptor, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EINTR) return errno;
  }
  return 0;
}

}  // namespace

RunLock::RunLock(const std::filesystem::path& directory) : path_(directory / ".lock") {
  for (;;) {
    descriptor_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (descriptor_ < 0) throw_write_error(path_, errno);
    const int error = lock(descriptor_);
    if (error == EWOULDBLOCK) {
      const std::string who = holder(descriptor_);
      ::close(descriptor_);
      throw FileError(
          fmt::format("{}: {} is writing this run; wait until it ends, or give another directory with --out",
                      directory.string(), who));
    }
    if (error != 0) return;
    held_ = is_still(path_, descriptor_);
    if (held_) break;
    ::close(descriptor_);
  }
  const std::string process = fmt::format("{}\n", ::getpid());
  // Only the message above reads this, so a full disk must not prevent the run.
  if (::ftruncate(descriptor_, 0) != 0 || ::pwrite(descriptor_, process.data(), process.size(), 0) < 0)
    return;
}

RunLock::~RunLock() {
  if (held_) ::unlink(path_.c_str());
  ::close(descriptor_);
}

}  // namespace mantissa::io
