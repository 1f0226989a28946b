#include "mantissa/lab/list_runs.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <span>

#include "mantissa/core/base/error.h"
#include "mantissa/core/disk/file.h"
#include "mantissa/core/disk/lock.h"
#include "mantissa/core/disk/look.h"
#include "mantissa/core/disk/owned.h"
#include "mantissa/files/io/model_path.h"
#include "mantissa/files/io/state.h"
#include "mantissa/lab/metrics_file.h"
#include "mantissa/setup/config/run_config.h"

namespace mantissa::lab {
namespace {

namespace fs = std::filesystem;
using State = ListedRun::State;

/// Takes the newest values from a line; later lines were taken before. A number that is not finite is null in
/// the file, and NaN here: a run that diverged does not show an earlier loss.
void take_line(ListedRun& run, const nlohmann::json& line) {
  if (!line.is_object()) return;
  const auto take = [&](std::optional<double>& value, const char* key) {
    if (!value && line.contains(key))
      value = number_in(line, key).value_or(std::numeric_limits<double>::quiet_NaN());
  };
  if (const std::optional<double> step = number_in(line, "step"))
    run.step = std::max(run.step, static_cast<std::int64_t>(std::clamp(*step, 0.0, 0x1p53)));
  take(run.loss, "loss");
  if (!line.contains("validation_reward")) take(run.validation_loss, "validation_loss");  // of rl it is null
  take(run.reward, "reward");
  take(run.validation_reward, "validation_reward");
}

/// Reads the end of metrics.jsonl, and more of it until a line has a loss on held-out rows. Lines that a
/// crash damaged, and one that is being written, say nothing.
void read_metrics(ListedRun& run) {
  const fs::path path = run.path / "metrics.jsonl";
  if (!disk::exists(path)) {
    if (run.state == State::complete)
      throw FileError("{}: is missing, although the run is complete; its losses are unknown. Fix: restore it",
                      path.string());
    return;
  }
  const disk::File file = disk::File::open_to_read(path);
  const std::uint64_t size = file.size();
  constexpr std::uint64_t kFirst = std::uint64_t{1} << 14, kMost = std::uint64_t{1} << 24;
  bool has_lines = false;
  for (std::uint64_t window = kFirst;; window *= 32) {
    const std::uint64_t begin = size > window ? size - window : 0;
    std::string text(size - begin, '\0');
    file.read_at(begin, std::as_writable_bytes(std::span(text)));
    std::size_t end = text.rfind('\n');
    while (end != text.npos && end > 0) {
      const std::size_t before = text.rfind('\n', end - 1);
      if (before == text.npos && begin > 0) break;  // the line begins before the window
      has_lines = true;
      const std::size_t at = before == text.npos ? 0 : before + 1;
      take_line(run, nlohmann::json::parse(text.substr(at, end - at), nullptr, false));
      end = before;
    }
    if (begin == 0 || window >= kMost || (run.step > 0 && run.validation_loss)) break;
  }
  const bool says_nothing = run.step == 0 && !run.validation_reward;
  if (has_lines && says_nothing)
    throw FileError("{}: none of its last lines is that of a step", path.string());
}

void read_config(ListedRun& run) {
  const fs::path path = run.path / "config.toml";
  if (!disk::exists(path)) return;
  constexpr std::uint64_t kLongest = std::uint64_t{1} << 20;
  const config::RunConfig config = config::parse_config(disk::read_text_file(path, kLongest), path);
  run.steps = config.run.steps;
  run.objective = config.train.objective;
  run.policy = config.policy.short_line();
}

ListedRun read_run(const fs::path& path) {
  ListedRun run{.path = path};
  try {
    run.process = disk::lock_holder(path);
    // A run that was to replace another one, and was stopped before its first state, has that one's files.
    const bool begun = disk::has_name(path / io::kEarlierMark);
    if (!begun && disk::exists(path / "summary.json")) run.state = State::complete;
    if (run.process) run.state = State::running;
    run.changed = disk::changed(disk::exists(path / "metrics.jsonl") ? path / "metrics.jsonl" : path);
    if (const auto states = io::find_states(path); !states.empty()) run.saved = states.back().step;
    read_metrics(run);
    read_config(run);
  } catch (const Error& e) {
    run.state = State::unreadable;
    run.fault = e.what();
  }
  return run;
}

bool is_run(const fs::path& folder, const disk::OwnedKinds& owned) {
  if (std::ranges::any_of(owned, [](const auto& of) { return of.second == disk::kRun; })) return true;
  return disk::is_file(folder / "config.toml") && disk::is_file(folder / "metrics.jsonl");
}

/// Collects the runs in a folder and below it.
class Search {
 public:
  explicit Search(const fs::path& folder) { read(folder); }

  RunList take() && {
    std::ranges::stable_sort(found_.runs, std::ranges::greater(), &ListedRun::changed);
    return std::move(found_);
  }

 private:
  void read(const fs::path& folder) {
    const std::vector<fs::path> entries = disk::entries(folder);
    const disk::OwnedKinds owned = disk::owned_kinds(folder);
    if (is_run(folder, owned)) found_.runs.push_back(read_run(folder));
    for (const fs::path& entry : entries) {
      const std::string name = entry.filename().string();
      if (name.starts_with('.') || owned.contains(name)) continue;
      try {
        if (!disk::is_link(entry) && disk::is_directory(entry))
          read(folder == "." ? fs::path(name) : folder / name);
      } catch (const Error& e) {
        found_.faults.emplace_back(e.what());
      }
    }
  }

  RunList found_;
};

}  // namespace

RunList list_runs(const fs::path& folder) {
  if (!disk::is_directory(folder))
    throw FileError("{}: is not a folder; give one that contains runs", folder.string());
  return Search(folder).take();
}

}  // namespace mantissa::lab
