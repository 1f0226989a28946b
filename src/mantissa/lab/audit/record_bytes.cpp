// What the ranks of an audit have observed, as one record.
#include <algorithm>
#include <string>
#include <utility>

#include "mantissa/lab/audit/record.h"

namespace mantissa::lab {
namespace {

/// Calls `visit` with each field of a value.
template <class Series, class Visit>
void visit_series(Series& s, const Visit& visit) {
  visit(s.scope);
  visit(s.op);
  visit(s.pass);
  visit(s.name);
  visit(s.format);
  visit(s.rounded);
  visit(s.blocks);
  visit(s.factor);
  visit(s.kind);
  visit(s.field);
  visit(s.rounds);
  visit(s.point);
  visit(s.delayed);
  visit(s.flushes);
  visit(s.interior);
  visit(s.elements);
  visit(s.decided_by);
  visit(s.steps);
  visit(s.binades);
  visit(s.before);
}

template <class Gradient, class Visit>
void visit_gradient(Gradient& g, const Visit& visit) {
  visit(g.step);
  visit(g.zeros);
  visit(g.vanished);
  visit(g.error);
  visit(g.cosine);
  visit(g.rms);
  visit(g.expected);
  visit(g.coarsest);
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
    comm::append(bytes, scope);
    comm::append(bytes, op);
    comm::append(bytes, kind);
    comm::append(bytes, name);
  }
  comm::append(bytes, audit_.values.size());
  for (const ValueSeries& s : audit_.values)
    visit_series(s, [&](const auto& field) { comm::append(bytes, field); });
  for (const ParameterSeries& p : audit_.weights) {
    comm::append(bytes, p.name);
    comm::append(bytes, p.gradient_steps.size());
    for (const GradientStep& g : p.gradient_steps)
      visit_gradient(g, [&](const auto& field) { comm::append(bytes, field); });
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
    const auto values = comm::take<std::size_t>(left);
    for (std::size_t place = 0; place < values; ++place) {
      ValueSeries s;
      visit_series(s, [&]<class T>(T& field) { field = comm::take<T>(left); });
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
        visit_gradient(g, [&]<class T>(T& field) { field = comm::take<T>(left); });
        if (known != audit_.weights.end()) known->gradient_steps.push_back(std::move(g));
      }
    }
  }
  std::ranges::sort(audit_.observed);
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
