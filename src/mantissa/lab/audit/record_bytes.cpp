// What the ranks of an audit have observed, as one record.
#include <algorithm>
#include <string>
#include <tuple>
#include <utility>

#include "mantissa/lab/audit/record.h"

namespace mantissa::lab {
namespace {

/// Return the fields that travel between ranks.
template <class Series>
auto fields_of_series(Series& s) {
  return std::tie(s.scope, s.op, s.pass, s.name, s.format, s.rounded, s.blocks, s.served, s.codes, s.factor,
                  s.kind, s.field, s.rounds, s.point, s.card, s.delayed, s.flushes, s.interior, s.elements,
                  s.decided_by, s.steps, s.binades, s.before);
}

template <class Gradient>
auto fields_of_gradient(Gradient& g) {
  return std::tie(g.step, g.zeros, g.vanished, g.error, g.cosine, g.rms, g.expected, g.coarsest);
}

std::int64_t first_step(const ValueSeries& s) {
  return s.steps.front().step;
}

/// Adds the steps of a series to those of the same value.
void join(ValueSeries& into, ValueSeries other) {
  if (first_step(other) < first_step(into)) std::swap(into, other);  // the first step describes the value
  if (other.steps.back().step > into.steps.back().step) into.elements = other.elements;
  into.steps.insert(into.steps.end(), other.steps.begin(), other.steps.end());
  std::ranges::sort(into.steps, {}, &ValueStep::step);
  into.binades.merge(other.binades);
  into.before.merge(other.before);
}

}  // namespace

comm::Bytes Record::bytes(std::span<const programs::RunPart> parts) const {
  comm::Bytes bytes;
  comm::append(bytes, audit_.observed);
  for (const programs::RunPart& part : parts) comm::append(bytes, observed_.contains(part.program.get()));
  comm::append(bytes, compared_.size());
  for (const auto& [scope, op, kind, name] : compared_) {
    comm::append_all(bytes, std::tie(scope, op, kind, name));
  }
  comm::append(bytes, audit_.routers.size());
  for (const RouterSeries& r : audit_.routers) comm::append_all(bytes, std::tie(r.scope, r.steps));
  comm::append(bytes, audit_.values.size());
  for (const ValueSeries& s : audit_.values) comm::append_all(bytes, fields_of_series(s));
  for (const ParameterSeries& p : audit_.weights) {
    comm::append(bytes, p.name);
    comm::append(bytes, p.gradient_steps.size());
    for (const GradientStep& g : p.gradient_steps) comm::append_all(bytes, fields_of_gradient(g));
  }
  return bytes;
}

void Record::merge(std::span<const comm::Bytes> others, std::span<const programs::RunPart> parts) {
  // In one record, a value has the place at which its first step showed it: here that of the rank which
  // observed this step.
  std::vector<std::size_t> places(audit_.values.size());
  for (std::size_t i = 0; i < places.size(); ++i) places[i] = i;
  for (std::span<const std::byte> left : others) {
    for (const std::int64_t step : comm::take<std::vector<std::int64_t>>(left))
      audit_.observed.push_back(step);
    for (const programs::RunPart& part : parts) {
      if (comm::take<bool>(left)) begin_part(part);
    }
    for (auto count = comm::take<std::size_t>(left); count > 0; --count) {
      auto scope = comm::take<std::string>(left), op = comm::take<std::string>(left);
      const auto kind = comm::take<plan::RoundingKind>(left);
      compared_.emplace(std::move(scope), std::move(op), kind, comm::take<std::string>(left));
    }
    for (auto count = comm::take<std::size_t>(left); count > 0; --count) {
      RouterSeries& of = router(comm::take<std::string>(left));
      for (const RouterStep& step : comm::take<std::vector<RouterStep>>(left)) of.steps.push_back(step);
    }
    const auto values = comm::take<std::size_t>(left);
    for (std::size_t place = 0; place < values; ++place) {
      ValueSeries s;
      comm::take_all(left, fields_of_series(s));
      const auto [at, is_new] =
          series_.try_emplace({s.scope, s.op, s.pass, s.name, s.rounded}, audit_.values.size());
      if (is_new) {
        audit_.values.push_back(std::move(s));
        places.push_back(place);
        continue;
      }
      ValueSeries& known = audit_.values[at->second];
      if (first_step(s) < first_step(known)) places[at->second] = place;
      join(known, std::move(s));
    }
    while (!left.empty()) {
      const auto name = comm::take<std::string>(left);
      const auto known = std::ranges::find(audit_.weights, name, &ParameterSeries::name);
      for (auto count = comm::take<std::size_t>(left); count > 0; --count) {
        GradientStep g;
        comm::take_all(left, fields_of_gradient(g));
        if (known != audit_.weights.end()) known->gradient_steps.push_back(std::move(g));
      }
    }
  }
  std::ranges::sort(audit_.observed);
  for (RouterSeries& r : audit_.routers) std::ranges::sort(r.steps, {}, &RouterStep::step);
  for (ParameterSeries& p : audit_.weights)
    std::ranges::stable_sort(p.gradient_steps, {}, &GradientStep::step);
  std::vector<std::size_t> order(places.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::ranges::sort(order, {},
                    [&](std::size_t i) { return std::pair(first_step(audit_.values[i]), places[i]); });
  std::vector<ValueSeries> values;
  for (const std::size_t i : order) values.push_back(std::move(audit_.values[i]));
  audit_.values = std::move(values);
  series_.clear();
}

}  // namespace mantissa::lab
