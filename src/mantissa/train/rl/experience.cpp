#include "mantissa/train/rl/experience.h"

#include <algorithm>
#include <cstring>

#include "mantissa/core/base/error.h"
#include "mantissa/setup/objective/advantages.h"

namespace mantissa::rl {
namespace {

using train::TaskState;

template <class T>
TaskState::Tensor tensor_of(const std::vector<T>& values, io::Dtype dtype) {
  TaskState::Tensor tensor{dtype, {static_cast<std::int64_t>(values.size())}, {}};
  tensor.bytes.resize(values.size() * sizeof(T));
  if (!values.empty()) std::memcpy(tensor.bytes.data(), values.data(), tensor.bytes.size());
  return tensor;
}

template <class T>
std::vector<T> values_of(const TaskState& state, const std::string& name, io::Dtype dtype) {
  const auto found = state.tensors.find(name);
  if (found == state.tensors.end() || found->second.dtype != dtype)
    throw FileError("the state has no tensor \"task." + name + "\" of rl. Fix: resume from another state");
  std::vector<T> values(found->second.bytes.size() / sizeof(T));
  if (!values.empty()) std::memcpy(values.data(), found->second.bytes.data(), values.size() * sizeof(T));
  return values;
}

struct TokenNumbers {
  const char* name;
  std::vector<double> Response::*numbers;
};
constexpr TokenNumbers kTokenNumbers[] = {{"rollout_log_probs", &Response::rollout_log_probs},
                                          {"old_log_probs", &Response::old_log_probs},
                                          {"ref_log_probs", &Response::ref_log_probs},
                                          {"values", &Response::values},
                                          {"returns", &Response::returns},
                                          {"advantages", &Response::advantages}};
constexpr std::size_t kHead = 4;  // whole numbers of a response: ids, prompt, group, origin

}  // namespace

text::Row Response::row() const {
  text::Row row{ids, ids, {}, {}};
  std::fill_n(row.labels.begin(), prompt, text::kIgnoredLabel);
  return row;
}

text::StepData rows_of(const Experience& experience, std::span<const std::size_t> order,
                       std::int64_t sequence_length) {
  text::StepData rows = text::empty_step(static_cast<std::int64_t>(order.size()), sequence_length);
  for (const std::size_t i : order) {
    const Response& response = experience.responses[i];
    text::append_row(response.row(), response.origin, rows);
  }
  return rows;
}

void add_advantages(Experience& e, const objective::RlSettings& settings) {
  std::int64_t length = 0;
  for (const Response& r : e.responses) length = std::max(length, r.tokens());
  const auto n = e.responses.size(), width = static_cast<std::size_t>(length);
  std::vector<float> mask(n * width);
  std::vector<double> rewards, old(n * width), reference(n * width), values(n * width);
  std::vector<std::int64_t> groups;
  for (std::size_t i = 0; i < n; ++i) {
    const Response& r = e.responses[i];
    const auto row = static_cast<std::ptrdiff_t>(i * width);
    std::fill_n(mask.begin() + row, r.tokens(), 1.0F);
    std::ranges::copy(r.old_log_probs, old.begin() + row);
    std::ranges::copy(r.ref_log_probs, reference.begin() + row);
    std::ranges::copy(r.values, values.begin() + row);
    rewards.push_back(r.reward);
    groups.push_back(r.group);
  }
  const objective::Advantages a = objective::advantages({.rows = static_cast<std::int64_t>(n),
                                                         .length = length,
                                                         .mask = mask,
                                                         .rewards = rewards,
                                                         .groups = groups,
                                                         .old_values = values,
                                                         .old_log_probs = old,
                                                         .ref_log_probs = reference},
                                                        settings);
  for (std::size_t i = 0; i < n; ++i) {
    Response& r = e.responses[i];
    const auto row = static_cast<std::ptrdiff_t>(i * width);
    r.advantages.assign(a.advantages.begin() + row, a.advantages.begin() + row + r.tokens());
    r.returns.assign(a.returns.begin() + row, a.returns.begin() + row + r.tokens());
  }
}

void save(const Experience& experience, TaskState& state) {
  state.counters["rollout"] = static_cast<std::uint64_t>(experience.rollout + 1);
  std::vector<std::int64_t> heads;
  std::vector<std::int32_t> ids;
  std::vector<double> rewards;
  for (const Response& r : experience.responses) {
    heads.insert(heads.end(), {static_cast<std::int64_t>(r.ids.size()), r.prompt, r.group, r.origin});
    ids.insert(ids.end(), r.ids.begin(), r.ids.end());
    rewards.push_back(r.reward);
  }
  state.tensors["responses"] = tensor_of(heads, io::Dtype::i64);
  state.tensors["ids"] = tensor_of(ids, io::Dtype::i32);
  state.tensors["rewards"] = tensor_of(rewards, io::Dtype::f64);
  for (const TokenNumbers& field : kTokenNumbers) {
    std::vector<double> all;
    for (const Response& r : experience.responses) {
      const std::vector<double>& numbers = r.*field.numbers;
      all.insert(all.end(), numbers.begin(), numbers.end());
    }
    state.tensors[field.name] = tensor_of(all, io::Dtype::f64);
  }
}

Experience restore(const TaskState& state) {
  Experience experience;
  const auto counter = state.counters.find("rollout");
  if (counter == state.counters.end())
    throw FileError("the state is not one of rl. Fix: resume with the command that wrote it");
  experience.rollout = static_cast<std::int64_t>(counter->second) - 1;
  const auto heads = values_of<std::int64_t>(state, "responses", io::Dtype::i64);
  const auto ids = values_of<std::int32_t>(state, "ids", io::Dtype::i32);
  const auto rewards = values_of<double>(state, "rewards", io::Dtype::f64);
  std::size_t at = 0, tokens = 0;
  for (std::size_t i = 0; i + kHead <= heads.size(); i += kHead) {
    Response& r = experience.responses.emplace_back();
    const auto length = static_cast<std::size_t>(heads[i]);
    if (length > ids.size() - at || heads[i + 1] < 1 || heads[i + 1] >= heads[i] ||
        i / kHead >= rewards.size())
      throw FileError("the responses of the state are damaged. Fix: resume from another state");
    r.ids.assign(ids.begin() + static_cast<std::ptrdiff_t>(at),
                 ids.begin() + static_cast<std::ptrdiff_t>(at + length));
    r.prompt = heads[i + 1], r.group = heads[i + 2], r.origin = heads[i + 3];
    r.reward = rewards[i / kHead];
    at += length;
    tokens += static_cast<std::size_t>(r.tokens());
  }
  for (const TokenNumbers& field : kTokenNumbers) {
    const auto all = values_of<double>(state, field.name, io::Dtype::f64);
    if (all.empty()) continue;
    if (all.size() != tokens)
      throw FileError("the responses of the state are damaged. Fix: resume from another state");
    auto from = all.begin();
    for (Response& r : experience.responses) {
      (r.*field.numbers).assign(from, from + r.tokens());
      from += r.tokens();
    }
  }
  return experience;
}

}  // namespace mantissa::rl
