#include "mantissa/report/append_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "mantissa/core/base/error.h"

namespace mantissa::report {

AppendFile::AppendFile(const std::filesystem::path& path, Open how, const std::filesystem::path& name)
    : path_(name.empty() ? path : name) {
  const int exclusive = how == Open::must_be_new ? O_EXCL : 0;
  descriptor_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | exclusive, 0666);
  if (descriptor_ < 0) {
    throw FileError(fmt::format("{}: cannot be opened for writing: {}; choose another place with --out",
                                path_.string(), std::generic_category().message(errno)));
  }
}

AppendFile::~AppendFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

AppendFile::AppendFile(AppendFile&& other) noexcept
    : path_(std::move(other.path_)), descriptor_(std::exchange(other.descriptor_, -1)) {}

AppendFile& AppendFile::operator=(AppendFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

void AppendFile::write(std::string_view record) {
  while (!record.empty()) {
    const ssize_t put = ::write(descriptor_, record.data(), record.size());
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) {
      throw ResourceError(
          fmt::format("{}: writing failed: {}; free some space or choose another place with --out",
                      path_.string(), std::generic_category().message(errno)));
    }
    record.remove_prefix(static_cast<std::size_t>(put));
  }
}

}  // namespace mantissa::report
