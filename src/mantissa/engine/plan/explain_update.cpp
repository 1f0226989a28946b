// An update for display: a few rows for all parameters.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "mantissa/engine/graph/weight_states.h"
#include "mantissa/engine/plan/explain.h"
#include "mantissa/engine/plan/sum_order.h"
#include "mantissa/precision/policy/accumulate.h"

namespace mantissa::plan {
namespace {

std::string rounding_text(Rounding rounding) {
  switch (rounding) {
    case Rounding::nearest:
      return "to nearest";
    case Rounding::toward_zero:
      return "toward zero";
    case Rounding::stochastic:
      return "stochastically, keyed by seed, step, name and element";
  }
  return {};
}

/// Words without repetition: "bf16+f32".
class Words {
 public:
  void add(std::string_view word) {
    if (std::ranges::find(all_, word) == all_.end()) all_.emplace_back(word);
  }
  std::string text(std::string_view between = "+") const {
    return all_.empty() ? kNoFormat : fmt::format("{}", fmt::join(all_, between));
  }
  bool empty() const { return all_.empty(); }

 private:
  std::vector<std::string> all_;
};

/// A row over several parameters.
struct Row {
  std::string op;
  Words stored, multiplied, arithmetic, written, by;
  Words orders;  // of the sums of products
  std::vector<StepProduct> products;
  double flops = 0, bytes = 0;

  PlanRow made(std::string kernel) const {
    PlanRow r;
    r.scope = "optimizer";
    r.op = op;
    r.pass = "update";
    r.stored = stored.text();
    r.multiplied = multiplied.text();
    r.accumulated = arithmetic.text();
    if (!orders.empty()) r.order = orders.text();
    r.products = products;
    r.output = written.text();
    r.decided_by = by.text();
    r.kernel = std::move(kernel);
    r.flops = flops;
    r.bytes = bytes;
    return r;
  }
};

/// The effect of one rule on updates: its passes over parameters, and its products.
struct Rule {
  Row weights, products;
  std::map<std::string, int> passes;  // for each parameter
};

class Table {
 public:
  explicit Table(const Program& p) : p_(p) {
    moments_.op = "moments";
    compensations_.op = "kahan";
    weights_.op = "weight states";
    averages_.op = "average";
  }

  std::vector<PlanRow> rows() {
    for (const Step& s : p_.steps) s.factors.empty() ? add_pass(s) : add_product(s);
    for (const Buffer& b : p_.buffers) {
      if (b.home == Home::kept) add_kept(b);
    }
    for (const Step& s : p_.steps) add_copies(s);
    std::vector<PlanRow> rows;
    for (const Rule& rule : rules_) {
      int most = 0;
      for (const auto& [name, passes] : rule.passes) most = std::max(most, passes);
      rows.push_back(rule.weights.made(
          most == 1 ? "one sweep: clip, update, copy" + narrow_.text()
                    : fmt::format("{} sweeps: clip, update, copy{}", most, narrow_.text())));
      if (!rule.products.stored.empty()) rows.push_back(rule.products.made("products between weights"));
    }
    if (!moments_.stored.empty()) rows.push_back(moments_.made("in the same sweep"));
    if (!compensations_.stored.empty())
      rows.push_back(compensations_.made("in the same sweep: rounding errors of the masters"));
    if (!weights_.stored.empty()) rows.push_back(weights_.made("they start at the weights"));
    if (!averages_.stored.empty())
      rows.push_back(averages_.made(
          rounded_.empty() ? "read by validation, eval and the saved model"
                           : fmt::format("read by eval; rounded to {} for validation and the saved model",
                                         rounded_.text(" or "))));
    return rows;
  }

 private:
  Rule& rule_of(const Step& s) {
    for (Rule& rule : rules_) {
      if (rule.weights.op == s.label) return rule;
    }
    rules_.emplace_back();
    rules_.back().weights.op = s.label;
    rules_.back().products.op = "matmul";
    return rules_.back();
  }

  std::string by(std::string_view scope, std::vector<std::string_view> fields) const {
    return p_.policy.decided_by({scope, "update", precision::Pass::update}, fields);
  }

  void add_pass(const Step& s) {
    Rule& rule = rule_of(s);
    ++rule.passes[s.scope];
    rule.weights.flops += s.flops;
    rule.weights.bytes += s.bytes;
    rule.weights.arithmetic.add(name(s.interior));
    const Slot* slot = written_slot(p_, s);
    if (slot == nullptr) return;
    rule.weights.stored.add(name(slot->master));
    rule.weights.written.add(name(slot->master));
    std::vector<std::string_view> fields = {"params", "rounding"};
    if (s.interior != p_.arithmetic) fields.emplace_back("compute");
    rule.weights.by.add(by(s.scope, fields));
    add_narrow(s);
  }

  /// Adds the rounding of formats below the arithmetic.
  void add_narrow(const Step& s) {
    const bool rounds = std::ranges::any_of(s.outputs, [&](BufferId b) {
      const Buffer& out = p_.buffer(b);
      return (out.home == Home::master || out.home == Home::kept) && !holds(out.type, p_.arithmetic);
    });
    if (rounds) narrow_.add(s.rounding);
  }

  void add_copies(const Step& s) {
    const Slot* slot = written_slot(p_, s);
    if (slot == nullptr) return;
    for (const BufferId c : slot->copies) {
      if (!p_.buffer(c).is_derived()) rule_of(s).weights.written.add(name(p_.buffer(c).type));
    }
  }

  void add_product(const Step& s) {
    Row& row = rule_of(s).products;
    row.stored.add(name(p_.arithmetic));
    row.multiplied.add(s.factors);
    const bool card = s.accumulator.card != Card::none;
    row.arithmetic.add(card ? precision::accumulator_text(s.accumulator) : std::string(name(p_.arithmetic)));
    row.orders.add(name(s.accumulator.order));
    const std::optional<StepProduct> product = product_of(p_, s);
    if (product && std::ranges::find(row.products, *product) == row.products.end())
      row.products.push_back(*product);
    row.written.add(name(p_.arithmetic));
    row.by.add(s.decided_by);
    row.flops += s.flops;
    row.bytes += s.bytes;
  }

  void add_kept(const Buffer& b) {
    const bool compensation = b.random == RandomUse::compensation;
    const bool averages = b.random == RandomUse::average;
    const bool arithmetic = graph::starts_at_weight(b.random);
    Row& row = compensation ? compensations_ : averages ? averages_ : arithmetic ? weights_ : moments_;
    const Slot& slot = p_.slots[static_cast<std::size_t>(b.slot)];
    const std::string& scope = slot.name;
    if (averages && slot.master != b.type) rounded_.add(name(slot.master));
    const std::string_view format = b.codes == StateCodes::none ? name(b.type) : name(b.codes);
    row.stored.add(format);
    row.written.add(format);
    row.by.add(compensation ? by(scope, {"kahan"})
               : arithmetic ? by(scope, {})
                            : by(scope, {"optimizer", "rounding"}));
    for (const Step& s : p_.steps) {
      if (s.scope == scope && s.factors.empty()) row.arithmetic.add(name(s.interior));
    }
  }

  /// Formats "; values below f32 rounded to nearest, or stochastically, …".
  class Narrow {
   public:
    void add(Rounding rounding) { how_.add(rounding_text(rounding)); }
    std::string text() const {
      return how_.empty() ? "" : "; values below f32 rounded " + how_.text(", or ");
    }

   private:
    Words how_;
  };

  const Program& p_;
  std::vector<Rule> rules_;
  Row moments_, compensations_, weights_, averages_;
  Words rounded_;  // the formats of masters that are narrower than their averages
  Narrow narrow_;
};

}  // namespace

std::vector<PlanRow> update_rows(const Program& update) {
  return Table(update).rows();
}

}  // namespace mantissa::plan
