#include "mantissa/files/convert/input_model.h"

#include <algorithm>

#include "mantissa/core/base/error_text.h"
#include "mantissa/core/disk/file.h"
#include "mantissa/core/disk/look.h"
#include "mantissa/files/convert/gguf_in.h"
#include "mantissa/files/io/json.h"
#include "mantissa/files/rwkv/checkpoint.h"
#include "mantissa/text/tokenizer/kinds.h"

namespace mantissa::convert {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kLargestFile = std::uint64_t{1} << 30;  // of a tokenizer

fs::path folder_of(const fs::path& file) {
  return file.has_parent_path() ? file.parent_path() : ".";
}

/// Returns the contents of files in `directory`. The RWKV vocabulary may have another date in its name.
gguf::ReadFile reader_of(const fs::path& directory) {
  return [directory](std::string_view name) -> std::optional<std::string> {
    fs::path file = directory / name;
    if (name == gguf::kRwkvVocabulary && !disk::exists(file)) {
      const fs::path found = tokenizer::find_in_directory(directory);
      if (found.filename().string().starts_with("rwkv_vocab")) file = found;
    }
    if (!disk::exists(file)) return std::nullopt;
    return disk::read_text_file(file, kLargestFile);
  };
}

InputModel model_in_gguf(const fs::path& path) {
  gguf::ForeignModel model = open_gguf(path);
  const auto read = [files = std::move(model.files)](std::string_view name) -> std::optional<std::string> {
    const auto found = std::ranges::find(files, name, [](const auto& file) { return file.first; });
    return found == files.end() ? std::nullopt : std::optional(found->second);
  };
  return {std::move(model.config), io::WeightFiles(std::move(model.weights)), read, path};
}

}  // namespace

InputModel model_of(const io::ModelPath& in, const char* format) {
  if (in.kind == io::ModelPath::Kind::gguf) return model_in_gguf(in.weights);
  if (in.kind == io::ModelPath::Kind::model) {
    const fs::path config = in.path / "config.json";
    return {model::parse_model_config(io::read_json_file(config), config.string()),
            io::WeightFiles(in.weights), reader_of(in.path), in.path};
  }
  if (is_rwkv_file(in)) {
    rwkv::Checkpoint checkpoint = rwkv::open_checkpoint(io::WeightFiles(in.weights), in.path, true);
    return {std::move(checkpoint.config), io::WeightFiles(std::move(checkpoint.weights)),
            reader_of(folder_of(in.path)), folder_of(in.path)};
  }
  throw ConfigError(
      "--format {}: {} is neither a model directory, which needs config.json, nor a GGUF file. "
      "Fix: give one of them, or a run with a model",
      format, in.path.string());
}

bool is_rwkv_file(const io::ModelPath& in) {
  return in.kind == io::ModelPath::Kind::file && rwkv::is_checkpoint(in.weights);
}

std::vector<std::string> files_beside(const fs::path& file) {
  const fs::path folder = folder_of(file);
  std::vector<std::string> names;
  if (const fs::path vocabulary = tokenizer::find_in_directory(folder); !vocabulary.empty())
    names.push_back(vocabulary.filename().string());
  for (const char* name : {"tokenizer_config.json", "generation_config.json", "chat_template.jinja"}) {
    if (disk::exists(folder / name)) names.emplace_back(name);
  }
  return names;
}

}  // namespace mantissa::convert
