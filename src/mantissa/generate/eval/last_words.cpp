#include "mantissa/generate/eval/last_words.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <optional>

#include "mantissa/core/base/error.h"
#include "mantissa/engine/comm/deal.h"
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
  /// Return the tokens and the rows of logits of a pass.
  std::int64_t pass_tokens() const { return std::max(longest, std::min(kTokens, tokens)); }
  std::int64_t pass_rows() const { return std::max(most_rows, std::min(kRows, rows)); }

  std::int64_t longest = 0, most_rows = 0, tokens = 0, rows = 0;
};

/// Passages that share a pass.
struct Pass {
  std::size_t group = 0;  // of passages that have a program together
  std::span<const Passage* const> passages;
};

/// Appends the passes of a group.
void append_passes(std::vector<Pass>& passes, std::size_t group, std::span<const Passage* const> passages) {
  const Sizes sizes(passages);
  while (!passages.empty()) {
    std::size_t count = 0;
    for (std::int64_t tokens = 0, rows = 0; count < passages.size(); ++count) {
      tokens += inputs_of(*passages[count]);
      rows += word_tokens(*passages[count]);
      if (tokens > sizes.pass_tokens() || rows > sizes.pass_rows()) break;
    }
    passes.push_back({group, passages.first(count)});
    passages = passages.subspan(count);
  }
}

std::shared_ptr<const plan::Program> compile(const model::ModelConfig& config,
                                             const precision::Policy& policy, const Sizes& sizes,
                                             const runtime::Device& device) {
  auto program = programs::compile_selected_logits(
      config, policy, {sizes.pass_tokens(), sizes.longest, sizes.pass_rows()}, device);
  plan::check_rules(*program);
  return program;
}

/// A model that runs the passes of a group.
class Passes {
 public:
  Passes(std::shared_ptr<const plan::Program> program, const weights::ModelSource& source,
         const runtime::Device& device, const std::string& file, const std::stop_token& stop)
      : session_(weights::open_session(std::move(program), source, device)), file_(file), stop_(stop) {
    session_.set_stop(stop);
  }

  /// Returns the words of the passages of a pass; null after a stop.
  std::optional<std::vector<LastWord>> words_of(std::span<const Passage* const> passages) {
    clear();
    for (const Passage* p : passages) add(*p);
    run();
    if (stop_.stop_requested()) return std::nullopt;
    const runtime::Values logits = session_.read("logits", rows_count() * vocabulary());
    return logits.type() == Scalar::f64 ? score<double>(logits, passages) : score<float>(logits, passages);
  }

 private:
  const plan::Program& program() const { return session_.program(); }
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

  void add(const Passage& p) {
    const std::int64_t count = inputs_of(p);
    ids_.insert(ids_.end(), p.ids.begin(), p.ids.end() - 1);
    for (std::size_t t = p.word; t < p.ids.size(); ++t) {
      const std::int64_t length = static_cast<std::int64_t>(t);  // up to the token before t
      chosen_.push_back(static_cast<std::int32_t>(tokens_ + length - 1));
      targets_.push_back(p.ids[t]);
      rows_.push_back({tokens_, length});
    }
    const auto sequence = static_cast<std::uint64_t>(p.place.number());
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
        fmt::format("eval: the logits of the last word of {} are not finite", p.place.in(file_)),
        runtime::find_first_non_finite(session_.executor(), 0, [&] { run(); }), program());
  }

  runtime::Session session_;
  const std::string& file_;
  std::stop_token stop_;
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
                             const runtime::Device& device, const std::stop_token& stop,
                             comm::Communicator* ranks) {
  std::vector<const Passage*> all;
  std::vector<std::int32_t> ids;
  for (const Passage& p : passages) {
    all.push_back(&p);
    ids.insert(ids.end(), p.ids.begin(), p.ids.end());
  }
  LastWords result;
  if (all.empty()) return result;
  // A program gives the values of its longest sequence, on which those of such a model depend.
  std::map<std::int64_t, std::vector<const Passage*>> by_inputs;
  const bool by_length = source.config.network->depends_on_length(Sizes(all).longest);
  for (const Passage* p : all) by_inputs[by_length ? inputs_of(*p) : 0].push_back(p);
  std::vector<std::vector<const Passage*>> groups;
  for (auto& [inputs, group] : by_inputs) groups.push_back(std::move(group));
  std::vector<Pass> passes;
  for (std::size_t g = 0; g < groups.size(); ++g) append_passes(passes, g, groups[g]);

  std::shared_ptr<const plan::Program> program =
      compile(source.config, policy, Sizes(groups.front()), device);
  result.weight_bytes = weights::read_bytes(*program, source).all;
  std::optional<Passes> model;  // of the last pass of this rank
  std::size_t group = 0;
  Clock::duration opening{};
  const auto run = [&](std::int64_t i, const std::stop_token& stopped) -> std::optional<comm::Bytes> {
    const Pass& pass = passes[static_cast<std::size_t>(i)];
    if (!model || group != pass.group) {
      const Clock::time_point begin = Clock::now();
      model.reset();
      if (group != pass.group) program = compile(source.config, policy, Sizes(groups[pass.group]), device);
      group = pass.group;
      model.emplace(program, source, device, name, stopped);
      opening += Clock::now() - begin;
    }
    const std::optional<std::vector<LastWord>> words = model->words_of(pass.passages);
    if (!words) return std::nullopt;
    comm::Bytes bytes;
    comm::append(bytes, *words);
    return bytes;
  };
  const Clock::time_point start = Clock::now();
  const std::vector<comm::Bytes> done =
      comm::deal(ranks, std::ssize(passes), {name, policy.line(), comm::memory_of(ids)}, stop, run);
  result.seconds = std::chrono::duration<double>(Clock::now() - start - opening).count();
  std::map<const Passage*, LastWord> words;
  for (std::size_t i = 0; i < done.size(); ++i) {
    std::span<const std::byte> bytes = done[i];
    const auto of_pass = comm::take<std::vector<LastWord>>(bytes);
    for (std::size_t p = 0; p < of_pass.size(); ++p) words[passes[i].passages[p]] = of_pass[p];
    for (const Passage* p : passes[i].passages) result.tokens += inputs_of(*p);
  }
  // Those after the first passage without a result would be other passages than a comparison expects.
  for (const Passage* p : all) {
    const auto found = words.find(p);
    if (found == words.end()) break;
    result.words.push_back(found->second);
  }
  result.interrupted = result.words.size() < passages.size();
  return result;
}

}  // namespace mantissa::eval
