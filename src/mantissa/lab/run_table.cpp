#include "mantissa/lab/run_table.h"
#include "mantissa/core/base/printable.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "mantissa/core/base/words.h"

namespace mantissa::lab {
namespace {

std::string state_text(const ListedRun& run) {
  if (run.process) return fmt::format("running ({})", *run.process);
  return std::string(name(run.state));
}

std::string step_text(const ListedRun& run) {
  if (run.steps == 0) return fmt::format("{}", run.step);
  return fmt::format("{}/{}", run.step, run.steps);
}

std::string number_text(const std::optional<double>& value) {
  return value ? fmt::format("{:.4f}", *value) : "–";
}

struct RunColumn {
  std::string_view heading;
  bool right;  // aligned
  std::string (*text)(const ListedRun&);
};
constexpr std::array kRunColumns = {
    RunColumn{"run", false, [](const ListedRun& r) { return printable(r.path.string()); }},
    RunColumn{"state", false, state_text},
    RunColumn{"step", true, step_text},
    RunColumn{"saved", true,
              [](const ListedRun& r) { return r.saved ? fmt::format("{}", *r.saved) : std::string("–"); }},
    RunColumn{"loss", true, [](const ListedRun& r) { return number_text(r.loss); }},
    RunColumn{"held-out", true, [](const ListedRun& r) { return number_text(r.validation_loss); }},
    RunColumn{
        "reward", true,
        [](const ListedRun& r) { return number_text(r.validation_reward ? r.validation_reward : r.reward); }},
    RunColumn{"policy", false,
              [](const ListedRun& r) { return r.policy.empty() ? "–" : printable(r.policy); }},
    RunColumn{"changed", false, [](const ListedRun& r) {
                return fmt::format("{:%Y-%m-%d %H:%M}",
                                   fmt::localtime(std::chrono::system_clock::to_time_t(r.changed)));
              }}};

}  // namespace

std::string_view name(ListedRun::State state) {
  using enum ListedRun::State;
  switch (state) {
    case complete:
      return "complete";
    case running:
      return "running";
    case stopped:
      return "stopped";
    case unreadable:
      return "unreadable";
  }
  return {};
}

std::string to_text(const RunList& list) {
  if (list.runs.empty()) return "no runs";
  const bool rewards =
      std::ranges::any_of(list.runs, [](const ListedRun& r) { return r.reward || r.validation_reward; });
  std::vector<std::string> lines(list.runs.size() + 1);
  for (const RunColumn& column : kRunColumns) {
    if (column.heading == "reward" && !rewards) continue;
    std::vector<std::string> cells = {std::string(column.heading)};
    for (const ListedRun& run : list.runs) cells.push_back(column.text(run));
    std::size_t width = 0;
    for (const std::string& cell : cells) width = std::max(width, width_of(cell));
    for (std::size_t i = 0; i < cells.size(); ++i) {
      const std::string space(width - width_of(cells[i]), ' ');
      if (!lines[i].empty()) lines[i] += "  ";
      lines[i] += column.right ? space + cells[i] : cells[i] + space;
    }
  }
  std::string text;
  for (const std::string& line : lines)
    text += (text.empty() ? "" : "\n") + line.substr(0, line.find_last_not_of(' ') + 1);
  return text;
}

std::string to_json(const RunList& list) {
  const auto number = [](const auto& value) {
    return value ? nlohmann::ordered_json(*value) : nlohmann::ordered_json();
  };
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (const ListedRun& r : list.runs) {
    all.push_back({{"run", r.path.string()},
                   {"state", name(r.state)},
                   {"process", number(r.process)},
                   {"step", r.step},
                   {"steps", r.steps},
                   {"saved_step", number(r.saved)},
                   {"loss", number(r.loss)},
                   {"validation_loss", number(r.validation_loss)},
                   {"reward", number(r.reward)},
                   {"validation_reward", number(r.validation_reward)},
                   {"objective", r.objective},
                   {"policy", r.policy},
                   {"changed", fmt::format("{:%Y-%m-%dT%H:%M:%SZ}",
                                           fmt::gmtime(std::chrono::system_clock::to_time_t(r.changed)))},
                   {"error", r.fault.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(r.fault)}});
  }
  return all.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace mantissa::lab
