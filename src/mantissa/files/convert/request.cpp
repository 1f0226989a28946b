#include <string>

#include "mantissa/files/convert/convert.h"
#include "mantissa/files/convert/input_model.h"
#include "mantissa/files/io/model_path.h"

namespace mantissa::convert {

bool is_torch_name(const std::filesystem::path& path) {
  const std::filesystem::path end = path.extension();
  return end == ".pth" || end == ".pt" || end == ".bin";
}

bool is_gguf_name(const std::filesystem::path& path) {
  std::string end = path.extension().string();
  for (char& c : end) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return end == ".gguf";
}

bool is_weights_name(const std::filesystem::path& path) {
  const std::filesystem::path end = path.extension();
  return is_gguf_name(path) || is_torch_name(path) || end == ".safetensors" || end == ".ckpt";
}

void look_at_names(Request& request) {
  request.rwkv = is_rwkv_file(request.in);
}

bool Request::writes_directory() const {
  switch (layout) {
    case Layout::hugging_face:
      return in.kind != io::ModelPath::Kind::file || (rwkv && !is_weights_name(out));
    case Layout::pth:
      return !is_torch_name(out);
    case Layout::gguf:
      break;
  }
  return false;
}

}  // namespace mantissa::convert
