#include "mantissa/train/steps/carried_states.h"

#include <utility>

#include "mantissa/core/numeric/convert.h"

namespace mantissa::train {
namespace {

/// The end of the name of a state after a step, "SCOPE.next_state"; that before it is "SCOPE.state".
constexpr std::string_view kNext = ".next_state", kState = ".state";

std::byte* memory_of(runtime::Session& session, const std::string& name) {
  return static_cast<std::byte*>(session.executor().buffer(session.program().required(name)).data);
}

std::string next_of(const std::string& name) {
  return name.substr(0, name.size() - kState.size()) + std::string(kNext);
}

}  // namespace

CarriedStates::CarriedStates(const plan::Program& program) {
  for (const plan::Buffer& b : program.buffers) {
    if (b.home != plan::Home::state || !b.name.ends_with(kNext)) continue;
    std::string name = b.name.substr(0, b.name.size() - kNext.size()) + std::string(kState);
    states_.push_back({std::move(name), b.type, b.shape.sizes(), std::vector<std::byte>(b.stored_bytes())});
  }
}

void CarriedStates::assign_formats(const plan::Program& program) {
  for (State& s : states_) {
    const Scalar type = program.buffer(program.required(s.name)).type;
    if (type == s.type) continue;
    const std::size_t count = s.bytes.size() / bytes_of(s.type);
    std::vector<double> values(count);
    load_row(s.bytes.data(), s.type, 0, count, values.data());
    s.bytes.resize(count * bytes_of(type));
    store_row(values.data(), count, s.bytes.data(), type, 0);
    s.type = type;
  }
}

void CarriedStates::give(runtime::Session& session) const {
  if (states_.empty()) return;
  session.executor().hold();
  for (const State& s : states_) session.device().upload(memory_of(session, s.name), s.bytes);
}

void CarriedStates::take(runtime::Session& session) {
  for (State& s : states_) session.device().download(s.bytes, memory_of(session, next_of(s.name)));
}

}  // namespace mantissa::train
