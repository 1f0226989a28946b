#include "mantissa/files/io/model_path.h"

#include <fmt/format.h>

#include <array>
#include <fstream>
#include <string_view>
#include <vector>

#include "mantissa/core/base/error.h"
#include "mantissa/files/io/checkpoint.h"
#include "mantissa/files/io/file.h"
#include "mantissa/files/io/state.h"

namespace mantissa::io {
namespace {

namespace fs = std::filesystem;

/// Throws unless `path` exists and can be looked up.
void check_exists(const fs::path& path) {
  std::error_code error;
  const fs::file_type type = fs::symlink_status(path, error).type();
  if (type == fs::file_type::not_found) {
    throw FileError(
        fmt::format("{}: not found; expected a model directory, a run, an adapter, or a file of weights "
                    "(safetensors, GGUF, "
                    "or a checkpoint of PyTorch)",
                    path.string()));
  }
  if (type == fs::file_type::symlink && fs::status(path, error).type() == fs::file_type::not_found) {
    throw FileError(fmt::format("{}: is a link to {}, which does not exist; check the link", path.string(),
                                fs::read_symlink(path, error).string()));
  }
  if (error) throw FileError(fmt::format("{}: cannot be read: {}", path.string(), error.message()));
}

ModelPath directory(const fs::path& path) {
  return {ModelPath::Kind::model, path, path};
}

ModelPath state(const fs::path& folder) {
  return {ModelPath::Kind::state, folder, folder / kStateTensors};
}

ModelPath open_file(const fs::path& path) {
  if (is_gguf(path)) return {ModelPath::Kind::gguf, path, path};
  if (path.extension() == ".toml") {
    throw FileError(
        fmt::format("{}: expected a model, got a config. Fix: give the directory of its run", path.string()));
  }
  if (path.extension() != ".json") return {ModelPath::Kind::file, path, path};
  const fs::path folder = path.has_parent_path() ? path.parent_path() : ".";
  return {ModelPath::Kind::model, folder, path.filename() == "config.json" ? folder : path};
}

ModelPath open_directory(const fs::path& path) {
  const auto has = [&](const char* name) { return io::exists(path / name); };
  if (has("config.json") || has_usual_weights(path)) return directory(path);
  if (has(kStateTensors)) return state(path);
  if (has("model") && fs::is_directory(path / "model")) return directory(path / "model");
  if (const fs::path adapter = adapter_folder(path); !adapter.empty())
    return {ModelPath::Kind::adapter, adapter, adapter};
  const std::vector<FoundState> states = find_states(path);
  return states.empty() ? directory(path) : state(states.back().path);
}

}  // namespace

ModelPath open_model(const fs::path& path) {
  check_exists(path);
  std::error_code error;
  return fs::is_directory(path, error) ? open_directory(path) : open_file(path);
}

fs::path adapter_folder(const fs::path& path) {
  for (const fs::path& folder : {path, path / kAdapterFolder}) {
    if (io::exists(folder / kAdapterConfig)) return folder;
  }
  return {};
}

bool is_gguf(const fs::path& path) {
  std::error_code error;  // an inaccessible path is not a file
  if (!fs::is_regular_file(path, error)) return false;
  std::array<char, 4> begin{};
  std::ifstream(path, std::ios::binary).read(begin.data(), begin.size());
  return std::string_view(begin.data(), begin.size()) == "GGUF" || path.extension() == ".gguf";
}

}  // namespace mantissa::io
