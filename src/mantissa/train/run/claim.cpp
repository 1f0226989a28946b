#include "mantissa/train/run/claim.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "mantissa/core/base/error.h"
#include "mantissa/core/disk/atomic.h"
#include "mantissa/core/disk/file.h"
#include "mantissa/core/disk/look.h"
#include "mantissa/core/disk/owned.h"
#include "mantissa/core/disk/unfinished.h"
#include "mantissa/files/io/model_path.h"
#include "mantissa/files/io/state.h"
#include "mantissa/text/tokenizer/kinds.h"

namespace mantissa::run {
namespace {

namespace fs = std::filesystem;

/// The files of a run that a new one in its directory removes; the others it replaces.
constexpr std::array kLogs = {"metrics.jsonl", "health.jsonl",      "observations.jsonl",
                              "samples.jsonl", "start.safetensors", "summary.json"};
constexpr std::string_view kEvents = "events.out.tfevents.";    // of TensorBoard
constexpr std::array kResults = {"model", io::kAdapterFolder};  // that a run stands for
constexpr std::array kDirectories = {"model", io::kAdapterFolder, tokenizer::kRunFolder};

/// Returns true for the directory of a run of an earlier version, which wrote no lists, but always a state.
bool is_of_earlier_version(const fs::path& out) {
  return disk::owned_names(out).empty() && !io::find_states(out).empty();
}

/// Writes the list of a directory that an earlier version wrote as a whole.
void adopt(const fs::path& directory) {
  if (!disk::is_directory(directory) || disk::has_name(directory / disk::kOwnedList)) return;
  std::set<std::string> names;
  for (const fs::path& file : disk::entries(directory)) names.insert(file.filename().string());
  disk::write_file_atomic(directory / disk::kOwnedList, disk::owned_list(names));
}

/// Returns the names in `out` that runs have written.
std::set<std::string> owned_by_runs(const fs::path& out) {
  std::set<std::string> owned = disk::owned_names(out);
  if (!is_of_earlier_version(out)) return owned;
  owned.insert(kLogs.begin(), kLogs.end());
  owned.insert(kResults.begin(), kResults.end());
  owned.insert({"config.toml", "plan.txt", "state", tokenizer::kRunFolder});
  return owned;
}

}  // namespace

std::set<std::string> names_of(const config::RunConfig& config) {
  std::set<std::string> names = {"config.toml",  "plan.txt", "metrics.jsonl",
                                 "summary.json", "state",    tokenizer::kRunFolder};
  const bool adapts = config.adapter.kind != "none" || !config.adapter.path.empty();
  names.insert(adapts ? io::kAdapterFolder : "model");
  if (config.log.health_interval != 0) names.insert({"health.jsonl", "start.safetensors"});
  if (!config.log.observe.empty()) names.insert("observations.jsonl");
  if (config.train.objective == "rl") names.insert("samples.jsonl");
  return names;
}

void check_claim(const fs::path& out, const std::set<std::string>& names, std::int64_t step) {
  const std::set<std::string> owned = owned_by_runs(out);
  for (const std::string& name : names) {
    disk::check_unfinished(out / name);
    if (!disk::has_name(out / name) || owned.contains(name)) continue;
    throw FileError(
        fmt::format("{}: is in the way: a run writes this name, and no run did; choose another "
                    "directory with --out, or move it away",
                    (out / name).string()));
  }
  for (const char* part : kDirectories) {
    if (owned.contains(part) && !is_of_earlier_version(out)) disk::check_replaceable(out / part);
  }
  io::check_states_after(out, step);
}

void adopt_earlier(const fs::path& out) {
  if (!is_of_earlier_version(out)) return;
  for (const char* part : kDirectories) adopt(out / part);
  disk::write_file_atomic(out / disk::kOwnedList, disk::owned_list(owned_by_runs(out)));
}

void claim(const fs::path& out, const std::set<std::string>& names) {
  std::set<std::string> owned = owned_by_runs(out);
  owned.insert(names.begin(), names.end());
  if (disk::owned_names(out) != owned)
    disk::write_file_atomic(out / disk::kOwnedList, disk::owned_list(owned));
  disk::remove_abandoned(out);
  io::remove_abandoned_states(out);
}

void begin_anew(const fs::path& out) {
  const std::set<std::string> owned = owned_by_runs(out);
  if (std::ranges::any_of(kResults, [&](const char* part) { return disk::has_name(out / part); }))
    disk::write_file_atomic(out / io::kEarlierMark, "The model or adapter here is that of an earlier run.\n");
  for (const char* name : kLogs) {
    if (owned.contains(name)) disk::remove_file(out / name);
  }
}

void remove_earlier(const fs::path& out, std::string_view kept) {
  const std::set<std::string> owned = owned_by_runs(out);
  for (const char* part : kResults) {
    if (part != kept && owned.contains(part)) disk::remove_whole(out / part);
  }
  disk::remove_file(out / io::kEarlierMark);
}

}  // namespace mantissa::run
