// The rounding points of a program: every place where a value may lose bits, each with a name. `explain`
// lists them, and observers count them (engine/runtime/observer.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "mantissa/engine/plan/program.h"

namespace mantissa::plan {

/// The kinds of places where a program rounds.
enum class RoundingKind : std::uint8_t {
  weight,       // a copy of a weight in a lower format, at the first step that reads it
  factor,       // an operand that its product rounds while it reads it
  term,         // the result of a product that is rounded before the kernel adds it to a sum
  sum,          // that sum, if it is rounded too
  result,       // any other stored result: activations, gradients, masters, states of the optimizer
  made,         // factors that an op computes itself (OpDef::made_factors): P and dS of attention
  accumulator,  // partial sums of a product
  logits,       // logits of the head, rounded to the output format
  interior,     // intermediate results of an op (OpDef::interior), or of a pass of the optimizer
  normalized,   // what RMSNorm multiplies by its gain, or a gradient by it (policy field norm_cast)
  inside,       // results between the operations of a fused step
  reduce,       // sums of a weight's gradient over the shards of a batch
};

/// Returns the word for a kind in `explain --json` ("partial sums").
std::string_view name(RoundingKind kind);

/// True if the point lies inside a step: what it loses is measured in the step's results.
constexpr bool is_inside_step(RoundingKind kind) {
  return kind == RoundingKind::made || kind == RoundingKind::accumulator || kind == RoundingKind::logits ||
         kind == RoundingKind::interior || kind == RoundingKind::normalized || kind == RoundingKind::inside;
}

struct RoundingPoint {
  RoundingKind kind = RoundingKind::result;
  const Step* step = nullptr;  // null for `reduce`
  std::int32_t slot = -1;      // of `reduce`: the weight
  std::size_t index = 0;       // of the operand or result; 0 for points inside a step
  Factor format = Scalar::f32;
  std::optional<BlockFormat> blocks = {};    // it is rounded to blocks, whose elements `format` represents
  WeightFormat served = WeightFormat::none;  // of a weight: it is rounded to this format first
  StateCodes codes = StateCodes::none;       // of a state of the optimizer: it is rounded to these, in blocks
  std::string name = {};             // of the value at its step: "weight", "q", "P and dS", "partial sums"
  std::string_view unobserved = {};  // why no observer counts it, or ""

  /// Returns the scope of the step, or the weight.
  std::string scope(const Program& program) const;
  /// Returns the op, or "reduce".
  std::string_view op() const;
  std::string_view pass() const;
  std::string decided_by(const Program& program) const;
  /// Returns the name of the format: "bf16", "mxfp4", "bf16x3", "q4_0", "q4_0>bf16", "dynamic8-256"; of
  /// partial sums also that of the card: "h100".
  std::string format_name() const;
};

/// Returns the rounding points of a program's steps and of its sums over shards, in the order of the steps.
/// Those of its update are the points of Program::update. Valid as long as the program.
std::vector<RoundingPoint> rounding_points(const Program& program);

/// A rounding point for display.
struct RoundingRow {
  std::string scope, op, pass, kind, name, format, decided_by;
  std::string unobserved;  // why no observer counts it, or ""
};

/// Returns the rounding points of a program and of its update.
std::vector<RoundingRow> rounding_rows(const Program& program);

/// Returns one line about them: "at 144 points: weight 45, result 60, …".
std::string rounding_text(const std::vector<RoundingRow>& rows);

/// Returns the name of result `output` of a step among its results: "q", "grad.weight"; "" for the only one.
std::string result_name(const Program& program, const Step& step, std::size_t output);

}  // namespace mantissa::plan
