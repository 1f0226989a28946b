#include "mantissa/files/convert/refuse_adapter.h"

#include <algorithm>
#include <array>

#include "mantissa/core/base/error_text.h"
#include "mantissa/core/base/words.h"
#include "mantissa/files/io/checkpoint.h"
#include "mantissa/files/io/json.h"
#include "mantissa/files/peft/config.h"
#include "mantissa/files/peft/states.h"

namespace mantissa::convert {

namespace fs = std::filesystem;

void refuse_adapter(const io::ModelPath& source, const fs::path& given) {
  const auto of_adapter = [](const io::TensorInfo& t) {
    return t.name.find(".lora_A") != std::string::npos || t.name.ends_with(".initial_state");
  };
  if (const fs::path folder = io::adapter_folder(given); !folder.empty() && peft::holds_states(folder)) {
    throw FileError(
        "{}: expected a model, got initial states of recurrences, which no weight can hold. Fix: use them beside "
        "the model with --adapter, or write RWKV-PEFT's file: {}",
        given.string(),
        shell_words(std::array<std::string, 4>{"mantissa", "convert", given.string(), "STATES.pth"}));
  }
  const bool state = source.kind == io::ModelPath::Kind::state &&
                     std::ranges::any_of(io::WeightFiles(source.weights).tensors(), of_adapter);
  if (!state && source.kind != io::ModelPath::Kind::adapter) return;
  std::string base;
  if (const fs::path folder = io::adapter_folder(given); !folder.empty()) {
    try {
      const fs::path file = folder / io::kAdapterConfig;
      base = peft::parse_config(io::read_json_file(file), file).base;
    } catch (const Error&) {  // the base is only part of the advice
    }
  }
  throw FileError(
      "{}: expected a model, got an adapter, which has no weights of its own. Fix: add it into its base, and "
      "convert the result: {}; or, for llama.cpp, write the adapter alone: an OUT that ends in .gguf",
      given.string(),
      shell_words(std::array<std::string, 5>{"mantissa", "merge", base.empty() ? "BASE" : base,
                                             given.string(), "MERGED"}));
}

}  // namespace mantissa::convert
