#include "mantissa/train/rl/ranks.h"

#include <cstring>
#include <exception>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>

#include "mantissa/core/base/error_text.h"

namespace mantissa::rl {
namespace {

using nlohmann::json;

std::vector<std::byte> bytes_of_json(const json& j) {
  const std::vector<std::uint8_t> packed = json::to_cbor(j);
  const auto bytes = std::as_bytes(std::span(packed));
  return {bytes.begin(), bytes.end()};
}

json json_of(const std::vector<std::byte>& bytes) {
  const auto* first = reinterpret_cast<const std::uint8_t*>(bytes.data());
  return json::from_cbor(first, first + bytes.size());
}

/// An error that a rank passes on, or null.
json error_json(const std::exception_ptr& error) {
  if (!error) return nullptr;
  try {
    std::rethrow_exception(error);
  } catch (const RunStopped& e) {
    json cures = json::array();
    for (const Cure& cure : e.cures()) cures.push_back({cure.arguments, cure.effect, cure.tested});
    return {{"message", e.message()},
            {"cures", cures},
            {"program", dynamic_cast<const ProgramFailed*>(&e) != nullptr}};
  }
}

void throw_json(const json& error) {
  if (error.is_null()) return;
  std::vector<Cure> cures;
  for (const json& cure : error["cures"]) cures.push_back({cure[0], cure[1], cure[2]});
  if (error["program"].get<bool>())
    throw ProgramFailed(error["message"].get<std::string>(), std::move(cures));
  throw RunStopped(error["message"].get<std::string>(), std::move(cures));
}

/// Returns the error of `work` if it stops the run, or null.
std::exception_ptr stopped_by(const std::function<void()>& work) {
  try {
    work();
    return nullptr;
  } catch (const RunStopped&) {
    return std::current_exception();
  }
}

template <class T>
void append(std::vector<std::byte>& all, const std::vector<T>& values) {
  static_assert(std::is_trivially_copyable_v<T>);
  const std::uint64_t count = values.size();
  const auto size = std::as_bytes(std::span(&count, 1));
  all.insert(all.end(), size.begin(), size.end());
  const auto bytes = std::as_bytes(std::span(values));
  all.insert(all.end(), bytes.begin(), bytes.end());
}

/// Takes what append() has appended off the front of `bytes`.
template <class T>
std::vector<T> take(std::span<const std::byte>& bytes) {
  std::uint64_t count = 0;
  std::memcpy(&count, bytes.data(), sizeof count);
  bytes = bytes.subspan(sizeof count);
  std::vector<T> values(count);
  if (count > 0) std::memcpy(values.data(), bytes.data(), count * sizeof(T));
  bytes = bytes.subspan(count * sizeof(T));
  return values;
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
    json told;
    if (rule_) {
      std::vector<reward::Score> scores;
      const std::exception_ptr error = stopped_by([&] { scores = rule_->score(samples, stop); });
      told = {{"error", error_json(error)}, {"position", rule_->position()}, {"scores", json::array()}};
      for (const reward::Score& s : scores)
        told["scores"].push_back({s.total, s.parts, optional(s.right), optional(s.well_formed)});
    }
    told = json_of(ranks_.broadcast(rule_ ? bytes_of_json(told) : std::vector<std::byte>{}));
    throw_json(told["error"]);
    position_ = told["position"];
    std::vector<reward::Score> scores;
    for (const json& s : told["scores"])
      scores.push_back(
          {s[0], s[1].get<std::vector<std::pair<std::string, double>>>(), flag(s[2]), flag(s[3])});
    return scores;
  }

  void finish() override {
    if (rule_) rule_->finish();
  }
  std::int64_t position() const override { return rule_ ? rule_->position() : position_; }

 private:
  static json optional(std::optional<bool> value) { return value ? json(*value) : json(); }
  static std::optional<bool> flag(const json& value) {
    return value.is_null() ? std::nullopt : std::optional(value.get<bool>());
  }

  comm::Communicator& ranks_;
  std::unique_ptr<reward::Rule> rule_;
  std::int64_t position_ = 0;
};

}  // namespace

void on_all(comm::Communicator& ranks, const std::function<void()>& work) {
  const std::exception_ptr error = stopped_by(work);
  for (const std::vector<std::byte>& of_rank : ranks.all_gather(bytes_of_json(error_json(error))))
    throw_json(json_of(of_rank));
}

std::vector<rollout::Generation> gathered(comm::Communicator& ranks,
                                          const std::vector<rollout::Generation>& own) {
  std::vector<std::byte> bytes;
  for (const rollout::Generation& g : own) {
    append(bytes, g.ids);
    append(bytes, g.log_probs);
    append(bytes, g.entropies);
    append(bytes, std::vector<double>{g.seconds, g.ended ? 1.0 : 0.0});
  }
  std::vector<rollout::Generation> all;
  for (const std::vector<std::byte>& of_rank : ranks.all_gather(bytes)) {
    for (std::span<const std::byte> left = of_rank; !left.empty();) {
      rollout::Generation& g = all.emplace_back();
      g.ids = take<std::int32_t>(left);
      g.log_probs = take<double>(left);
      g.entropies = take<double>(left);
      const std::vector<double> rest = take<double>(left);
      g.seconds = rest[0];
      g.ended = rest[1] != 0;
    }
  }
  return all;
}

std::unique_ptr<reward::Rule> shared_rule(comm::Communicator& ranks, std::unique_ptr<reward::Rule> rule) {
  return std::make_unique<SharedRule>(ranks, std::move(rule));
}

}  // namespace mantissa::rl
