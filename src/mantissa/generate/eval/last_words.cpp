#include "mantissa/generate/eval/last_words.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>

#include "mantissa/core/base/error.h"
#include "mantissa/engine/model/graphs.h"
#include "mantissa/engine/model/network.h"
#include "mantissa/engine/plan/compile.h"
#include "mantissa/engine/plan/rules.h"
#include "mantissa/engine/runtime/nonfinite.h"
#include "mantissa/engine/runtime/session.h"
#include "mantissa/generate/rollout/log_prob.h"
#include "mantissa/setup/programs/evaluation.h"

namespace mantissa::eval {
namespace {

using Clock = std::chrono::steady_clock;

/// Tokens and rows of logits of a pass, unless one passage needs more.
constexpr std::int64_t kTokens = 1024, kRows = 64;

std::int64_t inputs_of(const Passage& p) {
  return static_cast<std::int64_t>(p.ids.size()) - 1;  // the last token is only predicted
}
std::int64_t word_tokens(const Passage& p) {
  return static_cast<std::int64_t>(p.ids.size() - p.word);
}

/// The largest passages and their sums.
struct Sizes {
  explicit Sizes(std::span<const Passage* const> passages) {
    for (const Passage* p : passages) {
      longest = std::max(longest, inputs_of(*p));
      most_rows = std::max(most_rows, word_tokens(*p));
      tokens += inputs_of(*p);
      rows += word_tokens(*p);
    }
  }
  std::int64_t longest = 0, most_rows = 0, tokens = 0, rows = 0;
};

std::shared_ptr<const plan::Program> compile(const model::ModelConfig& config,
                                             const precision::Policy& policy, const Sizes& sizes,
                                             const runtime::Device& device) {
  const std::int64_t tokens = std::max(sizes.longest, std::min(kTokens, sizes.tokens)),
                     rows = std::max(sizes.most_rows, std::min(kRows, sizes.rows));
  auto program = programs::compile_selected_logits(config, policy, {tokens, sizes.longest, rows}, device);
  plan::check_rules(*program);
  return program;
}

/// Runs passages together, as many at once as the program has room for.
class Passes {
 public:
  Passes(std::shared_ptr<const plan::Program> program, const weights::ModelSource& source,
         const runtime::Device& device, const std::string& file, const std::stop_token& stop)
      : session_(weights::open_session(std::move(program), source, device)), file_(file), stop_(stop) {
    session_.set_stop(stop);
    const plan::Program& p = session_.program();
    row_capacity_ = p.buffer(p.required("rows")).shape.count();
  }

  const plan::Program& program() const { return session_.program(); }
  std::int64_t tokens() const { return computed_; }

  /// Returns the words of the first passages, as many as a pass takes; none after a stop.
  std::vector<LastWord> next(std::span<const Passage* const> passages) {
    clear();
    std::size_t count = 0;
    while (count < passages.size() && fits(*passages[count])) add(*passages[count++]);
    run();
    if (stop_.stop_requested()) return {};
    computed_ += tokens_;
    const runtime::Values logits = session_.read("logits", rows_count() * vocabulary());
    return logits.type() == Scalar::f64 ? score<double>(logits, passages.first(count))
                                        : score<float>(logits, passages.first(count));
  }

 private:
  std::int64_t vocabulary() const {
    return session_.program().buffer(session_.program().required("logits")).shape.last();
  }
  std::int64_t rows_count() const { return static_cast<std::int64_t>(rows_.size()); }

  void clear() {
    ids_.clear();
    targets_.clear();
    chosen_.clear();
    rows_.clear();
    segments_.clear();
    tokens_ = 0;
  }

  bool fits(const Passage& p) const {
    return tokens_ + inputs_of(p) <= program().token_capacity &&
           rows_count() + word_tokens(p) <= row_capacity_;
  }

  void add(const Passage& p) {
    const std::int64_t count = inputs_of(p);
    ids_.insert(ids_.end(), p.ids.begin(), p.ids.end() - 1);
    for (std::size_t t = p.word; t < p.ids.size(); ++t) {
      const std::int64_t length = static_cast<std::int64_t>(t);  // up to the token before t
      chosen_.push_back(static_cast<std::int32_t>(tokens_ + length - 1));
      targets_.push_back(p.ids[t]);
      rows_.push_back({tokens_, length});
    }
    const auto sequence = static_cast<std::uint64_t>(p.line);
    segments_.push_back({tokens_, count, 0, static_cast<std::int64_t>(segments_.size()), sequence});
    tokens_ += count;
  }

  void run() {
    session_.write("ids", std::span<const std::int32_t>(ids_));
    session_.write("rows", std::span<const std::int32_t>(chosen_));
    session_.run(graph::Phase::forward, {tokens_, rows_, segments_, 1});
  }

  template <class T>
  std::vector<LastWord> score(const runtime::Values& logits, std::span<const Passage* const> passages) {
    struct Token {
      bool finite, right;
      double log_prob;
    };
    const auto width = static_cast<std::size_t>(vocabulary());
    std::vector<Token> tokens(rows_.size());
    session_.device().parallel_for(rows_count(), [&](std::int64_t i, int) {
      const auto row = static_cast<std::size_t>(i);
      const std::span<const T> values = logits.as<T>().subspan(row * width, width);
      const std::int32_t target = targets_[row];
      Token& token = tokens[row] = {rollout::all_finite(values), false, 0};
      if (!token.finite) return;
      // The first of equal logits, as in generation.
      token.right = std::ranges::max_element(values) - values.begin() == target;
      token.log_prob =
          rollout::log_prob_of(session_.device(), values, logits.type(), program().softmax, target);
    });
    std::vector<LastWord> words;
    std::size_t row = 0;
    for (const Passage* p : passages) {
      LastWord& word = words.emplace_back(LastWord{true, 0});
      for (std::int64_t t = 0; t < word_tokens(*p); ++t, ++row) {
        if (!tokens[row].finite) stop_non_finite(*p);
        word.right = word.right && tokens[row].right;
        word.log_prob += tokens[row].log_prob;
      }
    }
    return words;
  }

  [[noreturn]] void stop_non_finite(const Passage& p) {
    runtime::stop_non_finite(
        fmt::format("eval: the logits of the last word of {}:{} are not finite", file_, p.line),
        runtime::find_first_non_finite(session_.executor(), 0, [&] { run(); }), program());
  }

  runtime::Session session_;
  const std::string& file_;
  std::stop_token stop_;
  std::int64_t row_capacity_ = 0, computed_ = 0;
  // Of one pass: ids of all passages, the tokens whose logits are computed, and the tokens that follow them.
  std::vector<std::int32_t> ids_, chosen_, targets_;
  std::vector<Row> rows_;  // for each chosen token, its passage up to it
  std::vector<Segment> segments_;
  std::int64_t tokens_ = 0;
};

}  // namespace

std::int64_t LastWords::right() const {
  return std::ranges::count_if(words, &LastWord::right);
}

double LastWords::accuracy() const {
  return words.empty() ? 0 : static_cast<double>(right()) / static_cast<double>(words.size());
}

double LastWords::perplexity() const {
  double sum = 0;
  for (const LastWord& word : words) sum += word.log_prob;
  return words.empty() ? 0 : std::exp(-sum / static_cast<double>(words.size()));
}

LastWords predict_last_words(const weights::ModelSource& source, const precision::Policy& policy,
                             std::span<const Passage> passages, const std::string& name,
                             const runtime::Device& device, const std::stop_token& stop) {
  std::vector<const Passage*> all;
  for (const Passage& p : passages) all.push_back(&p);
  // A program gives the values of its longest sequence, on which those of such a model depend.
  std::map<std::int64_t, std::vector<const Passage*>> groups;
  const bool by_length = source.config.network->depends_on_length(Sizes(all).longest);
  for (const Passage* p : all) groups[by_length ? inputs_of(*p) : 0].push_back(p);

  LastWords result;
  std::map<const Passage*, LastWord> done;
  for (const auto& [length, group] : groups) {
    Passes passes(compile(source.config, policy, Sizes(group), device), source, device, name, stop);
    result.weight_bytes = weights::read_bytes(passes.program(), source).all;
    const Clock::time_point start = Clock::now();
    for (std::span<const Passage* const> left = group; !left.empty() && !stop.stop_requested();) {
      const std::vector<LastWord> words = passes.next(left);
      for (std::size_t i = 0; i < words.size(); ++i) done[left[i]] = words[i];
      left = left.subspan(words.size());
    }
    result.seconds += std::chrono::duration<double>(Clock::now() - start).count();
    result.tokens += passes.tokens();
  }
  // Those after the first passage without a result would be other passages than a comparison expects.
  for (const Passage* p : all) {
    const auto found = done.find(p);
    if (found == done.end()) break;
    result.words.push_back(found->second);
  }
  result.interrupted = result.words.size() < passages.size();
  return result;
}

}  // namespace mantissa::eval
