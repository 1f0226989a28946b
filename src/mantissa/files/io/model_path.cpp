#include "mantissa/files/io/model_path.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

#include "mantissa/core/base/error_text.h"
#include "mantissa/core/disk/file.h"
#include "mantissa/core/disk/hub.h"
#include "mantissa/core/disk/look.h"
#include "mantissa/files/io/checkpoint.h"
#include "mantissa/files/io/results.h"
#include "mantissa/files/io/state.h"

namespace mantissa::io {
namespace {

namespace fs = std::filesystem;

/// Throws unless `path` exists and can be looked up.
void check_exists(const fs::path& path) {
  if (!disk::has_name(path)) {
    throw FileError(
        "{}: not found; expected a model directory, a run, an adapter, or a file of weights (safetensors, "
        "GGUF, or a checkpoint of PyTorch){}",
        path.string(), disk::hub_cure(path));
  }
  if (!disk::exists(path)) {
    throw FileError("{}: is a link to {}, which does not exist; check the link", path.string(),
                    fs::read_symlink(path).string());
  }
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
    throw FileError("{}: expected a model, got a config. Fix: give the directory of its run", path.string());
  }
  if (path.extension() != ".json") return {ModelPath::Kind::file, path, path};
  const fs::path folder = path.has_parent_path() ? path.parent_path() : ".";
  return {ModelPath::Kind::model, folder, path.filename() == "config.json" ? folder : path};
}

/// Returns the only .pth file of a directory without safetensors files, as RWKV-LM's are, or "". Throws if
/// there are several.
fs::path only_checkpoint(const fs::path& path) {
  std::vector<fs::path> found;
  for (const fs::path& file : disk::entries(path)) {
    if (file.extension() == ".safetensors" && !is_result_file(file)) return {};
    if (file.extension() == ".pth" && disk::is_file(file)) found.push_back(file);
  }
  if (found.size() < 2) return found.empty() ? fs::path() : found.front();
  std::ranges::sort(found);
  throw FileError("{}: expected one .pth file, got {}: {}, …, {}. Fix: give the path of one, such as {}",
                  path.string(), found.size(), found.front().filename().string(),
                  found.back().filename().string(), found.back().string());
}

ModelPath open_directory(const fs::path& path) {
  const auto has = [&](const char* name) { return disk::exists(path / name); };
  if (has("config.json") || has_usual_weights(path)) return directory(path);
  if (has(kStateTensors)) return state(path);
  if (has(kEarlierMark)) {
    if (const std::vector<FoundState> states = find_states(path); !states.empty())
      return state(states.back().path);  // the run was stopped before it removed the earlier model
    throw FileError(
        "{0}: the model in it is that of an earlier run, and the run that replaces it was stopped before its first "
        "state. Fix: name what is in it (such as {0}/model), or continue the new run with --resume",
        path.string());
  }
  if (has("model") && disk::is_directory(path / "model")) return directory(path / "model");
  if (const fs::path adapter = adapter_folder(path); !adapter.empty())
    return {ModelPath::Kind::adapter, adapter, adapter};
  const std::vector<FoundState> states = find_states(path);
  if (!states.empty()) return state(states.back().path);
  const fs::path checkpoint = only_checkpoint(path);
  return checkpoint.empty() ? directory(path) : open_file(checkpoint);
}

}  // namespace

ModelPath open_model(const fs::path& path) {
  check_exists(path);
  return disk::is_directory(path) ? open_directory(path) : open_file(path);
}

fs::path adapter_folder(const fs::path& path) {
  for (const fs::path& folder : {path, path / kAdapterFolder}) {
    if (disk::exists(folder / kAdapterConfig)) return folder;
  }
  return {};
}

bool is_gguf(const fs::path& path) {
  if (!disk::is_file(path)) return false;
  std::array<char, 4> begin{};
  const disk::File file = disk::File::open_to_read(path);
  if (file.size() >= begin.size()) file.read_at(0, std::as_writable_bytes(std::span(begin)));
  return std::string_view(begin.data(), begin.size()) == "GGUF" || path.extension() == ".gguf";
}

}  // namespace mantissa::io
