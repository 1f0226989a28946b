// The rewards of a program, which is asked in lines of JSON.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "mantissa/core/base/counted.h"
#include "mantissa/core/base/error_text.h"
#include "mantissa/core/base/words.h"
#include "mantissa/text/reward/child.h"
#include "mantissa/text/reward/reply.h"
#include "mantissa/text/reward/rules.h"

namespace mantissa::reward {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr std::size_t kLongestLine = std::size_t{1} << 20;
constexpr auto kPatience = 2000ms;  // from the end of its input to the end of a program
constexpr const char* kPosition = "MANTISSA_REWARD_POSITION";

/// The last lines of a program's standard error.
class LastLines {
 public:
  void append(std::string_view text) {
    text_ += text;
    if (text_.size() > 2 * kMost) text_.erase(0, text_.size() - kMost);
  }
  /// Returns the lines in one, as a part of a message, or "".
  std::string shown() const {
    std::vector<std::string_view> lines = split_words(text_, "\r\n");
    std::erase_if(lines, [](std::string_view line) { return trimmed(line).empty(); });
    if (lines.empty()) return "; it wrote nothing to standard error";
    std::size_t first = lines.size(), bytes = 0;
    while (first > 0 && lines.size() - first < kLines && bytes < kShown) bytes += lines[--first].size();
    if (bytes > kShown) lines[first].remove_prefix(std::min(lines[first].size(), bytes - kShown));
    return fmt::format("; its standard error ends with: {}",
                       fmt::join(std::span(lines).subspan(first), " | "));
  }

 private:
  static constexpr std::size_t kMost = 8192, kShown = 2048, kLines = 12;
  std::string text_;
};

std::string line_of(const Sample& sample) {
  const nlohmann::ordered_json line = {
      {"prompt", sample.prompt}, {"response", sample.response}, {"row", *sample.row}};
  return line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + '\n';
}

class ProgramRule final : public Rule {
 public:
  ProgramRule(std::string command, const RuleOptions& options)
      : command_(std::move(command)),
        timeout_(options.timeout),
        position_(options.position),
        child_(command_, fmt::format("{}={}", kPosition, options.position)) {}
  ~ProgramRule() override { child_.end(useless_ ? 0ms : kPatience); }

  void check_row(const nlohmann::ordered_json&, const std::string&) const override {}
  std::int64_t position() const override { return position_; }

  void finish() override {
    if (useless_) return;
    useless_ = true;
    output_ += child_.end(kPatience);
    refuse_extra_output();
  }

  std::vector<Score> score(std::span<const Sample> samples, const std::stop_token& stop) override {
    if (useless_) throw InternalError("a reward program is asked after its end");
    asked_ = samples.size();
    scores_.clear();
    started_ = Clock::now();
    receive();
    refuse_extra_output();
    std::string request;
    for (const Sample& sample : samples) request += line_of(sample);
    if (!exchange(request, stop)) {
      useless_ = true;
      return {};
    }
    position_ += static_cast<std::int64_t>(asked_);
    return std::move(scores_);
  }

 private:
  /// Sends the request and reads as many lines, in whatever order the program does both. Returns false if
  /// `stop` ended it.
  bool exchange(std::string_view unsent, const std::stop_token& stop) {
    constexpr auto kLook = 50ms, kGrace = 1000ms;  // kGrace: from a closed pipe to the end of a process
    std::optional<Clock::time_point> closed;
    while (scores_.size() < asked_ || !unsent.empty()) {
      if (stop.stop_requested()) return false;
      check_time();
      const std::optional<std::string> end = child_.ended();  // before reading, so that nothing is missed
      const bool sent = send(unsent), received = receive();
      take_lines();
      if (sent || received) continue;
      if (end) fail(fmt::format("{} after {} of {}", *end, scores_.size(), counted(asked_, "response")));
      const bool deaf = !unsent.empty() && !child_.reads(), mute = !child_.writes();
      if ((deaf || mute) && !closed) closed = Clock::now();
      if (closed && Clock::now() - *closed > kGrace) {
        fail(fmt::format("has closed its standard {} after {} of {}", mute ? "output" : "input",
                         scores_.size(), counted(asked_, "response")));
      }
      child_.wait(!unsent.empty(), kLook);
    }
    return true;
  }

  /// Writes as much of `unsent` as the program takes now. Returns true if that is anything.
  bool send(std::string_view& unsent) {
    const std::size_t sent = unsent.empty() ? 0 : child_.write(unsent);
    unsent.remove_prefix(sent);
    return sent > 0;
  }

  /// Reads what the program has written. Returns true if that is any output.
  bool receive() {
    std::string errors;
    child_.read_errors(errors);
    errors_.append(errors);
    const std::size_t before = output_.size();
    child_.read_output(output_);
    return output_.size() > before;
  }

  void take_lines() {
    std::size_t from = 0;
    for (; scores_.size() < asked_; ++from) {
      const std::size_t end = output_.find('\n', from);
      if (end == std::string::npos) break;
      take(std::string_view(output_).substr(from, end - from));
      from = end;
    }
    output_.erase(0, from);
    if (scores_.size() == asked_) refuse_extra_output();
    if (output_.size() > kLongestLine) {
      fail(fmt::format("wrote a line of more than {} bytes for response {} of {}", kLongestLine,
                       scores_.size() + 1, asked_));
    }
  }

  void take(std::string_view line) {
    try {
      if (line.size() > kLongestLine) throw ConfigError("has more than {} bytes", kLongestLine);
      scores_.push_back(parse_reply(line));
    } catch (const ConfigError& e) {
      fail(fmt::format("wrote a line for response {} of {} that {}", scores_.size() + 1, asked_, e.what()));
    }
  }

  void refuse_extra_output() {
    if (output_.empty()) return;
    const std::string_view line = std::string_view(output_).substr(0, output_.find('\n'));
    fail(fmt::format(
        "wrote output that no response asked for: {}. It must write one line for each line that it "
        "reads; standard error is for other text",
        in_quotes(line)));
  }

  void check_time() {
    const double seconds = std::chrono::duration<double>(Clock::now() - started_).count();
    if (seconds < timeout_) return;
    fail(fmt::format(
        "wrote {} of {} lines in {} s, its time limit (rl.reward_timeout). It must write one line "
        "for each line that it reads, and flush its output",
        scores_.size(), asked_, timeout_));
  }

  [[noreturn]] void fail(const std::string& what) {
    constexpr int kMostReads = 64;
    useless_ = true;
    for (int i = 0; i < kMostReads; ++i) {
      std::string errors;
      child_.read_errors(errors);
      if (errors.empty()) break;
      errors_.append(errors);
    }
    child_.end(0ms);
    throw ProgramFailed("the reward program {} {}{}", in_quotes(command_), what, errors_.shown());
  }

  std::string command_;
  double timeout_;         // seconds
  std::int64_t position_;  // samples scored
  std::string output_;     // read, and not yet used
  LastLines errors_;
  bool useless_ = false;  // it has failed, or did not answer to its end
  // of the current call
  std::size_t asked_ = 0;
  std::vector<Score> scores_;
  Clock::time_point started_;

  Child child_;
};

}  // namespace

std::unique_ptr<Rule> program_rule(std::string command, const RuleOptions& options) {
  return std::make_unique<ProgramRule>(std::move(command), options);
}

}  // namespace mantissa::reward
