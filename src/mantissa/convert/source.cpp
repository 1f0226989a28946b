#include "mantissa/convert/source.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "mantissa/base/error.h"
#include "mantissa/base/words.h"
#include "mantissa/gguf/gguf_file.h"
#include "mantissa/io/checkpoint.h"
#include "mantissa/io/json.h"
#include "mantissa/io/state.h"
#include "mantissa/peft/config.h"
#include "mantissa/peft/reader.h"

namespace mantissa::convert {
namespace {

namespace fs = std::filesystem;

constexpr const char* kStateFile = "state.safetensors";

Source state_in(const fs::path& folder) {
  return {Source::Kind::state, folder, folder / kStateFile};
}

}  // namespace

Source find_source(const fs::path& path) {
  std::error_code error;  // of an inaccessible path
  if (fs::is_symlink(path, error) && !fs::exists(path, error)) {
    throw FileError(fmt::format("{}: is a link to {}, which does not exist; check the link", path.string(),
                                fs::read_symlink(path, error).string()));
  }
  if (!fs::exists(path, error)) {
    throw FileError(fmt::format(
        "{}: file not found; expected a safetensors, PyTorch or GGUF file, a model directory or a run",
        path.string()));
  }
  if (!fs::is_directory(path, error)) {
    if (gguf::is_gguf(path)) return {Source::Kind::gguf, path, path};
    if (path.extension() == ".toml") {
      throw FileError(
          fmt::format("{}: is neither a model directory, which needs config.json, nor a GGUF file; it is a "
                      "config. Fix: give the directory of its run",
                      path.string()));
    }
    if (path.extension() != ".json") return {Source::Kind::file, path, path};
    return {Source::Kind::model, path.has_parent_path() ? path.parent_path() : ".", path};
  }
  const auto has = [&](const char* name) { return fs::exists(path / name, error); };
  if (io::has_usual_weights(path)) return {Source::Kind::model, path, path};
  if (has(kStateFile)) return state_in(path);
  if (fs::is_directory(path / "model", error)) return {Source::Kind::model, path / "model", path / "model"};
  const std::vector<io::FoundState> states = io::find_states(path);
  return states.empty() ? Source{Source::Kind::model, path, path} : state_in(states.back().path);
}

void refuse_adapter(const Source& source, const fs::path& given) {
  const auto of_adapter = [](const io::TensorInfo& t) { return t.name.find(".lora_A") != std::string::npos; };
  const bool state = source.kind == Source::Kind::state &&
                     std::ranges::any_of(io::WeightFiles(source.weights).tensors(), of_adapter);
  const bool directory = source.kind == Source::Kind::model && !io::has_usual_weights(source.path) &&
                         !peft::adapter_folder(given).empty();
  if (!state && !directory) return;
  std::string base;
  if (const fs::path folder = peft::adapter_folder(given); !folder.empty()) {
    try {
      const fs::path file = folder / peft::kConfigFile;
      base = peft::parse_config(io::read_json_file(file), file).base;
    } catch (const Error&) {  // the base is only part of the advice
    }
  }
  throw FileError(fmt::format(
      "{}: expected a model, got an adapter, which has no weights of its own. Fix: add it into its base, and "
      "convert the result: {}",
      given.string(),
      shell_words(std::array<std::string, 5>{"mantissa", "merge", base.empty() ? "BASE" : base,
                                             given.string(), "MERGED"})));
}

}  // namespace mantissa::convert
