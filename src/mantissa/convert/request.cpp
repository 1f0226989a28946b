#include "mantissa/convert/convert.h"

namespace mantissa::convert {

bool is_torch_name(const std::filesystem::path& path) {
  const std::filesystem::path end = path.extension();
  return end == ".pth" || end == ".pt" || end == ".bin";
}

bool Request::writes_directory() const {
  switch (layout) {
    case Layout::hugging_face:
      return in.kind != Source::Kind::file;
    case Layout::pth:
      return !is_torch_name(out);
    case Layout::gguf:
      break;
  }
  return false;
}

}  // namespace mantissa::convert
