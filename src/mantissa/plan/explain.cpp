#include "mantissa/plan/explain.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <span>

namespace mantissa::plan {
namespace {

constexpr const char* kNoFormat = "–";

std::string format_name(const Buffer& b) {
  return b.integer ? "int32" : std::string(name(b.type));
}

/// What a step reads that characterises it: a weight where it has one, else its first input.
const Buffer& main_input(const Program& p, const Step& s) {
  for (const Operand& o : s.inputs) {
    const Buffer& b = p.buffer(o.buffer);
    if (b.home == Home::master || b.home == Home::copy) return b;
  }
  return p.buffer(s.inputs.front().buffer);
}

bool multiplies(const Step& s) {
  return std::any_of(s.op->reads.begin(), s.op->reads.end(),
                     [](graph::Read r) { return r == graph::Read::matmul; });
}

/// "bf16", "bf16 × 3": the format of factors, and the products of their parts.
std::string factor_name(const Factor& f) {
  return f.parts == 1 ? std::string(name(f.format))
                      : fmt::format("{} × {}", name(f.format), f.parts * (f.parts + 1) / 2);
}

std::string kernel_of(const Program& p, const Step& s) {
  std::string kernel(s.op->id);
  if (!s.parts.empty()) {
    kernel = "fused";
    for (const std::string& part : s.parts) kernel += " " + part;
  }
  if (s.addend != kNoBuffer) kernel += " + add";
  if (s.rounding == Rounding::stochastic)
    kernel += ", stochastically, keyed by seed, sequence, position, feature and value";
  if (s.rounding == Rounding::toward_zero) kernel += ", toward zero";
  if (s.recomputed) kernel += ", recomputed";
  for (const Operand& o : s.inputs) {
    if (multiplies(s) && Factor(p.buffer(o.buffer).type) != o.operand && !p.buffer(o.buffer).integer &&
        s.op->expression == nullptr) {
      kernel +=
          fmt::format(" ({} → {} while loading)", name(p.buffer(o.buffer).type), factor_name(o.operand));
      break;
    }
  }
  return kernel;
}

/// "f32", "f16/32": the format of sums, and the terms after which partial ones are rounded.
std::string accumulator_name(const Program& p, const Step& s) {
  if (!rounds_sums(s)) return std::string(name(p.arithmetic));
  return s.accumulator.block == 0 ? std::string(name(s.accumulator.format))
                                  : fmt::format("{}/{}", name(s.accumulator.format), s.accumulator.block);
}

/// The format of a buffer's values, where that is one of blocks, too.
std::string held_in(const Buffer& b) {
  return b.quantization && b.quantization->blocks ? std::string(traits(*b.quantization->blocks).name)
                                                  : format_name(b);
}

/// The format of a factor: what the policy calls it, or what it is stored in under scales.
std::string factor_text(const Program& p, const Operand& o) {
  const Buffer& b = p.buffer(o.buffer);
  return b.quantization ? held_in(b) : std::string(o.factors);
}

/// "bf16x3"; of two formats both: "e5m2·e4m3".
std::string multiplied_name(const Program& p, const Step& s) {
  const std::string factors = factor_format(s);
  if (factors.empty()) return kNoFormat;
  std::vector<std::string> formats;  // of what it reads as factors
  for (const Operand& o : s.inputs) {
    if (!o.factors.empty()) formats.push_back(factor_text(p, o));
  }
  if (formats.size() != 2) return factors;
  return formats[0] == formats[1] ? formats[0] : fmt::format("{}·{}", formats[0], formats[1]);
}

/// True where the step computes nothing.
bool moves_only(const Step& s) {
  return s.op->kind == graph::OpKind::move || s.op->kind == graph::OpKind::lookup;
}

PlanRow row_of(const Program& p, const Step& s) {
  PlanRow r;
  r.scope = s.scope;
  r.op = std::string(s.op->op);
  r.pass = precision::name(pass_of(s.phase));
  r.stored = format_name(main_input(p, s));
  r.multiplied = multiplied_name(p, s);
  r.accumulated = moves_only(s) ? kNoFormat : accumulator_name(p, s);
  r.output = s.outputs.empty() ? kNoFormat : format_name(p.buffer(s.outputs.front()));
  if (s.addend != kNoBuffer && s.rounded != p.arithmetic) r.rounded = std::string(name(s.rounded));
  r.decided_by = s.decided_by;
  r.kernel = kernel_of(p, s);
  r.recomputed = s.recomputed;
  r.flops = s.flops;
  r.bytes = s.bytes;
  return r;
}

/// The inside of an op, such as softmax, which no preset lowers.
PlanRow interior_row(const Program& p, const Step& s) {
  const precision::Use use = interior_use(s.scope, s.op->interior, s.phase);
  const std::string_view compute = "compute";
  PlanRow r = row_of(p, s);
  r.op = s.op->interior;
  r.stored = kNoFormat;
  r.multiplied = kNoFormat;
  r.accumulated = std::string(name(p.arithmetic));
  r.output = std::string(name(s.interior));
  r.rounded.clear();
  r.decided_by = p.policy.matching_rules(use).empty() ? "built-in" : p.policy.decided_by(use, {&compute, 1});
  r.kernel = fmt::format("inside {}", s.op->id);
  r.flops = r.bytes = 0;
  return r;
}

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

/// Words that are each said once: "bf16+f32".
class Words {
 public:
  void add(std::string_view word) {
    if (std::ranges::find(all_, word) == all_.end()) all_.emplace_back(word);
  }
  bool empty() const { return all_.empty(); }
  std::string text() const { return fmt::format("{}", fmt::join(all_, "+")); }

 private:
  std::vector<std::string> all_;
};

/// A row of the update: what some tensors of all parameters are stored in.
class UpdateRow {
 public:
  UpdateRow(const Program& p, const char* op) : p_(p) {
    row_.scope = "optimizer";
    row_.op = op;
    row_.pass = "update";
    row_.multiplied = kNoFormat;
  }
  /// Of the parameter `s`: stored and written in `type`, which one of `fields` decided.
  void add(const Slot& s, Scalar type, std::span<const std::string_view> fields) {
    stored_.add(name(type));
    written_.add(name(type));
    arithmetic_.add(name(s.arithmetic));
    by_.add(p_.policy.decided_by({s.name, "update", precision::Pass::update}, fields));
  }
  void add_copy(Scalar type) { written_.add(name(type)); }
  bool empty() const { return stored_.empty(); }
  PlanRow made(std::string kernel) {
    row_.stored = stored_.text();
    row_.accumulated = arithmetic_.text();
    row_.output = written_.text();
    row_.decided_by = by_.text();
    row_.kernel = std::move(kernel);
    return row_;
  }

 private:
  const Program& p_;
  PlanRow row_;
  Words stored_, written_, arithmetic_, by_;
};

/// The sweep's rows: masters and copies, moments, and what updates lose where that is kept.
std::vector<PlanRow> optimizer_rows(const Program& p) {
  UpdateRow masters(p, "adamw"), moments(p, "moments"), compensations(p, "kahan");
  std::string narrow;  // how what is below the arithmetic is rounded
  for (const Slot& s : p.slots) {
    std::vector<std::string_view> of_masters = {"params", "rounding"};
    if (s.arithmetic != p.arithmetic) of_masters.emplace_back("compute");
    masters.add(s, s.master, of_masters);
    moments.add(s, s.moments, std::array<std::string_view, 2>{"optimizer", "rounding"});
    if (s.compensated) compensations.add(s, s.master, std::array<std::string_view, 1>{"kahan"});
    const bool rounds = !holds(s.master, p.arithmetic) || !holds(s.moments, p.arithmetic);
    if (rounds && narrow.find(rounding_text(s.rounding)) == std::string::npos)
      narrow += fmt::format("{}{}", narrow.empty() ? "; what is below f32 rounded " : ", or ",
                            rounding_text(s.rounding));
  }
  for (const Slot& s : p.slots) {
    for (const BufferId c : s.copies) masters.add_copy(p.buffer(c).type);
  }
  std::vector<PlanRow> rows = {masters.made("one sweep: clip, update, copy" + narrow),
                               moments.made("in the same sweep")};
  if (!compensations.empty())
    rows.push_back(compensations.made("in the same sweep: what the update lost in rounding the master"));
  return rows;
}

}  // namespace

std::string use_text(const Step& s) {
  return fmt::format("{} {} ({})", s.scope, s.op->op, s.decided_by);
}

bool rounds_sums(const Step& s) {
  return (s.op->kind == graph::OpKind::product || s.op->kind == graph::OpKind::head) &&
         s.accumulator.rounds();
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
      if (in.quantization && in.quantization->blocks) add(held_in(in), true, use_text(s));
    }
  }
  if (p.shards > 1) add(std::string(name(p.reduce)), false, "sums of gradients over shards");
  for (const Step& s : p.steps) {
    if (s.rounded != p.arithmetic) add(std::string(name(s.rounded)), false, use_text(s));
    for (const Operand& o : s.inputs) {
      if (!p.buffer(o.buffer).integer) add(format_name(p.buffer(o.buffer)), false, use_text(s));
    }
    for (const BufferId o : s.outputs) {
      if (!p.buffer(o).integer) add(format_name(p.buffer(o)), false, use_text(s));
    }
  }
  for (const Slot& s : p.slots) {
    if (s.gradient == kNoBuffer) continue;
    add(std::string(name(s.master)), false, s.name + " master");
    add(std::string(name(s.moments)), false, s.name + " moments");
  }
  return uses;
}

std::vector<PlanRow> plan_rows(const Program& p) {
  std::vector<PlanRow> rows;
  for (const Step& s : p.steps) {
    rows.push_back(row_of(p, s));
    if (!s.op->interior.empty()) rows.push_back(interior_row(p, s));
  }
  const bool trains =
      std::any_of(p.slots.begin(), p.slots.end(), [](const Slot& s) { return s.gradient != kNoBuffer; });
  if (trains) {
    for (PlanRow& row : optimizer_rows(p)) rows.push_back(std::move(row));
  }
  return rows;
}

CastsLeft casts_left(const Program& p) {
  CastsLeft left;
  for (const Step& s : p.steps) {
    if (s.op->part != graph::Part::conversion) continue;
    ++left.count;
    left.bytes += s.bytes;
  }
  return left;
}

}  // namespace mantissa::plan
