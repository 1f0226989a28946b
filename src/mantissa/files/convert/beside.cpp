#include "mantissa/files/convert/beside.h"

#include <algorithm>
#include <array>

#include "mantissa/core/disk/atomic.h"
#include "mantissa/core/disk/file.h"
#include "mantissa/core/disk/look.h"
#include "mantissa/core/disk/owned.h"
#include "mantissa/text/tokenizer/kinds.h"

namespace mantissa::convert {

namespace fs = std::filesystem;

bool is_other_weights(const fs::path& file) {
  static constexpr std::array kEndings = {".safetensors", ".bin",       ".pt",      ".pth",   ".ckpt",
                                          ".gguf",        ".ggml",      ".h5",      ".ot",    ".npz",
                                          ".onnx",        ".onnx_data", ".msgpack", ".tflite"};
  const std::string name = file.filename().string();
  return std::find(kEndings.begin(), kEndings.end(), file.extension()) != kEndings.end() ||
         name.ends_with(".index.json");
}

std::vector<std::string> copy_tokenizer_of_state(const fs::path& state, const fs::path& to) {
  const fs::path from = tokenizer::files_directory(state);
  if (from == state) return {};
  std::vector<std::string> names;
  for (const fs::path& file : disk::entries(from)) {
    if (disk::is_file(file) && file.filename() != "config.json" && file.filename() != disk::kOwnedList &&
        !is_other_weights(file))
      names.push_back(file.filename().string());
  }
  for (const std::string& name : names)
    disk::write_file_atomic(to / name, disk::read_text_file(from / name, kLargestBeside));
  return names;
}

}  // namespace mantissa::convert
