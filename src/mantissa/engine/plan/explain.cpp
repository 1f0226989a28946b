#include "mantissa/engine/plan/explain.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <map>
#include <tuple>

#include "mantissa/core/numeric/card_sum.h"
#include "mantissa/engine/plan/sum_order.h"
#include "mantissa/precision/policy/accumulate.h"

namespace mantissa::plan {
namespace {

std::string format_name(const Buffer& b) {
  return b.integer ? "int32" : std::string(name(b.type));
}

/// Returns the format in which a buffer lies in memory, which can be a packed block format. That of a weight
/// that is rounded before its uses follows the format of that: "q4_0>bf16".
std::string stored_name(const Buffer& b) {
  if (b.quants) return std::string(traits(b.quants->format).name);
  if (b.codes != StateCodes::none) return std::string(name(b.codes));
  const std::optional<Blocks> blocks = b.layout().blocks;
  const std::string held = blocks ? std::string(traits(blocks->format).name) : format_name(b);
  return b.served.format == WeightFormat::none ? held : fmt::format("{}>{}", name(b.served.format), held);
}

/// Returns the input that characterises a step: its weight or, without one, its first input.
const Buffer& main_input(const Program& p, const Step& s) {
  for (const Operand& o : s.inputs) {
    const Buffer& b = p.buffer(o.buffer);
    if (b.home == Home::master || b.home == Home::copy) return b;
  }
  return p.buffer(s.inputs.front().buffer);
}

/// Returns the formats in which the characteristic inputs of a step lie in memory, "f32+bf16": those of all
/// its parameters, but of a product only that of the weight.
std::string stored_names(const Program& p, const Step& s) {
  std::string text = stored_name(main_input(p, s));
  if (s.op->kind == graph::OpKind::product || s.op->kind == graph::OpKind::head) return text;
  std::vector<std::string> names;
  for (const Operand& o : s.inputs) {
    const Buffer& b = p.buffer(o.buffer);
    if (b.home != Home::master && b.home != Home::copy) continue;
    std::string one = stored_name(b);
    if (std::ranges::find(names, one) == names.end()) names.push_back(std::move(one));
  }
  return names.empty() ? text : fmt::format("{}", fmt::join(names, "+"));
}

bool multiplies(const Step& s) {
  return std::any_of(s.op->reads.begin(), s.op->reads.end(),
                     [](graph::Read r) { return r == graph::Read::matmul; });
}

/// Returns the format of factors, and the number of products of their parts: "bf16", "bf16 × 3".
std::string factor_name(const Factor& f) {
  return f.parts == 1 ? std::string(name(f.format))
                      : fmt::format("{} × {}", name(f.format), f.parts * (f.parts + 1) / 2);
}

/// ", reads columns of X", ", writes columns of Y": operands that are views.
std::string viewed(const Program& p, const Step& s) {
  std::string text;
  const auto add = [&](BufferId b, std::string_view verb) {
    if (b == kNoBuffer || p.buffer(b).parent == kNoBuffer) return;
    const std::string one = fmt::format(", {} columns of {}", verb, p.buffer(p.buffer(b).parent).name);
    if (text.find(one) == std::string::npos) text += one;
  };
  for (const Operand& o : s.inputs) add(o.buffer, "reads");
  add(s.addend, "reads");
  for (const BufferId b : s.outputs) add(b, "writes");
  return text;
}

/// Returns what a step that stores blocks does besides rounding them: ", Hadamard over 16 tokens".
std::string blocks_text(const ScaledStorage& q) {
  constexpr std::array<std::string_view, 5> kRoundings = {"", ", scales by ceil", ", scales by even",
                                                          ", scales by rceil", ", scales in f32"};
  std::string text(q.hadamard ? ", Hadamard over 16 tokens" : "");
  text += kRoundings.at(static_cast<std::size_t>(q.scaling.rounding));
  if (q.scaling.length > 0) text += fmt::format(", {} elements a scale", q.scaling.length);
  if (q.scaling.length == kWholeSum) text += ", a scale for each sum";
  return text;
}

std::string kernel_of(const Program& p, const Step& s) {
  std::string kernel(s.op->id);
  if (!s.outputs.empty() && p.buffer(s.outputs.front()).scaled)
    kernel += blocks_text(*p.buffer(s.outputs.front()).scaled);
  if (!s.parts.empty()) {
    kernel = "fused";
    for (const std::string& part : s.parts) kernel += " " + part;
  }
  if (!holds(s.normalized, p.arithmetic))
    kernel += fmt::format(", rounded to {} before the gain", name(s.normalized));
  if (s.addend != kNoBuffer) kernel += " + add";
  if (s.rounding == Rounding::stochastic)
    kernel += ", stochastically, keyed by seed, sequence, position, feature and value";
  if (s.rounding == Rounding::toward_zero) kernel += ", toward zero";
  if (const double rate = s.attributes.number("dropout", 0.0); rate > 0)
    kernel += fmt::format(", drops {} of the probabilities", rate);
  if (const double rate = s.attributes.number("rate", 0.0); rate > 0)
    kernel += fmt::format(", drops {}", rate);
  if (s.recomputed) kernel += ", recomputed";
  if (const std::int64_t id = s.attributes.integer("padding_id", -1); id >= 0 && s.op->sums_tokens)
    kernel += fmt::format(", without tokens of the padding id {}", id);
  kernel += viewed(p, s);
  for (const Operand& o : s.inputs) {
    if (p.buffer(o.buffer).quants) {
      kernel += fmt::format(" ({} → {} while loading)", traits(p.buffer(o.buffer).quants->format).name,
                            factor_name(o.operand));
      break;
    }
    if (multiplies(s) && Factor(p.buffer(o.buffer).type) != o.operand && !p.buffer(o.buffer).integer &&
        s.op->expression == nullptr) {
      kernel +=
          fmt::format(" ({} → {} while loading)", name(p.buffer(o.buffer).type), factor_name(o.operand));
      break;
    }
  }
  return kernel;
}

/// Returns the format of sums, and the number of terms after which partial sums are rounded: "f32", "f16/32";
/// or the card: "h100".
std::string accumulator_name(const Program& p, const Step& s) {
  if (has_card(s)) return precision::accumulator_text(s.accumulator);
  if (!rounds_sums(s)) return std::string(name(p.arithmetic));
  return s.accumulator.block == 0 ? std::string(name(s.accumulator.format))
                                  : fmt::format("{}/{}", name(s.accumulator.format), s.accumulator.block);
}

/// Returns the format of a buffer's values, which can be a block format.
std::string held_in(const Buffer& b) {
  return b.scaled && b.scaled->blocks ? std::string(traits(*b.scaled->blocks).name) : format_name(b);
}

/// Returns the format of a factor: its name in the policy, or its scaled storage format.
std::string factor_text(const Program& p, const Operand& o) {
  const Buffer& b = p.buffer(o.buffer);
  return b.scaled ? held_in(b) : std::string(o.factors);
}

/// Returns for example "bf16x3", or both formats of a product: "e5m2·e4m3".
std::string multiplied_name(const Program& p, const Step& s) {
  const std::string factors = factor_format(s);
  if (factors.empty()) return kNoFormat;
  std::vector<std::string> formats;  // formats of the inputs that are factors
  for (const Operand& o : s.inputs) {
    if (!o.factors.empty()) formats.push_back(factor_text(p, o));
  }
  if (formats.size() != 2) return factors;
  return formats[0] == formats[1] ? formats[0] : fmt::format("{}·{}", formats[0], formats[1]);
}

/// Returns the format of the step's result: not of a state that it replaces, if it has another.
std::string output_name(const Program& p, const Step& s) {
  if (s.outputs.empty()) return kNoFormat;
  const auto result =
      std::ranges::find_if(s.outputs, [&p](BufferId b) { return p.buffer(b).home != Home::state; });
  return stored_name(p.buffer(result == s.outputs.end() ? s.outputs.front() : *result));
}

/// Returns true if the step computes nothing.
bool moves_only(const Step& s) {
  return s.op->kind == graph::OpKind::move || s.op->kind == graph::OpKind::lookup;
}

std::string sum_text(std::string_view instruction, Card card, const CardSum& sum) {
  std::string text =
      fmt::format(", summed by {} of {}: groups of {} terms", instruction, name(card), sum.group);
  if (sum.sum == GroupSum::truncated || sum.sum == GroupSum::floored || sum.sum == GroupSum::floored_halves)
    text += fmt::format(", {} bits", sum.bits);
  if (sum.promotion > 0) text += fmt::format(", an f32 sum of every {} terms", sum.promotion);
  return text;
}

/// Returns for example ", summed by wgmma.k16 of h100: groups of 16 terms, 25 bits"; "" without a card.
std::string card_text(const StepProduct& product) {
  const Product& of = product.stored.product;
  const std::optional<Blocks>&a = product.stored.a.blocks, &b = product.stored.b.blocks;
  if (a && b) {
    const BlockInstruction* i = find_block_instruction(of.accumulator.card, a->format, b->format);
    const std::optional<CardSum> sum = find_card_sum(of.accumulator, a->format, b->format);
    return i == nullptr || !sum ? "" : sum_text(i->name, of.accumulator.card, *sum);
  }
  const std::optional<Scalar> factor = factor_on(of.accumulator.card, of.a.format, of.b.format);
  const std::optional<CardSum> sum = find_card_sum(of.accumulator, of.a.format, of.b.format);
  if (!factor || !sum) return "";
  const Instruction* instruction = find_instruction(of.accumulator.card, *factor, sum->k);
  return sum_text(instruction->name, of.accumulator.card, *sum);
}

PlanRow row_of(const Program& p, const Step& s) {
  PlanRow r;
  r.scope = s.scope;
  r.op = std::string(s.op->op);
  r.pass = precision::name(pass_of(s.phase));
  r.stored = stored_names(p, s);
  r.multiplied = multiplied_name(p, s);
  r.accumulated = moves_only(s) ? kNoFormat : accumulator_name(p, s);
  if (sums_products(s)) r.order = name(s.accumulator.order);
  if (const std::optional<StepProduct> product = product_of(p, s)) r.products = {*product};
  r.output = output_name(p, s);
  if (s.addend != kNoBuffer && s.rounded != p.arithmetic) r.rounded = std::string(name(s.rounded));
  r.decided_by = s.decided_by;
  r.kernel = kernel_of(p, s);
  if (!r.products.empty()) r.kernel += card_text(r.products.front());
  r.recomputed = s.recomputed;
  if (s.phase == graph::Phase::backward && !s.recomputed && s.op->kind == graph::OpKind::product) {
    const Home home = main_input(p, s).home;
    r.gradient = home == Home::master || home == Home::copy ? "input" : "weight";
  }
  r.flops = s.flops;
  r.bytes = s.bytes;
  return r;
}

/// Returns the row of an op's intermediate results, such as softmax, whose format no preset lowers.
PlanRow interior_row(const Program& p, const Step& s) {
  PlanRow r = row_of(p, s);
  r.op = s.op->interior;
  r.stored = kNoFormat;
  r.multiplied = kNoFormat;
  r.accumulated = std::string(name(p.arithmetic));
  r.order.clear();
  r.products.clear();
  r.output = std::string(name(s.interior));
  r.rounded.clear();
  r.gradient.clear();
  r.decided_by = interior_decided_by(p, s);
  r.kernel = fmt::format("inside {}", s.op->id);
  r.flops = r.bytes = 0;
  return r;
}

/// Sets PlanRow::apart.
void tell_gradients_apart(std::vector<PlanRow>& rows) {
  const auto formats = [](const PlanRow& r) {
    return std::tie(r.stored, r.multiplied, r.accumulated, r.order, r.output, r.rounded, r.decided_by);
  };
  std::map<std::string_view, std::vector<PlanRow*>> of_scope;
  for (PlanRow& r : rows) {
    if (!r.gradient.empty()) of_scope[r.scope].push_back(&r);
  }
  for (const auto& [scope, products] : of_scope) {
    for (PlanRow* r : products) {
      r->apart = std::ranges::any_of(products, [&](const PlanRow* other) {
        return other->gradient != r->gradient && formats(*other) != formats(*r);
      });
    }
  }
}

}  // namespace

std::string use_text(const Step& s) {
  return fmt::format("{} {} ({})", s.scope, s.op->op, s.decided_by);
}

bool rounds_sums(const Step& s) {
  return (s.op->kind == graph::OpKind::product || s.op->kind == graph::OpKind::head) &&
         s.accumulator.rounds();
}

bool has_card(const Step& s) {
  return sums_products(s) && s.accumulator.card != Card::none;
}

std::string factor_format(const Step& s) {
  return multiplies(s) || s.op->kind == graph::OpKind::attention ? std::string(s.factors) : std::string();
}

std::vector<FormatUse> formats_used(const Program& p) {
  std::vector<FormatUse> uses;
  const auto add = [&](const std::string& format, bool factor, const std::string& use) {
    const auto known =
        std::find_if(uses.begin(), uses.end(), [&](const FormatUse& u) { return u.format == format; });
    if (!format.empty() && known == uses.end()) uses.push_back({format, factor, use});
  };
  for (const Step& s : p.steps) {
    add(factor_format(s), true, use_text(s));
    if (s.interior != p.arithmetic)
      add(std::string(name(s.interior)), true, fmt::format("{} {}", s.scope, s.op->interior));
    if (rounds_sums(s)) add(std::string(name(s.accumulator.format)), true, "sums of " + use_text(s));
    for (const Operand& o : s.inputs) {
      const Buffer& in = p.buffer(o.buffer);
      if (in.scaled && in.scaled->blocks) add(held_in(in), true, use_text(s));
    }
  }
  if (p.shards > 1) add(std::string(name(p.reduce)), false, "sums of gradients over shards");
  for (const Step& s : p.steps) {
    if (s.rounded != p.arithmetic) add(std::string(name(s.rounded)), false, use_text(s));
    for (const Operand& o : s.inputs) {
      const Buffer& in = p.buffer(o.buffer);
      const bool given = in.home == Home::input && in.shape.rank() == 0;  // a number of an update, in double
      if (!in.integer && !given) add(format_name(in), false, use_text(s));
    }
    for (const BufferId o : s.outputs) {
      if (!p.buffer(o).integer) add(format_name(p.buffer(o)), false, use_text(s));
    }
  }
  for (const Buffer& b : p.buffers) {
    if (b.home == Home::kept) add(format_name(b), false, b.name);
  }
  for (const Slot& s : p.slots) {
    if (s.gradient == kNoBuffer || p.update == nullptr) continue;
    add(std::string(name(s.master)), false, s.name + " master");
  }
  if (p.update) {
    for (const FormatUse& use : formats_used(*p.update)) add(use.format, use.factor, use.use);
  }
  return uses;
}

std::vector<PlanRow> plan_rows(const Program& p) {
  std::vector<PlanRow> rows;
  for (const Step& s : p.steps) {
    rows.push_back(row_of(p, s));
    if (!s.op->interior.empty()) rows.push_back(interior_row(p, s));
  }
  tell_gradients_apart(rows);
  if (p.update) {
    for (PlanRow& row : update_rows(*p.update)) rows.push_back(std::move(row));
  }
  return rows;
}

CastsLeft casts_left(const Program& p) {
  CastsLeft left;
  for (const Step& s : p.steps) {
    if (s.op->duty != graph::Duty::conversion) continue;
    ++left.count;
    left.bytes += s.bytes;
  }
  return left;
}

}  // namespace mantissa::plan
