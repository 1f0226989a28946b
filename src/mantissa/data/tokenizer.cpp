#include "mantissa/data/tokenizer.h"

#include <fmt/format.h>

namespace mantissa::data {

std::filesystem::path tokenizer_file(const std::filesystem::path& directory) {
  if (directory.empty()) return {};
  std::error_code error;  // ignored for inaccessible paths
  for (const char* name : {"tokenizer.json", "tokenizer.model", "spiece.model", "vocab.json", "vocab.txt"}) {
    if (std::filesystem::exists(directory / name, error)) return directory / name;
  }
  for (const std::filesystem::directory_entry& entry :
       std::filesystem::directory_iterator(directory, error)) {
    if (entry.path().filename().string().starts_with("rwkv_vocab")) return entry.path();
  }
  return {};
}

std::unique_ptr<tokenizer::Tokenizer> tokenizer_of(const weights::ModelSource& source) {
  const bool bytes = tokenizer_file(source.directory).empty() && source.config.vocab_size == kByteEntries;
  return bytes ? tokenizer::make_tokenizer("byte") : nullptr;
}

std::string why_no_bytes(const weights::ModelSource& source) {
  const std::filesystem::path file = tokenizer_file(source.directory);
  if (!file.empty()) {
    return fmt::format(
        "this model uses the tokenizer {}, which this version does not support; its ids are not bytes",
        file.string());
  }
  return fmt::format("{} has a vocabulary of {} entries and no tokenizer file; bytes need a vocabulary of {}",
                     source.weights.string(), source.config.vocab_size, kByteEntries);
}

}  // namespace mantissa::data
