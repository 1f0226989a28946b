#include "mantissa/text/tokenizer/read_file.h"

#include "mantissa/core/base/error_text.h"
#include "mantissa/core/disk/file.h"

namespace mantissa::tokenizer {

std::string read_tokenizer_file(const std::filesystem::path& file) {
  constexpr std::uint64_t kMostBytes = 200'000'000;
  std::string text = disk::read_text_file(file, kMostBytes);
  if (text.empty()) throw FileError("{}: is empty. Fix: get the file again from its source.", file.string());
  return text;
}

}  // namespace mantissa::tokenizer
