#include "mantissa/files/convert/beside.h"

#include <algorithm>
#include <array>

#include "mantissa/files/io/atomic.h"
#include "mantissa/files/io/file.h"
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
  for (const fs::directory_entry& entry : fs::directory_iterator(from)) {
    const fs::path& file = entry.path();
    if (entry.is_regular_file() && file.filename() != "config.json" && !is_other_weights(file))
      names.push_back(file.filename().string());
  }
  std::ranges::sort(names);
  for (const std::string& name : names)
    io::write_file_atomic(to / name, io::read_text_file(from / name, kLargestBeside));
  return names;
}

}  // namespace mantissa::convert
