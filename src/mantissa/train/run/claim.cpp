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
#include "mantissa/text/tokenizer/kinds.h"

namespace mantissa::run {
namespace {

namespace fs = std::filesystem;

constexpr std::array kFiles = {"config.toml",        "plan.txt",      "metrics.jsonl",     "health.jsonl",
                               "observations.jsonl", "samples.jsonl", "start.safetensors", "summary.json"};
constexpr std::array kResults = {"model", io::kAdapterFolder};  // that a run stands for

std::set<std::string> names_of_run() {
  std::set<std::string> names(kFiles.begin(), kFiles.end());
  names.insert(kResults.begin(), kResults.end());
  names.insert({"state", std::string(tokenizer::kRunFolder)});
  return names;
}

}  // namespace

void check_claim(const fs::path& out) {
  const std::set<std::string> names = names_of_run(), owned = disk::owned_names(out);
  const bool listed = std::ranges::includes(owned, names);
  if (!listed && io::find_states(out).empty()) {  // earlier versions wrote no list
    for (const std::string& name : names) {
      if (!disk::has_name(out / name) || owned.contains(name)) continue;
      throw FileError(
          fmt::format("{}: is in the way: a run writes this name, and no run did; choose another "
                      "directory with --out, or move it away",
                      (out / name).string()));
    }
  }
  for (const char* part : kResults) disk::check_replaceable(out / part);
  disk::check_replaceable(out / tokenizer::kRunFolder);
}

void claim(const fs::path& out) {
  const std::set<std::string> names = names_of_run();
  std::set<std::string> owned = disk::owned_names(out);
  if (!std::ranges::includes(owned, names)) {
    owned.insert(names.begin(), names.end());
    disk::write_file_atomic(out / disk::kOwnedList, disk::owned_list(owned));
  }
  disk::remove_abandoned(out);
  io::remove_abandoned_states(out);
}

void begin_anew(const fs::path& out) {
  for (const char* name : kFiles) {
    if (name != std::string_view("config.toml") && name != std::string_view("plan.txt"))
      disk::remove_file(out / name);
  }
  if (std::ranges::any_of(kResults, [&](const char* part) { return disk::has_name(out / part); }))
    disk::write_file_atomic(out / io::kEarlierMark, "The model or adapter here is that of an earlier run.\n");
}

void remove_earlier(const fs::path& out, std::string_view kept) {
  for (const char* part : kResults) {
    if (part != kept) disk::remove_whole(out / part);
  }
  disk::remove_file(out / io::kEarlierMark);
}

}  // namespace mantissa::run
