#include "mantissa/generate/rollout/decode_session.h"

#include <algorithm>
#include <cassert>

#include "mantissa/core/base/error_text.h"

namespace mantissa::rollout {

DecodeSession::DecodeSession(runtime::Session& session, std::uint64_t seed)
    : session_(session),
      seed_(seed),
      capacity_(session.program().positions),
      vocabulary_(session.program().buffer(session.program().required("logits")).shape.last()),
      slots_(static_cast<std::size_t>(
          session.program().buffer(session.program().required("rows")).shape.count())) {
  const std::vector<plan::Buffer>& buffers = session.program().buffers;
  for (std::size_t b = 0; b < buffers.size(); ++b) {
    if (buffers[b].home != plan::Home::state) continue;
    states_.push_back(static_cast<plan::BufferId>(b));
    rewinds_ = rewinds_ && buffers[b].keeps == graph::SequenceState::positions;
  }
}

runtime::Values DecodeSession::logits() const {
  return session_.read("logits", static_cast<std::int64_t>(asked_.size()) * vocabulary_);
}

void DecodeSession::open(std::size_t slot, std::span<const std::int32_t> prompt, std::int64_t sequence,
                         std::int64_t fed, bool every) {
  slots_[slot] = {{prompt.begin() + fed, prompt.end()}, 0, fed, sequence, every};
}

void DecodeSession::drop(std::size_t slot) {
  slots_[slot].waiting.clear();
  slots_[slot].next = 0;
}

void DecodeSession::share(std::size_t from, std::size_t to, std::int64_t tokens) {
  if (!has_states_after(from, tokens))
    throw InternalError("slot {} has fed {} tokens, so it has no states after {}", from, fed(from), tokens);
  for (const plan::BufferId id : states_) {
    const std::span<const std::byte> source = part_of(id, from, tokens);
    session_.device().copy(part_of(id, to, tokens).data(), source.data(), source.size());
  }
}

std::span<std::byte> DecodeSession::part_of(plan::BufferId id, std::size_t slot, std::int64_t tokens) const {
  const plan::Buffer& state = session_.program().buffer(id);
  const bool by_position = state.keeps == graph::SequenceState::positions;
  const std::size_t row = static_cast<std::size_t>(state.shape.last()) * bytes_of(state.type);
  const std::size_t whole = by_position ? row * static_cast<std::size_t>(capacity_) : row;
  auto* const memory = static_cast<std::byte*>(session_.executor().buffer(id).data);
  return {memory + slot * whole, by_position ? row * static_cast<std::size_t>(tokens) : row};
}

SequenceStates DecodeSession::states_of(std::size_t slot) const {
  SequenceStates out;
  out.fed = fed(slot);
  for (const plan::BufferId id : states_) {
    const plan::Buffer& b = session_.program().buffer(id);
    const std::span<const std::byte> part = part_of(id, slot, out.fed);
    std::vector<std::int64_t> shape{b.shape.last()};
    if (b.keeps == graph::SequenceState::positions) shape.insert(shape.begin(), out.fed);
    out.states.push_back({b.name, b.type, std::move(shape), {part.begin(), part.end()}});
  }
  return out;
}

void DecodeSession::restore(std::size_t slot, const SequenceStates& states) {
  for (const plan::BufferId id : states_) {
    const auto& name = session_.program().buffer(id).name;
    const auto state = std::ranges::find(states.states, name, &SequenceStates::State::name);
    if (state == states.states.end()) throw InternalError("there is no state \"{}\" to restore", name);
    session_.device().upload(part_of(id, slot, states.fed).data(), state->bytes);
  }
}

void DecodeSession::append(std::size_t slot, std::int32_t id) {
  Slot& s = slots_[slot];
  assert(s.left() == 0);
  s.waiting.assign(1, id);
  s.next = 0;
}

void DecodeSession::step() {
  asked_.clear();
  rows_.clear();
  segments_.clear();
  tokens_ = 0;
  const std::int64_t most = session_.program().token_capacity;
  // Rows of logits in addition to one for each slot.
  auto rows = static_cast<std::int64_t>(std::ranges::count(slots_, 0U, &Slot::left));
  // Growing sequences go first, so none of them waits for another one's prompt.
  for (std::size_t s = 0; s < slots_.size(); ++s) {
    if (slots_[s].left() == 1) take(s, 1);
  }
  for (std::size_t s = 0; s < slots_.size(); ++s) {
    // States that cannot rewind stop before the last token, where sequences with the same prompt share them.
    const auto left = static_cast<std::int64_t>(slots_[s].left()) - (rewinds_ || slots_.size() == 1 ? 0 : 1);
    if (slots_[s].left() < 2 || tokens_ >= most) continue;
    const std::int64_t n = std::min({left, most - tokens_, slots_[s].every ? 1 + rows : most});
    if (slots_[s].every) rows -= n - 1;
    take(s, n);
  }
  session_.run(graph::Phase::forward, {tokens_, rows_, segments_, 1, seed_});
}

void DecodeSession::take(std::size_t slot, std::int64_t most) {
  Slot& s = slots_[slot];
  const std::int64_t n = std::min(static_cast<std::int64_t>(s.left()), most);
  session_.write("ids", std::span(s.waiting).subspan(s.next, static_cast<std::size_t>(n)), tokens_);
  segments_.push_back(
      {tokens_, n, s.position, static_cast<std::int64_t>(slot), static_cast<std::uint64_t>(s.sequence)});
  tokens_ += n;
  s.next += static_cast<std::size_t>(n);
  s.position += n;
  if (s.every) {
    for (std::int64_t token = tokens_ - n; token < tokens_; ++token) ask(slot, token, {token, 1});
  } else if (s.left() == 0) {
    ask(slot, tokens_ - 1, {tokens_ - n, n});
  }
}

void DecodeSession::ask(std::size_t slot, std::int64_t token, Row row) {
  const auto index = static_cast<std::int32_t>(token);
  session_.write("rows", std::span(&index, 1), static_cast<std::int64_t>(asked_.size()));
  rows_.push_back(row);
  asked_.push_back(slot);
}

}  // namespace mantissa::rollout
