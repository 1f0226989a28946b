#include "mantissa/train/rl/ranks.h"

#include <exception>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "mantissa/core/base/error.h"
#include "mantissa/engine/comm/passed_error.h"
#include "mantissa/generate/rollout/generation_bytes.h"

namespace mantissa::rl {
namespace {

/// Returns the error of `work` if it stops the run, or null.
std::exception_ptr stopped_by(const std::function<void()>& work) {
  try {
    work();
    return nullptr;
  } catch (const RunStopped&) {
    return std::current_exception();
  }
}

class SharedRule final : public reward::Rule {
 public:
  SharedRule(comm::Communicator& ranks, std::unique_ptr<reward::Rule> rule)
      : ranks_(ranks), rule_(std::move(rule)) {}

  void check_row(const nlohmann::ordered_json& row, const std::string& where) const override {
    if (rule_) rule_->check_row(row, where);
  }

  std::vector<reward::Score> score(std::span<const reward::Sample> samples,
                                   const std::stop_token& stop) override {
    comm::Bytes told;
    if (rule_) {
      std::vector<reward::Score> scores;
      const std::exception_ptr error = stopped_by([&] { scores = rule_->score(samples, stop); });
      comm::append(told, comm::bytes_of_error(error));
      comm::append(told, rule_->position());
      comm::append(told, scores.size());
      for (const reward::Score& s : scores) append(told, s);
    }
    const comm::Bytes all = ranks_.broadcast(std::move(told));
    std::span<const std::byte> left = all;
    comm::throw_error(comm::take<comm::Bytes>(left));
    position_ = comm::take<std::int64_t>(left);
    std::vector<reward::Score> scores(comm::take<std::size_t>(left));
    for (reward::Score& s : scores) s = take_score(left);
    return scores;
  }

  void finish() override {
    if (rule_) rule_->finish();
  }
  std::int64_t position() const override { return rule_ ? rule_->position() : position_; }

 private:
  static void append(comm::Bytes& all, const reward::Score& score) {
    comm::append(all, score.total);
    comm::append(all, score.parts.size());
    for (const auto& [name, value] : score.parts) {
      comm::append(all, name);
      comm::append(all, value);
    }
    comm::append(all, score.right);
    comm::append(all, score.well_formed);
  }
  static reward::Score take_score(std::span<const std::byte>& bytes) {
    reward::Score score;
    score.total = comm::take<double>(bytes);
    score.parts.resize(comm::take<std::size_t>(bytes));
    for (auto& [name, value] : score.parts) {
      name = comm::take<std::string>(bytes);
      value = comm::take<double>(bytes);
    }
    score.right = comm::take<std::optional<bool>>(bytes);
    score.well_formed = comm::take<std::optional<bool>>(bytes);
    return score;
  }

  comm::Communicator& ranks_;
  std::unique_ptr<reward::Rule> rule_;
  std::int64_t position_ = 0;
};

}  // namespace

void on_all(comm::Communicator& ranks, const std::function<void()>& work) {
  const std::exception_ptr error = stopped_by(work);
  for (const comm::Bytes& of_rank : ranks.all_gather(comm::bytes_of_error(error))) comm::throw_error(of_rank);
}

std::vector<rollout::Generation> gathered(comm::Communicator& ranks,
                                          const std::vector<rollout::Generation>& own) {
  std::vector<rollout::Generation> all;
  for (const comm::Bytes& of_rank : ranks.all_gather(rollout::bytes_of(own))) {
    for (rollout::Generation& g : rollout::generations_of(of_rank)) all.push_back(std::move(g));
  }
  return all;
}

std::unique_ptr<reward::Rule> shared_rule(comm::Communicator& ranks, std::unique_ptr<reward::Rule> rule) {
  return std::make_unique<SharedRule>(ranks, std::move(rule));
}

}  // namespace mantissa::rl
