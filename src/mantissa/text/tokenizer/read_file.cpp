#include "mantissa/text/tokenizer/read_file.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <fstream>

#include "mantissa/core/base/error.h"

namespace mantissa::tokenizer {

std::string read_tokenizer_file(const std::filesystem::path& file) {
  constexpr std::uintmax_t kMostBytes = 200'000'000;
  errno = 0;
  std::ifstream stream(file, std::ios::binary);
  const int opened = errno;
  std::error_code error;
  const std::uintmax_t size = std::filesystem::file_size(file, error);
  if (!stream || error) {
    throw FileError(fmt::format("{}: cannot be read ({}). Fix: check that the file exists and is readable.",
                                file.string(), error ? error.message() : std::strerror(opened)));
  }
  if (size == 0)
    throw FileError(fmt::format("{}: is empty. Fix: get the file again from its source.", file.string()));
  if (size > kMostBytes)
    throw FileError(fmt::format("{}: has {} bytes; a tokenizer has at most {}. Fix: give a tokenizer file.",
                                file.string(), size, kMostBytes));
  std::string text(size, '\0');
  stream.read(text.data(), static_cast<std::streamsize>(size));
  text.resize(static_cast<std::size_t>(stream.gcount()));
  return text;
}

}  // namespace mantissa::tokenizer
