#include "mantissa/train/run/claim.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "mantissa/core/base/error.h"
#include "mantissa/core/base/printable.h"
#include "mantissa/core/disk/atomic.h"
#include "mantissa/core/disk/file.h"
#include "mantissa/core/disk/look.h"
#include "mantissa/core/disk/owned.h"
#include "mantissa/core/disk/unfinished.h"
#include "mantissa/files/io/model_path.h"
#include "mantissa/files/io/state.h"
#include "mantissa/report/tensorboard.h"
#include "mantissa/text/tokenizer/kinds.h"

namespace mantissa::run {
namespace {

namespace fs = std::filesystem;

/// The files of a run that a new one in its directory removes; the others it replaces.
constexpr std::array kLogs = {"metrics.jsonl", "health.jsonl",      "observations.jsonl",
                              "samples.jsonl", "start.safetensors", "summary.json"};
constexpr std::array kResults = {"model", io::kAdapterFolder};  // that a run stands for
constexpr std::array kDirectories = {"model", io::kAdapterFolder, tokenizer::kRunFolder};

/// Returns true for the directory of a run of an earlier version, which wrote no lists.
bool is_of_earlier_version(const fs::path& out) {
  if (!disk::owned_names(out).empty()) return false;
  const auto has = [&](const char* name) { return disk::has_name(out / name); };
  return !io::find_states(out).empty() || (has("config.toml") && has("plan.txt") && has("metrics.jsonl"));
}

/// Returns true for the files of a model or adapter but those of its tokenizer.
bool is_weights(const std::string& name) {
  static constexpr std::array kNames = {"config.json",         "generation_config.json",
                                        "model.safetensors",   "model.safetensors.index.json",
                                        "adapter_config.json", "adapter_model.safetensors"};
  const bool shard = name.starts_with("model-0") && name.ends_with(".safetensors");
  return shard || std::ranges::find(kNames, name) != kNames.end();
}

/// Returns the names in a directory of an earlier version. Throws FileError if one is not that of weights or
/// of a file in `texts`.
std::set<std::string> names_in(const fs::path& directory, const std::set<std::string>& texts) {
  std::set<std::string> names;
  for (const fs::path& entry : disk::entries(directory)) {
    const std::string name = entry.filename().string();
    if ((!is_weights(name) && !texts.contains(name)) || !disk::is_file(entry)) {
      throw FileError(
          fmt::format("{}: contains {}, which no run wrote; move it away, or choose another place",
                      directory.string(), name_in_quotes(name)));
    }
    names.insert(name);
  }
  return names;
}

/// Returns the kind of result that a directory of a run is.
std::string_view kind_of_part(std::string_view part) {
  if (part == tokenizer::kRunFolder) return disk::kTokenizer;
  return part == io::kAdapterFolder ? disk::kAdapter : disk::kModel;
}

/// Returns true if `part` of `out` has no list.
bool lacks_list(const fs::path& out, const char* part) {
  return disk::is_directory(out / part) && !disk::has_name(out / part / disk::kOwnedList);
}

/// Returns the names in `out` that runs have written: of earlier versions, those of `names` that are there,
/// and directories of models, adapters and tokenizers.
std::set<std::string> owned_by_runs(const fs::path& out, const RunNames& names) {
  std::set<std::string> owned = disk::owned_names(out);
  if (!is_of_earlier_version(out)) return owned;
  for (const std::string& name : names.files) {
    if (disk::has_name(out / name)) owned.insert(name);
  }
  for (const char* part : kDirectories) {
    if (disk::is_directory(out / part)) owned.insert(part);
  }
  return owned;
}

}  // namespace

RunNames names_of(const config::RunConfig& config,
                  const std::vector<std::pair<std::string, std::string>>& texts) {
  std::set<std::string> names = {"config.toml",  "plan.txt", "metrics.jsonl",
                                 "summary.json", "state",    tokenizer::kRunFolder};
  const bool adapts = config.adapter.kind != "none" || !config.adapter.path.empty();
  names.insert(adapts ? io::kAdapterFolder : "model");
  if (config.log.health_interval != 0) names.insert({"health.jsonl", "start.safetensors"});
  if (!config.log.observe.empty()) names.insert("observations.jsonl");
  if (config.train.objective == "rl") names.insert("samples.jsonl");
  RunNames all{std::move(names), {}};
  for (const auto& [name, contents] : texts) all.texts.insert(name);
  return all;
}

void check_claim(const fs::path& out, const RunNames& names, std::int64_t step) {
  const std::set<std::string> owned = owned_by_runs(out, names);
  disk::check_kind(out, disk::kRun, names.files);
  for (const std::string& name : names.files) {
    disk::check_unfinished(out / name);
    if (!disk::has_name(out / name) || owned.contains(name)) continue;
    throw FileError(
        fmt::format("{}: is in the way: a run writes this name, and no run did; choose another "
                    "directory with --out, or move it away",
                    (out / name).string()));
  }
  for (const char* part : kResults) {
    if (owned.contains(part) || names.files.contains(part) || !disk::has_name(out / part)) continue;
    throw FileError(fmt::format(
        "{}: is in the way: the run would stand for it, and no run wrote it; choose another directory "
        "with --out, or move it away",
        (out / part).string()));
  }
  for (const char* part : kDirectories) {
    if (!owned.contains(part)) continue;
    if (is_of_earlier_version(out) && lacks_list(out, part)) {
      names_in(out / part, names.texts);
    } else {
      disk::check_replaceable(out / part, kind_of_part(part));
    }
  }
  io::check_states_after(out, step);
}

void check_result_stays(const fs::path& out, bool resumes) {
  if (resumes && disk::has_name(out / io::kEarlierMark)) return;
  for (const char* part : kResults) {
    if (!disk::has_name(out / part)) continue;
    throw FileError(
        fmt::format(
            "{}: is the result of an earlier run, of which no state is here; --overwrite replaces it, "
            "another --out keeps it",
            (out / part).string()),
        {{{"--overwrite"}, "starts over"}});
  }
}

void adopt_earlier(const fs::path& out, const RunNames& names) {
  if (!is_of_earlier_version(out)) return;
  for (const char* part : kDirectories) {
    if (lacks_list(out, part))
      disk::write_file_atomic(out / part / disk::kOwnedList,
                              disk::owned_list(names_in(out / part, names.texts), kind_of_part(part)));
  }
  disk::write_file_atomic(out / disk::kOwnedList, disk::owned_list(owned_by_runs(out, names), disk::kRun));
}

std::string claim(const fs::path& out, const RunNames& names) {
  disk::OwnedKinds owned = disk::owned_kinds(out);
  std::erase_if(owned, [&](const auto& name) {  // every resumption adds one
    return report::is_event_file(name.first) && !disk::has_name(out / name.first);
  });
  disk::add_owned(owned, names.files, disk::kRun);
  if (disk::owned_kinds(out) != owned)
    disk::write_file_atomic(out / disk::kOwnedList, disk::owned_list(owned));
  return disk::remove_abandoned(out);
}

void begin_anew(const fs::path& out) {
  const std::set<std::string> owned = disk::owned_names(out);
  if (std::ranges::any_of(kResults, [&](const char* part) { return disk::has_name(out / part); }))
    disk::write_file_atomic(out / io::kEarlierMark, "The model or adapter here is that of an earlier run.\n");
  for (const std::string& name : owned) {
    const bool is_log = std::ranges::find(kLogs, name) != kLogs.end() || report::is_event_file(name);
    if (is_log) disk::remove_file(out / name);
  }
}

void remove_earlier(const fs::path& out, std::string_view kept) {
  const std::set<std::string> owned = disk::owned_names(out);
  for (const char* part : kResults) {
    if (part == kept || !owned.contains(part)) continue;
    disk::remove_whole(out / part);
    disk::check_unfinished(out / part);  // what an earlier attempt left
  }
  disk::remove_file(out / io::kEarlierMark);
}

}  // namespace mantissa::run
